"""README and docs/: commands, settings, files, functions, tests, links, facts and numbers that they name exist and are correct."""
import ast
import importlib
import importlib.metadata
import json
import re
import shlex
import sys
import tomllib
from collections import Counter
from functools import cache, partial
from itertools import takewhile
from pathlib import Path

import pandas as pd
import pytest

import benchmarks.finetuning
import benchmarks.gpu
import benchmarks.gpu_run
import benchmarks.loader
import benchmarks.preprocessing
import benchmarks.pretraining
import finetune
import pretrain
from _utils.config import complete
from _utils.glue.config import complete_finetuning
from _utils.glue.runs import read_scores, score
from _utils.glue.tasks import AVERAGED_TASKS, PUBLISHED
from _utils.minimal_pairs.results import summarize
from _utils.run_files.run_log import read_metrics
from benchmarks.report import parse

REPO = Path(__file__).parents[2]
DOCUMENTS = [REPO / "README.md", REPO / "tests/golden/README.md", *sorted((REPO / "docs").glob("*.md"))]
SOURCES = [path for folder in ("_utils", "benchmarks", "tests") for path in (REPO / folder).rglob("*.py")]
SOURCES += [REPO / name for name in ("pretrain.py", "finetune.py")]
MINI = REPO / "benchmarks/results/mini"
PLACEHOLDERS = {"PATH": "text", "NAME.pth": "model.pth", "...": "model.pth"}
OPTIONAL_PACKAGES = {"wandb", "spacy"}


@cache
def read(document):
    """Text of a file, by its path or its name in docs/."""
    return (REPO / "docs" / document).read_text(encoding="utf-8")


def section(text, heading):
    """The lines below a heading, up to the next heading of any level."""
    return re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.S | re.M)[1]


def table(text):
    """[[cell, ...], ...] of the first table in a text, without its head."""
    rows = re.search(r"(^\|.*?)(?:\n\n|\Z)", text, re.S | re.M)[1].strip().split("\n")
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip("|"))] for row in rows[2:]]


def anchors(text):
    """Anchors of the headings, as GitHub builds them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


# Style

@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_lines_wrap_at_120_characters_and_no_placeholder_is_left(path):
    text = re.sub(r"^```.*?^```", "", read(path), flags=re.S | re.M)
    is_exempt = re.compile(r"\||\s*[-*]? ?(`[^`]+`|\[[^\]]+\]\([^)]+\))[,.:;]?$")  # tables, code and links alone
    assert [line for line in text.split("\n") if len(line) > 120 and not is_exempt.match(line)] == []
    assert not re.search(r"@\w+@|TODO|FIXME", text)


# Commands

def commands():
    """Every command in the documents: lines of bash blocks, and inline code that begins like one."""
    lines = []
    for text in map(read, DOCUMENTS):
        lines += [line for block in re.findall(r"```bash\n(.*?)```", text, re.S) for line in block.splitlines()]
        lines += re.findall(r"`((?:python|accelerate|torchrun|tensorboard|jupyter) [^`\n]*)`", text)
    return sorted({command.strip() for line in lines for command in line.split("&&") if command.strip()})


@pytest.fixture
def folder_with_placeholders(tmp_path, monkeypatch, small_tokenizer):
    """A working directory in which the paths used in the documents exist."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for folder in ("text", "pair/generator", "pair/discriminator"):
        Path(folder).mkdir(parents=True)
    vocab = small_tokenizer.get_vocab()
    for path in (Path("text/vocab.txt"), Path("../shared/data/vocab.txt")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(sorted(vocab, key=vocab.get)))


