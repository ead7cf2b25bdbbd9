"""Score minimal pairs of sentences, such as BLiMP's: `python -m _utils minimal_pairs`."""
import argparse
import math
import os
from itertools import groupby
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from tqdm import tqdm

from _utils.errors import PlainError
from _utils.glue.results import as_text
from _utils.networks import PARTS, GatheredPositions, build_network, inputs_of, load_with_head, max_positions, replaced_logits
from _utils.plots import plot_minimal_pairs, save_plot
from _utils.runs.checkpoints import check_output, write_atomically
from _utils.runs.files import read_json_lines
from _utils.training.device import choose_device, set_seed

# Keys of a line. A paradigm (UID) is a template of pairs, a phenomenon (linguistics_term) has one or more of them.
COLUMNS = {"sentence_good": "good", "sentence_bad": "bad", "field": "field", "linguistics_term": "phenomenon", "UID": "paradigm"}
EXPECTED = f"a JSON object with the strings {', '.join(COLUMNS)}"


def read_pairs(path):
    """DataFrame of the pairs in a .jsonl file or in all .jsonl files of a folder: good, bad, field, phenomenon, paradigm.

    Raises PlainError with file and line for a pair that cannot be read, and for a path without pairs.
    """
    pairs = pd.DataFrame([pair for file in _files(path) for pair in _read_file(file)], columns=[*COLUMNS.values()])
    pairs["field"] = pairs["field"].str.replace("/", "_")  # BLiMP spells one of its fields in two ways
    return pairs


def _files(path):
    files = sorted(Path(path).glob("*.jsonl")) if Path(path).is_dir() else [Path(path)]
    if not files:
        raise PlainError(f"The folder {str(path)!r} has no .jsonl files. Pass the folder data/ of BLiMP, or one of its files.")
    return files


def _read_file(path):
    """The values of COLUMNS of every line that is not empty."""
    if not path.is_file():
        raise PlainError(f"File not found: {str(path)!r}. Pass a folder of .jsonl files in the layout of BLiMP, or one file.")
    pairs = [_values(pair, f"{path}, {place}") for place, pair in read_json_lines(path, f"Expected {EXPECTED} on each line.")]
    if not pairs:
        raise PlainError(f"{path} is empty. Expected {EXPECTED} on each line.")
    return pairs


def _values(pair, place):
    for key in COLUMNS:
        value = pair.get(key)
        if not isinstance(value, str) or not value.strip():
            raise PlainError(f"{place} has no string {key!r}. Expected {EXPECTED}.")
    return [pair[key] for key in COLUMNS]


TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 32_768}  # measured for 4 layers x 128; a batch of 2,048 tokens stays in the CPU's cache


def encode(sentences, model, name):
    """{sentence: (token ids, special tokens mask)} for a PretrainedNetwork, a tuple of each.

    name: of the checkpoint, for the PlainError about a sentence that has more tokens than the network has positions.
    """
    sentences = list(dict.fromkeys(sentences))
    encoded = model.hf_tokenizer(sentences, return_special_tokens_mask=True)
    longest = max(encoded["input_ids"], key=len)
    if len(longest) > max_positions(model.network):
        sentence = sentences[encoded["input_ids"].index(longest)]
        raise PlainError(f"The sentence {sentence[:60]!r}... has {len(longest)} tokens, more than the {max_positions(model.network)} "
                         f"positions of {name!r}. Shorten it or remove the pair.")
    return dict(zip(sentences, zip(map(tuple, encoded["input_ids"]), map(tuple, encoded["special_tokens_mask"]))))


