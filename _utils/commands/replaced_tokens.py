"""Compare discriminators on the same corrupted text: `python -m _utils replaced_tokens`."""
import os
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.special import logit
from scipy.stats import rankdata
from sklearn.metrics import average_precision_score, precision_score, recall_score
from tokenizers import Tokenizer
from tqdm import tqdm

from _utils.commands.corrupted_text import TEXT_KEYS, make_corrupted, open_corrupted, text_config
from _utils.errors import PlainError
from _utils.networks import inputs_of, load_with_head, replaced_logits
from _utils.networks.build import check_length
from _utils.runs.checkpoints import check_writable, save_checkpoint
from _utils.text import is_corpus_name
from _utils.training import choose_device

_TOKENS_AT_ONCE = 8192
_BLOCKS = 16  # as many as the runs of consecutive examples that pretrain.py holds out


def replaced_tokens(
    checkpoints: list = (),  # discriminators to compare, the first one with the others: checkpoints, transformers folders or hub ids
    *,
    corrupted=None,          # the file of corrupted text, from --make
    make=None,               # the file of corrupted text to make
    generator=None,          # the masked language model that replaces tokens
    text: list = (),         # corpora by name or path, as datas of pretrain.py
    all=False,               # use the whole text instead of the part that pretrain.py holds out, if no discriminator was trained on it
    rows: int = None,        # number of examples, evenly spread; default: up to 1,024
    max_length: int = None,  # tokens of an example; default: as the generator was trained, or 128
    data_seed: int = None,   # random seed of the examples; default: that of the generator's run
    mask_prob=.15,           # fraction of the tokens that are masked
    seed=0,                  # random seed of masks and samples; default: 0
):
    """Compare discriminators on the same corrupted text.

    Pass --make FILE --generator CHECKPOINT --text PATH to make a file of corrupted text, then CHECKPOINT ... --corrupted FILE to compare
    discriminators on it.
    """
    if make and generator and text and not (checkpoints or corrupted):
        if os.path.lexists(make):  # scores on an overwritten file could no longer be compared with new ones
            raise PlainError(f"{make!r} already exists. Pass a new file, or delete it first.")
        check_writable(Path(make).parent)
        made = make_corrupted(generator, text, "all" if all else "held_out", rows, mask_prob, seed, max_length=max_length,
                              data_seed=data_seed)
        save_checkpoint(made._asdict(), make)
        print(f"{make}: {made.describe()}")
    elif corrupted and checkpoints and not (make or generator or text):
        found = open_corrupted(corrupted)
        table = compare(found, checkpoints)
        print(f"{corrupted}: {found.describe()}", "AUC and differences with (standard error)", "",
              table.to_string(float_format=lambda x: f"{x:.4f}", na_rep="-"), sep="\n")
    else:
        raise PlainError("Pass --make FILE --generator CHECKPOINT --text PATH to make a file of corrupted text, or CHECKPOINT "
                         "[CHECKPOINT ...] --corrupted FILE to compare discriminators on it.")