def test_settings_in_commands_are_accepted(folder_with_placeholders):
    accept = {"pretrain.py": lambda arguments: complete(pretrain.c.override(arguments)),
              "finetune.py": lambda arguments: complete_finetuning(finetune.c.override(arguments)),
              **{f"benchmarks.{name}": partial(parse, defaults=module.DEFAULTS, rules=module.RULES)
                 for name, module in (("finetuning", benchmarks.finetuning), ("loader", benchmarks.loader),
                                      ("preprocessing", benchmarks.preprocessing), ("pretraining", benchmarks.pretraining))},
              "benchmarks/gpu.sh": partial(parse, defaults=benchmarks.gpu.DEFAULTS, rules=benchmarks.gpu.rules()),
              "benchmarks/gpu_run.sh": partial(parse, defaults=benchmarks.gpu_run.DEFAULTS, rules=benchmarks.gpu_run.RULES)}
    seen = Counter()
    for command in commands():
        parts = shlex.split(command)
        program = next((part for part in parts if part in accept), None)
        if program:
            arguments = [argument for argument in parts[parts.index(program) + 1:] if argument != "..."]
            for placeholder, existing in PLACEHOLDERS.items():
                arguments = [argument.replace(placeholder, existing) for argument in arguments]
            accept[program](arguments)
            seen[program] += 1
    assert seen["pretrain.py"] > 12 and seen["finetune.py"] > 10 and len(seen) == 8


def test_modules_and_tests_in_commands_exist():
    modules = {match for command in commands() for match in re.findall(r"-m ((?:_utils|benchmarks)\.\w+)", command)}
    assert len(modules) > 8
    for module in modules:
        path = REPO / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module
    sources = {path.stem: path.read_text(encoding="utf-8") for path in (REPO / "tests").rglob("test_*.py")}
    names = [*sources, *(name for text in sources.values() for name in re.findall(r"^def (test_\w+)", text, re.M))]
    markers = tomllib.loads(read(REPO / "pyproject.toml"))["tool"]["pytest"]["ini_options"]["markers"]
    for command in commands():
        if "pytest" in command:
            assert all(any(word in name for name in names) for word in re.findall(r"-k (\w+)", command)), command
            assert all(any(marker.startswith(f"{word}:") for marker in markers)
                       for word in re.findall(r"pytest -m (\w+)", command)), command


# Files, functions, links

