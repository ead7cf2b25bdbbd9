"""README and docs/: commands, settings, files, functions, tests, links and facts that they name exist and are correct.
"""
import importlib
import importlib.util
import json
import re
import shlex
import tomllib
from collections import Counter
from functools import partial
from pathlib import Path

import nbformat
import pytest
from documents import REPO, read
from tokenizer_kinds import tokens_by_id

import finetune
import pretrain
from _utils.__main__ import Parser
from _utils.config import complete
from _utils.finetuning.config import complete_finetuning
from benchmarks.report import parse

DOCUMENTS = [
    *(REPO / folder / "README.md" for folder in (".", "benchmarks", "tests/golden")),
    *sorted((REPO / "docs").glob("*.md")),
]
SOURCES = [
    *REPO.glob("*.py"),
    *(path for folder in ("_utils", "benchmarks", "tests") for path in (REPO / folder).rglob("*.py")),
]
TESTS = [path for path in SOURCES if path.name.startswith("test_")]
PLACEHOLDERS = {"PATH": "text", "NAME.pth": "model.pth", "...": "model.pth", "generator_11081_100.0%.pth": "pair",
                "benchmarks/results/mini/model": "pair"}


def without_blocks(path):
    """The text of a document without its blocks of code."""
    return re.sub(r"^```.*?^```", "", read(path), flags=re.S | re.M)


def anchors(path):
    """Anchors of the headings, as GitHub builds them."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(path), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


# Commands

def commands():
    """Every command in the documents: lines of bash blocks, and inline code that begins like one."""
    lines = []
    for text in map(read, DOCUMENTS):
        text = text.replace("\\\n", " ")
        lines += [line for block in re.findall(r"```bash\n(.*?)```", text, re.S) for line in block.splitlines()]
        lines += re.findall(r"`((?:python|torchrun|tensorboard|jupyter) [^`\n]*)`", text)
    return sorted({command.strip() for line in lines for command in line.split("&&") if command.strip()})


@pytest.fixture
def folder_with_placeholders(tmp_path, monkeypatch, small_tokenizer):
    """A working directory in which the paths used in the documents exist."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for folder in ("text", "pair/generator", "pair/discriminator", "../shared/data"):
        Path(folder).mkdir(parents=True)
    for path in ("vocab.txt", "../shared/data/vocab.txt"):
        Path(path).write_text("\n".join(tokens_by_id(small_tokenizer)))


def test_settings_in_commands_are_accepted(folder_with_placeholders):
    accept = {
        "pretrain.py": lambda arguments: complete(pretrain.c.override(arguments)),
        "finetune.py": lambda arguments: complete_finetuning(finetune.c.override(arguments)),
        "_utils": lambda arguments: Parser(arguments[0]).parse_intermixed_args(arguments[1:]),
    }
    for program in ("benchmarks.finetuning", "benchmarks.gpu", "benchmarks.loader", "benchmarks.preprocessing",
                    "benchmarks.pretraining", "benchmarks/speedrun.sh"):
        module = importlib.import_module(program.removesuffix(".sh").replace("/", "."))
        accept[program] = partial(parse, defaults=module.DEFAULTS, types=module.TYPES)
    seen = Counter()
    for command in commands():
        parts = [part for part in shlex.split(command.partition(" > ")[0]) if part not in ("...", "--help")]
        program = next((part for part in parts if part in accept), None)
        arguments = "\n".join(parts[parts.index(program) + 1:]) if program else ""
        for placeholder, existing in PLACEHOLDERS.items():
            arguments = arguments.replace(placeholder, existing)
        if arguments:
            accept[program](arguments.split("\n"))
            seen[program] += 1
    assert seen.keys() == accept.keys() and min(seen[name] for name in ("pretrain.py", "finetune.py", "_utils")) > 10


def test_modules_and_tests_in_commands_exist():
    modules = {match for command in commands() for match in re.findall(r"-m (benchmarks\.\w+)", command)}
    assert modules and all(importlib.util.find_spec(module) for module in modules), modules
    tests = " ".join(name for path in TESTS for name in [path.stem, *re.findall(r"^def (test_\w+)", read(path), re.M)])
    markers = " ".join(tomllib.loads(read(REPO / "pyproject.toml"))["tool"]["pytest"]["ini_options"]["markers"])
    for command in filter(re.compile("pytest").search, commands()):
        assert all(word in tests for word in re.findall(r"-k (\w+)", command)), command
        assert all(f"{word}:" in markers for word in re.findall(r"pytest -m (\w+)", command)), command


# Files, functions, links


def test_the_first_example_of_the_readme_marks_the_word_that_it_names(capsys, monkeypatch):
    monkeypatch.chdir(REPO)
    example = re.search(r"```python\n(.*?)```", read(REPO / "README.md"), re.S)[1]
    exec(example, {})
    assert re.findall(r"(\w+) \d+%", capsys.readouterr().out) == re.findall(r"# (\w+) \d+%", example)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_and_functions_exist(path):
    """`file: name` and `package: name` in inline code, paths of Python files, and files of tests."""
    code = re.findall(r"`([^`\n]+)`", without_blocks(path))
    for file in (word for word in code if re.fullmatch(r"(_utils|tests|benchmarks)/[\w/.]+\.py", word)):
        assert (REPO / file).exists(), file
    assert set(re.findall(r"test_\w+\.py", " ".join(code))) <= {test.name for test in TESTS}
    reference = re.compile(r"((?:_utils/|benchmarks/)?[\w/]+?)(?:\.py)?: (\w+)")
    for module, name in (match.groups() for word in code if (match := reference.fullmatch(word))):
        if module.startswith(("_utils", "benchmarks")) or module in ("pretrain", "finetune"):
            assert hasattr(importlib.import_module(module.replace("/", ".")), name), (module, name)


@pytest.mark.parametrize("path", [*DOCUMENTS, *REPO.glob("*.ipynb")], ids=lambda path: path.name)
def test_links_and_anchors_resolve(path):
    text = read(path)
    if path.suffix == ".ipynb":
        cells = nbformat.reads(text, as_version=4).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if not link.startswith(("https://", "../../actions/")):  # the latter are pages of GitHub
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def test_the_version_is_that_of_the_changelog():
    [cited] = re.findall(r"^version: (\S+)$", read(REPO / "CITATION.cff"), re.M)
    [packaged] = re.findall(r'^version = "(\S+)"$', read(REPO / "pyproject.toml"), re.M)
    assert cited == packaged == re.search(r"^## ([\d.]+\d)", read("CHANGELOG.md"), re.M)[1]


# Facts

def known_facts():
    return set(re.findall(r"^- \*\*([FD]\d+)\*\* ", read("facts.md"), re.M))


def cited_facts(text):
    """F12, D3 and ranges such as F7-F12."""
    for kind, first, last in re.findall(r"\b([FD])(\d+)(?:-[FD]?(\d+))?(?![\w.])", text):
        yield from (f"{kind}{number}" for number in range(int(first), int(last or first) + 1))


def test_every_cited_fact_is_defined():
    known, found = known_facts(), set()
    cells = [cell for path in REPO.glob("*.ipynb") for cell in json.loads(read(path))["cells"]]
    texts = [*map(read, [*SOURCES, *DOCUMENTS]), *("".join(cell["source"]) for cell in cells)]
    for text in texts:
        text = re.sub(r"# noqa.*", "", text)
        found.update(cited_facts(text))
        assert set(re.findall(r"facts\.md#([\w-]+)", text)) <= anchors("facts.md"), text[:80]
    assert found and found <= known, found - known
