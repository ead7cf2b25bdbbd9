"""Score minimal pairs of sentences, such as BLiMP's, or plain sentences: `python -m _utils minimal_pairs`."""
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from scipy.stats import binomtest

from _utils.errors import UserError
from _utils.files import read_json_lines, read_text, write_atomically
from _utils.finetuning.results import as_text
from _utils.networks import build_network, load_with_head
from _utils.objectives.registry import check_fills_masks, objective_of
from _utils.seeds import set_seed
from _utils.text import text_tokenizer
from _utils.training.device import choose_device
from _utils.training.pseudo_likelihood import token_scores
from benchmarks.report import check_output

# Keys of a line. A paradigm (UID) is a template of pairs, a phenomenon (linguistics_term) has one or more of them.
COLUMNS = {
    "sentence_good": "good",
    "sentence_bad": "bad",
    "field": "field",
    "linguistics_term": "phenomenon",
    "UID": "paradigm",
}
OPTIONAL = ("field", "linguistics_term", "UID")  # default: the name of the file
EXPECTED = ("Expected .jsonl files with a JSON object on each line with the strings sentence_good and sentence_bad "
            "and, as in BLiMP, optionally field, linguistics_term and UID.")
FEW_PARADIGMS = 20


def minimal_pairs(checkpoints, path, *, part, untrained, seed, device, csv):
    """Score minimal pairs of sentences, or the sentences of a text file. Arguments as in `_utils/__main__.py`."""
    check_output("--csv", csv, ".csv")
    device, path = choose_device(device), Path(path)
    is_text = path.is_file() and path.suffix == ".txt"
    texts = read_sentences(path) if is_text else read_pairs(path)
    models = load_models(checkpoints, part, seed if untrained else None)
    sides = ["sentence"] if is_text else ["good", "bad"]
    sentences, scores = [*texts[sides].stack()], {}
    for name, model in models.items():
        check_lengths(name, model, sentences)
    for name, model in models.items():
        start = time.process_time()
        scores[name] = score(model, sentences, device, name)
        seconds = 1000 * (time.process_time() - start) / len(texts)
        print(f"{name}: {seconds:.1f} seconds of CPU time per 1,000 {'sentences' if is_text else 'pairs'}")
    scored = texts.assign(
        **{f"{name}, {side}": texts[side].map(of_model) for name, of_model in scores.items() for side in sides}
    )
    if is_text:
        print(as_text(scored.head(20)))
    else:
        paradigms = accuracy_by_paradigm(texts, scores)
        print(report(paradigms))
        write_atomically(csv, lambda file: paradigms.round(3).to_csv(file))
        print(f"Accuracy by paradigm: {csv}")
    csv = f"{csv.removesuffix('.csv')}_scores.csv"
    write_atomically(csv, lambda file: scored.round(4).to_csv(file, index=False))
    print(f"Scores of all sentences: {csv}")


def read_sentences(path):
    """DataFrame with the column `sentence`: the lines of a UTF-8 file that are not empty.

    Raises UserError if there are none.
    """
    if not (sentences := [*filter(None, map(str.strip, read_text(path).split("\n")))]):
        raise UserError(f"{path} contains no sentences. Write one on each line.")
    return pd.DataFrame({"sentence": sentences})


def read_pairs(path):
    """DataFrame of the pairs in a .jsonl file or in all .jsonl files of a folder, a Path.

    Columns: good, bad, field, phenomenon, paradigm.
    Raises UserError with file and line for a pair that cannot be read, and for a path without pairs.
    """
    if not path.exists():
        raise UserError(f"File or folder not found: {str(path)!r}.")
    pairs = []
    for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
        for place, given in read_json_lines(file, EXPECTED):
            pair = dict.fromkeys(OPTIONAL, file.stem) | given
            for key in COLUMNS:
                if not (isinstance(pair.get(key), str) and pair[key].strip()):
                    raise UserError(f"{file}, {place} has no text in {key!r}. {EXPECTED}")
            pairs.append({name: pair[key] for key, name in COLUMNS.items()})
    if not pairs:
        raise UserError(f"No pairs found in {str(path)!r}. {EXPECTED}")
    return pd.DataFrame(pairs).replace({"field": {"/": "_"}}, regex=True)  # BLiMP spells one of its fields in two ways


def load_models(names, part=None, untrained_seed=None):
    """{name for the tables: PretrainedNetwork} of checkpoints.

    untrained_seed: add each architecture with random weights; None: do not.
    The name of a .pth file is short, unless an earlier one has it.
    """
    models = {}
    for name in names:
        title = Path(name).stem if name.endswith(".pth") else name
        title = name if title in models else title
        models[title] = model = load_with_head(name, part)
        check_fills_masks(name, model)
        if untrained_seed is not None:
            set_seed(untrained_seed)
            models[f"{title}, untrained"] = model._replace(network=build_network(model.part, model.network.config))
    return models


