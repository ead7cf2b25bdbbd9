"""The layout of the library: imports point downwards, packages only export names, files stay short."""
import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text())
           for path in sorted(ROOT.glob("_utils/**/*.py"))}
# Modules and packages of _utils, lowest first. Each line may import from the lines above it, also inside functions.
FLOORS = [line.split() for line in """
    errors loggers progress schedules seeds
    files hub names optim
    recipes
    runs
    text plots
    networks
    objectives
    keys
    config
    training
    tasks
    finetuning
    custom
    commands __main__
""".strip().split("\n")]


def imports_in(statements):
    """The names of the modules that statements import; of `from package import name` both."""
    for node in statements:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def floor_of(module):
    """The number of the floor of a module of _utils; None: _utils itself, and modules of others."""
    root, *parts = module.split(".")
    if root != "_utils" or not parts or parts == ["__init__"]:
        return None
    return next(i for i, names in enumerate(FLOORS) if parts[0] in names)


def package_of(module):
    return module.split(".")[1]


def test_every_module_has_a_floor():
    listed = {name for names in FLOORS for name in names}
    assert {package_of(module) for module in MODULES} - {"__init__"} == listed


def test_imports_point_downwards():
    upwards = []
    for module, tree in MODULES.items():
        for imported in imports_in(ast.walk(tree)):
            known = imported in MODULES or f"{imported}.__init__" in MODULES
            if known and floor_of(imported) is not None and package_of(imported) != package_of(module):
                if floor_of(imported) >= floor_of(module):
                    upwards.append(f"{module} imports {imported}")
    assert not upwards


def test_only_commands_and_one_line_import_custom_tasks():
    """GLUE does not need them."""
    importing = [path for path in [*ROOT.glob("_utils/**/*.py"), *ROOT.glob("*.py")]
                 for line in path.read_text().splitlines() if re.search(r"(from|import).*_utils\.custom", line)]
    others = [path for path in importing if path.parent.name not in ("custom", "commands")]
    assert others == [ROOT / "_utils/finetuning/config.py"]


def test_no_module_imports_itself_through_others():
    graph = {}
    for module, tree in MODULES.items():
        found = set(imports_in(tree.body))
        graph[module] = {name for imported in found for name in (imported, f"{imported}.__init__") if name in MODULES}
    list(TopologicalSorter(graph).static_order())  # raises CycleError


def test_the_library_does_not_import_what_uses_it():
    users = {"pretrain", "finetune", "benchmarks", "tests"}
    for module, tree in MODULES.items():
        assert not users & {name.split(".")[0] for name in imports_in(tree.body)}, module


def test_packages_only_export_names():
    """_utils itself sets how threads wait, before PyTorch is imported."""
    for module, tree in MODULES.items():
        if module.endswith(".__init__") and module != "_utils.__init__":
            docstring, *others = tree.body
            assert isinstance(docstring, ast.Expr) and all(isinstance(one, ast.ImportFrom) for one in others), module


def test_files_have_at_most_400_lines():
    long = {str(path): n for path in ROOT.glob("_utils/**/*.py") if (n := len(path.read_text().splitlines())) > 400}
    assert not long
