"""The corpus `prose` and its vocabulary (_utils/text/prose): `python -m benchmarks.prose FOLDER`.

FOLDER has text files (also compressed) with the books of Standard Ebooks: one sentence per line, and a blank line
between documents, which are chapters or parts of one. A book is found by the beginnings of two sentences: the documents
from the one with the first to the one with the second. Kept are lines that begin and end like a sentence, have 4 to 60
words and only usual characters. Quotation marks become straight. Every tenth document is held out.
"""
import lzma
import re
import sys

from _utils.files import write_text_atomically
from _utils.names import EMBEDDED, PROSE
from _utils.text.readers import find_files, read_file
from _utils.text.vocabulary import train_vocabulary

BOOKS = {
    "The Count of Monte Cristo": ("On the 24th of February, 1815, the lookout at Notre-Dame", "“ ‘Wait and hope"),
    "The Three Musketeers": ("A short time ago, while making researches in the Royal Library",
                             "In fact, M. Bonacieux, having left his house"),
    "In Search of the Castaways": ("On the 26th of July, 1864, under a strong gale", "The End"),
    "The Mysterious Island": ("“Are we going up again?”", "Here, finally, all were happy, united in the present"),
    "Twenty Thousand Leagues Under the Seas": ("The year 1866 was marked by a bizarre development",
                                               "Thus to that question asked 6,000 years ago"),
    "The Adventures of Sherlock Holmes": ("To Sherlock Holmes she is always the woman.",
                                          "As to Miss Violet Hunter, my friend Holmes"),
    "The Innocents Abroad": ("Taking it “by and large,” as the sailors say, we had a pleasant ten days",
                             "We shall remember Constantinople and the Bosporus"),
}
N_TOKENS = 2000
_PLAIN = str.maketrans("’‘“”\u2011\u00a0\u202f", "''\"\"-  ", "\u2060\u200a\ufeff")
_SENTENCE = re.compile(r"""["' ]*[A-Z][\w ,;:.!?"'()—-]*[.!?]["' ]*""")
_USUAL = re.compile(r"[\u0020-\u007e\u00c0-\u017f—]*")


def documents_of(book, documents):
    """The documents of a book in a list of documents."""
    first, last = BOOKS[book]
    starts_in = lambda document, start: any(line.startswith(start) for line in document.split("\n"))
    begin = next(i for i, document in enumerate(documents) if starts_in(document, first))
    end = next(i for i, document in enumerate(documents) if i > begin and starts_in(document, last))
    return documents[begin:end + 1]


def select(documents):
    """Yield the documents with the lines that are kept, each once."""
    seen = set()
    for document in documents:
        kept = []
        for line in (line.translate(_PLAIN).strip() for line in document.split("\n")):
            is_kept = 4 <= len(line.split()) <= 60 and _SENTENCE.fullmatch(line) and _USUAL.fullmatch(line)
            if is_kept and line.lower() not in seen:
                seen.add(line.lower())
                kept.append(line)
        if kept:
            yield "\n".join(kept)


def write(folder):
    books = [document for file in find_files(folder) for document in read_file(file, "utf-8", "blank_line")]
    documents = [*select(document for book in BOOKS for document in documents_of(book, books))]
    held_out = documents[9::10]
    train = [document for i, document in enumerate(documents) if i % 10 != 9]
    for path, part in zip(EMBEDDED.values(), (train, held_out)):
        text = "\n\n".join(part) + "\n"
        path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
        n_sentences = sum(len(document.split("\n")) for document in part)
        print(f"{path.name}: {len(part)} documents, {n_sentences:,} sentences, {len(text.split()):,} words, "
              f"{len(text.encode()):,} bytes, {path.stat().st_size:,} compressed")
    tokens = train_vocabulary(N_TOKENS, lambda: train)
    write_text_atomically(PROSE / "vocab.txt", "".join(f"{token}\n" for token in tokens))


if __name__ == "__main__":
    PROSE.mkdir(exist_ok=True)
    write(*sys.argv[1:])
