"""The definitions of a notebook that a run uses, to notice that they changed between two starts of the run."""
import dis
import inspect
import sys
import textwrap
from types import FunctionType

from _utils.files import content_key

PLAIN = (str, int, float, bool, type(None))


def definitions_of(function):
    """{name: hash} of a function of a script or notebook and of all definitions there that it uses, also indirectly.

    They are functions, classes and tables of plain values, with the source that runs: in a notebook that of the cells
    as they were last executed. What is imported does not count.
    """
    module, found, names = function.__globals__, {}, [function.__name__]
    while names:
        name = names.pop()
        if name in found or name not in module:
            continue
        value = module[name]
        if is_defined_in(value, module):
            functions = functions_in(value)
            found[name] = content_key([source_of(one) for one in functions])
            names += [used for one in functions for used in names_in(one.__code__)]
            names += [base.__name__ for base in getattr(value, "__bases__", ()) if is_defined_in(base, module)]
        elif isinstance(value, dict) and not is_imported(name, value):
            leaves = list(leaves_of(value))
            found[name] = content_key([leaf for leaf in leaves if isinstance(leaf, PLAIN)])
            names += [leaf.__name__ for leaf in leaves if is_defined_in(leaf, module)]
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
        return [inspect.unwrap(definition)]
    members = [getattr(member, "__func__", getattr(member, "fget", member)) for member in vars(definition).values()]
    return [inspect.unwrap(member) for member in members if isinstance(member, FunctionType)]


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
    """The keys and values of nested dictionaries, tuples and lists."""
    if isinstance(value, dict):
        value = [part for item in value.items() for part in item]
    if not isinstance(value, (tuple, list)):
        yield value
        return
    for part in value:
        yield from leaves_of(part)
