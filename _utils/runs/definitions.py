"""The definitions of a notebook that a run uses, to notice that they changed between two starts of the run."""
import ast
import inspect
from pathlib import Path

from _utils.files import content_key


def definitions_of(function):
    """{name: hash} of a function of a script or notebook and of all definitions there that it uses, also indirectly.

    They are functions, classes and values, with the source that runs: in a notebook that of the cells as they were last
    executed. What is imported does not count, and neither do comments.
    """
    module, found, names = function.__globals__, {}, {function.__name__}
    cells = module.get("In") or [Path(inspect.getfile(function)).read_text(encoding="utf-8")]
    definitions = {name: node for cell in cells for name, node in definitions_in(cell).items()}
    # Another module may have replaced a function or class.
    is_here = lambda name: getattr(module.get(name), "__module__", None) == module["__name__"]
    while names:
        name = names.pop()
        if name in definitions and name not in found and (isinstance(definitions[name], ast.Assign) or is_here(name)):
            found[name] = content_key(ast.unparse(definitions[name]))
            names |= names_used_in(definitions[name])
    return found


def definitions_in(source):
    """{name: node of the syntax tree} of the definitions on the top level of a source; none if it has an error."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return {}
    found = {one.name: one for one in statements if isinstance(one, (ast.FunctionDef, ast.ClassDef))}
    assignments = [one for one in statements if isinstance(one, ast.Assign)]
    return found | {target.id: one for one in assignments for target in one.targets if isinstance(target, ast.Name)}


def names_used_in(definition):
    """The names in a definition that it does not define itself."""
    nodes = list(ast.walk(definition))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return {node.id for node in names} - arguments - {node.id for node in names if isinstance(node.ctx, ast.Store)}


def changed_definitions(before, now):
    """The names whose hashes differ between two results of `definitions_of`, sorted."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
