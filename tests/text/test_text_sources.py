"""Documents from files of all kinds, their cache, and the embedded text. Hub corpora: text/test_hub.py."""
import bz2
import gzip
import json
import lzma
import os
from types import SimpleNamespace

import pandas
import pyarrow
import pytest

import pretrain
from _utils.config import complete
from _utils.errors import UserError
from _utils.text import load_tokenizer, text_tokenizer
from _utils.text.pretraining_data import corpora_of, warn_of_shared_files
from _utils.text.readers import print_once
from _utils.text.sources import load_documents

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
JSON_LINES = (
    "\n".join(json.dumps({"id": i, "text": text}, ensure_ascii=i == 0) for i, text in enumerate(DOCUMENTS)) + "\n\n"
)
FILES = {
    "blank_lines_between.txt": TXT,
    "windows_line_ends.txt": TXT.replace("\n", "\r\n"),
    "blanks_between.txt": TXT.replace("\n\n \n\n", "\n \t\n"),
    "lines.jsonl": JSON_LINES,
    "wiki_00": ARTICLES,
    "byte_order_mark.txt": "\ufeff" + TXT,
    "byte_order_mark.jsonl": "\ufeff" + JSON_LINES,
}
COMPRESSION = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress,
               ".zst": lambda content: pyarrow.compress(content, "zstd", asbytes=True)}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.fixture
def texts_of(tmp_path):
    """Return a function that reads a source in tmp_path into a list of documents."""
    return lambda source, **options: load_documents(str(tmp_path / source), tmp_path / "cache",
                                                    **options).documents["text"][:]


def test_all_file_formats_and_compressions_give_the_same_documents(tmp_path, texts_of):
    """Suffixes may have capitals, and UTF-8 other names."""
    for suffix, compress in COMPRESSION.items():
        for name, content in FILES.items():
            write(tmp_path / f"library{suffix}" / (name + suffix), compress(content.encode()))
            write(tmp_path / f"capitals{suffix}" / (name + suffix).upper(), compress(content.encode()))
        expected = DOCUMENTS * len(FILES)
        assert texts_of(f"library{suffix}") == texts_of(f"capitals{suffix}", encoding="UTF8") == expected


@pytest.mark.parametrize("copies", [
    {"a (1).txt": TXT}, {"deep/a.txt.gz": gzip.compress(TXT.encode())},
    {"a.txt.xz": lzma.compress(TXT.encode()), "a.txt.zst": pyarrow.compress(TXT.encode(), "zstd", asbytes=True)}])
def test_a_file_that_is_there_twice_is_read_once(tmp_path, texts_of, capsys, copies):
    """Else what is held out of one copy is trained on in the other."""
    other = TXT.replace("First", "Third")  # of the same size
    for name, content in {"a.txt": TXT, "b.txt": other, "c.txt": "", "d.txt": "", **copies}.items():
        write(tmp_path / "texts" / name, content)
    assert texts_of("texts") == [*DOCUMENTS, *(text.replace("First", "Third") for text in DOCUMENTS)]
    printed = capsys.readouterr().out
    assert all(name in printed for name in copies) and "d.txt" not in printed
    print_once.cache_clear()  # as in a later process
    texts_of("texts")
    assert capsys.readouterr().out == printed


LIBRARY = {
    "c.txt": b"third", "a b.txt": b"between",
    "a/c[1].txt": b"glob", "a/wiki_00": b'<doc id="1">\nTitle\n\nfirst\n</doc>\n',
    "a/deep/er/b.jsonl.gz": gzip.compress(b'{"text": "second"}'),
    "d.parquet": pandas.DataFrame({"text": [None, "fourth", ""]}).to_parquet(),
    **dict.fromkeys(("notes.md", "image.png", "wiki_index", ".hidden.txt", ".cache/old.txt"), b"must not be read"),
}


@pytest.mark.parametrize("source, expected", [
    ("library", "glob second first between third fourth"), ("library/*", "between third fourth"),
    ("library/**/*", "glob second first between third fourth"), ("library/a/c[1].txt", "glob")])
