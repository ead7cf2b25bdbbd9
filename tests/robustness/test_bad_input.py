"""Invalid text, vocabularies and commands: a one-line error that names the problem, and no partial files."""
import ast
import gzip
import json
import lzma
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas
import pytest
from bad_inputs import CASES, ENGLISH, JAPANESE, JSON_LINES, LETTERS, QUICK, WORDS, contents, faults, make_good_files, prepare

import pretrain
from _utils.config import complete
from _utils.errors import PlainError
from _utils.networks import load_pair, load_pretrained
from _utils.networks.build import read_config
from _utils.text.vocabulary import SPECIAL_TOKENS, load_tokenizer

PACKED = gzip.compress(ENGLISH.encode())


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
    return pretrain.load_data(complete(pretrain.c.override(["size=tiny", "vocab=vocab.txt", "num_workers=0", *overrides])))


def assert_fails(overrides, expected):
    """load_data raises a one-line PlainError that contains the expected fragments."""
    with pytest.raises(PlainError) as error:
        load_data(*overrides)
    message = str(error.value)
    assert not [fragment for fragment in expected if fragment not in message], message
    assert "\n" not in message and len(message) < 600


def assert_only_complete_documents_are_kept():
    assert all(re.fullmatch(r"sources\.json|documents_\w+\.arrow(\.xxh3)?", path.name) for path in Path("datasets").rglob("*"))


# {case: (files, overrides, fragments of the message)}
UNREADABLE = {
    "missing path": ({}, ["datas=texts/*.txt"], ["'texts/*.txt'", "openwebtext, wikipedia, bookcorpus, docs"]),
    "empty folder": ({}, ["datas=empty"], ["'empty'. The folder is empty"]),
    "unknown kinds": ({"folder/a.md": "x", "folder/b.pdf": "x"}, ["datas=folder"], ["'folder'", ".txt, .jsonl, .parquet"]),
    "empty files": ({"folder/a.txt": "", "folder/b.jsonl": "\n \n"}, ["datas=folder"], ["'folder'", "no text"]),
    "latin-1": ({"a.txt": "good\n", "b.txt": b"caf\xe9 au lait\n"}, ["datas=*.txt"], ["b.txt is not utf-8", "encoding=latin-1"]),
    "not utf-16": ({"a.txt": "plain"}, ["datas=a.txt", "encoding=utf-16"], ["a.txt is not utf-16"]),
    "unknown encoding": ({"a.txt": "plain"}, ["datas=a.txt", "encoding=utf-9"], ["encoding: 'utf-9'"]),
    "not gz": ({"a.txt.gz": "plain"}, ["datas=a.txt.gz"], ["a.txt.gz cannot be read"]),
    "cut gz": ({"a.txt.gz": PACKED[:-20]}, ["datas=a.txt.gz"], ["a.txt.gz cannot be read"]),
    "damaged gz": ({"a.txt.gz": PACKED[:10] + b"\xff" * 50}, ["datas=a.txt.gz"], ["a.txt.gz cannot be read"]),
    "not bz2": ({"a.txt.bz2": "plain"}, ["datas=a.txt.bz2"], ["a.txt.bz2 cannot be read"]),
    "cut xz": ({"a.txt.xz": lzma.compress(b"plain")[:-20]}, ["datas=a.txt.xz"], ["a.txt.xz cannot be read"]),
    "not zst": ({"a.txt.zst": "plain"}, ["datas=a.txt.zst"], ["a.txt.zst cannot be read"]),
    "not JSON": ({"a.jsonl": JSON_LINES + "{'text': 1}"}, ["datas=a.jsonl"], ["a.jsonl, line 501", '"text"']),
    "JSON without text": ({"a.jsonl": JSON_LINES + '{"body": ""}'}, ["datas=a.jsonl"], ["a.jsonl, line 501", '"text"']),
    "JSON list": ({"a.jsonl": JSON_LINES + "[1]"}, ["datas=a.jsonl"], ["a.jsonl, line 501", '"text"']),
    "number instead of text": ({"f/a.jsonl": JSON_LINES + '{"text": 5}'}, ["datas=f"], ["a.jsonl, line 501", '"text"']),
    "half a character": ({"f/a.jsonl": JSON_LINES + '{"text": "\\ud83d"}'}, ["datas=f"], ["a.jsonl, line 501", '"text"']),
    "not WikiExtractor": ({"wiki_00": "Title\nText"}, ["datas=wiki_00"], ["wiki_00, line 1", "<doc>"]),
    "cut WikiExtractor": ({"wiki_00": '<doc id="1">\nTitle\n\nText cut'}, ["datas=wiki_00"], ["wiki_00", "</doc>"]),
    "not parquet": ({"a.parquet": b"PAR1"}, ["datas=a.parquet"], ["a.parquet cannot be read"]),
    "no text column": ({"a.parquet": pandas.DataFrame({"body": ["x"]}).to_parquet()}, ["datas=a.parquet"],
                       ['a.parquet has no column "text"', "body"]),
    "column of numbers": ({"f/a.parquet": pandas.DataFrame({"text": [1]}).to_parquet()}, ["datas=f"], ["a.parquet", '"text"']),
}


