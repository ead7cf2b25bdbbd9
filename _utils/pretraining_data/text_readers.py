"""Readers of text files: each yields the documents of one file as strings, without holding the file in memory."""
import io
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet

from _utils.errors import PlainError, as_plain_error
from _utils.pretraining_data.documents import LONG, Continuation
from _utils.pretraining_data.text_files import OPENERS, format_of, reading


def read_file(path, encoding, one_document_per_file):
    """Yield the documents of a file. A long document of a .txt file is yielded as one string and Continuations.

    Raises PlainError with the file, and the line where possible, if it cannot be read.
    """
    not_text = f"{path} is not {encoding} text ({{error}}). Convert it, or set its encoding (for example encoding=latin-1)."
    with reading(path), as_plain_error(not_text, UnicodeError):
        if format_of(path) == ".parquet":
            yield from _read_parquet(path)
        else:
            with _open(path, encoding) as stream:
                yield from _read_stream(stream, path, one_document_per_file)


def _open(path, encoding):
    """Open a plain or compressed file as a text stream."""
    suffix = Path(path).suffix
    if suffix == ".zst":
        return io.TextIOWrapper(pyarrow.input_stream(str(path), compression="zstd"), encoding=encoding)
    return OPENERS.get(suffix, open)(path, "rt", encoding=encoding)


def _read_stream(stream, path, one_document_per_file):
    if format_of(path) == ".jsonl":
        return _read_json_lines(stream, path)
    if format_of(path) == "wiki":
        return _read_wikiextractor(stream, path)
    return _read_whole(stream) if one_document_per_file else _read_blank_line_separated(stream)


def _read_whole(stream):
    kind = str
    while text := stream.read(LONG) + stream.readline(LONG):
        yield kind(text)
        kind = Continuation


def _read_blank_line_separated(stream):
    lines, size, kind = [], 0, str
    while line := stream.readline(LONG):
        is_blank = not line.strip()
        if not is_blank:
            lines.append(line)
            size += len(line)
        if lines and (is_blank or size >= LONG):
            text = "".join(lines)
            yield kind(text.removesuffix("\n") if is_blank else text)
            lines, size, kind = [], 0, Continuation
        if is_blank:
            kind = str
    if lines:
        yield kind("".join(lines).removesuffix("\n"))


def _read_json_lines(lines, path):
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _text_of_json(line, path, number)


def _text_of_json(line, path, number):
    try:
        text = json.loads(line)["text"]
        text.encode()  # raises ValueError for a lone surrogate, which UTF-8 cannot encode
        return text
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise PlainError(f"{path}, line {number} is not a JSON object with a string \"text\". Correct or remove that line.") from None


def _read_wikiextractor(lines, path):
    """Yield the articles between <doc ...> and </doc> without their titles (the first line), or WikiExtractor's --json lines."""
    article = None
    for number, line in enumerate(lines, 1):
        if article is None and line.startswith("{"):
            yield _text_of_json(line, path, number)
        elif line.startswith("<doc "):
            article = []
        elif line.startswith("</doc>") and article is not None:
            yield "\n".join(article[1:])
            article = None
        elif article is not None and line.strip():
            article.append(line.strip())
        elif line.strip():
            raise PlainError(f"{path}, line {number} is outside <doc> ... </doc>, so this is not the output of WikiExtractor. "
                             "Rename the file to .txt or .jsonl.")
    if article is not None:
        raise PlainError(f"{path} ends before the </doc> of its last article. It seems to be truncated, so replace it.")


def _read_parquet(path):
    file = pyarrow.parquet.ParquetFile(path)
    if "text" not in file.schema_arrow.names:
        columns = ", ".join(file.schema_arrow.names)
        raise PlainError(f"{path} has no column \"text\" (its columns: {columns}). Rename one of them.")
    for batch in file.iter_batches(batch_size=100, columns=["text"]):
        for text in batch.column(0).to_pylist():
            if not isinstance(text, str | None):
                raise PlainError(f"{path}: the column \"text\" contains {text!r:.60}, which is not a string.")
            yield text or ""