def test_folders_are_read_recursively_and_globs_like_in_a_shell(tmp_path, texts_of, source, expected):
    for name, content in LIBRARY.items():
        write(tmp_path / "library" / name, content)
    assert texts_of(source) == expected.split()


@pytest.mark.parametrize("source, expected", [
    ("[ab] c/*.txt", "first second"), ("[ab] c/**/*.txt", "first second third"), ("[ab] c/[1]*", "first"),
    ("[ab] c/[12].txt", "first second"), ("[a-c] ?/1.txt", "other"), ("[ab] c/[x] d/*.txt", "third")])
def test_folders_of_a_glob_may_have_brackets_in_their_names(tmp_path, texts_of, source, expected):
    files = {"[ab] c/1.txt": "first", "[ab] c/2.txt": "second", "[ab] c/[x] d/3.txt": "third", "b c/1.txt": "other"}
    for name, content in files.items():
        write(tmp_path / name, content)
    assert texts_of(source) == expected.split()


def test_files_that_are_not_read_are_named(tmp_path, capsys):
    for name in ("a.txt", "b.txt.aa", "data.json", ".c.txt"):
        write(tmp_path / "texts" / name, "x")
    load_documents(str(tmp_path / "texts"), tmp_path / "cache")
    printed = capsys.readouterr().out
    assert "b.txt.aa" in printed and "data.json" in printed
    assert "a.txt," not in printed and ".c.txt" not in printed


def test_changed_options_are_not_read_from_the_cache(tmp_path, texts_of):
    write(tmp_path / "text.txt", TXT)
    assert texts_of("text.txt") == DOCUMENTS
    write(tmp_path / "price.txt", b"\x80 5")
    assert [texts_of("price.txt", encoding=name) for name in ("cp1252", "latin-1")] == [["€ 5"], ["\x80 5"]]
    assert texts_of("text.txt", documents="file") == [TXT.rstrip()]  # with its blank lines
    assert texts_of("text.txt", documents="line") == ["First line.", "Ä second, naïve line.", "Another document."]


