"""Score texts with a pretrained network: `python -m _utils score`."""
import json
import sys
from pathlib import Path
from typing import Literal

import pandas as pd

from _utils.custom.definition import is_conll
from _utils.custom.table_files import FORMATS, read_table
from _utils.errors import UserError
from _utils.files import read_text
from _utils.names import check_file
from _utils.training.scores import load


def score(
    checkpoint,  # a checkpoint of pretrain.py, a transformers folder or a hub id, with the head of the pretraining
    file,        # one text per line; a table (.csv, .tsv, .jsonl, .parquet); "-": standard input, one text per line
    *,
    text="text",         # column of a table with the texts; default: %(default)s
    group=None,          # column of a table: texts with the same value are ranked, the best first
    tokens=False,        # also write the score of every token
    # network to score with; default: the discriminator if there is one
    part: Literal["generator", "discriminator"] = None,
    device=None,         # default: the first GPU, else the CPU
):
    """Score texts with a pretrained network, to rank or filter them. Higher is better.

    The output has a header, and a tab-separated line for each text, in the order of FILE: its score, the number of its
    tokens, with --group the group and the rank in it, with --tokens a JSON list of [token, score], and the text, in
    which tabs and line breaks become spaces. The score is the sum over the tokens; special tokens do not count. What
    the score of a token is depends on the network and is printed to standard error. A text that is longer than the
    network's inputs is divided.
    """
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


def read_texts(file, text="text", group=None):
    """DataFrame with the columns text and, if there is one, group. text, group: names of the columns of a table.

    Raises UserError, with the line, for an empty text, and for a missing column.
    """
    suffix = Path(file).suffix.lower()
    if file != "-":
        check_file(file, "Pass a file with one text per line, a table, or - for standard input.")
    if suffix in FORMATS and not is_conll(file):
        table = read_table(file)
        if table.problems:
            place, problem = next(iter(table.problems.items()))
            raise UserError(f"{file}, {place}: {problem}. Correct it.")
        names = {text: "text"} | ({group: "group"} if group else {})
        for option, name in (("--text", text), ("--group", group)):
            if name and name not in table.rows:
                raise UserError(f"{file} has no column {name!r}, but {', '.join(map(repr, table.rows))}. Set {option} "
                                "to one of them.")
        rows = table.rows[[*names]].rename(columns=names)
    else:
        if group:
            raise UserError(f"--group {group} needs a table with this column, but {file} has a text on each line. Pass "
                            "a .csv, .tsv, .jsonl or .parquet file.")
        text = read_text("/dev/stdin" if file == "-" else file, "Convert it to UTF-8.").removesuffix("\n")
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
