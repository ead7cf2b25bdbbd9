"""Bad text and bad vocabularies: one plain sentence that names the culprit, and nothing half made; then through the script."""
import gzip
import json
import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

import pretrain
from _utils.config import complete
from _utils.errors import PlainError
from _utils.vocabulary import SPECIAL_TOKENS

GOOD_LINES = "\n".join(json.dumps({"text": f"Document {i} has nothing wrong with it."}) for i in range(500))
ENGLISH = "The generator replaces some words of the text.\nThe discriminator finds every replaced word.\n\n"
JAPANESE = "吾輩は猫である。名前はまだ無い。\nどこで生れたかとんと見当がつかぬ。\n\n"
LETTERS = [*"abcdefghijklmnopqrstuvwxyz.", *("##" + letter for letter in "abcdefghijklmnopqrstuvwxyz")]
PACKED = gzip.compress(ENGLISH.encode())
WORDS = [*SPECIAL_TOKENS, *LETTERS]


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    """An empty working directory with a vocabulary."""
    monkeypatch.chdir(tmp_path)
    write("vocab.txt", "\n".join(WORDS))


def write(name, content):
    """Write a file, given as text or bytes, into the working directory."""
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)


def load_data(*overrides):
    """What pretraining does before it builds a model."""
    return pretrain.load_data(complete(pretrain.c.override(["size=tiny", "vocab=vocab.txt", "num_workers=0", *overrides])))


def sentence_of_failure(*overrides):
    with pytest.raises(PlainError) as error:
        load_data(*overrides)
    sentence = str(error.value)
    assert "\n" not in sentence and len(sentence) < 500
    return sentence


def assert_names(sentence, named):
    assert not [words for words in named if words not in sentence], sentence


@pytest.mark.parametrize("files, datas, named", [
    pytest.param({}, "texts/*.txt", ["'texts/*.txt'", "openwebtext, wikipedia, bookcorpus, docs"], id="missing path"),
    pytest.param({}, "folder", ["'folder' is an empty folder"], id="empty folder"),
    pytest.param({"folder/a.md": b"x", "folder/b.pdf": b"x"}, "folder", ["'folder'", ".txt, .jsonl, .parquet"], id="unknown kinds"),
    pytest.param({"folder/a.txt": b"", "folder/b.jsonl": b"\n \n"}, "folder", ["'folder'", "no text"], id="empty files"),
    pytest.param({"a.txt": b"good\n", "b.txt": b"caf\xe9 au lait\n"}, "*.txt", ["b.txt is not utf-8", "encoding=latin-1"], id="latin-1"),
    pytest.param({"a.txt": b"plain"}, "a.txt encoding=utf-16", ["a.txt is not utf-16"], id="utf-16 without its mark"),
    pytest.param({"a.txt": b"plain"}, "a.txt encoding=utf-9", ["encoding='utf-9'"], id="unknown encoding"),
    pytest.param({"a.txt.gz": b"not compressed"}, "a.txt.gz", ["a.txt.gz cannot be read"], id="no gz"),
    pytest.param({"a.txt.gz": PACKED[:-20]}, "a.txt.gz", ["a.txt.gz cannot be read"], id="cut gz"),
    pytest.param({"a.txt.gz": PACKED[:10] + b"\xff" * 50}, "a.txt.gz", ["a.txt.gz cannot be read"], id="damaged gz"),
    pytest.param({"a.txt.bz2": b"not compressed"}, "a.txt.bz2", ["a.txt.bz2 cannot be read"], id="no bz2"),
    pytest.param({"a.txt.xz": lzma.compress(b"x" * 99)[:30]}, "a.txt.xz", ["a.txt.xz cannot be read"], id="cut xz"),
    pytest.param({"a.txt.zst": b"not compressed"}, "a.txt.zst", ["a.txt.zst cannot be read"], id="no zst"),
    pytest.param({"a.jsonl": f"{GOOD_LINES}\n{{'text': 1}}"}, "a.jsonl", ["a.jsonl, line 501", '"text"'], id="no JSON"),
    pytest.param({"a.jsonl": f'{GOOD_LINES}\n{{"body": ""}}'}, "a.jsonl", ["a.jsonl, line 501", '"text"'], id="JSON without text"),
    pytest.param({"a.jsonl": f"{GOOD_LINES}\n[1]"}, "a.jsonl", ["a.jsonl, line 501", '"text"'], id="JSON list"),
    pytest.param({"f/a.jsonl": f'{GOOD_LINES}\n{{"text": 5}}'}, "f", ["a.jsonl, line 501", '"text"'], id="JSON number as text"),
    pytest.param({"f/a.jsonl": f'{GOOD_LINES}\n{{"text": "\\ud83d"}}'}, "f", ["a.jsonl, line 501", '"text"'], id="half a character"),
    pytest.param({"wiki_00": "Title\nText"}, "wiki_00", ["wiki_00, line 1", "<doc>"], id="no WikiExtractor output"),
    pytest.param({"wiki_00": '<doc id="1">\nTitle\n\nText cut'}, "wiki_00", ["wiki_00", "</doc>"], id="cut WikiExtractor output"),
    pytest.param({"a.parquet": pandas.DataFrame({"body": ["x"]}).to_parquet()}, "a.parquet", ['a.parquet has no column "text"', "body"], id="no text column"),
    pytest.param({"f/a.parquet": pandas.DataFrame({"text": [1]}).to_parquet()}, "f", ["a.parquet", '"text"'], id="text column of numbers"),
    pytest.param({"a.parquet": b"PAR1"}, "a.parquet", ["a.parquet cannot be read"], id="no parquet"),
])
def test_text_that_cannot_be_read_is_named_and_nothing_is_left_of_it(files, datas, named):
    Path("folder").mkdir()
    for name, content in files.items():
        write(name, content)
    assert_names(sentence_of_failure(*f"datas={datas}".split()), named)
    assert not list(Path("datasets").rglob("*"))


