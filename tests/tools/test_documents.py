"""What the README says is there: its tree of files, facts and tests of its table of details, settings and modules of its commands."""
import re
import shlex
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

import benchmarks.finetuning
import benchmarks.loader
import benchmarks.preprocessing
import benchmarks.pretraining
import finetune
import pretrain
from _utils.config import complete
from _utils.glue.config import complete_finetuning
from _utils.glue.results import summarize
from _utils.glue.runs import read_scores
from _utils.glue.tasks import AVERAGED_TASKS, PUBLISHED
from _utils.run_files.run_log import read_metrics
from benchmarks.report import parse


def test_every_module_stands_in_the_tree_and_every_file_of_the_tree_is_there(repo):
    tree = re.search(r"## Files\n\n```\n(.*?)```", (repo / "README.md").read_text(), re.S)[1]
    modules = {path.name for path in (repo / "_utils").glob("*.py") if path.name != "__init__.py"}
    assert set(re.findall(r"^  (\w+\.py) ", tree, re.M)) == modules
    for name in re.findall(r"^(\S+)", tree, re.M):
        assert (repo / name).exists(), name


def test_no_placeholder_is_left(repo):
    assert not re.search(r"@\w+@", (repo / "README.md").read_text())


def test_every_detail_that_is_followed_names_facts_and_tests_that_are_there(repo):
    section = re.search(r"## What we follow\n(.*?)\n## ", (repo / "README.md").read_text(), re.S)[1]
    lines = [line for line in section.split("\n") if line.startswith("| ") and "**" not in line]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    explained = (repo / "tests/golden/README.md").read_text()
    spans = [(kind, int(first), int(last or first)) for kind, first, last in re.findall(r"\b([FD])(\d+)(?:-[FD](\d+))?", explained)]
    for detail, google, theirs, here, facts, tests in rows[1:]:
        assert google and theirs and here, detail
        assert re.fullmatch(r"[FD]\d+(, [FD]\d+)*", facts), detail
        for fact in facts.split(", "):
            assert any(kind == fact[0] and first <= int(fact[1:]) <= last for kind, first, last in spans), fact
        named = re.findall(r"`(test_\w+\.py)`", tests)
        assert named and all((repo / "tests" / name).exists() for name in named), detail
        needs_texts = "test_golden_examples.py" in named or detail in ("encoding", "MRPC, STS-B in both orders")
        assert needs_texts == ("*" in tests), detail
    assert len(rows) > 40


PLACEHOLDERS = {"PATH": "text", "NAME.pth": "model.pth", "...": "model.pth"}


def commands(repo):
    """Every command of the README: lines of its bash blocks, and code in the text that begins like one."""
    readme = (repo / "README.md").read_text()
    lines = [line for block in re.findall(r"```bash\n(.*?)```", readme, re.S) for line in block.splitlines()]
    lines += re.findall(r"`((?:python|accelerate|tensorboard|jupyter) [^`\n]*)`", readme)
    return sorted({command.strip() for line in lines for command in line.split("&&") if command.strip()})


@pytest.fixture
def a_place_with_files(tmp_path, monkeypatch, small_tokenizer):
    """A working directory in which the placeholders of the README's commands are there."""
    monkeypatch.chdir(tmp_path)
    words = small_tokenizer.get_vocab()
    for folder in ("text", "pair/generator", "pair/discriminator"):
        Path(folder).mkdir(parents=True)
    for path in (Path("text/vocab.txt"), Path("../shared/data/vocab.txt")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(sorted(words, key=words.get)))


