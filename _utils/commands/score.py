"""Score texts with a pretrained network: `python -m _utils score`."""
import json
import sys
from typing import Literal

from _utils.commands.predict import read_rows
from _utils.errors import UserError
from _utils.training.scores import load


def score(
    checkpoint,  # a checkpoint of pretrain.py, a transformers folder or a hub id, with the head of the pretraining
    file,        # one text per line; a table (.csv, .tsv, .jsonl, .parquet); "-": standard input, one text per line
    *,
    text="text",         # column of a table with the texts; default: %(default)s
    tokens=False,        # also write the score of every token
    # network to score with; default: the discriminator if there is one
    part: Literal["generator", "discriminator"] = None,
    device=None,         # default: the first GPU, else the CPU
):
    """Score texts with a pretrained network, to rank or filter them. Higher is better.

    The output has a header, and a tab-separated line for each text, in the order of FILE: its score, the number of its
    tokens, with --tokens a JSON list of [token, score], and the text, in which tabs and line breaks become spaces. The
    score is the sum over the tokens; special tokens do not count. What the score of a token is depends on the network
    and is printed to standard error. A text that is longer than the network's inputs is divided.
    """
    texts = read_texts(file, text)
    scorer = load(checkpoint, part, device)
    found = scorer.score(texts)
    columns = {"score": [f"{one.score:.6f}" for one in found], "tokens": [len(one.tokens) for one in found]}
    if tokens:
        columns["token_scores"] = [
            json.dumps([*zip(one.tokens, [round(of_token, 4) for of_token in one.token_scores])], ensure_ascii=False)
            for one in found
        ]
    columns["text"] = texts
    print(*columns, sep="\t")
    for line in zip(*columns.values()):
        print(*(" ".join(str(cell).split("\t")).replace("\n", " ").replace("\r", " ") for cell in line), sep="\t")
    print(f"Score of a token: {scorer.meaning}.", file=sys.stderr)


def read_texts(file, column="text"):
    """The texts of a file with one per line, or of a column of a table. Raises UserError, with the line, for an empty
    text.
    """
    table, [column] = read_rows(file, [column], [column])
    texts = table.rows[column]
    is_empty = ~texts.map(lambda cell: isinstance(cell, str) and bool(cell.strip()))
    if unusable := [*table.problems, *texts.index[is_empty]]:
        raise UserError(f"{table.source}, {unusable[0]} has no text, or more than one ({len(unusable)} of {len(texts)} "
                        "rows). Remove it, or write a text.")
    return list(texts)
