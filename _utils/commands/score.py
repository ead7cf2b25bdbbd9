"""Score texts with a pretrained network: `python -m _utils score`."""
import json
import sys

import pandas as pd

from _utils.commands.predict import is_table
from _utils.custom.table_files import read_table
from _utils.errors import UserError
from _utils.files import read_text
from _utils.names import check_file
from _utils.training.pseudo_likelihood import load


def score(checkpoint, file, *, text, group, tokens, part, device):
    """Print the scores of texts by a pretrained network. Arguments and output as in `_utils/__main__.py`."""
    table = read_texts(file, text, group)
    scorer = load(checkpoint, part, device)
    found = scorer.score(table["text"])
    columns = {"score": [f"{one.score:.6f}" for one in found], "tokens": [len(one.tokens) for one in found]}
    if group:
        by_group = pd.Series([one.score for one in found]).groupby(table["group"].to_numpy())
        columns |= {"group": table["group"], "rank": by_group.rank(method="min", ascending=False).astype(int)}
    if tokens:
        columns["token_scores"] = [
            json.dumps([*zip(one.tokens, [round(of_token, 4) for of_token in one.token_scores])], ensure_ascii=False)
            for one in found
        ]
    columns["text"] = table["text"]
    print(*columns, sep="\t")
    for line in zip(*columns.values()):
        print(*(" ".join(str(cell).split("\t")).replace("\n", " ").replace("\r", " ") for cell in line), sep="\t")
    print(f"Score of a token: {scorer.meaning}.", file=sys.stderr)


def read_texts(file, text=None, group=None):
    """DataFrame with the columns text and, if there is one, group. text, group: names of the columns of a table; None:
    "text" and no group.

    Raises UserError, with the line, for an empty text, and for a missing column.
    """
    if file != "-":
        check_file(file, "Pass a file with one text per line, a table, or - for standard input.")
    if is_table(file):
        table = read_table(file)
        if table.problems:
            place, problem = next(iter(table.problems.items()))
            raise UserError(f"{file}, {place}: {problem}. Correct it.")
        text = text or "text"
        names = {text: "text"} | ({group: "group"} if group else {})
        for option, name in (("--text", text), ("--group", group)):
            if name and name not in table.rows:
                raise UserError(f"{file} has no column {name!r}, but {', '.join(map(repr, table.rows))}. Set {option} "
                                "to one of them.")
        rows = table.rows[[*names]].rename(columns=names)
    else:
        for option, name in (("--text", text), ("--group", group)):
            if name:
                raise UserError(f"{option} {name} needs a table with this column, but {file} has a text on each line. "
                                "Pass a .csv, .tsv, .jsonl or .parquet file.")
        text = read_text(file, "Convert it to UTF-8.").removesuffix("\n")
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        rows = pd.DataFrame({"text": lines}, [f"line {number}" for number in range(1, len(lines) + 1)])
    is_empty = ~rows["text"].map(lambda cell: isinstance(cell, str) and bool(cell.strip()))
    if is_empty.any():
        source = "standard input" if file == "-" else file
        raise UserError(f"{source}, {is_empty.idxmax()} has no text ({is_empty.sum()} of {len(rows)} have none). "
                        "Remove it, or write a text.")
    if rows.empty:
        raise UserError(f"{file} contains no texts.")
    return rows
