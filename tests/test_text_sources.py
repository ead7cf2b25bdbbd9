"""Text from every kind of source becomes the same documents; the cache of what was read; hub names; the embedded text."""
import bz2
import gzip
import json
import lzma
import re
import sysconfig
from collections import Counter
from pathlib import Path

import datasets
import pandas
import pyarrow
import pytest

from _utils import embedded_text, text_sources
from _utils.errors import PlainError
from _utils.text_sources import load_documents

DOCUMENTS = ["First line.\nÄ second, naïve line.", "Another document."]
TXT = "First line.\nÄ second, naïve line.\n\n \n\nAnother document.\n"
ARTICLES = """<doc id="1" url="https://example.org/1" title="One">
One

First line.

Ä second, naïve line.
</doc>
<doc id="2" url="https://example.org/2" title="Two">
Two

Another document.

</doc>
<doc id="3" url="https://example.org/3" title="A title without an article">
A title without an article

</doc>
"""
JSON_LINES = "\n".join(json.dumps({"id": i, "text": text}, ensure_ascii=i == 0) for i, text in enumerate(DOCUMENTS)) + "\n\n"
FILES = {"blank_lines_between.txt": TXT, "of_windows.txt": TXT.replace("\n", "\r\n"), "lines.jsonl": JSON_LINES,
         "wiki_00": ARTICLES, "wiki_01": JSON_LINES}
COMPRESSION = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress,
               ".zst": lambda content: pyarrow.compress(content, "zstd", asbytes=True)}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.fixture
def texts_of(tmp_path):
    """Function that reads a source of tmp_path into a list of documents."""
    return lambda source, **options: list(load_documents(str(tmp_path / source), tmp_path / "cache", **options).documents["text"])


@pytest.mark.parametrize("compression", COMPRESSION)
@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_gives_the_same_documents_compressed_or_not(tmp_path, texts_of, name, compression):
    write(tmp_path / (name + compression), COMPRESSION[compression](FILES[name].encode()))
    assert texts_of(name + compression) == DOCUMENTS


def test_the_text_column_of_parquet_without_its_gaps(tmp_path, texts_of):
    table = pandas.DataFrame({"id": [1, 2, 3, 4], "text": [DOCUMENTS[0], None, "", DOCUMENTS[1]]})
    write(tmp_path / "table.parquet", table.to_parquet())
    assert texts_of("table.parquet") == DOCUMENTS


def test_one_document_per_file_keeps_blank_lines(tmp_path, texts_of):
    write(tmp_path / "books/b.txt", "The second book.\n")
    write(tmp_path / "books/a.txt", TXT)
    assert texts_of("books", one_document_per_file=True) == [TXT, "The second book.\n"]
    assert texts_of("books", one_document_per_file=False) == [*DOCUMENTS, "The second book."]


@pytest.mark.parametrize("name, encoding", [
    ("blank_lines_between.txt", "latin-1"), ("of_windows.txt", "utf-16"), ("lines.jsonl", "utf-16"), ("wiki_00", "cp1252")])
def test_text_in_another_encoding(tmp_path, texts_of, name, encoding):
    write(tmp_path / name, FILES[name].encode(encoding))
    assert texts_of(name, encoding=encoding) == DOCUMENTS


@pytest.fixture
def library(tmp_path):
    """A folder with all kinds of files at several depths, and some that are no text."""
    write(tmp_path / "library/c.txt", "third")
    write(tmp_path / "library/a/wiki_00", '<doc id="1">\nTitle\n\nfirst\n</doc>\n')
    write(tmp_path / "library/a/deep/er/b.jsonl.gz", gzip.compress(b'{"text": "second"}'))
    write(tmp_path / "library/d.parquet", pandas.DataFrame({"text": ["fourth"]}).to_parquet())
    for name in ("notes.md", "image.png", "wiki_index", ".hidden.txt", ".cache/old.txt"):
        write(tmp_path / "library" / name, "not to be read")


@pytest.mark.parametrize("source, expected", [
    ("library", ["second", "first", "third", "fourth"]),
    ("library/a", ["second", "first"]),
    ("library/*", ["third", "fourth"]),
    ("library/**/*", ["second", "first", "third", "fourth"]),
    ("library/?.txt", ["third"]),
])
def test_folders_are_read_to_their_depth_and_globs_as_the_shell_means_them(library, texts_of, source, expected):
    assert texts_of(source) == expected


def test_a_file_whose_name_looks_like_a_glob_is_found(tmp_path, texts_of):
    write(tmp_path / "volume[1].txt", TXT)
    assert texts_of("volume[1].txt") == DOCUMENTS


