"""Score texts with a pretrained network: `python -m _utils score`."""
import json
import sys

import pandas as pd

from _utils.commands.predict import is_table
from _utils.custom.table_files import read_table
from _utils.errors import UserError
from _utils.names import check_file
from _utils.tasks.tables import Table, check_columns, in_cell, malformed, read_lines
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
        print(*map(in_cell, line), sep="\t")
    print(f"Score of a token: {scorer.meaning}.", file=sys.stderr)


def read_texts(file, text, group):
    """DataFrame with the columns text and, if there is one, group. text, group: names of the columns of a table; group
    may be None.

    Raises UserError, with the line, for an empty text, and for a missing column.
    """
    if file != "-":
        check_file(file, "Pass a file with one text per line, a table, or - for standard input.")
    source = "standard input" if file == "-" else file
    table = read_table(file) if is_table(file) else Table(source, read_lines(file).to_frame("text"), {})
    columns = {"text": text} | ({"group": group} if group else {})
    check_columns(table, columns.values(), "Set --text and --group to columns of a .csv, .tsv, .jsonl or .parquet "
                                           "file. Other files have a text on each line.")
    rows = table.rows[[*columns.values()]].set_axis([*columns], axis=1)
    is_text = rows["text"].map(lambda cell: isinstance(cell, str) and bool(cell.strip()))
    problems = table.problems | dict.fromkeys(rows.index[~is_text], "there is no text")
    if problems:
        place, problem = next(iter(problems.items()))
        raise UserError(f"{table.source}, {place}: {problem} ({malformed([*problems], len(rows))}). Correct or remove "
                        "these rows.")
    return rows
