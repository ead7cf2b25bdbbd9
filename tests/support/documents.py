"""Reading the documents: sections and tables."""
import re
from functools import cache
from pathlib import Path

REPO = Path(__file__).parents[2]


@cache
def read(document):
    """Text of a file, by its path or its name in docs/."""
    return (REPO / "docs" / document).read_text(encoding="utf-8")


def section(text, heading):
    """The lines below a heading, up to the next heading of any level."""
    return re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.S | re.M)[1]


def has_sentence(text, sentence):
    """Whether a text contains a sentence, however its lines are broken."""
    return sentence in " ".join(text.split())


def table(text):
    """[[cell, ...], ...] of the first table in a text, without its head."""
    rows = re.search(r"(^\|.*?)(?:\n\n|\Z)", text, re.S | re.M)[1].strip().split("\n")
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip("|"))] for row in rows[2:]]


def rows_below(document, heading):
    """{first cell: the other cells} of the first table below a heading."""
    return {first: others for first, *others in table(section(read(document), heading))}
