"""Discriminators compared on fixed corruptions of a text: `python -m _utils.replaced_tokens`."""
from _utils.replaced_tokens.command import main
from _utils.replaced_tokens.corrupted_text import CorruptedText, check_new, open_corrupted, save_corrupted
from _utils.replaced_tokens.corruption import corrupt, make_corrupted
from _utils.replaced_tokens.scores import compare, replaced_scores

__all__ = ["CorruptedText", "check_new", "compare", "corrupt", "main", "make_corrupted", "open_corrupted", "replaced_scores",
           "save_corrupted"]
