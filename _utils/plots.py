"""Plots for the notebooks and the folders of runs: sentences in colour, curves, schedules, scores."""
import json
import re
import unicodedata
import warnings
from functools import cache, partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.font_manager import FontProperties, fontManager, get_font
from scipy.special import entr
from sklearn.metrics import ConfusionMatrixDisplay

from _utils.files import write_atomically
from _utils.runs.checkpoints import saved_networks
from _utils.runs.log import read_metrics
from _utils.seeds import fork_rng

# One colour for one meaning in all plots.
BLUE, LIGHT_BLUE, ORANGE, GREEN, GREY = "#4477aa #99bbdd #ee7733 #228833 #999999".split()
# Further fonts for characters that the first one lacks, if they are installed.
FONTS = [
    "monospace",
    *sorted({font.name for font in fontManager.ttflist if re.search("CJK|Noto|Arial Unicode", font.name)}),
]
LABEL_FONTS = ["sans-serif", *FONTS[1:]]


def tokens_in_color(examples, columns=110):
    """Plot examples in wrapped lines.

    examples: a list of (token, colour or None, small text below it, [colour of its outline]) for each.
    A plot instead of HTML, because code hosts strip the colours of HTML.
    """
    figure = plt.figure()
    lines = draw_tokens(figure.add_axes((0, 0, 1, 1)), examples, columns)
    figure.set_size_inches(columns * .092, lines * .4)
    return figure


def draw_tokens(axis, examples, columns):
    """Draw examples as in `tokens_in_color` on an axis. Returns the number of lines."""
    line = 0
    axis.set_xlim(-1, columns)
    axis.axis("off")
    write = partial(axis.text, family=FONTS, ha="center", va="center", parse_math=False)
    for example in examples:
        x = 0
        for token, color, below, *outline in example:
            width = max(_columns(token), _columns(below)) + 1
            if x + width > columns:
                x, line = 0, line + 1
            middle = x + (width - 1) / 2
            write(
                middle,
                line,
                token,
                size=10,
                bbox=dict(boxstyle="round,pad=.12", fc=color or "white", ec=(outline or ["none"])[0]),
            )
            write(middle, line + .45, below, size=7, color="#555555")
            x += width
        line += 1.4
    axis.set_ylim(line - .4, -.5)
    return line