def compare(text, names):
    """DataFrame with the scores of each discriminator, and of a constant prediction, on a CorruptedText.

    names: as in `load_with_head`. AUCs are strings with the standard error in parentheses.
    Raises PlainError, before any scoring, for a discriminator that cannot be loaded or has another vocabulary or too few positions.
    Prints a warning for a discriminator that may have been trained on the text.
    """
    networks, vocabulary = {name: load_with_head(name, "discriminator") for name in names}, Tokenizer.from_str(text.tokenizer).get_vocab()
    for name, (network, _, hf_tokenizer) in networks.items():
        if differing := vocabulary.items() ^ hf_tokenizer.get_vocab().items():
            raise PlainError(f"{name!r} has another vocabulary than the corrupted text; the first difference is "
                             f"{min((i, token) for token, i in differing)[1]!r}. Choose discriminators of one vocabulary, and make the "
                             "file with a generator that has it too.")
        check_length(network, int(text.lengths.max()), repr(name))
        _warn_of_training_text(text, name)
    is_token, n = text.is_token(), len(text.lengths)
    blocks = (torch.arange(n) * min(n, _BLOCKS) // n)[:, None].expand_as(is_token)
    labels = [x[is_token].numpy() for x in (text.is_replaced, text.is_masked, blocks)]  # (T,) each
    rows = {name: replaced_scores(discriminator_logits(network, text, name), *labels) for name, (network, *_) in networks.items()}
    for name in names[1:]:
        rows[name]["AUC difference"] = rows[name]["AUC"] - rows[names[0]]["AUC"]
    constant = np.full(len(labels[0]), logit(labels[0].mean()))  # which minimizes the loss
    rows["constant prediction"] = replaced_scores(constant, *labels) | {"AUC": .5, "AUC at masks": .5}
    columns = ["AUC", *["AUC difference"][:len(names) - 1], "AUC at masks", "average precision", "precision", "recall", "loss"]
    return pd.DataFrame(rows.values(), rows, columns).map(lambda value: with_error(value) if isinstance(value, np.ndarray) else value)


def _warn_of_training_text(text, name):
    """Print a warning if the run of a checkpoint trained on what the file contains. Nothing is known about folders and hub ids."""
    if not name.endswith(".pth"):
        return
    c, made_from = text_config(name), text.made_by["text"]
    location = lambda source: source if is_corpus_name(source) else os.path.realpath(source)  # the same for all spellings of a path
    shared = [source for source in c.datas if location(source) in map(location, made_from["datas"])]
    differing = [f"{key}={c[key]!r} instead of {made_from.get(key)!r}" for key in TEXT_KEYS if c[key] != made_from.get(key)]
    if shared and (differing or text.made_by["part"] == "all"):
        reason = f"with {', '.join(differing)}, which holds out other examples" if differing else "and the file was made with --all"
        print(f"Warning: {name!r} was trained on {', '.join(shared)} {reason}. The file may contain text that it was trained on.")


@torch.inference_mode()
def discriminator_logits(network, text, name):
    """Logits of "replaced" for all tokens of a CorruptedText, (T,), NumPy float64.

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
    """{column of `compare`: value} of logits (T,) for labels is_replaced (T,); AUCs as in `auc`, undefined values are NaN or None.

    is_masked: (T,); "AUC at masks" separates wrong samples from correct ones, at masked positions only.
    block: (T,), as in `auc`.   "loss": mean binary cross-entropy over all tokens, as in training (F22).
    """
    is_flagged = logits > 0  # probability above .5
    return {"AUC": auc(logits, is_replaced, block),
            "AUC at masks": auc(logits[is_masked], is_replaced[is_masked], block[is_masked]),
            "average precision": average_precision_score(is_replaced, logits),
            "precision": precision_score(is_replaced, is_flagged, zero_division=np.nan),
            "recall": recall_score(is_replaced, is_flagged),
            "loss": (np.logaddexp(0, logits) - logits * is_replaced).mean()}


def auc(logits, is_positive, block):
    """The AUC of logits (T,): the probability that a positive token has a higher logit than a negative one. None if one class is missing.

    block: (T,), the index of each token's block of consecutive examples. Returns an array with a term for each block; their sum is the
    AUC, and `with_error` computes its standard error. The difference to the terms of another discriminator on the same tokens are those
    of the difference of both AUCs. Tokens of an example, and examples of a document, are not independent, so the error is that of a sample
    of blocks (Obuchowski 1997, Nonparametric analysis of clustered ROC curve data; with one token per block it is that of DeLong et al.
    1988).
    """
    n_positive = int(is_positive.sum())
    n_negative = len(is_positive) - n_positive
    if not n_positive or not n_negative:
        return None
    ranks, share = rankdata(logits), np.empty(len(logits))
    # Of each positive token, the share of negatives below it; of each negative token, the share of positives above it. Ties count half.
    share[is_positive] = (ranks[is_positive] - rankdata(logits[is_positive])) / n_negative
    share[~is_positive] = 1 - (ranks[~is_positive] - rankdata(logits[~is_positive])) / n_positive
    value = share[is_positive].mean()
    influence = np.bincount(block, (share - value) / np.where(is_positive, n_positive, n_negative))
    return influence + value / len(influence)


def with_error(terms):
    """The sum of independent terms with its standard error, such as '0.6448 (0.0076)'; the error of a single term is NaN."""
    return f"{terms.sum():.4f} ({len(terms) ** .5 * pd.Series(terms).std():.4f})"