@pytest.mark.parametrize("files, overrides, expected", UNREADABLE.values(), ids=UNREADABLE)
def test_unreadable_text_raises_and_leaves_no_files(files, overrides, expected):
    Path("empty").mkdir()
    for name, content in files.items():
        write(name, content)
    assert_fails(overrides, expected)
    assert not list(Path("datasets").rglob("*"))


UNUSABLE = {
    "a million characters in one line": ("word " * 200_000, [], ["text.txt", "line break"]),
    "not in the vocabulary": (JAPANESE * 20, [], ["text.txt", "not in the vocabulary"]),
    "filtered away": (ENGLISH * 20, ["clean=True"], ["text.txt", "80 characters", "clean=False"]),
}


@pytest.mark.parametrize("text, overrides, expected", UNUSABLE.values(), ids=UNUSABLE)
def test_unusable_text_raises_before_examples_are_built(text, overrides, expected):
    write("text.txt", text)
    assert_fails(["datas=text.txt", *overrides], expected)
    assert_only_complete_documents_are_kept()


INVALID_VOCABULARIES = {
    "without [MASK]": ("\n".join(word for word in WORDS if word != "[MASK]"), ["words.txt", "lacks [MASK]"]),
    "without special tokens": ("\n".join(LETTERS), ["words.txt", "lacks " + ", ".join(SPECIAL_TOKENS)]),
    "a repeated token": ("\n".join([*WORDS, "twice", "once", "twice"]), ["words.txt", "'twice'"]),
    "latin-1": (b"caf\xe9", ["words.txt", "UTF-8"]),
    "empty": ("", ["words.txt", "[MASK]"]),
}


@pytest.mark.parametrize("content, expected", INVALID_VOCABULARIES.values(), ids=INVALID_VOCABULARIES)
def test_an_invalid_vocabulary_raises(content, expected):
    write("text.txt", ENGLISH * 20)
    write("words.txt", content)
    assert_fails(["datas=text.txt", "vocab=words.txt"], expected)
    assert_only_complete_documents_are_kept()


def test_the_valid_text_and_vocabulary_are_accepted():
    write("text.txt", ENGLISH * 20)
    hf_tokenizer, dls = load_data("datas=text.txt", "steps=2", "bs=4")
    assert len(hf_tokenizer) == len(WORDS) and len(dls.train_ds) > 10


