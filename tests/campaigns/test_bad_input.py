"""Unusable text and invalid commands: a one-line error that names the problem, and no partial files."""
import ast
import gzip
import json
import re
import shutil
from pathlib import Path

import pandas
import pytest
from bad_inputs import CASES, ENGLISH, QUICK, WORDS, contents, faults, make_good_files, prepare

import pretrain
from _utils.config import complete
from _utils.errors import UserError

JSON_LINES = "".join(json.dumps({"text": f"Document {i} has nothing wrong with it."}) + "\n" for i in range(500))


@pytest.fixture(autouse=True)
def working_directory(empty_folder):
    """An empty working directory with a vocabulary."""
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


BAD_TEXTS = [
    ({"folder/b.pdf": "x"}, ".jsonl"), ({"folder/a.txt": ""}, "no text"),
    ({"folder/a.txt": "a", "folder/b.txt": b"one\ncaf\xe9\n", "folder/c.txt": b"\xe9"}, "b.txt, line 2.*c.txt, line 1"),
    ({"folder/a.txt.gz": gzip.compress(ENGLISH.encode(), mtime=0)[:-20]}, "a.txt.gz"),
    ({"folder/a.txt.zst": "plain"}, "a.txt.zst"),
    ({"folder/b.jsonl.gz": gzip.compress(b"\n" * 2_000_000 + b"x \xe9")}, "line 2000001"),  # longer than a block
    ({"folder/a.jsonl": JSON_LINES + "{'text': 1}"}, "a.jsonl, line 501"),
    ({"folder/a.jsonl": JSON_LINES + '{"body": ""}'}, "a.jsonl, line 501"),
    ({"folder/wiki_00": "Title\nText"}, "wiki_00, line 1"),
    ({"folder/wiki_00": JSON_LINES}, r"wiki_00, line 1 .*\.jsonl"),
    ({"folder/wiki_00": '<doc id="1">\nTitle\n\nText cut'}, "wiki_00"),
    ({"folder/a.parquet": b"PAR1"}, "a.parquet"),
    ({"folder/a.parquet": pandas.DataFrame({"body": ["x"]}).to_parquet()}, "a.parquet"),
    ({"folder/a.txt": "word " * 200_000}, "line break"),
    ({"folder/a.txt": "吾輩は猫である。名前はまだ無い。\n\n" * 20}, "not in the vocabulary"),
    ({"folder/a.txt": ENGLISH * 20, "vocab.txt": "\n".join([*WORDS, "twice", "twice"])}, "vocab.txt.*'twice'"),
    ({"folder/a.txt": ENGLISH * 20, "vocab.txt": b"caf\xe9"}, "vocab.txt.*UTF-8"),
    ({"folder/a.txt": ENGLISH * 20, "vocab.txt": ""}, r"vocab.txt.*\[MASK\]"),
]


@pytest.mark.parametrize("files, message", BAD_TEXTS)
def test_unusable_text_raises_and_leaves_no_examples(files, message):
    for name, content in files.items():
        write(name, content)
    with pytest.raises(UserError, match=message) as error:
        load_data("datas=folder", "long_lines=truncate")
    assert "\n" not in str(error.value) and len(str(error.value)) < 600
    assert all(re.fullmatch(r"source_\w+\.txt|documents_\w+\.arrow", path.name)
               for path in Path("datasets").rglob("*"))  # only complete documents


def test_encodings_of_all_entries_are_checked_before_any_of_them_is_prepared():
    write("a.txt", ENGLISH * 20)
    write("b.txt", b"one\ncaf\xe9\n")
    with pytest.raises(UserError, match="b.txt, line 2"):
        load_data("datas=a.txt,b.txt")
    assert not list(Path("datasets").glob("*.arrow"))


@pytest.mark.parametrize("vocab", ["vocab=vocab.txt", "vocab=300", "vocab=300 cased=True"])
def test_a_vocabulary_that_destroys_words_is_reported(capsys, vocab):
    write("vocab.txt", "\n".join([*WORDS, "ハンタ", "か"]))
    other = "words of text\n\n" * 1000 * ("300" in vocab)  # the first block; a vocabulary is trained on all of them
    write("a.txt", other + "パンダ が パンダ か ハンタ\n\n" * 1000)
    load_data("datas=a.txt", "bs=4", *vocab.split())
    assert ("パンダ becomes ハンタ" in capsys.readouterr().out) == ("cased" not in vocab)


def test_truncated_documents_raise():
    """Truncated examples: test_faults.py."""
    write("text.txt", ENGLISH * 20)
    load_data("datas=text.txt", "bs=4", "steps=2")
    [path] = Path("datasets").glob("documents_*.arrow")
    path.write_bytes(path.read_bytes()[:-20_000])
    next(Path("datasets").glob("examples_*.arrow")).unlink()  # documents are read only to build examples
    with pytest.raises(UserError, match=path.name):
        load_data("datas=text.txt", "bs=4")


def test_every_torch_load_sets_weights_only_and_nothing_trusts_remote_code(repo):
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
