"""Pictures for the notebooks and beside the checkpoints: sentences in colour, curves, schedules, scores."""
import html

import matplotlib.pyplot as plt
import torch
from IPython.display import HTML
from matplotlib.colors import to_hex

from _utils.run_logging import read_metrics

# One meaning, one colour, in every picture.
BLUE, ORANGE, GREEN, GREY = "#4477aa", "#ee7733", "#228833", "#999999"


def tokens_in_color(tokens, colors, below=None):
    """Tokens in a line that wraps, each on its colour (None: plain), with a small text of its own below; as IPython HTML."""
    cells = []
    for i, (token, color) in enumerate(zip(tokens, colors)):
        note = f"<div style='font-size:70%;color:#666'>{html.escape(below[i]) or '&nbsp;'}</div>" if below else ""
        paint = f"background:{color};" if color else ""
        cells.append(f"<div style='display:inline-block;margin:1px;text-align:center'>"
                     f"<span style='{paint}border-radius:3px;padding:0 3px;color:black'>{html.escape(token)}</span>{note}</div>")
    return HTML(f"<div style='font-family:monospace;line-height:1.5;background:white;padding:4px'>{''.join(cells)}</div>")


def show_segments(input_ids, sentA_length, hf_tokenizer):
    """One example, input_ids (L,): segment A in blue, segment B in orange, padding left out."""
    tokens = hf_tokenizer.convert_ids_to_tokens(input_ids[input_ids != hf_tokenizer.pad_token_id].tolist())
    return tokens_in_color(tokens, ["#cfe0f2" if i < sentA_length else "#fde0c8" for i in range(len(tokens))])


def show_masks(input_ids, masked_inputs, is_mlm_applied, hf_tokenizer):
    """One masked example, each argument (L,): chosen tokens in orange with the original below where it no longer shows."""
    real = input_ids != hf_tokenizer.pad_token_id
    shown = hf_tokenizer.convert_ids_to_tokens(masked_inputs[real].tolist())
    original = hf_tokenizer.convert_ids_to_tokens(input_ids[real].tolist())
    chosen = is_mlm_applied[real].tolist()
    return tokens_in_color(shown, [ORANGE + "88" if mark else None for mark in chosen],
                           [was if was != now else "(kept)" * mark for was, now, mark in zip(original, shown, chosen)])


def show_discriminator(input_ids, generated, is_mlm_applied, probabilities, hf_tokenizer):
    """What the generator put in and what the discriminator thinks of each token; each argument (L,).

    The redder a token, the surer the discriminator that it is replaced (the percentage below). Replaced tokens are written
    original→word; a word that was masked and guessed right has a tick.
    """
    real = input_ids != hf_tokenizer.pad_token_id
    original = hf_tokenizer.convert_ids_to_tokens(input_ids[real].tolist())
    now = hf_tokenizer.convert_ids_to_tokens(generated[real].tolist())
    masked, chance = is_mlm_applied[real].tolist(), probabilities[real].tolist()
    words = [f"{was}→{word}" if was != word else word + " ✓" * mark for was, word, mark in zip(original, now, masked)]
    reds = plt.get_cmap("Reds")
    return tokens_in_color(words, [to_hex(reds(.75 * p)) for p in chance], [f"{p:.0%}" for p in chance])