def test_layout_lists_every_module():
    [tree] = re.findall(r"```\n(_utils/\n.*?)```", read("development.md"), re.S)
    listed, folders = set(), []
    for line in tree.splitlines():
        indent, name = re.match(r"( *)(\S+)", line).groups()
        folders = folders[:len(indent) // 2]
        if name.endswith("/"):
            folders.append(name)
        else:
            listed.add("".join([*folders, name]))
    is_listed = lambda path: path.name != "__init__.py" or path.parent.name == "_utils"
    assert listed == {path.relative_to(REPO).as_posix() for path in (REPO / "_utils").rglob("*.py") if is_listed(path)}


def test_file_tree_of_the_readme_exists():
    tree = re.search(r"```\n(.*?)```", section(read(REPO / "README.md"), "Files"), re.S)[1]
    names = [name for line in tree.splitlines() for name in takewhile(lambda word: word[-1] == "/" or "." in word, line.split())]
    assert len(names) > 11 and all((REPO / name).exists() for name in names)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_and_functions_exist(path):
    """`file: name` and `package: name` in inline code, and paths of Python files."""
    text = re.sub(r"^```.*?^```", "", read(path), flags=re.S | re.M)
    code = re.findall(r"`([^`\n]+)`", text)
    for file in (word for word in code if re.fullmatch(r"(_utils|tests|benchmarks)/[\w/.]+\.py", word)):
        assert (REPO / file).exists(), file
    for module, name in (match.groups() for word in code if (match := re.fullmatch(r"((?:_utils/)?[\w/]+?)(?:\.py)?: (\w+)", word))):
        if module.startswith("_utils") or module in ("pretrain", "finetune"):
            assert hasattr(importlib.import_module(module.replace("/", ".")), name), (module, name)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_anchors_resolve(path):
    for link in re.findall(r"\]\(([^)]+)\)", read(path)):
        if not link.startswith("https://"):
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            assert target.exists(), link
            assert not anchor or anchor in anchors(read(target)), link


def test_every_page_is_linked_from_the_readme():
    readme = read(REPO / "README.md")
    assert [path.name for path in (REPO / "docs").glob("*.md") if f"(docs/{path.name})" not in readme] == []


# Facts

def known_facts():
    return set(re.findall(r"^- \*\*([FD]\d+)\*\* ", read("facts.md"), re.M))


def cited_facts(text):
    """F12, D3 and ranges such as F7-F12."""
    for kind, first, last in re.findall(r"\b([FD])(\d+)(?:-[FD]?(\d+))?(?![\w.])", text):
        yield from (f"{kind}{number}" for number in range(int(first), int(last or first) + 1))


def source_text(path):
    """Code of a file; of a notebook its cells without outputs."""
    text = path.read_text(encoding="utf-8")
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"]) if path.suffix == ".ipynb" else text


def test_every_cited_fact_is_defined():
    known = known_facts()
    assert {f"F{i}" for i in range(1, 52)} | {f"D{i}" for i in range(1, 18)} == known
    found = Counter()
    for path in [*SOURCES, *REPO.glob("*.ipynb"), *DOCUMENTS]:
        text = re.sub(r"# noqa.*", "", source_text(path))
        found.update(cited_facts(text))
        unknown = set(re.findall(r"facts\.md#([\w-]+)", text)) - anchors(read("facts.md"))
        assert not unknown and not re.search(r"\bFACTS \d", text), (path, unknown)
    assert set(found) <= known and len(found) > 50, set(found) - known


def test_details_name_facts_and_tests_that_exist():
    rows = [row for row in table(read("details.md")) if row[1]]
    tests = {path.name for path in (REPO / "tests").rglob("test_*.py")}
    for detail, google, electra_pytorch, here, facts, files in rows:
        assert google and electra_pytorch and here, detail
        assert re.fullmatch(r"[FD]\d+(, [FD]\d+)*", facts) and set(facts.split(", ")) <= known_facts(), detail
        named = re.findall(r"`(test_\w+\.py)`", files)
        assert named and set(named) <= tests, detail
        needs_texts = "test_golden_examples.py" in named or detail in ("encoding", "MRPC, STS-B in both orders")
        assert needs_texts == ("*" in files), detail
    assert len(rows) > 40


# Numbers

def rows_below(document, heading):
    """{first cell: the other cells} of the first table below a heading."""
    return {first: others for first, *others in table(section(read(document), heading))}


def test_published_scores_are_those_that_reports_show():
    rows = rows_below("results.md", "Published scores")
    for name, scores in PUBLISHED.items():
        assert [float(cell) for cell in rows[name.strip()][:8]] == [scores[task] for task in AVERAGED_TASKS]


def test_results_of_the_readme_are_those_of_the_results_page():
    rows = rows_below("results.md", "Published scores").values()
    own = rows_below(REPO / "README.md", "Results").values()
    assert len(own) == 4 and all(row in rows for row in own)


@pytest.mark.parametrize("line, pilot", enumerate([
    "p1_drop0_std02_bc", "p3_drop1_std02_bc", "p2_drop0_std02", "p4_sinusoidal_drop0_std02_bc", "r1_rotary_drop0_bc",
    "r2_rotary_warmup300", "r3_rotary_warmup300_lr5e4", "r4_rotary_warmup1000"]))
def test_losses_of_pilots_equal_their_raw_numbers(line, pilot):
    _, _, _, _, *losses, held_out = table(section(read("results.md"), "Pilots: the unigram plateau"))[line]
    train, found = metrics_of_pilot(pilot)
    assert losses == [f"{train[step]['gen_loss']:.2f}" if step in train else "" for step in (300, 450, 600, 900, 1125, 1875, 2550, 3000)]
    assert held_out == (f"{found[-1]['gen_loss']:.2f}" if found else "")


@pytest.mark.parametrize("line, pilot", enumerate(["e2_electra_rotary_drop0_bc", "e3_electra_rotary_warmup1000"]))
def test_pilots_of_electra_equal_their_raw_numbers(line, pilot):
    cells = table(section(read("results.md"), "Pilots: the unigram plateau").partition("The same for ELECTRA")[2])[line]
    train, found = metrics_of_pilot(pilot)
    rows = [*(train.get(step) for step in (450, 600, 900)), *(found or [None])]
    losses = [f"{row['gen_loss_hidden']:.2f}" if row else "" for row in rows]
    aucs = [f"{row['disc_auc']:.3f}".lstrip("0") if row else "" for row in rows]
    assert cells[4:] == losses + aucs


def metrics_of_pilot(pilot):
    """({step: training metrics}, held-out metrics)."""
    file = MINI / f"pilots/{pilot}/metrics.jsonl"
    return {row["step"]: row for row in read_metrics(file, "train")}, read_metrics(file, "held_out")


def test_curves_of_mini_equal_their_raw_numbers():
    runs = {system: [read_metrics(file, "held_out") for file in sorted(MINI.glob(f"{system}_*/metrics.jsonl"), reverse=True)]
            for system in ("electra", "mlm")}
    short = lambda number: f"{number:.3f}".lstrip("0")
    columns = [("electra", "gen_loss_hidden", "{:.2f}".format), ("electra", "gen_accuracy_hidden", short), ("electra", "disc_auc", short),
               ("electra", "disc_loss", short), ("mlm", "gen_loss_hidden", "{:.2f}".format), ("mlm", "gen_accuracy_hidden", short)]
    expected = [[", ".join(written(run[i][key]) for run in runs[system]) for system, key, written in columns] for i in range(5)]
    assert list(rows_below("results.md", "Pretraining").values()) == expected
    last = runs["electra"][0][-1]
    healthy = [others[-1].split(",")[0] for others in rows_below("results.md", "Is my run healthy?").values()]
    assert healthy == [f"{last['gen_loss']:.2f}", f"{last['gen_loss_hidden']:.2f}", short(last["gen_accuracy"]), short(last["disc_loss"]),
                       short(last["disc_auc"])]


def test_scores_of_the_learning_rates_equal_their_raw_numbers():
    found = {(row["group"], row["task"]): score(row) for row in read_scores(MINI / "scores.jsonl")}
    rows = table(section(read("results.md"), "Learning rates"))
    for (_, lr, *scores), system in zip(rows, ("electra", "electra", "mlm", "mlm"), strict=True):
        raw = [found[f"grid_{system}_11081_lr{float(lr)}", task] for task in ("cola", "stsb", "qnli", "mnli")]
        assert scores == [f"{number:.1f}" for number in (*raw, sum(raw) / 4)]


SYSTEMS = {"ELECTRA": "electra", "masked language model": "mlm", "not pretrained": "untrained"}


def test_chunking_scores_of_mini_equal_their_raw_numbers():
    rows = [row for row in read_scores(MINI / "scores.jsonl") if row["task"] == "chunking"]
    kind, system, seed = zip(*(row["group"].removeprefix("chunking_").split("_") for row in rows))
    f1 = pd.DataFrame({"kind": kind, "system": system, "seed": seed, "f1": [100 * row["scores"]["test"]["entity_f1"] for row in rows]})
    f1 = f1.pivot(index=["system", "seed"], columns="kind", values="f1")
    text = section(read("results.md"), "Chunking")
    shown = {(SYSTEMS[system], seed): scores for system, seed, *scores in table(text)}
    assert shown == {key: [f"{score:.1f}" for score in f1.loc[key]] for key in f1.index}
    mean, error = f1.groupby("system").mean(), f1.groupby("system").sem()
    gain, error = mean.loc["mlm"] - mean.loc["electra"], (error.loc["mlm"] ** 2 + error.loc["electra"] ** 2) ** .5
    assert re.findall(r"([\d.]+) ± ([\d.]+)", text) == [(f"{gain[kind]:.2f}", f"{error[kind]:.2f}") for kind in ("finetuned", "frozen")]
    pretrained = f1.drop("untrained")["finetuned"]
    assert f"reach {pretrained.min():.1f} to {pretrained.max():.1f}]" in read("own_tasks.md")


def test_accuracies_on_minimal_pairs_equal_their_raw_numbers():
    found = []
    for name in ("quickstart", "mini"):
        paradigms = pd.read_csv(REPO / f"benchmarks/results/minimal_pairs_{name}.csv", index_col=["field", "phenomenon", "paradigm"])
        means, errors = summarize(paradigms)
        found.append([[f"{mean:.1f} ± {error:.1f}" for mean, error in zip(*rows)] for rows in zip(means.to_numpy(), errors.to_numpy())])
    assert list(rows_below("probes.md", "Measurements").values()) == [first + second for first, second in zip(*found, strict=True)]


def test_chunking_scores_equal_their_raw_numbers():
    runs = read_scores(REPO / "benchmarks/results/conll2000.jsonl")
    found = {}
    for row in runs:
        found.setdefault(row["group"].removesuffix("_frozen"), {}).setdefault(row["settings"]["freeze"], []).append(
            f"{100 * row['scores']['test']['entity_f1']:.1f}")
    cells = [(", ".join(scores[False]), ", ".join(scores.get(True, []))) for scores in found.values()]
    rows = table(section(read("own_tasks.md"), "CoNLL-2000 chunking"))
    assert [(finetuned, probe) for _, _, finetuned, probe in rows] == cells


def test_steps_of_equal_compute_are_those_of_the_commands(capsys):
    [lines] = [block for block in re.findall(r"```python\n(.*?)```", read("results.md"), re.S) if "steps_of_equal_compute" in block]
    exec(lines, {})
    assert f"objective=mlm electra_mask_style=False steps={capsys.readouterr().out.strip()} " in read("results.md")


@pytest.mark.parametrize("heading, file", [("On a CPU with bf16 arithmetic", "pretraining_small_cpu_avx512"),
                                           ("On an older CPU", "pretraining_small_cpu")])
def test_pretraining_speed_equals_its_raw_numbers(heading, file):
    rows = rows_below("speed.md", heading)
    measured = json.loads((REPO / f"benchmarks/results/{file}.json").read_text())["rows"]
    assert len(rows) == len(measured) in (2, 4)
    for (ms, tokens, speedup, peak, share), numbers in zip(rows.values(), measured.values()):
        assert [float(cell.replace(",", "").removesuffix(" MB")) for cell in (ms, tokens, peak)] == \
            [round(numbers[key]) for key in ("ms/step", "tokens/s", "peak MB")]
        assert float(speedup) == pytest.approx(numbers["ratio to reference fp32"], abs=.0051)
        assert float(share) == pytest.approx(numbers["share of matmul throughput"], abs=.0051)


def test_operator_counts_equal_their_raw_numbers():
    measured = json.loads((REPO / "benchmarks/results/operators_small_default.json").read_text())
    counts = [int(cells[-1].replace(",", "")) for cells in rows_below("speed.md", "The training step on a GPU").values()]
    assert counts == [measured["rows"]["step"]["operators"], measured["by_name"]["_to_copy"]]


def test_finetuning_speed_equals_its_raw_numbers():
    rows = rows_below("speed.md", "Finetuning")
    measured = json.loads((REPO / "benchmarks/results/finetuning_small_cpu.json").read_text())["rows"]
    for (per_second, speedup), numbers in zip(rows.values(), measured.values()):
        assert float(per_second) == pytest.approx(numbers["rows/s"], abs=.051)
        assert float(speedup) == pytest.approx(numbers["ratio"], abs=.0051)


# Requirements

def imported_packages():
    """Top-level names of all third-party imports of the code, its tests and its notebooks."""
    texts = [path.read_text(encoding="utf-8") for path in SOURCES]
    own = {path.stem for path in [*REPO.glob("*.py"), *(REPO / "tests/support").glob("*.py")]} | {"_utils", "benchmarks"}
    found = {"IPython", "pandas"}  # of the notebooks
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module.partition(".")[0])
    return found - own - set(sys.stdlib_module_names) - OPTIONAL_PACKAGES


def test_every_imported_package_is_required():
    required = {name.replace("_", "-") for name in re.findall(r"^([\w-]+)[>=]=", read(REPO / "requirements.txt"), re.M)}
    distributions = importlib.metadata.packages_distributions()
    names = {package: {name.lower().replace("_", "-") for name in distributions[package]} for package in imported_packages()}
    assert {package for package in names if not names[package] & required} == set()