def test_the_same_content_is_read_once_whatever_its_name(tmp_path, texts_of, monkeypatch):
    write(tmp_path / "first.txt", TXT)
    write(tmp_path / "copy/renamed.txt", TXT)
    texts_of("first.txt")
    monkeypatch.setattr(text_sources, "read_file", lambda *_: pytest.fail("read again"))
    assert texts_of("copy") == texts_of("copy/*.txt") == texts_of("first.txt") == DOCUMENTS
    assert len(list((tmp_path / "cache").glob("*.arrow"))) == 1


def test_changed_content_or_other_options_are_never_answered_from_the_cache(tmp_path, texts_of):
    write(tmp_path / "text.txt", TXT)
    assert texts_of("text.txt") == DOCUMENTS
    assert texts_of("text.txt", encoding="latin-1") == [text.encode().decode("latin-1") for text in DOCUMENTS]
    assert texts_of("text.txt", one_document_per_file=True) == [TXT]
    write(tmp_path / "text.txt", TXT.replace("Another", "Ynother"))  # of the same length
    assert texts_of("text.txt") == [DOCUMENTS[0], "Ynother document."]


def test_what_cannot_be_read_to_its_end_leaves_nothing_in_the_cache(tmp_path, texts_of):
    whole = [json.dumps({"text": f"document {i}"}) for i in range(1000)]
    path = write(tmp_path / "text.jsonl", "\n".join([*whole, "{"]))
    for _ in range(2):
        with pytest.raises(PlainError, match="text.jsonl, line 1001"):
            texts_of("text.jsonl")
        assert not list((tmp_path / "cache").iterdir())
    write(path, "\n".join(whole))
    assert len(texts_of("text.jsonl")) == 1000


@pytest.mark.parametrize("name, call, layout", [
    ("openwebtext", dict(path="Skylion007/openwebtext", split="train"), ["text"]),
    ("wikipedia", dict(path="wikimedia/wikipedia", name="20231101.en", split="train"), ["id", "url", "title", "text"]),
    ("bookcorpus", dict(path="bookcorpus/bookcorpus", revision="refs/convert/parquet", split="train"), ["text"]),
])
def test_a_hub_corpus_is_asked_for_by_its_present_id(tmp_path, monkeypatch, name, call, layout):
    file = write(tmp_path / "train.parquet", pandas.DataFrame({column: DOCUMENTS for column in layout}).to_parquet())
    calls, load_dataset = [], datasets.load_dataset

    def load_local_parquet(path, **arguments):
        calls.append(dict(path=path, **arguments))
        return load_dataset("parquet", data_files=str(file), split=arguments["split"], cache_dir=str(tmp_path / "hub"))

    monkeypatch.setattr(datasets, "load_dataset", load_local_parquet)
    corpus = load_documents(name, tmp_path / "cache")
    assert calls == [call]
    assert corpus.name == name and corpus.documents.column_names == ["text"] and list(corpus.documents["text"]) == DOCUMENTS


def test_an_unreachable_hub_is_told_in_one_sentence_with_the_way_out(tmp_path, monkeypatch):
    def unreachable(*_, **__):
        raise ConnectionError("Couldn't reach the Hub\nlong story")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(PlainError) as error:
        load_documents("wikipedia", tmp_path / "cache")
    message = str(error.value)
    assert "'wikipedia'" in message and "Couldn't reach the Hub" in message and "python pretrain.py quickstart=True" in message
    assert "\n" not in message and not (tmp_path / "cache").exists()


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """(corpus `docs`, its cache folder): made once, for it takes a while."""
    cache = tmp_path_factory.mktemp("cache")
    return load_documents("docs", cache), cache


def test_the_embedded_text_is_megabytes_of_english_prose(embedded):
    texts = list(embedded[0].documents["text"])
    text = "\n".join(texts)
    assert len(text) > 5_000_000 and len(texts) > 1000
    words = Counter(re.findall(r"[a-z]+", text.lower()))
    commonest = ("the", "of", "to", "a", "and", "is", "in")
    assert sum(words[word] for word in commonest) > .15 * words.total()  # as in any English prose
    paragraphs = text.split("\n")
    assert len({paragraph.lower() for paragraph in paragraphs}) == len(paragraphs)
    assert sum(">>>" in paragraph or "{" in paragraph for paragraph in paragraphs) < .05 * len(paragraphs)


def test_the_embedded_text_is_made_once(embedded, monkeypatch):
    corpus, cache = embedded
    monkeypatch.setattr(embedded_text, "documents", lambda *_: pytest.fail("made again"))
    assert load_documents("docs", cache).documents[7] == corpus.documents[7]


def test_the_embedded_text_does_not_depend_on_the_number_of_processes(monkeypatch):
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-d]*.py"))
    monkeypatch.setattr(embedded_text, "source_files", lambda: files * 3)  # more than one process is given at once
    one, three = (list(embedded_text.documents(n)) for n in (1, 3))
    assert one == three and len(one) > 10