@torch.inference_mode()
def score(model, encoded, device, name):
    """{sentence: score} of a PretrainedNetwork, for sentences from `encode`; in float32, because the scores of a pair differ little.

    A discriminator's score is the sum of log(1 - P(replaced)) over the tokens. That of a masked language model is the pseudo-log-likelihood
    (Salazar et al. 2020, Masked Language Model Scoring): the sum of log P(token | all other tokens), masking one token at a time. Special
    tokens do not count. Sentences with the same token ids are computed once and have the same score.
    name: of the checkpoint, for the progress bar and the PlainError about scores that are not finite.
    """
    network = model.network.eval().to(device)
    n_tokens = TOKENS_PER_BATCH[device.type]
    scorer = _replaced if model.part == "discriminator" else _MaskedLM(network, model.hf_tokenizer.mask_token_id, n_tokens)
    scores = {}
    with tqdm(total=len(set(encoded.values())), desc=name, unit=" sentences", mininterval=1) as bar:
        for batch in _batches(set(encoded.values()), n_tokens):
            ids, special = torch.tensor(batch, device=device).unbind(1)  # (B, L) each
            scores.update(zip(batch, scorer(network, ids, special.bool()).tolist()))
            bar.update(len(batch))
    if not all(map(math.isfinite, scores.values())):
        raise PlainError(f"The scores of {name!r} are not finite, so its training diverged. Choose an earlier checkpoint.")
    return {sentence: scores[row] for sentence, row in encoded.items()}