@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: content[:100], lambda content: b"x" * len(content),
                                    lambda content: content[:len(content) // 2] + b"!" + content[len(content) // 2 + 1:]])
@pytest.mark.parametrize("kind", ["documents", "examples"])
def test_damaged_prepared_files_raise(kind, damage):
    write("text.txt", ENGLISH * 20)
    load_data("datas=text.txt", "bs=4", "steps=2")
    [path] = Path("datasets").glob(f"{kind}_*.arrow")
    path.write_bytes(damage(path.read_bytes()))
    assert_fails(["datas=text.txt", "bs=4"], [str(path), f"Delete it and {path.name}.xxh3"])
    path.unlink()
    path.with_name(f"{path.name}.xxh3").unlink()
    load_data("datas=text.txt", "bs=4", "steps=2")


def offer_code(folder):
    """Write a transformers folder whose configuration, model and tokenizer are custom code that creates the folder `trapped`."""
    classes = {"AutoConfig": "trap.Trap", "AutoModel": "trap.Trap", "AutoModelForMaskedLM": "trap.Trap"}
    write(f"{folder}/config.json", json.dumps({"model_type": "trap", "auto_map": classes}))
    write(f"{folder}/tokenizer_config.json", json.dumps({
        "tokenizer_class": "Trap", "auto_map": {"AutoTokenizer": ["trap.Trap", "trap.Trap"]}}))
    write(f"{folder}/vocab.txt", "\n".join(WORDS))
    write(f"{folder}/trap.py", f"import os\nos.mkdir({str(Path('trapped').absolute())!r})\nclass Trap: pass\n")


@pytest.mark.parametrize("load", [
    lambda: load_pretrained("offer", "tiny", 32),
    lambda: load_pair("pair", "tiny", 32),
    lambda: read_config("offer", None, 0),
    lambda: load_tokenizer("offer"),
], ids=["encoder", "pair", "configuration", "tokenizer"])
def test_custom_code_of_a_model_never_runs_even_if_the_user_agrees(load, monkeypatch):
    for folder in ("offer", "pair/generator", "pair/discriminator"):
        Path(folder).mkdir(parents=True)
        offer_code(folder)
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(PlainError):
        load()
    assert not Path("trapped").exists()


def test_pickles_and_remote_code_are_never_executed(repo):
    """Every torch.load sets weights_only=True, and nothing sets trust_remote_code=True."""
    paths = [*repo.glob("*.py"), *(path for folder in ("_utils", "benchmarks", "tests") for path in repo.glob(f"{folder}/**/*.py"))]
    calls = [call for path in paths for call in ast.walk(ast.parse(path.read_text())) if isinstance(call, ast.Call)]
    is_true = lambda call, name: any(keyword.arg == name and getattr(keyword.value, "value", None) is True for keyword in call.keywords)
    loads = [call for call in calls if ast.unparse(call.func) == "torch.load"]
    assert loads and all(is_true(call, "weights_only") for call in loads)
    assert not any(is_true(call, "trust_remote_code") for call in calls)


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


def test_a_new_interpreter_fails_like_the_forked_one(scripts, repo, tmp_path):
    arguments = ["stpes=100"]
    forked = scripts.run("pretrain.py", arguments, tmp_path)
    whole = subprocess.run([sys.executable, repo / "pretrain.py", *arguments], capture_output=True, text=True)
    assert (whole.returncode, whole.stdout) == (forked.returncode, forked.stdout) == (1, "")
    assert whole.stderr.splitlines()[-1] == forked.stderr.splitlines()[-1]


@pytest.mark.slow
def test_every_case_prints_one_error_and_leaves_no_files(run_case, capsys):
    seconds, failed = {}, {}
    for name in CASES:
        done, found = run_case(name)
        seconds[name] = done.seconds
        if found:
            failed[name] = [*found, done.stderr[-1500:]]
    with capsys.disabled():
        print(f"\n{len(CASES)} cases, {len(CASES) - len(failed)} passed; the slowest, in seconds after the imports:")
        for reads_data, kind in ((False, "detected before data is read"), (True, "mistakes in the data")):
            slowest = sorted((name for name in CASES if CASES[name].reads_data == reads_data), key=seconds.get)[:-4:-1]
            print(f"  {kind}: " + "; ".join(f"{name} {seconds[name]:.1f}" for name in slowest))
    assert not failed, "\n".join(f"{name}: {'; '.join(found)}" for name, found in failed.items())
