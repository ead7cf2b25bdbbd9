"""The command `python -m _utils.minimal_pairs`, also as functions."""
from _utils.minimal_pairs.pairs import read_pairs
from _utils.minimal_pairs.results import accuracy_by_paradigm, summarize
from _utils.minimal_pairs.scores import encode, score

__all__ = ["accuracy_by_paradigm", "encode", "read_pairs", "score", "summarize"]