def _batches(rows, n_tokens):
    """Yield lists of (ids, special tokens mask) of equal length, which need no padding, with about n_tokens tokens; long ones first."""
    for length, group in groupby(sorted(rows, key=lambda row: (-len(row[0]), row)), key=lambda row: len(row[0])):
        equally_long, size = list(group), max(1, n_tokens // length)
        for start in range(0, len(equally_long), size):
            yield equally_long[start:start + size]


def _outputs(network, ids):
    return network(**inputs_of(network, ids, None, torch.zeros_like(ids)))


def _replaced(network, ids, special):
    """Scores (B,) of a discriminator for ids (B, L)."""
    originals = F.logsigmoid(-replaced_logits(_outputs(network, ids)))  # (B, L)
    return originals.masked_fill(special, 0).sum(1)


class _MaskedLM:
    """Scores of a masked language model, whose head computes the masked positions only."""

    def __init__(self, network, mask_token_id, n_tokens):
        self.at_positions, self.mask_token_id, self.n_tokens = GatheredPositions(network), mask_token_id, n_tokens

    def __call__(self, network, ids, special):
        """Scores (B,) for ids (B, L)."""
        scores = torch.zeros(len(ids), device=ids.device)
        length = ids.shape[1]
        for cells in (~special).nonzero().split(max(1, self.n_tokens // length)):
            rows, positions = cells.unbind(1)  # (M,), (M,)
            at = positions[:, None]
            masked = ids[rows].scatter(1, at, self.mask_token_id)  # (M, L)
            with self.at_positions.only(torch.arange(len(rows), device=ids.device) * length + positions):
                logits = _outputs(network, masked).logits[0]  # (M, V)
            targets = ids[rows].gather(1, at)  # (M, 1)
            scores.index_add_(0, rows, (logits.gather(1, targets) - logits.logsumexp(1, keepdim=True))[:, 0])
        return scores


OVERALL = "overall"
FEW_PARADIGMS = 20


def accuracy_by_paradigm(pairs, scores):
    """DataFrame indexed by field, phenomenon and paradigm: its pairs, and for each checkpoint the percentage of correct pairs.

    pairs: from `read_pairs`.   scores: {checkpoint: {sentence: score}}. A pair is correct if its good sentence has the higher score; equal
    scores count one half.
    """
    correct = pd.DataFrame(index=pairs.index)
    for name, score_of in scores.items():
        good, bad = pairs["good"].map(score_of), pairs["bad"].map(score_of)
        correct[name] = 100 * ((good > bad) + .5 * (good == bad))
    by_paradigm = correct.groupby([pairs[key] for key in ("field", "phenomenon", "paradigm")])
    return pd.concat([by_paradigm.size().rename("pairs"), by_paradigm.mean()], axis=1)


def summarize(paradigms):
    """(means, standard errors) of `accuracy_by_paradigm`: DataFrames with a row per phenomenon, ordered by field, then the overall mean.

    Every paradigm has the same weight. The standard error of a mean of k paradigms is the standard deviation over all paradigms, divided
    by the square root of k: the pairs of a paradigm share a template, for which even a network with random weights has a preference, so
    they are not independent. The overall mean of random weights lies within two of these standard errors of 50 % (docs/probes.md).
    A single paradigm has the standard error over its pairs.
    """
    accuracies = paradigms.drop(columns="pairs")
    by_phenomenon = accuracies.groupby("phenomenon")
    means, counts = by_phenomenon.mean(), by_phenomenon.size()
    fields = paradigms.reset_index().groupby("phenomenon")["field"].agg(lambda names: names.mode()[0])  # BLiMP has two of NPI licensing
    means.index = pd.MultiIndex.from_arrays([fields, means.index], names=[None, None])
    means, counts = means.sort_index(), counts.set_axis(means.index).sort_index()
    means.loc[(OVERALL, ""), :], counts[(OVERALL, "")] = accuracies.mean(), len(accuracies)
    if len(accuracies) > 1:
        deviation = accuracies.std()
    else:
        deviation = (accuracies.iloc[0] * (100 - accuracies.iloc[0]) / paradigms["pairs"].iloc[0]) ** .5
    errors = pd.DataFrame({name: deviation[name] / counts ** .5 for name in accuracies})
    return means, errors


def report(paradigms):
    """The table of phenomena as text: paradigms, and percentage and standard error for each checkpoint."""
    means, errors = summarize(paradigms)
    table = pd.DataFrame({name: [f"{mean:.1f} ± {error:.1f}" for mean, error in zip(means[name], errors[name])] for name in means},
                         index=means.index)
    n_pairs, n_paradigms = paradigms["pairs"].sum(), len(paradigms)
    title = (f"Pairs in which the acceptable sentence has the higher score, in percent ± standard error; chance is 50 ({n_pairs:,} pairs, "
             f"{n_paradigms} paradigm{'s' if n_paradigms > 1 else ''})")
    warning = ["Uncertain, because there are few paradigms: even with random weights, one can have any accuracy from 0 to 100."]
    return "\n".join([title, as_text(table), *(warning if n_paradigms < FEW_PARADIGMS else [])])


def main(arguments=None):
    options = parse(arguments)
    check_output("--plot", options.plot, ".png")
    check_output("--csv", options.csv, ".csv")
    device = choose_device(options.device)
    pairs = read_pairs(options.path)
    models = load_models(options.checkpoints, options.part, options.seed if options.untrained else None)
    encoded = {name: encode([*pairs["good"], *pairs["bad"]], model, name) for name, model in models.items()}
    scores = {name: score(model, encoded[name], device, name) for name, model in models.items()}
    paradigms = accuracy_by_paradigm(pairs, scores)
    print(report(paradigms))
    write_atomically(options.csv, lambda file: paradigms.round(3).to_csv(file))
    save_plot(plot_minimal_pairs(*summarize(paradigms)), options.plot)
    print(f"Plot: {options.plot}. Accuracy by paradigm: {options.csv}")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m _utils minimal_pairs", description=__doc__.split("\n")[0])
    parser.add_argument("checkpoints", metavar="CHECKPOINT", nargs="+",
                        help="a checkpoint of pretrain.py, a transformers folder or a hub id, with the head of the pretraining")
    parser.add_argument("path", metavar="PATH", help="a folder of .jsonl files in the layout of BLiMP, or one file")
    parser.add_argument("--part", choices=PARTS, help="network to score; default: the discriminator if there is one")
    parser.add_argument("--untrained", action="store_true", help="also score each architecture with random weights")
    parser.add_argument("--seed", type=int, default=0, help="random seed of --untrained")
    parser.add_argument("--device", help="default: the first GPU, else the CPU")
    parser.add_argument("--plot", metavar="FILE.png", default="checkpoints/minimal_pairs.png", help="default: %(default)s")
    parser.add_argument("--csv", metavar="FILE.csv", default="checkpoints/minimal_pairs.csv",
                        help="accuracy by paradigm; default: %(default)s")
    return parser.parse_intermixed_args(arguments)


def load_models(names, part=None, untrained_seed=None):
    """{name for the tables: PretrainedNetwork} of checkpoints. untrained_seed: add each architecture with random weights; None: do not."""
    models = {}
    for name, title in titles(names).items():
        models[title] = model = load_with_head(name, part)
        if untrained_seed is not None:
            set_seed(untrained_seed)
            models[f"{title}, untrained"] = model._replace(network=build_network(model.part, model.network.config))
    return models


def titles(names):
    """{checkpoint: its file name without .pth}, or the checkpoint as given if several have that file name or it is not a .pth file."""
    short = {name: os.path.basename(name).removesuffix(".pth") if name.endswith(".pth") else name for name in names}
    return {name: title if [*short.values()].count(title) == 1 else name for name, title in short.items()}
