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