def check_lengths(name, model, sentences):
    """Raise UserError for a sentence with more tokens than a PretrainedNetwork reads. name: of its checkpoint."""
    lengths = map(len, text_tokenizer(model.hf_tokenizer).encode_batch(sentences))
    n, sentence = max(zip(lengths, sentences))
    if n > model.length:
        raise UserError(f"{sentence!r:.80} has {n} tokens, but {name!r} reads at most {model.length}. Shorten it.")


def log_of_original(logits):
    """log(1 - P(replaced)) of tokens, from the logits of a discriminator."""
    return F.logsigmoid(-logits)


def score(model, sentences, device, name):
    """{sentence: score} of a PretrainedNetwork, for a list of sentences: the sum of the scores of its tokens.

    The score of a token is log(1 - P(replaced)) of a discriminator, minus the logit of Electric's, and of a masked
    language model, which masks one token at a time, log P(token | all other tokens). Special tokens do not count.
    Sentences with the same token ids are computed once and have the same score.
    name: of the checkpoint, for the progress bar.
    """
    encoded = text_tokenizer(model.hf_tokenizer).encode_batch(sentences)
    rows = [(tuple(one.ids), tuple(one.special_tokens_mask)) for one in encoded]
    of_logits = torch.neg if objective_of(model.run).token_score else log_of_original
    scores = token_scores(model, rows, device, name, of_logits)
    return {sentence: sum(scores[row]) for sentence, row in zip(sentences, rows)}


def accuracy_by_paradigm(pairs, scores):
    """DataFrame of the percentage of correct pairs by paradigm and checkpoint.

    Its index is (field, phenomenon, paradigm); the column `pairs` has their number.
    pairs: from `read_pairs`.   scores: {checkpoint: {sentence: score}}. A pair is correct if its good sentence has the
    higher score; equal scores count one half.
    """
    correct = {
        name: 50.0 * (1 + np.sign(pairs["good"].map(score_of) - pairs["bad"].map(score_of)))
        for name, score_of in scores.items()
    }
    by_paradigm = pairs.assign(pairs=1, **correct).groupby(["field", "phenomenon", "paradigm"])
    return by_paradigm.agg({"pairs": "sum", **dict.fromkeys(scores, "mean")})


def summarize(paradigms):
    """(means, standard errors) of `accuracy_by_paradigm` by phenomenon, then the overall mean.

    DataFrames, ordered by field. Every paradigm has the same weight. The standard error of a mean of k paradigms is the
    standard deviation over all paradigms, divided by the square root of k: the pairs of a paradigm share a template,
    for which even a network with random weights has a preference, so they are not independent. The overall mean of
    random weights lies within two of these standard errors of 50% (docs/paper.md). That of a single paradigm is
    missing.
    """
    table, accuracies = paradigms.reset_index(), paradigms.drop(columns="pairs")
    # one of BLiMP's phenomena has two
    fields = table.groupby("phenomenon")["field"].transform(lambda names: names.mode()[0])
    by_phenomenon = accuracies.groupby([fields.to_numpy(), table["phenomenon"].to_numpy()])
    means, counts = by_phenomenon.mean(), by_phenomenon.size()
    means.loc[("overall", ""), :], counts[("overall", "")] = accuracies.mean(), len(accuracies)
    return means, pd.DataFrame(np.outer(counts ** -.5, accuracies.std()), means.index, means.columns)


def with_interval(accuracy, n):
    """Text with an accuracy in percent on n independent pairs and its 95% confidence interval (Wilson score).

    A tie is half a success.
    """
    low, high = binomtest(round(accuracy * n / 100), n).proportion_ci(method="wilson")
    return f"{accuracy:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def report(paradigms):
    """The table of phenomena as text: percentage and standard error for each checkpoint.

    Of one paradigm, its 95% interval.
    """
    means, errors = summarize(paradigms)
    n_pairs, n_paradigms = paradigms["pairs"].sum(), len(paradigms)
    is_single = n_paradigms == 1
    cells = (
        means.map(with_interval, n=n_pairs)
        if is_single
        else means.map("{:.1f} ± ".format) + errors.map("{:.1f}".format)
    )
    lines = ["Pairs in which the acceptable sentence has the higher score, in percent "
             f"{'(95 % interval)' if is_single else '± standard error'}; chance is 50 ({n_pairs:,} pairs, "
             f"paradigms: {n_paradigms})", as_text(cells)]
    if n_paradigms < FEW_PARADIGMS:
        lines.append("Uncertain, because there are few paradigms: even with random weights, one can have any accuracy "
                     "from 0 to 100.")
    return "\n".join(lines)
