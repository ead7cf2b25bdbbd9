"""The file of corrupted text: plain tensors, numbers and strings (torch.load with weights_only=True), written atomically."""
import os
from pathlib import Path
from typing import NamedTuple

import tokenizers
import torch

from _utils.errors import PlainError, as_plain_error
from _utils.run_files.checkpoints import check_writable, has_keys, load_checkpoint, save_checkpoint

_KIND = "corrupted text, version 1"


class CorruptedText(NamedTuple):
    """Examples in which a generator replaced tokens. Shapes: N examples, L tokens of the longest one, padded at the end."""
    input_ids: torch.Tensor       # (N, L), int32: with samples of the generator at the masked positions
    original_ids: torch.Tensor    # (N, L), int32: the text
    token_type_ids: torch.Tensor  # (N, L), uint8: 1 for segment B
    lengths: torch.Tensor         # (N,), int32: the attention mask; a sample can be [PAD], so input_ids do not determine it
    is_masked: torch.Tensor       # (N, L), bool: the generator sampled a token here
    is_replaced: torch.Tensor     # (N, L), bool: the sample differs from the original token (F17)
    tokenizer: str                # tokenizers.Tokenizer.to_str
    made_by: dict                 # generator, weights_digest, text, part, settings of text, masks and samples, versions

    def is_token(self):
        """The attention mask, (N, L), bool."""
        return torch.arange(self.input_ids.shape[1]) < self.lengths[:, None]

    def token_ids(self):
        """{token: id} of the vocabulary."""
        return tokenizers.Tokenizer.from_str(self.tokenizer).get_vocab()

    def describe(self):
        """Size and origin on one line."""
        n_tokens, n_masked, made_by = int(self.lengths.sum()), int(self.is_masked.sum()), self.made_by
        part = "held-out part of " if made_by["part"] == "held_out" else ""
        return (f"{len(self.lengths):,} examples of {part}{', '.join(made_by['text']['datas'])}, {n_tokens:,} tokens, {n_masked:,} masked, "
                f"{self.is_replaced.sum() / n_tokens:.2%} replaced by {made_by['generator']}")


_TYPES = {"input_ids": torch.int32, "original_ids": torch.int32, "token_type_ids": torch.uint8, "lengths": torch.int32,
          "is_masked": torch.bool, "is_replaced": torch.bool}
_MADE_BY = {"generator": str, "weights_digest": str, "part": str, "text": dict}


def check_new(path):
    """PlainError if this path exists or cannot be written. Scores on an overwritten file could no longer be compared with new ones."""
    if os.path.lexists(path):
        raise PlainError(f"{str(path)!r} already exists. Pass a new file, or delete it first.")
    check_writable(Path(path).parent)


def save_corrupted(text, path):
    """Write a CorruptedText to a new file."""
    check_new(path)
    save_checkpoint({"kind": _KIND, **text._asdict()}, path)


def open_corrupted(path):
    """The CorruptedText in a file. It is untrusted data: no code in it is run.

    Raises PlainError if the file is missing or damaged, or was not written by `save_corrupted`.
    """
    if not os.path.isfile(path):
        raise PlainError(f"File not found: {str(path)!r}. Make it with python -m _utils.replaced_tokens --make {path} --generator "
                         "CHECKPOINT --text PATH.")
    with as_plain_error(f"{str(path)!r} is not a file of corrupted text ({{error}}). Make one with python -m _utils.replaced_tokens --make "
                        "FILE --generator CHECKPOINT --text PATH."):
        content = load_checkpoint(path)
        if not isinstance(content, dict) or content.pop("kind", None) != _KIND:
            raise ValueError(f"expected {_KIND!r}")
        text = CorruptedText(**content)
        _check(text)
    return text


def _check(text):
    """ValueError or another exception for fields that do not fit together."""
    shapes = {name: tuple(getattr(text, name).shape) for name, kind in _TYPES.items() if getattr(text, name).dtype == kind}
    n, longest = text.input_ids.shape
    if shapes != {name: (n,) if name == "lengths" else (n, longest) for name in _TYPES} or not n:
        raise ValueError("tensors of other types or shapes")
    if not has_keys(text.made_by, _MADE_BY) or not isinstance(text.made_by["text"].get("datas"), list):
        raise ValueError("made_by lacks a key")
    highest = max(text.token_ids().values())
    if not 0 < text.lengths.min() <= text.lengths.max() <= longest or text.input_ids.min() < 0 or text.input_ids.max() > highest:
        raise ValueError("lengths or token ids out of range")
    if not text.is_replaced.equal(text.input_ids != text.original_ids) or (text.is_replaced & ~text.is_masked).any():
        raise ValueError("is_replaced does not fit the token ids")
    if (text.is_masked & ~text.is_token()).any() or not 0 < text.is_replaced.sum() < text.lengths.sum():
        raise ValueError("masked padding, or only one class of tokens")
