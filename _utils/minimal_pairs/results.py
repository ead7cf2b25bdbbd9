"""Accuracy on minimal pairs by paradigm, by phenomenon and overall."""
import pandas as pd

from _utils.glue.results import as_text

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
