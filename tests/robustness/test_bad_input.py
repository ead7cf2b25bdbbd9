"""Invalid text, vocabularies and commands: a one-line error that names the problem, and no partial files."""
import ast
import gzip
import json
import re
import shutil
from pathlib import Path

import pandas
import pytest
from bad_inputs import CASES, ENGLISH, QUICK, WORDS, contents, faults, make_good_files, prepare
from tiny_pretraining import flip_bit

import pretrain
from _utils.config import complete
from _utils.errors import UserError

JAPANESE = "吾輩は猫である。名前はまだ無い。\nどこで生れたかとんと見当がつかぬ。\n\n"
JSON_LINES = "".join(json.dumps({"text": f"Document {i} has nothing wrong with it."}) + "\n" for i in range(500))


@pytest.fixture(autouse=True)
def working_directory(tmp_path, monkeypatch):
    """An empty working directory with a vocabulary."""
    monkeypatch.chdir(tmp_path)
    write("vocab.txt", "\n".join(WORDS))


def write(name, content):
    """Write a file, given as text or bytes, into the working directory."""
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)


def load_data(*overrides):
    """The data of a pretraining run."""
    return pretrain.load_data(
        complete(pretrain.c.override(["size=tiny", "vocab=vocab.txt", "num_workers=0", *overrides]))
    )


def assert_fails(overrides, expected):
    """load_data raises a one-line UserError that contains the expected fragments."""
    with pytest.raises(UserError) as error:
        load_data(*overrides)
    message = str(error.value)
    assert not [fragment for fragment in expected if fragment not in message], message
    assert "\n" not in message and len(message) < 600


def assert_only_complete_documents_are_kept():
    assert all(
        re.fullmatch(r"source_\w+\.xxh3|documents_\w+\.arrow(\.xxh3)?", path.name)
        for path in Path("datasets").rglob("*")
    )


@pytest.mark.parametrize("name, content, expected", [
    ("folder/b.pdf", "x", ".jsonl"), ("folder/a.txt", "", "no text"),
    ("folder/b.txt", b"caf\xe9 au lait\n", "b.txt, line 1"),
    ("folder/a.txt.gz", gzip.compress(ENGLISH.encode(), mtime=0)[:-20], "a.txt.gz"),
    ("folder/a.txt.zst", "plain", "a.txt.zst"),
    ("folder/a.jsonl", JSON_LINES + "{'text': 1}", "a.jsonl, line 501"),
    ("folder/a.jsonl", JSON_LINES + '{"body": ""}', "a.jsonl, line 501"),
    ("folder/wiki_00", "Title\nText", "wiki_00, line 1"),
    ("folder/wiki_00", '<doc id="1">\nTitle\n\nText cut', "wiki_00"),
    ("folder/a.parquet", b"PAR1", "a.parquet"),
    ("folder/a.parquet", pandas.DataFrame({"body": ["x"]}).to_parquet(), "a.parquet"),
])
def test_unreadable_text_raises_and_leaves_no_files(name, content, expected):
    write(name, content)
    assert_fails(["datas=folder"], ["folder", expected])
    assert not list(Path("datasets").rglob("*.arrow*"))


def test_all_files_in_another_encoding_are_listed_before_any_is_processed(capsys):
    write("first.txt", ENGLISH * 20)
    write("a.txt", b"one\ntwo\ncaf\xe9\n")
    write("b.jsonl.gz", gzip.compress(b"\n" * 2_000_000 + b"x \xe9"))  # longer than a block
    assert_fails(["datas=first.txt,a.txt,b.jsonl.gz"], ["a.txt, line 3", "b.jsonl.gz, line 2000001"])
    assert_fails(["datas=first.txt", "encoding=utf-16"], ["first.txt cannot be read", "UTF-16"])
    assert not Path("datasets").exists()


@pytest.mark.parametrize("text, overrides, expected", [
    ("word " * 200_000, [], ["text.txt", "line break"]),
    (JAPANESE * 20, [], ["text.txt", "not in the vocabulary"]),
    (ENGLISH * 20, ["clean=True"], ["text.txt", "80 characters", "clean=False"]),
], ids=["a million characters in one line", "not in the vocabulary", "filtered away"])
def test_unusable_text_raises_before_examples_are_built(text, overrides, expected):
    write("text.txt", text)
    assert_fails(["datas=text.txt", *overrides], expected)
    assert_only_complete_documents_are_kept()


@pytest.mark.parametrize("content, expected", [
    ("\n".join(word for word in WORDS if word != "[MASK]"), "[MASK]"),
    ("\n".join([*WORDS, "twice", "once", "twice"]), "'twice'"),
    (b"caf\xe9", "UTF-8"), ("", "[MASK]"),
])
def test_an_invalid_vocabulary_raises(content, expected):
    write("text.txt", ENGLISH * 20)
    write("words.txt", content)
    assert_fails(["datas=text.txt", "vocab=words.txt"], ["words.txt", expected])
    assert_only_complete_documents_are_kept()


@pytest.mark.parametrize("kind", ["documents", "examples"])
def test_damaged_prepared_files_raise(kind):
    write("text.txt", ENGLISH * 20)
    load_data("datas=text.txt", "bs=4", "steps=2")
    [path] = Path("datasets").glob(f"{kind}_*.arrow")
    flip_bit(path)
    # otherwise documents are not read
    for examples in Path("datasets").glob("examples_*.arrow") if kind == "documents" else ():
        examples.unlink()
    assert_fails(["datas=text.txt", "bs=4"], [str(path), f"{path.name}.xxh3"])


def test_pickles_and_remote_code_are_never_executed(repo):
    """Every torch.load sets weights_only=True, and nothing sets trust_remote_code=True."""
    for path in [*repo.glob("*.py"), *repo.glob("_utils/**/*.py"), *repo.glob("benchmarks/**/*.py")]:
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            text = ast.unparse(call)
            assert not text.startswith("torch.load(") or "weights_only=True" in text, path
            assert "trust_remote_code=True" not in text, path


@pytest.fixture(scope="module")
def good(fresh_checkpoint, glue, tmp_path_factory):
    """A folder of valid inputs of all commands."""
    folder = tmp_path_factory.mktemp("good")
    make_good_files(folder, fresh_checkpoint, glue)
    return folder


@pytest.fixture
def run_case(scripts, good, tmp_path):
    """`run_case(name)`: (the result of the command of a case, its faults)."""
    def run_case(name):
        case, folder = CASES[name], tmp_path / "case"
        shutil.rmtree(folder, ignore_errors=True)
        prepare(case, good, folder)
        before = contents(folder)
        done = scripts.run(case.command, case.arguments, folder)
        return done, faults(case, done, before, contents(folder))
    return run_case


@pytest.mark.parametrize("name", QUICK)
def test_a_command_with_a_mistake_prints_one_error_and_leaves_no_files(run_case, name):
    done, found = run_case(name)
    assert not found, done.stderr[-2000:]


@pytest.mark.slow
def test_every_case_prints_one_error_and_leaves_no_files(run_case, capsys):
    failed = {}
    for name in CASES:
        done, found = run_case(name)
        if found:
            failed[name] = [*found, done.stderr[-1500:]]
    with capsys.disabled():
        print(f"\n{len(CASES)} cases, {len(CASES) - len(failed)} passed")
    assert not failed, "\n".join(f"{name}: {'; '.join(found)}" for name, found in failed.items())
