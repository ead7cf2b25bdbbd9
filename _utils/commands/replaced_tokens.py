"""Compare discriminators on the same corrupted text: `python -m _utils replaced_tokens`."""
import argparse
import os
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score
from tqdm import tqdm

from _utils.commands.corrupted_text import TEXT_KEYS, check_new, make_corrupted, open_corrupted, save_corrupted, text_config
from _utils.errors import PlainError
from _utils.networks import inputs_of, load_with_head, max_positions, replaced_logits
from _utils.text import is_corpus_name
from _utils.training import choose_device

_TOKENS_AT_ONCE = 8192
_BLOCKS = 16  # as many as the runs of consecutive examples that pretrain.py holds out


class Auc(NamedTuple):
    """An AUC and how much each block of examples contributes to its error: influence, (number of blocks,)."""
    value: float
    influence: np.ndarray

    def __str__(self):
        return f"{self.value:.4f} ({standard_error(self.influence):.4f})"

    def minus(self, other):
        """The difference to the AUC of another discriminator on the same tokens. Their errors are correlated, so its error is smaller."""
        return Auc(self.value - other.value, self.influence - other.influence)


def compare(text, names):
    """DataFrame with the scores of each discriminator, and of a constant prediction, on a CorruptedText.

    names: as in `load_with_head`. AUCs are strings with the standard error in parentheses.
    Raises PlainError, before any scoring, for a discriminator that cannot be loaded or has another vocabulary or too few positions; later
    for logits that are not finite. Prints a warning for a discriminator that may have been trained on the text.
    """
    networks = []
    for name in names:
        network, _, hf_tokenizer = load_with_head(name, "discriminator")
        _check_fits(text, name, network, hf_tokenizer)
        _warn_of_training_text(text, name)
        networks.append(network)
    first, *others = [_score(text, name, network) for name, network in zip(names, networks)]
    rows = [first, *(row | {"AUC difference": row["AUC"].minus(first["AUC"])} for row in others), constant_scores(text)]
    rows = [{name: str(value) if isinstance(value, Auc) else value for name, value in row.items()} for row in rows]
    columns = ["AUC", *(["AUC difference"] if others else []), "AUC at masks", "average precision", "precision", "recall", "loss"]
    return pd.DataFrame(rows, index=[*names, "constant prediction"], columns=columns)


def _check_fits(text, name, network, hf_tokenizer):
    """PlainError for a discriminator with another vocabulary or too few positions."""
    ours, theirs = text.token_ids(), hf_tokenizer.get_vocab()
    if ours != theirs:
        differing = min((token for token in {**ours, **theirs} if ours.get(token) != theirs.get(token)), key=lambda token: (
            ours.get(token, len(ours)), token))
        raise PlainError(f"{name!r} has another vocabulary than the corrupted text: {len(theirs):,} tokens instead of {len(ours):,}; the "
                         f"first difference is {differing!r}. Choose discriminators of one vocabulary, and make the file with a generator "
                         "that has it too.")
    if (longest := int(text.lengths.max())) > max_positions(network):
        raise PlainError(f"{name!r} has {max_positions(network)} positions, but the longest corrupted example has {longest} tokens. Make a "
                         "file with a lower --max_length.")


def _warn_of_training_text(text, name):
    """Print a warning if the run of a checkpoint trained on what the file contains. Nothing is known about folders and hub ids."""
    if not name.endswith(".pth"):
        return
    c, made_from = text_config(name), text.made_by["text"]
    corrupted = set(map(_location, made_from["datas"]))
    shared = [source for source in c.datas if _location(source) in corrupted]
    differing = [f"{key}={c[key]!r} instead of {made_from.get(key)!r}" for key in TEXT_KEYS if c[key] != made_from.get(key)]
    if shared and (differing or text.made_by["part"] == "all"):
        reason = f"with {', '.join(differing)}, which holds out other examples" if differing else "and the file was made with --all"
        print(f"Warning: {name!r} was trained on {', '.join(shared)} {reason}. The file may contain text that it was trained on.")


def _location(source):
    """An entry of `datas`, with a path in the one form that all its spellings share."""
    return source if is_corpus_name(source) else os.path.realpath(source)


def _score(text, name, network):
    """The scores of a discriminator, as `replaced_scores` returns them."""
    logits = discriminator_logits(network, text, name)
    if not np.isfinite(logits).all():
        raise PlainError(f"{name!r} computes NaN or infinite logits. Choose another checkpoint.")
    return replaced_scores(logits, *_labels(text))


def _labels(text):
    """(is_replaced, is_masked, block) of all tokens, (T,) each, as NumPy arrays; arguments of `replaced_scores`."""
    is_token, n = text.is_token(), len(text.lengths)
    blocks = torch.arange(n) * min(n, _BLOCKS) // n
    return tuple(x.numpy() for x in (text.is_replaced[is_token], text.is_masked[is_token], blocks[is_token.nonzero()[:, 0]]))