def _columns(text):
    """Width of a text in columns of a monospaced font; East Asian characters take two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def show_segments(input_ids, sentA_lenths, hf_tokenizer):
    """Plot examples, input_ids (B, L) and sentA_lenths (B,): segment A in blue, segment B in orange, no padding."""
    return tokens_in_color(
        [
            [(token, "#cfe0f2" if i < length else "#fde0c8", "") for i, token in enumerate(tokens)]
            for tokens, length in zip(_tokens(input_ids, input_ids, hf_tokenizer), sentA_lenths.tolist())
        ]
    )


def show_masks(input_ids, masked_inputs, is_mlm_applied, hf_tokenizer):
    """Plot masked examples, each argument (B, L): chosen tokens in orange, with the original below if it is hidden."""
    examples = zip(
        _tokens(masked_inputs, input_ids, hf_tokenizer),
        _tokens(input_ids, input_ids, hf_tokenizer),
        is_mlm_applied.tolist(),
    )
    return tokens_in_color([[(now, ORANGE + "88", "(kept)" if was == now else was) if is_chosen else (now, None, "")
                             for now, was, is_chosen in zip(*example)] for example in examples])


def show_discriminator(input_ids, generated, is_mlm_applied, probabilities, hf_tokenizer):
    """Plot the generator's samples and the discriminator's probability of "replaced" for each token.

    Each argument is (B, L). The percentage is that probability, and the shade compares it with the mean, as in
    `shades`. Replaced tokens are outlined and written original→sample, so a dark token with an outline is a hit, and a
    white one a miss. A masked token that was sampled correctly has a tick.
    """
    was, now = (_tokens(ids, input_ids, hf_tokenizer) for ids in (input_ids, generated))
    examples = zip(was, now, is_mlm_applied.tolist(), probabilities.tolist())
    return tokens_in_color(shades([[_verdict(*token) for token in zip(*example)] for example in examples]))


def _verdict(was, now, is_masked, p):
    """A token as the discriminator sees it, for `shades`. p: its probability of "replaced"."""
    text = now
    if was != now:
        text = f"{was}→{now}"
    elif is_masked:
        text = f"{now} ✓"
    return text, p, was != now


def shades(sentences):
    """Sentences for `tokens_in_color`, from (text, probability of "replaced", whether it is outlined) for each token.

    Tokens are white up to the mean probability of all of them (that of a calibrated discriminator is the share of
    replaced tokens), and darkest from four times the mean.
    """
    probabilities = [p for sentence in sentences for _, p, _ in sentence]
    mean = sum(probabilities) / max(1, len(probabilities))
    shade = lambda p: plt.cm.Reds(.7 * np.clip((p / mean - 1) / 3, 0, 1))
    return [[(text, shade(p), f"{p:.0%}", "black" if is_outlined else "none") for text, p, is_outlined in sentence]
            for sentence in sentences]


def _tokens(shown, input_ids, hf_tokenizer):
    """The tokens of the ids `shown` (B, L), a list for each example, without padding.

    input_ids: the examples (B, L), which show where the padding is.
    """
    is_token = input_ids != hf_tokenizer.pad_token_id
    return [hf_tokenizer.convert_ids_to_tokens(ids[at].tolist()) for ids, at in zip(shown, is_token)]


def plot_schedules(by_name, steps):
    """Plot the learning rate by step of several schedules, {name: function of the share of the steps}."""
    shares = np.linspace(0, 1, 501)
    return _plot_learning_rates(
        "step", steps * shares, {name: [*map(schedule, shares)] for name, schedule in by_name.items()}, "-"
    )


def plot_layer_lrs(lrs_by_name):
    """Plot the learning rate by layer, {name: [embeddings, layer 0, ..., head]}."""
    n_layers = len(next(iter(lrs_by_name.values()))) - 2
    return _plot_learning_rates("layer", ["emb.", *map(str, range(n_layers)), "head"], lrs_by_name, "o")


def _plot_learning_rates(xlabel, x, lrs_by_name, style):
    """{name: learning rate at each x}, in a style of matplotlib."""
    figure, axis = new_axis(xlabel, "learning rate", height=2.8)
    for name, lrs in lrs_by_name.items():
        axis.plot(x, lrs, style, ms=5, label=name)
    axis.ticklabel_format(axis="y", scilimits=(0, 0))
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False)
    return figure


# Metrics of pretraining that are drawn, with their titles and colours.
PANELS = {"gen_loss": ("generator: loss", BLUE), "gen_accuracy": ("generator: accuracy", BLUE),
          "disc_loss": ("discriminator: loss", ORANGE), "disc_auc": ("discriminator: AUC", ORANGE),
          "second_mlm_loss": ("second network: loss", ORANGE)}


def plot_training(metrics_file):
    """Plot losses, accuracy and AUC of a pretraining run by step, from metrics.jsonl in its folder.

    Lines are training, dots held-out text, dotted lines a constant prediction: for the generator loss on hidden tokens,
    the unigram entropy of the text; for the discriminator loss without label smoothing, the share of replaced tokens as
    every token's probability; for its AUC, .5. None if no training step was logged.
    """
    train, held_out = (pd.DataFrame(read_metrics(metrics_file, split)) for split in ("train", "held_out"))
    if train.empty:  # the run was stopped before its first line
        return None
    # a second masked language model has no AUC
    train = train.drop(columns="split").astype(float).dropna(axis=1, how="all")
    train = train.groupby(train.index * 100 // len(train)).mean().set_index("step")  # at most 100 points
    run = json.loads(metrics_file.with_name("config.json").read_text())
    replaced = train.get("replaced_share", 0.)
    constant = {"gen_loss": run["facts"]["unigram_entropy"], "disc_auc": .5}
    if not run["config"]["disc_smooth_label"]:
        constant["disc_loss"] = entr(replaced) + entr(1 - replaced)
    others = [name for name in train if name.endswith("_loss") and name not in PANELS]  # of an objective
    panels = PANELS | {name: (name.replace("_", " "), ORANGE) for name in others}
    names = [name for name in panels if name in train]
    figure, axes = _grid([panels[name][0] for name in names], "step", n_columns=2, width=4.5, height=2.4)
    for axis, name in zip(axes, names):
        axis.plot(train[name], color=panels[name][1], label="training")
        if name == "gen_loss":
            axis.plot(train["gen_loss_hidden"], color=LIGHT_BLUE, label="training, hidden tokens")
        if name in held_out:
            axis.plot(held_out["step"], held_out[name], "o", color=GREEN, ms=4, label="held out")
        if name in constant:
            axis.plot(pd.Series(constant[name], train.index), color=GREY, lw=1, ls=":", label="constant prediction")
        axis.legend(frameon=False)
    return figure


def plot_lengths(lengths_by_name, xlabel="tokens per sentence or pair", **settings):
    """Plot a histogram of lengths in tokens for each {name: lengths}, with a common x axis.

    settings: of the axes, such as yscale='log'.
    """
    longest = max(map(max, lengths_by_name.values()))
    width = -(-longest // 40)  # a whole number of tokens, so that every bar covers equally many lengths
    edges = np.arange(.5, longest + width, width)
    figure, axes = _grid(lengths_by_name, xlabel)
    for axis, lengths in zip(axes, lengths_by_name.values()):
        axis.hist(lengths, bins=edges, color=BLUE)
        axis.set(yticks=[], **settings)
    return figure


def plot_finetuning_losses(runs_by_name):
    """Plot the training loss of every run over its steps.

    runs_by_name: {name: [rows of metrics.jsonl, ...]}. The loss of tagging is a sum over the words of a sentence (F51).
    """
    figure, axes = _grid(runs_by_name, "fraction of the steps")
    for axis, runs in zip(axes, runs_by_name.values()):
        for rows in map(pd.DataFrame, runs):
            axis.plot(rows["step"] / rows["step"].max(), rows["loss"], color=BLUE, lw=1, alpha=.7)
        axis.set_ylim(bottom=0)
    figure.supylabel("loss", fontsize=9)
    return figure


def plot_confusion(matrix, labels):
    """Plot a confusion matrix, whose rows are labels and whose columns are predictions.

    Labels are shown as numbers from 0 if no font has their characters.
    """
    size = 2.5 + .5 * len(labels)
    figure, axis = new_axis(None, None, size, size)
    are_drawn = _characters() >= {*"".join(labels)} - {"\n"}
    names = [*map(_plain, labels)] if are_drawn else range(len(labels))
    ConfusionMatrixDisplay(np.array(matrix), display_labels=names).plot(
        ax=axis, cmap="Blues", colorbar=False, xticks_rotation="vertical"
    )
    for text in (*axis.get_xticklabels(), *axis.get_yticklabels()):
        text.set_family(LABEL_FONTS)
    if not are_drawn:
        axis.set_xlabel("predicted label (by number:\nno font has the characters)")
    return figure


@cache
def _characters():
    """The characters that LABEL_FONTS have."""
    paths = [fontManager.findfont(FontProperties([family])) for family in LABEL_FONTS]
    return {chr(code) for path in paths for code in get_font(path).get_charmap()}


def _plain(text):
    """A text with $ as such: two of them would enclose a formula."""
    return text.replace("$", r"\$")


def _grid(titles, xlabel, n_columns=5, width=2, height=1.6):
    """(figure, an axis for each title) in rows of at most n_columns; width and height of each in inches."""
    n_rows, n_columns = -(-len(titles) // n_columns), min(len(titles), n_columns)
    figure = plt.figure(figsize=(max(5, width * n_columns + .4), height * n_rows + .6), layout="constrained")
    axes = [figure.add_subplot(n_rows, n_columns, i, title=_plain(title)) for i, title in enumerate(titles, 1)]
    figure.supxlabel(xlabel, fontsize=9)
    return figure, axes


def new_axis(xlabel, ylabel, width=7, height=3.2, **settings):
    """(figure, its only axis)."""
    figure, axis = plt.subplots(figsize=(width, height), layout="constrained")
    axis.set(xlabel=xlabel, ylabel=ylabel, **settings)
    return figure, axis


def plot_scores(scores_by_group, published=(), majority=()):
    """Plot the dev scores of every run as dots, with a line at their mean.

    scores_by_group: {group: {task: percents}}.
    published: {task: percent} of Google's ELECTRA-Small, as crosses.   majority: {task: percent} of the majority
    baseline, as dashes.
    """
    table = pd.DataFrame(scores_by_group)  # of lists
    tasks = table.index
    figure, axis = new_axis(None, "dev score, %", width=4.5 + .8 * len(tasks), xlim=(-.6, len(tasks) - .4))
    axis.set_xticks(range(len(tasks)), map(_plain, tasks))
    for i, group in enumerate(table):
        # from the tick that all groups share
        scores, shift = table[group].explode(), .6 * ((i + .5) / len(table.columns) - .5)
        axis.plot(tasks.get_indexer(scores.index) + shift, scores, f"C{i}o", ms=4, alpha=.7)
        axis.plot(
            np.arange(len(tasks)) + shift,
            table[group].map(np.mean, na_action="ignore"),
            f"C{i}_",
            ms=20,
            label=f"{_plain(group)}, mean",
        )
    google = published, "kx", 6, "ELECTRA-Small-OWT, Google"
    for marks, style, size, label in (google, (majority, "k_", 30, "majority baseline")):
        if set(tasks) & set(marks):
            axis.plot([*map(marks.get, tasks)], style, ms=size, label=label)
    figure.legend(frameon=False, loc="outside right upper")
    return figure


def plot_quickstart(metrics_file, sentences, scores):
    """The quickstart's figure: the discriminator's AUC by step, the scores of networks by table, sentences in colour.

    metrics_file: metrics.jsonl of the pretraining, or None.   sentences: {network: the same sentences, from
    `sentence_probabilities`}; two whose wrong word most networks find are shown.
    scores: DataFrame in percent, a row for each table, a column for each network and "majority".
    """
    figure = plt.figure(figsize=(10.1, 5.2), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(3, 1.4))
    left, right = upper.subplots(1, 2, width_ratios=(2, 3))
    left.set(title="pretraining: AUC of the discriminator", xlabel="step")
    if metrics_file:
        rows = pd.DataFrame(read_metrics(metrics_file, "train")).set_index("step")
        auc = rows.get("disc_auc", pd.Series()).astype(float)  # masked language modelling has none
        left.plot(auc.rolling(5, min_periods=1).mean(), color=ORANGE, label="on the generator's samples")
        left.axhline(.5, color=GREY, ls=":", label="constant prediction")
        left.legend(frameon=False, loc=(.28, .12))
    networks = scores.drop(columns="majority")
    right.set(title="finetuning: score on held-out sentences, %", xticks=range(len(scores)))
    right.set_xticklabels(scores.index.str.replace("_", " "))
    for i, (name, color) in enumerate(zip(networks, (GREY, ORANGE, BLUE))):
        right.bar(np.arange(len(scores)) + .25 * (i - 1), networks[name], .24, color=color, label=name)
    x = np.arange(len(scores))
    right.hlines(scores["majority"], x - .4, x + .4, color="black", lw=1, label="majority baseline")
    right.legend(frameon=False, fontsize=7, ncols=4, loc="upper left")
    right.set_ylim(0, 112)
    if not sentences:
        return figure
    lower.suptitle("probability that a token was replaced, in two sentences whose wrong word (outlined) was found",
                   fontsize=10)
    # for each network and sentence, whether a wrong word has the highest probability
    found = np.array([[max(sentence, key=lambda token: token[1])[2] for sentence in of_network]
                      for of_network in sentences.values()])
    shown = np.argsort(-found.sum(0), kind="stable")[:2]
    for i, (name, of_network) in enumerate(sentences.items()):
        axis = lower.add_axes((.5 * i, 0, .5, .72))
        axis.set_title(f"{name} (found: {found[i].sum()} of {len(of_network)} wrong words)", fontsize=10)
        draw_tokens(axis, shades([of_network[number] for number in shown]), columns=56)
    return figure


def sentences_in_color(learn, hf_tokenizer, n=4):
    """Plot the first n held-out examples, or those of the first step if none are held out, as `corrupted_in_color`.

    Masks depend on the learner's seed only. Returns None for objectives that do not train a discriminator.
    """
    if "discriminator" not in saved_networks(learn.model):
        return None
    train, *others = learn.dls.loaders
    batch = next(iter(others[0])) if others else train.batch_of_step(0)
    input_ids, sentA_lenths = (tensor[:n] for tensor in learn.on_device(batch))
    masks = partial(type(learn).masks, learn)  # not compiled
    return corrupted_in_color(learn.model, masks, input_ids, sentA_lenths, hf_tokenizer, learn.seed)


@torch.no_grad()
def corrupted_in_color(model, masks, input_ids, sentA_lenths, hf_tokenizer, seed):
    """Plot examples with samples of an ELECTRAModel's generator, up to 128 tokens, as its discriminator sees them.

    masks: as `MaskedLMCallback.mask`.   input_ids: (B, L).   sentA_lenths: (B,).   seed: of the masks and samples.
    """
    model.eval()
    with fork_rng(input_ids.device):
        torch.manual_seed(seed)
        x, _ = masks(input_ids, sentA_lenths)
        pred = model(*x)
    seen = input_ids, pred.generated, pred.is_mlm_applied, pred.disc_logits.float().sigmoid()
    return show_discriminator(*(tensor[:, :128] for tensor in seen), hf_tokenizer)


def save_pretraining_plots(learn, hf_tokenizer, folder, steps):
    """Save training.png, learning_rate.png and sentences.png of a finished run in its folder."""
    lrs_at = learn.schedule.functions["lr"]
    figures = {"training": plot_training(folder / "metrics.jsonl"),
               "learning_rate": plot_schedules({"this run": lambda pct: lrs_at(pct)[0]}, steps),
               "sentences": sentences_in_color(learn, hf_tokenizer, n=8)}
    for name, figure in figures.items():
        if figure:
            save_plot(figure, folder / f"{name}.png")


def save_plot(figure, path):
    """Save a figure to a file, whose folder may be new, and close it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")
        write_atomically(path, lambda file: figure.savefig(file, dpi=100, format=Path(path).suffix[1:]))
    plt.close(figure)
