"""Text from every kind of source becomes the same documents; the cache of what was read; hub names; the embedded text."""
import bz2
import contextlib
import gzip
import json
import lzma
import os
import re
import sysconfig
from collections import Counter
from pathlib import Path

import datasets
import huggingface_hub
import pandas
import pyarrow
import pytest
from fake_hub import FIRST, SECOND, Hub

from _utils.errors import PlainError
from _utils.pretraining_data import embedded_text, text_files
from _utils.pretraining_data import sources as text_sources
from _utils.pretraining_data.sources import check_sources, load_documents
from _utils.pretraining_data.text_files import find_files

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


@pytest.fixture
def no_hashing(monkeypatch):
    """A function: from now on no content may be hashed."""
    return lambda: monkeypatch.setattr(text_sources, "_hash", lambda *_: pytest.fail("read again"))


def age(*paths, seconds=3600):
    """Give files the modification time of an hour ago."""
    for path in paths:
        os.utime(path, (path.stat().st_mtime - seconds,) * 2)


def test_files_that_did_not_change_are_not_read_again(tmp_path, texts_of, no_hashing):
    paths = [write(tmp_path / f"books/{name}", TXT) for name in ("a.txt", "b/c.txt", "b/d.txt")]
    age(*paths)
    assert texts_of("books") == DOCUMENTS * 3
    no_hashing()
    assert texts_of("books") == DOCUMENTS * 3


@pytest.mark.parametrize("change", [
    lambda books: age(write(books / "a.txt", TXT.replace("Another", "Ynother")), seconds=1800),  # of the same length
    lambda books: write(books / "a.txt", TXT + "More."),
    lambda books: write(books / "b/new.txt", "A new one."),
    lambda books: (books / "b/c.txt").unlink(),
    lambda books: (books / "a.txt").rename(books / "z.txt"),
])
def test_a_change_of_content_files_or_order_is_noticed(tmp_path, texts_of, change):
    age(write(tmp_path / "books/a.txt", TXT), write(tmp_path / "books/b/c.txt", "Another book."))
    before = texts_of("books")
    change(tmp_path / "books")
    assert texts_of("books") != before


def test_a_file_that_was_just_written_is_read_again(tmp_path, texts_of):
    """Its next change may come so soon that the modification time stays the same."""
    path = write(tmp_path / "text.txt", TXT)
    texts_of("text.txt")
    time_before = path.stat().st_mtime_ns
    write(path, TXT.replace("Another", "Ynother"))
    os.utime(path, ns=(time_before, time_before))
    assert texts_of("text.txt") == [DOCUMENTS[0], "Ynother document."]


def test_a_deleted_record_lets_all_text_be_read_again(tmp_path, texts_of, monkeypatch):
    age(write(tmp_path / "text.txt", TXT))
    texts_of("text.txt")
    (tmp_path / "cache/sources.json").write_text("{")
    with pytest.raises(PlainError, match="sources.json is not valid JSON: correct it, or delete it"):
        texts_of("text.txt")
    (tmp_path / "cache/sources.json").unlink()
    hashed, plain = [], text_sources._hash
    monkeypatch.setattr(text_sources, "_hash", lambda text, files=(): plain(text, [hashed.append(file) or file for file in files]))
    assert texts_of("text.txt") == DOCUMENTS and hashed == [str(tmp_path / "text.txt")]


def test_files_that_change_while_they_are_read_are_reported(tmp_path, texts_of, monkeypatch):
    write(tmp_path / "books/a.txt", TXT)
    read_file = text_sources.read_file
    monkeypatch.setattr(text_sources, "read_file", lambda *given: (write(tmp_path / "books/b.txt", TXT), read_file(*given))[1])
    with pytest.raises(PlainError, match="files of '.*books' changed since the start"):
        texts_of("books")
    monkeypatch.undo()
    corpus = load_documents(str(tmp_path / "books"), tmp_path / "cache")
    write(tmp_path / "books/c.txt", TXT)
    with pytest.raises(PlainError, match="files of '.*books' changed since the start"):
        len(corpus.documents)
    assert not list((tmp_path / "cache").iterdir())


def test_prepared_documents_are_compared_again_only_when_their_file_was_touched(tmp_path, texts_of, no_hashing):
    age(write(tmp_path / "text.txt", TXT))
    texts_of("text.txt")
    [path] = (tmp_path / "cache").glob("*.arrow")
    content = bytearray(path.read_bytes())
    letter = content.index(b"Another")
    content[letter] ^= 4
    stat = path.stat()
    path.write_bytes(content)
    with pytest.raises(PlainError, match="holds the hash of other content.*delete it and"):
        load_documents(str(tmp_path / "text.txt"), tmp_path / "cache")  # though nobody asks for the documents
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    load_documents(str(tmp_path / "text.txt"), tmp_path / "cache")  # such a change, of a disk that fails, shows when the file is touched
    path.touch()
    with pytest.raises(PlainError, match="holds the hash of other content"):
        texts_of("text.txt")
    content[letter] ^= 4
    path.write_bytes(content)
    assert texts_of("text.txt") == DOCUMENTS
    no_hashing()
    assert texts_of("text.txt") == DOCUMENTS


def test_documents_are_prepared_only_when_they_are_needed(tmp_path, texts_of):
    write(tmp_path / "text.txt", TXT)
    corpus = load_documents(str(tmp_path / "text.txt"), tmp_path / "cache")
    assert not list(tmp_path.glob("cache/*.arrow"))
    assert list(corpus.documents["text"]) == DOCUMENTS and corpus.documents is corpus.documents


