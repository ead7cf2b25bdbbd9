"""The definitions that a run uses: they change with the code of the real scripts, and are the same in a notebook."""
import importlib.util
import json
import re
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

from _utils.runs.definitions import changed_definitions, definitions_of

ENTRY = {"pretrain.py": "pretrain", "finetune.py": "run"}
NOTEBOOKS = {"Pretrain.ipynb": "pretrain.py", "Finetune_GLUE.ipynb": "finetune.py"}
both_scripts = pytest.mark.parametrize("script", ENTRY)


def imported(path, entry):
    """The definitions of a script's copy."""
    spec = importlib.util.spec_from_file_location(f"copy_{path.stem}_{path.parent.name}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return definitions_of(vars(module)[entry])


def edited(repo, folder, script, *edits):
    """The definitions of a script after edits (pattern, replacement), each of one place or more."""
    text = (repo / script).read_text()
    for pattern, replacement in edits:
        text, n = re.subn(pattern, replacement, text)
        assert n
    folder.mkdir()
    (folder / script).write_text(text)
    return imported(folder / script, ENTRY[script])


EDITS = {
    "ELECTRAModel": ("pretrain.py", r"generated != originals  #", "generated == originals  #"),
    "ELECTRALoss": ("pretrain.py", r"self.loss_weights\[1\] \* disc_loss", "disc_loss"),
    "sample": ("pretrain.py", r"/ temperature\n", "/ temperature / 2\n"),
    "MASK_STYLES": ("pretrain.py", r"True: \(0\., \.15\)", "True: (0., .16)"),
    "mask_tokens": ("pretrain.py", r"< mlm_probability\) & maskable", "> mlm_probability) & maskable"),
    "build_optimizer": ("pretrain.py", r"eps=1e-6", "eps=1e-8"),
    "PretrainingLearner": ("pretrain.py", r"self\.gradients\.flat\.zero_\(\)\n        return", "return"),
    "SentencePredictor": ("finetune.py", r"nn\.Dropout", "nn.AlphaDropout"),
    "get_layer_lrs": ("finetune.py", r"\*\* \(", "** (1 + "),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_definition_is_named(repo, tmp_path, name):
    script, *edit = EDITS[name]
    before, after = edited(repo, tmp_path / "before", script), edited(repo, tmp_path / "after", script, edit)
    assert changed_definitions(before, after) == [name]


@pytest.mark.parametrize("script, name, first, second, uses", [
    ("pretrain.py", "EXTRA", "EXTRA = 1.\n\n\nclass ELECTRALoss(", "EXTRA = 2.\n\n\nclass ELECTRALoss(",
     [(r"self\.loss_weights\[1\] \* disc_loss", "EXTRA * disc_loss"), (r"class ELECTRALoss\(", None)]),
    ("finetune.py", "STEPS", "(SummingLearner, float)", "(FinetuningLearner, float)",
     [(r"\(SummingLearner, float\)", None)]),
    ("finetune.py", "SentencePredictor", "    layer = nn.Linear\n    @static", "    layer = nn.Bilinear\n    @static",
     [(r"    @static", None)]),
    ("pretrain.py", "argmax_of", "argmax_of = partial(argmax)\n\n\ndef sample(",
     "argmax_of = partial(argmax, out=None)\n\n\ndef sample(",
     [(r"return argmax\(", "return argmax_of("), (r"def sample\(", None)]),
    ("pretrain.py", "NEVER", "NEVER = frozenset([1, 2])\n\n\ndef sample(", "NEVER = frozenset([2, 3])\n\n\ndef sample(",
     [(r"return argmax\(", "return NEVER and argmax("), (r"def sample\(", None)]),
    ("pretrain.py", "sample", "K = 2.\n\n\ndef sample(", "K = 3.\n\n\ndef sample(",
     [(r"temperature: float = 1\., disallowed", "temperature: float = K, disallowed"), (r"def sample\(", None)]),
])
def test_an_edited_value_is_named(repo, tmp_path, script, name, first, second, uses):
    """A constant, an imported class in a table, an attribute of a class, a partial function, a set, a default value."""
    before, after = (edited(repo, tmp_path / folder, script, *((pattern, to or text) for pattern, to in uses))
                     for folder, text in (("before", first), ("after", second)))
    assert changed_definitions(before, after) == [name]


@both_scripts
def test_values_in_the_first_cell_and_comments_between_definitions_do_not_count(repo, tmp_path, script):
    before = edited(repo, tmp_path / "before", script)
    after = edited(repo, tmp_path / "after", script, (r'(?m)^    "(seed|seeds)": [^,\n]*,', r'    "\1": 7,'),
                   (r"(?m)^# ##", "# another title\n# ##"))
    assert before == after and len(before) > 10


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_has_the_definitions_of_its_script_until_a_cell_is_edited(repo, tmp_path, monkeypatch, notebook):
    script = NOTEBOOKS[notebook]
    expected = edited(repo, tmp_path / "script", script)
    shell = InteractiveShell()
    monkeypatch.setitem(sys.modules, shell.user_module.__name__, shell.user_module)
    shell.user_ns["__name__"] = "notebook"  # nothing is run
    cells = json.loads((repo / notebook).read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells
               if cell["cell_type"] == "code" and "active-ipynb" not in cell["metadata"].get("tags", [])]
    for source in sources:
        assert shell.run_cell(source, store_history=True).success
    definitions = lambda: definitions_of(shell.user_ns[ENTRY[script]])
    assert definitions() == expected

    name = {"pretrain.py": "sample", "finetune.py": "get_layer_lrs"}[script]
    [source] = [source for source in sources if f"def {name}(" in source]
    shell.run_cell(source.replace("    return ", "    return 1 * "), store_history=True)
    assert name in changed_definitions(expected, definitions())
