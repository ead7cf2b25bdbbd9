"""Reading the documents: sections and tables."""
import re
from functools import cache
from pathlib import Path

REPO = Path(__file__).parents[2]


@cache
def read(document):
    """Text of a file, by its path or its name in docs/."""
    return (REPO / "docs" / document).read_text(encoding="utf-8")


def section(document, heading):
    """The lines below a heading, up to the next heading of any level."""
    return re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", read(document), re.S | re.M)[1]


def tables(text):
    """[[[cell, ...], ...], ...] of all tables in a text, without their heads."""
    blocks = re.findall(r"(?:^\|.*\n)+", text + "\n", re.M)
    return [
        [[cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip("|"))] for row in block.splitlines()[2:]]
        for block in blocks
    ]