def test_the_order_of_files_is_that_of_their_parts_however_they_are_listed(tmp_path, monkeypatch):
    for name in ("a/x.txt", "a.txt", "a b/x.txt", "a-b.txt", "B.txt", "b/c/d.txt", "b/c.txt", "b/c0.txt", "ä.txt", "z/.hidden/x.txt",
                 "z/.h.txt"):
        write(tmp_path / "library" / name, name)
    (tmp_path / "library/link.txt").symlink_to(tmp_path / "library/B.txt")
    expected = [str(path) for path in sorted((tmp_path / "library").rglob("*.txt")) if ".h" not in str(path)]
    assert len(expected) == 10
    assert list(find_files(tmp_path / "library")) == list(find_files(str(tmp_path / "library/**/*.txt"))) == expected
    (tmp_path / "library/circle").symlink_to(tmp_path / "library")
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: contextlib.nullcontext(sorted(scandir(folder), key=lambda e: e.name, reverse=True)))
    assert list(find_files(tmp_path / "library")) == expected


def test_looking_for_text_stops_at_the_first_file(tmp_path, monkeypatch):
    for i in range(50):
        write(tmp_path / f"many/{i}.txt", TXT)
    seen, kind = [], text_files.kind_of
    monkeypatch.setattr(text_files, "kind_of", lambda path: (seen.append(path), kind(path))[1])
    check_sources([str(tmp_path / "many")])
    assert len(seen) == 1


def test_what_cannot_be_read_to_its_end_leaves_nothing_in_the_cache(tmp_path, texts_of):
    whole = [json.dumps({"text": f"document {i}"}) for i in range(1000)]
    path = write(tmp_path / "text.jsonl", "\n".join([*whole, "{"]))
    for _ in range(2):
        with pytest.raises(PlainError, match="text.jsonl, line 1001"):
            texts_of("text.jsonl")
        assert not list((tmp_path / "cache").iterdir())
    write(path, "\n".join(whole))
    assert len(texts_of("text.jsonl")) == 1000


LOAD_DATASET, HF_API = datasets.load_dataset, huggingface_hub.HfApi


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hub that can be reached, with two versions of each dataset."""
    return Hub(tmp_path, monkeypatch, {FIRST: DOCUMENTS, SECOND: ["Another text."]})


@pytest.fixture
def go_offline(hub, monkeypatch):
    """A function: from now on `datasets` has only its cache, and the hub cannot be asked."""
    def go():
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        monkeypatch.setattr(datasets, "load_dataset", LOAD_DATASET)
        monkeypatch.setattr("huggingface_hub.HfApi", HF_API)
    return go


@pytest.mark.parametrize("name, path, config, branch", [
    ("openwebtext", "Skylion007/openwebtext", None, "main"),
    ("wikipedia", "wikimedia/wikipedia", "20231101.en", "main"),
    ("bookcorpus", "bookcorpus/bookcorpus", None, "refs/convert/parquet"),
])
def test_a_hub_corpus_is_loaded_at_the_commit_of_its_first_use(tmp_path, hub, go_offline, name, path, config, branch):
    first = load_documents(name, tmp_path / "cache")
    assert hub.calls == [(path, branch)]  # the text itself is not loaded before it is needed
    assert first.documents.column_names == ["text"] and list(first.documents["text"]) == DOCUMENTS
    assert hub.calls[1:] == [(path, config, FIRST, "train")]
    hub.head = SECOND
    again = load_documents(name, tmp_path / "cache")
    assert again.key == first.key and list(again.documents["text"]) == DOCUMENTS and len(hub.calls) == 2
    go_offline()
    assert list(load_documents(name, tmp_path / "cache").documents["text"]) == DOCUMENTS


def test_a_new_folder_takes_the_newest_commit_and_revisions_chooses_another(tmp_path, hub):
    load = lambda cache, **revisions: load_documents("openwebtext", tmp_path / cache, revisions=revisions)
    old = load("one")
    hub.head = SECOND
    new = load("two")
    assert new.key != old.key and list(new.documents["text"]) == ["Another text."]
    for revision in (FIRST, "old-tag"):
        assert load("two", openwebtext=revision).key == old.key and list(load("two", openwebtext=revision).documents["text"]) == DOCUMENTS
    assert load("two").key == new.key
    assert load("one", openwebtext=SECOND).key == new.key


def test_without_a_connection_no_other_commit_is_taken(tmp_path, hub, go_offline):
    load = lambda revision: load_documents("openwebtext", tmp_path / "cache", revisions={"openwebtext": revision}).documents["text"]
    load(FIRST), load(SECOND)
    go_offline()
    assert list(load(FIRST)) == DOCUMENTS  # which is not the newest one in the cache
    with pytest.raises(PlainError, match=f"at revision {'3' * 40}, only '.*{SECOND}' is in the cache: check the connection"):
        load("3" * 40)


def test_an_unreachable_hub_is_reported_with_what_to_do(tmp_path, hub, go_offline):
    go_offline()
    with pytest.raises(PlainError) as error:
        load_documents("wikipedia", tmp_path / "cache")
    message = str(error.value)
    assert "'wikipedia'" in message and "OfflineModeIsEnabled" in message and "python pretrain.py quickstart=True" in message
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
