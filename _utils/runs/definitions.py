"""The definitions of a notebook that a run uses, to notice that they changed between two starts of the run."""
import dis
import inspect
import sys
import textwrap
from functools import partial
from types import FunctionType

from _utils.files import content_key

PLAIN = (str, int, float, bool, type(None))


def definitions_of(definition):
    """{name: hash} of a function or class of a script or notebook and of all definitions there that it uses, also
    indirectly.

    They are functions and classes, with the source that runs (in a notebook that of the cells as they were last
    executed), and plain values as they are now, also in tables, attributes of classes and default arguments. Functions
    and classes that are imported do not count, nor what is imported from _utils.
    """
    module = getattr(definition, "__globals__", None) or vars(sys.modules[definition.__module__])
    found, names = {}, [definition.__name__]
    while names:
        name = names.pop()
        if name in found or name not in module or name.startswith("__"):
            continue
        value = inspect.unwrap(module[name])
        if is_defined_in(value, module):
            functions = functions_in(value)
            defaults = [default for one in functions for default in (one.__defaults__, one.__kwdefaults__) if default]
            attributes = [attributes_of(value), *defaults]
            names += [used for one in functions for used in names_in(one.__code__)]
            names += [base.__name__ for base in getattr(value, "__bases__", ()) if is_defined_in(base, module)]
        elif isinstance(value, (dict, list, tuple, set, frozenset, partial, *PLAIN)) and not is_imported(name, value):
            functions, attributes = [], value
        else:
            continue
        leaves = list(leaves_of(attributes))
        names += [leaf.__name__ for leaf in leaves if is_defined_in(leaf, module)]
        found[name] = content_key([*map(source_of, functions), *map(text_of, leaves)])
    return found


def changed_definitions(before, now):
    """The names whose hashes differ between two results of `definitions_of`, sorted."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def is_defined_in(value, module):
    """Whether a value is a function or a class that was defined in a module, given by its dictionary."""
    return isinstance(value, (FunctionType, type)) and value.__module__ == module["__name__"]


def is_imported(name, value):
    """Whether a value with this name comes from a module of _utils."""
    modules = [module for path, module in sys.modules.items() if path.startswith("_utils")]
    return any(vars(module).get(name) is value for module in modules)


def functions_in(definition):
    """A function itself, or the functions of a class."""
    if isinstance(definition, FunctionType):
        return [definition]
    members = [getattr(member, "__func__", getattr(member, "fget", member)) for member in vars(definition).values()]
    return [inspect.unwrap(member) for member in members if isinstance(member, FunctionType)]


def attributes_of(definition):
    """{name: value} of the attributes of a class that are not its functions; empty for a function."""
    own = vars(definition) if isinstance(definition, type) else {}
    return {name: value for name, value in own.items()
            if not name.startswith("__") and not isinstance(value, FunctionType)}


def text_of(leaf):
    """A plain value, or the name of a function or a class, as a string; of other objects the name of their class."""
    if isinstance(leaf, PLAIN):
        return repr(leaf)
    return leaf.__qualname__ if isinstance(leaf, (FunctionType, type)) else type(leaf).__qualname__


def source_of(function):
    """The source of a function without its indentation; "" if it has none, as methods that NamedTuple makes."""
    try:
        return textwrap.dedent(inspect.getsource(function)).strip()
    except (OSError, TypeError):
        return ""


def names_in(code):
    """The global names that a code object uses, also in the functions inside it."""
    names = [step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"]
    inner = [constant for constant in code.co_consts if inspect.iscode(constant)]
    return names + [name for one in inner for name in names_in(one)]


def leaves_of(value):
    """The keys and values of nested dictionaries, tuples, lists and sets, and what partial functions have."""
    if isinstance(value, dict):
        value = [part for item in value.items() for part in item]
    elif isinstance(value, partial):
        value = [value.func, value.args, value.keywords]
    elif isinstance(value, (set, frozenset)):
        value = sorted(value, key=repr)
    if not isinstance(value, (tuple, list)):
        yield value
        return
    for part in value:
        yield from leaves_of(part)