def replace_and_restore_time(path):
    """Write other content of the same length and restore the modification time."""
    before = path.stat()
    write(path, TXT.replace("Another", "Ynother"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [
    lambda books: replace_and_restore_time(books / "a.txt"), lambda books: write(books / "b/new.txt", "A new one."),
    lambda books: (books / "a.txt").rename(books / "z.txt")])
def test_changes_of_content_files_or_order_are_detected(tmp_path, texts_of, change):
    write(tmp_path / "books/a.txt", TXT)
    write(tmp_path / "books/b/c.txt", "Another book.")
    before = texts_of("books")
    change(tmp_path / "books")
    assert texts_of("books") != before


def test_the_quickstarts_text_is_held_out_in_part_and_its_vocabulary_knows_all_of_it(tmp_path):
    train, held_out = (load_documents(name, tmp_path, encoding="latin-1").documents["text"][:]  # not that of own files
                       for name in ("prose", "prose_held_out"))
    assert 9 * len(held_out) <= len(train) < 10 * len(held_out)
    known, new = ({line for document in part for line in document.split("\n")} for part in (train, held_out))
    assert len(new) > 7000 and not known & new
    hf_tokenizer = load_tokenizer("prose")
    tokenizer = text_tokenizer(hf_tokenizer)
    for encoding in tokenizer.encode_batch_fast(train[::10] + held_out):
        assert hf_tokenizer.unk_token_id not in encoding.ids


def test_the_same_bytes_with_another_compression_are_another_text(tmp_path, texts_of):
    """In latin-1, compressed bytes are text, too."""
    for name in ("a.txt", "a.txt.gz"):
        write(tmp_path / name, gzip.compress(TXT.encode("latin-1"), mtime=0))
    assert texts_of("a.txt.gz", encoding="latin-1") == DOCUMENTS != texts_of("a.txt", encoding="latin-1")


@pytest.mark.parametrize("name, encoding", [("blank_lines_between.txt", "latin-1"), ("windows_line_ends.txt", "utf-16"),
                                            ("lines.jsonl", "utf-16"), ("wiki_00", "cp1252")])
def test_other_encodings(tmp_path, texts_of, name, encoding):
    write(tmp_path / name, FILES[name].encode(encoding))
    assert texts_of(name, encoding=encoding) == DOCUMENTS


def test_files_of_utf8_are_not_read_in_another_encoding(tmp_path, texts_of):
    """Which decodes them to other characters."""
    write(tmp_path / "texts/a.txt", TXT.encode("latin-1"))
    assert texts_of("texts", encoding="latin-1") == DOCUMENTS
    write(tmp_path / "texts/b.txt", TXT * 20)
    with pytest.raises(UserError, match="1 of 2 files are utf-8.*b.txt"):
        texts_of("texts", encoding="latin-1")
    assert texts_of("texts/b.txt", encoding="utf-8-sig")[0] == DOCUMENTS[0]


def test_the_encoding_of_the_configuration_is_that_of_the_files(empty_folder):
    write(empty_folder / "text.txt", TXT.encode("latin-1"))
    [corpus] = corpora_of(complete(pretrain.c.override(["datas=text.txt", "encoding=latin-1"])))
    assert corpus.documents["text"][:] == DOCUMENTS


def test_files_that_change_while_they_are_read_are_not_kept_as_what_they_were(tmp_path):
    path = tmp_path / "texts/a.txt"
    write(path, TXT)
    corpus = load_documents(str(path), tmp_path)
    write(path, "only the beginning")
    with pytest.raises(UserError, match="a.txt"):
        len(corpus.documents)
    assert not list(tmp_path.glob("documents_*"))


@pytest.mark.parametrize("end", ["", '<doc id="4">\nFour\n\nLast.\n</doc>\n'])
def test_an_article_without_an_end_is_an_error(tmp_path, texts_of, end):
    write(tmp_path / "wiki_00", ARTICLES.removesuffix("</doc>\n") + end)
    with pytest.raises(UserError, match="wiki_00.*</doc>"):
        texts_of("wiki_00")


def test_files_that_two_entries_share_are_reported(tmp_path, capsys):
    """One entry's held-out text would be another's training text."""
    for name, text in ("texts/a.txt", TXT), ("texts/b.txt", "another text"), ("copies/c.txt", TXT):
        write(tmp_path / name, text)
    folder, file, same = (str(tmp_path / name) for name in ("texts", "texts/a.txt", "texts/*.txt"))
    corpora = lambda *names: [load_documents(name, tmp_path / "cache") for name in names]
    of_hub = lambda *names: [SimpleNamespace(name=name, key=name) for name in names]
    for other in (file, str(tmp_path / "copies")):
        warn_of_shared_files(corpora(folder, other))
        assert f"'{os.path.realpath(file)}'" in capsys.readouterr().out
    write(tmp_path / "compressed/d.txt.gz", gzip.compress(TXT.encode()))
    write(tmp_path / "compressed/e.txt", "text of its own")
    write(tmp_path / "longer.txt", "a line\n" * 20_000)
    write(tmp_path / "beginning.txt", "a line\n" * 10_000)
    write(tmp_path / "renamed/1.txt", "another text")
    write(tmp_path / "renamed/2.txt", TXT)
    for shared in (corpora(file, str(tmp_path / "compressed")), of_hub("a/b", "a/b::train[:10%]"),
                   of_hub("wikipedia", "wikimedia/wikipedia:20231101.en"),
                   corpora(str(tmp_path / "longer.txt"), str(tmp_path / "beginning.txt")),
                   corpora(folder, str(tmp_path / "renamed"))):  # whose held-out examples are others
        warn_of_shared_files(shared)
        assert capsys.readouterr().out.startswith("Warning"), shared
    warn_of_shared_files(corpora(folder, same))  # equal files are divided equally
    warn_of_shared_files(of_hub("a/b::train", "a/b::validation"))
    assert not capsys.readouterr().out