def test_every_setting_in_a_command_of_the_readme_is_taken(repo, a_place_with_files):
    taken = {"pretrain.py": lambda arguments: complete(pretrain.c.override(arguments)),
             "finetune.py": lambda arguments: complete_finetuning(finetune.c.override(arguments)),
             **{f"benchmarks.{name}": partial(parse, defaults=module.DEFAULTS, rules=module.RULES)
                for name, module in (("finetuning", benchmarks.finetuning), ("loader", benchmarks.loader),
                                     ("preprocessing", benchmarks.preprocessing), ("pretraining", benchmarks.pretraining))}}
    seen = Counter()
    for command in commands(repo):
        words = shlex.split(command)
        program = next((word for word in words if word in taken), None)
        if program:
            arguments = words[words.index(program) + 1:]
            for placeholder, there in PLACEHOLDERS.items():
                arguments = [argument.replace(placeholder, there) for argument in arguments if argument != "..."]
            taken[program](arguments)
            seen[program] += 1
    assert seen["pretrain.py"] > 12 and seen["finetune.py"] > 10 and len(seen) == 6


def test_every_module_and_marked_test_in_a_command_of_the_readme_is_there(repo):
    for command in commands(repo):
        for module in re.findall(r"-m ((?:_utils|benchmarks)\.\w+)", command):
            assert (repo / (module.replace(".", "/") + ".py")).exists(), command
        for words in re.findall(r"pytest .*-k (\w+)", command):
            named = [path.stem for path in (repo / "tests").glob("test_*.py")]
            functions = [line for path in (repo / "tests").glob("test_*.py") for line in path.read_text().splitlines()
                         if line.startswith("def test_")]
            assert any(words in name for name in [*named, *functions]), command


def test_every_picture_and_section_that_is_linked_is_there(repo):
    readme = (repo / "README.md").read_text()
    headings = {re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in readme.splitlines() if line.startswith("#")}
    links = [link for link in re.findall(r"\]\(([^)]+)\)", readme) if not link.startswith("https://")]
    assert len(links) > 6
    for link in links:
        assert link[1:] in headings if link.startswith("#") else (repo / link).exists(), link


def rows_below(readme, heading):
    """{first cell: the other cells} of the first table below a heading."""
    table = re.search(rf"### {heading}\n.*?\n(\|.*?)\n\n", readme, re.S)[1]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n")]
    return {first: others for first, *others in cells}


def test_the_published_numbers_are_those_that_the_reports_show(repo):
    rows = rows_below((repo / "README.md").read_text(), "What was published, and ours")
    for name, scores in PUBLISHED.items():
        assert [float(cell) for cell in rows[name.strip()][:8]] == [scores[task] for task in AVERAGED_TASKS]


def test_the_first_result_is_that_of_its_raw_scores(repo):
    """Mean, and standard deviation, of each task and system, and the mean of the means."""
    results = repo / "benchmarks/results/mini"
    rows = rows_below((repo / "README.md").read_text(), "A first result, on two cores")
    scores = read_scores(results / "scores.jsonl")
    for system, group in {"ELECTRA": "electra", "masked language model": "mlm", "untrained": "untrained"}.items():
        summary = summarize(scores, f"{group}_11081_100.0%")
        assert list(summary.index) == ["CoLA", "SST-2", "MRPC", "STS-B", "RTE"] and set(summary["runs"]) == {3}
        told = [f"{line['mean']:.1f} ({line['std']:.1f})" for _, line in summary.iterrows()]
        assert rows[system][1:] == [*told, f"{summary['mean'].mean():.1f}"], system
    for system, group in {"ELECTRA": "electra", "masked language model": "mlm"}.items():
        *_, last = read_metrics(results / f"{group}_metrics.jsonl", "held_out")
        assert f"loss {last['gen_loss']:.2f}" in rows[system][0], system


def test_the_steps_of_equal_compute_are_those_of_the_readmes_lines(repo, capsys):
    readme = (repo / "README.md").read_text()
    [lines] = [block for block in re.findall(r"```python\n(.*?)```", readme, re.S) if "steps_of_equal_compute" in block]
    exec(lines, {})
    assert f"objective=mlm electra_mask_style=False steps={capsys.readouterr().out.strip()} " in readme