def plot_schedules(by_name, steps):
    """Learning rate by step for several schedules, {name: pct -> lr}."""
    figure, axis = plt.subplots(figsize=(7, 2.8))
    points = range(0, steps + 1, max(1, steps // 500))
    for name, schedule in by_name.items():
        axis.plot(points, [schedule(step / steps) for step in points], label=name)
    axis.set(xlabel="step", ylabel="learning rate")
    axis.legend(frameon=False)
    return figure


def plot_training(metrics_file):
    """Losses, accuracy and AUC of a pretraining by step, from its metrics.jsonl: lines for training, dots for held-out text."""
    train, held_out = read_metrics(metrics_file, "train"), read_metrics(metrics_file, "held_out")
    titles = {"gen_loss": "generator: loss", "gen_accuracy": "generator: accuracy", "disc_loss": "discriminator: loss",
              "disc_auc": "discriminator: AUC"}
    titles = {name: title for name, title in titles.items() if name in train[0]}
    figure, axes = plt.subplots(1, len(titles), figsize=(3.5 * len(titles), 2.8), layout="constrained")
    for axis, (name, title) in zip(axes, titles.items()):
        color = BLUE if name.startswith("gen") else ORANGE
        steps, values = _smooth(train, name)
        axis.plot(steps, values, color=color, label="training")
        if held_out:
            axis.plot([row["step"] for row in held_out], [row[name] for row in held_out], "o", color=GREEN, ms=4, label="held out")
        axis.set(title=title, xlabel="step")
        if name == "disc_auc":
            axis.axhline(.5, color=GREY, lw=.8, ls=":")
    axes[0].legend(frameon=False)
    return figure


def plot_families(curves):
    """Loss of the masked language model by the share of the compute that is spent, {name: rows of metrics.jsonl}."""
    figure, axis = plt.subplots(figsize=(7, 2.8), layout="constrained")
    for name, rows in curves.items():
        steps, losses = _smooth(rows, "gen_loss")
        axis.plot([step / steps[-1] for step in steps], losses, label=name)
    axis.set(xlabel="share of the compute", ylabel="masked LM loss")
    axis.legend(frameon=False)
    return figure


def plot_example_lengths(lengths, max_length):
    """A histogram of pretraining examples by wordpieces, on a logarithmic scale, since most have the full length."""
    figure, axis = plt.subplots(figsize=(7, 2.2), layout="constrained")
    axis.hist(lengths, bins=max_length, range=(0, max_length), color=BLUE)
    axis.set(yscale="log", xlabel="wordpieces of an example", ylabel="examples")
    return figure


def plot_lengths(lengths_by_name, max_length):
    """A histogram for each {name: lengths in wordpieces}; the last bar holds what is cut at max_length."""
    figure, axes = plt.subplots(2, -(-len(lengths_by_name) // 2), figsize=(14, 4), layout="constrained", sharex=True)
    for axis, (name, lengths) in zip(axes.flat, lengths_by_name.items()):
        axis.hist(lengths, bins=40, range=(0, max_length), color=BLUE)
        axis.set(title=name, yticks=[])
    for axis in axes.flat[len(lengths_by_name):]:
        axis.axis("off")
    figure.supxlabel("wordpieces of a sentence or pair", fontsize=9)
    return figure


def plot_layer_lrs(lrs_by_name):
    """Learning rate by layer, {name: [embeddings, layer 0, ..., head]}."""
    figure, axis = plt.subplots(figsize=(7, 2.8), layout="constrained")
    for name, lrs in lrs_by_name.items():
        axis.plot(lrs, "o-", ms=4, label=name)
    axis.set_xticks(range(len(lrs)), ["embeddings", *range(1, len(lrs) - 1), "head"])
    axis.set(xlabel="layer", ylabel="learning rate", yscale="log")
    axis.legend(frameon=False)
    return figure


def plot_scores(scores_by_task, published):
    """Dev scores of every run by task, {task: percents}, a bar at their mean; {task: percent} of the published row as crosses."""
    figure, axis = plt.subplots(figsize=(9, 3.5), layout="constrained")
    for x, scores in enumerate(scores_by_task.values()):
        spread = [x + .3 * ((i + .5) / len(scores) - .5) for i in range(len(scores))]
        axis.plot(spread, scores, "o", color=BLUE, ms=5, alpha=.7, label="runs" if x == 0 else None)
        axis.hlines(sum(scores) / len(scores), x - .25, x + .25, color=BLUE, label="their mean" if x == 0 else None)
    there = {x: published[task] for x, task in enumerate(scores_by_task) if task in published}
    if there:
        axis.plot([*there], [*there.values()], "x", color=ORANGE, label="ELECTRA-Small-OWT, Google")
    axis.set_xticks(range(len(scores_by_task)), scores_by_task)
    axis.set(ylabel="dev score, %")
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, .5))
    return figure


@torch.no_grad()
def sentences_in_color(learn, hf_tokenizer, n=4):
    """The first n held-out examples (of training, if none are held out) as the discriminator of a learner sees them; IPython HTML each.

    The masks are drawn from the learner's seed. A masked language model has no discriminator: [] then.
    """
    if not hasattr(learn.model, "discriminator"):
        return []
    input_ids, sentA_lenths = learn.on_device(next(iter(learn.dls.loaders[-1])))
    learn.model.eval()
    with torch.random.fork_rng():
        torch.manual_seed(learn.seed)
        masked_inputs, labels, is_mlm_applied = learn.masked_lm.mask_tokens(input_ids[:n])
        pred = learn.model(masked_inputs, sentA_lenths[:n], is_mlm_applied, labels)
    probabilities = pred.disc_logits.float().sigmoid()
    return [show_discriminator(*example, hf_tokenizer) for example in zip(input_ids, pred.generated, is_mlm_applied, probabilities)]


def save_pretraining_pictures(learn, hf_tokenizer, folder, steps, max_length):
    """Write training.png, learning_rate.png, lengths.png and sentences.html beside the metrics.jsonl of a finished run."""
    save_picture(plot_training(folder / "metrics.jsonl"), folder / "training.png")
    save_picture(plot_schedules({"this run": learn.schedule.functions["lr"]}, steps), folder / "learning_rate.png")
    lengths = [len(ids) for ids in learn.dls.train_ds.hf_dset[:20_000]["input_ids"]]
    save_picture(plot_example_lengths(lengths, max_length), folder / "lengths.png")
    sentences = sentences_in_color(learn, hf_tokenizer, n=8)
    if sentences:
        explained = ("<p>original→word: what the generator put in; ✓: a word that it guessed right; percentage and shade: how sure the "
                     "discriminator is that the token is replaced</p>")
        (folder / "sentences.html").write_text("<meta charset='utf-8'>" + explained + "".join(shown.data for shown in sentences))


def save_picture(figure, path):
    """Write a figure to a file and forget it."""
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _smooth(rows, name, points=100):
    """Means of neighbouring rows, at most `points` of them: (steps, values)."""
    rows = [row for row in rows if row[name] is not None]
    size = max(1, len(rows) // points)
    groups = [rows[i:i + size] for i in range(0, len(rows), size)]
    return [group[-1]["step"] for group in groups], [sum(row[name] for row in group) / len(group) for group in groups]