@torch.inference_mode()
def discriminator_logits(network, text, name="discriminator"):
    """Logits of "replaced" for all tokens of a CorruptedText, (T,), NumPy float64. name: for the progress bar.

    Runs on the first GPU, or on the CPU if there is none, in batches of similar lengths.
    """
    device, is_token = choose_device(None), text.is_token()
    network.to(device).eval()
    logits = torch.zeros(text.input_ids.shape)
    batches = text.lengths.argsort(descending=True, stable=True).split(max(1, _TOKENS_AT_ONCE // text.input_ids.shape[1]))
    for rows in tqdm(batches, desc=name, unit="batch", leave=False):
        longest = int(text.lengths[rows].max())
        ids, mask, segments = (x[rows, :longest].to(device) for x in (text.input_ids, is_token, text.token_type_ids))  # (B, longest)
        logits[rows, :longest] = replaced_logits(network(**inputs_of(network, ids.long(), mask, segments.long()))).float().cpu()
    return logits[is_token].double().numpy()


def replaced_scores(logits, is_replaced, is_masked, block):
    """{column of `compare`: value} of logits (T,) for labels is_replaced (T,); undefined values are NaN or None.

    is_masked: (T,); "AUC at masks" separates wrong samples from correct ones, at masked positions only.
    block: (T,), as in `auc`.   "loss": mean binary cross-entropy over all tokens, as in training (F22).
    """
    is_flagged = logits > 0  # probability above .5
    hits = (is_flagged & is_replaced).sum()
    return {"AUC": auc(logits, is_replaced, block),
            "AUC at masks": auc(logits[is_masked], is_replaced[is_masked], block[is_masked]),
            "average precision": average_precision_score(is_replaced, logits),
            "precision": hits / is_flagged.sum() if is_flagged.any() else None,
            "recall": hits / is_replaced.sum(),
            "loss": (np.logaddexp(0, logits) - logits * is_replaced).mean()}


def constant_scores(text):
    """The same for a constant prediction, the share of replaced tokens, which minimizes its loss."""
    share = float(text.is_replaced.sum() / text.lengths.sum())
    return {"AUC": "0.5000", "AUC at masks": "0.5000", "average precision": share, "recall": 0.,
            "loss": -share * np.log(share) - (1 - share) * np.log1p(-share)}


def auc(logits, is_positive, block):
    """Auc of logits (T,), or None if one class is missing: the probability that a positive token has a higher logit than a negative one.

    block: (T,), the index of each token's block of consecutive examples. Tokens of an example, and examples of a document, are not
    independent, so the error is that of a sample of blocks (Obuchowski 1997, Nonparametric analysis of clustered ROC curve data; with one
    token per block it is that of DeLong et al. 1988).
    """
    n_positive = int(is_positive.sum())
    n_negative = len(is_positive) - n_positive
    if not n_positive or not n_negative:
        return None
    ranks, share = rankdata(logits), np.empty(len(logits))
    # Of each positive token, the share of negatives below it; of each negative token, the share of positives above it. Ties count half.
    share[is_positive] = (ranks[is_positive] - rankdata(logits[is_positive])) / n_negative
    share[~is_positive] = 1 - (ranks[~is_positive] - rankdata(logits[~is_positive])) / n_positive
    value = float(share[is_positive].mean())
    return Auc(value, np.bincount(block, (share - value) / np.where(is_positive, n_positive, n_negative)))


def standard_error(influence):
    """Standard error of an estimate from the influence of each block; NaN for a single block."""
    n = len(influence)
    return float(np.sqrt(n / (n - 1) * np.square(influence).sum())) if n > 1 else float("nan")


_USAGE = ("Pass --make FILE --generator CHECKPOINT --text PATH to make a file of corrupted text, or CHECKPOINT [CHECKPOINT ...] "
          "--corrupted FILE to compare discriminators on it.")


def main(arguments=None):
    options = _parser().parse_args(arguments)
    if options.make and not (options.checkpoints or options.corrupted) and options.generator and options.text:
        check_new(options.make)
        text = make_corrupted(options.generator, options.text, "all" if options.all else "held_out", options.rows, options.mask_prob,
                              options.seed, max_length=options.max_length, data_seed=options.data_seed)
        save_corrupted(text, options.make)
        print(f"{options.make}: {text.describe()}")
    elif options.corrupted and options.checkpoints and not (options.make or options.generator or options.text):
        text = open_corrupted(options.corrupted)
        table = compare(text, options.checkpoints)
        print(f"{options.corrupted}: {text.describe()}", "AUC and differences with (standard error)", "",
              table.to_string(float_format=lambda x: f"{x:.4f}", na_rep="-"), sep="\n")
    else:
        raise PlainError(_USAGE)


def _parser():
    parser = argparse.ArgumentParser(prog="python -m _utils replaced_tokens", description=__doc__.split("\n")[0])
    parser.add_argument("checkpoints", metavar="CHECKPOINT", nargs="*", help="discriminators to compare, the first one with the others: "
                        "checkpoints of pretrain.py, transformers folders or hub ids")
    parser.add_argument("--corrupted", metavar="FILE", help="the corrupted text, from --make")
    parser.add_argument("--make", metavar="FILE", help="make a file of corrupted text")
    parser.add_argument("--generator", metavar="CHECKPOINT", help="the masked language model that replaces tokens")
    parser.add_argument("--text", metavar="PATH", nargs="+", help="corpora by name or path, as datas of pretrain.py")
    parser.add_argument("--all", action="store_true", help="use the whole text instead of the part that pretrain.py holds out, for text "
                        "that no discriminator was trained on")
    parser.add_argument("--rows", type=int, metavar="N", help="number of examples, evenly spread; default: up to 1,024")
    parser.add_argument("--max_length", type=int, metavar="N", help="tokens of an example; default: as the generator was trained, or 128")
    parser.add_argument("--data_seed", type=int, metavar="N", help="random seed of the examples; default: that of the generator's run")
    parser.add_argument("--mask_prob", type=float, metavar="P", default=.15, help="fraction of the tokens that are masked; default: .15")
    parser.add_argument("--seed", type=int, metavar="N", default=0, help="random seed of masks and samples; default: 0")
    return parser