@pytest.mark.parametrize("text, overrides, named", [
    pytest.param("word " * 200_000, [], ["text.txt", "line break"], id="a million characters in one line"),
    pytest.param(JAPANESE * 20, [], ["text.txt", "not in the vocabulary"], id="foreign to the vocabulary"),
    pytest.param(ENGLISH * 20, ["clean=True"], ["text.txt", "80 characters", "clean=False"], id="filtered away"),
])
def test_text_that_is_of_no_use_is_named_before_examples_are_built(text, overrides, named):
    write("text.txt", text)
    assert_names(sentence_of_failure("datas=text.txt", *overrides), named)
    assert_only_whole_documents_are_kept()


@pytest.mark.parametrize("content, named", [
    pytest.param("\n".join(word for word in WORDS if word != "[MASK]"), ["words.txt", "[MASK]"], id="without [MASK]"),
    pytest.param("\n".join(LETTERS), ["words.txt", ", ".join(SPECIAL_TOKENS)], id="without special tokens"),
    pytest.param("\n".join([*WORDS, "twice", "once", "twice"]), ["words.txt", "'twice'"], id="a word twice"),
    pytest.param(b"caf\xe9", ["words.txt", "UTF-8"], id="latin-1"),
    pytest.param(b"", ["words.txt", "[MASK]"], id="empty"),
])
def test_a_file_that_is_no_vocabulary_is_named(content, named):
    write("text.txt", ENGLISH * 20)
    write("words.txt", content)
    assert_names(sentence_of_failure("datas=text.txt", "vocab=words.txt"), named)
    assert_only_whole_documents_are_kept()


def assert_only_whole_documents_are_kept():
    assert all(re.fullmatch(r"documents_\w+\.arrow", path.name) for path in Path("datasets").rglob("*"))


def test_the_same_text_and_vocabulary_without_the_fault_are_taken():
    write("text.txt", ENGLISH * 20)
    hf_tokenizer, dls = load_data("datas=text.txt", "steps=2", "bs=4")
    assert len(hf_tokenizer) == len(WORDS) and len(dls.train_ds) > 10


@pytest.mark.parametrize("arguments, named", [
    pytest.param(["stpes=100"], ["'stpes'", "did you mean 'steps'?"], id="unknown key"),
    pytest.param(["datas=nowhere"], ["'nowhere'"], id="missing path"),
    pytest.param(["datas=bad.jsonl"], ["bad.jsonl, line 501"], id="no JSON"),
    pytest.param(["datas=text.txt", "vocab=words.txt"], ["words.txt", "[MASK]"], id="vocabulary without [MASK]"),
    pytest.param(["datas=japanese.txt", "vocab=vocab.txt"], ["japanese.txt", "not in the vocabulary"], id="foreign text"),
    pytest.param([], ["'openwebtext'", "python pretrain.py quickstart=True"], id="unreachable hub"),
])
def test_the_script_ends_with_that_sentence_alone(repo, tmp_path, arguments, named):
    write("text.txt", ENGLISH)
    write("japanese.txt", JAPANESE)
    write("bad.jsonl", f"{GOOD_LINES}\n{{")
    write("words.txt", "\n".join(LETTERS))
    done = subprocess.run([sys.executable, repo / "pretrain.py", *arguments], cwd=tmp_path, env={**os.environ, "HF_HUB_OFFLINE": "1"},
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    [sentence] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert_names(sentence, named)
    assert done.stderr.rstrip().endswith(sentence)
    assert not Path("checkpoints").exists()
    assert_only_whole_documents_are_kept()
