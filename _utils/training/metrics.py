"""Metrics of pretraining, accumulated on the device and read only when they are shown."""
import math

import torch
import torch.nn.functional as F

from _utils.networks.sampling import argmax
from _utils.seeds import seed_step

# Of the terms of a loss function that does not name them; there are at most so many.
NAMES = ("gen_loss", "disc_loss", *(f"term{n}_loss" for n in range(3, 9)))
_BINS = 1 << 16  # of logits: one for each bfloat16 number
# In the order of the state, which has those of the other terms of the loss after them.
_SUMS = ("batches loss masked predicted gen_loss gen_accuracy hidden gen_loss_hidden gen_accuracy_hidden masks_dropped"
         ).split()


class PretrainingMetrics:
    """The metrics of pretraining over several batches.

    Loss, generator loss and accuracy, the other terms of the loss, and a discriminator's precision, recall and AUC.
    The positive class is "replaced". Accuracy alone says nothing about the discriminator: about 90% of the tokens are
    original. Of the masked positions, some show their original token (15% in ELECTRA), which costs next to nothing;
    "hidden" are the others. Only on those can the generator be compared with the unigram entropy of the text.
    The loss and its terms are means over batches, so the loss is the weighted sum of its terms.
    only_finite: skip micro-batches whose loss is not finite, as training in half precision skips the update.
    state: one tensor on the device, with sums over micro-batches and a histogram of the discriminator's logits for
    original and for replaced tokens. It may be summed over processes, saved, and set to zero.
    """

    def __init__(self, device="cpu", only_finite=False):
        self.counts_all = torch.tensor(not only_finite, device=device)
        # names of the other terms of the loss; both known after an update
        self.other_losses, self.has_discriminator = (), False
        n_sums = len(_SUMS) + len(NAMES) - 1
        self.state = torch.zeros(n_sums + 2 * _BINS, device=device, dtype=torch.float64)
        self.sums, self.histogram = self.state[:n_sums], self.state[n_sums:]

    @torch.no_grad()
    def add(self, output, micro_batch, loss, losses, counts):
        """Add a micro-batch.

        output: of the model.   micro_batch: the model's inputs: ids that the generator saw (B, L) first, original ids
        of the masked tokens (B, L) last.   loss, losses: from the loss function.   counts: of the model, for the whole
        batch.
        """
        positions, weights = output.slots  # (M,) each
        seen, labels = (tokens.flatten()[positions] for tokens in (micro_batch[0], micro_batch[-1]))  # (M,) each
        logits = output.mlm_gen_logits.float()
        correct = (argmax(logits) == labels) * weights
        hidden = (seen != labels) * weights
        nll = F.cross_entropy(logits, labels, reduction="none")
        n_tokens, n_slots = output.attention_mask.sum(), weights.sum()
        is_counted = torch.stack([loss, *losses]).isfinite().all() | self.counts_all
        share = n_tokens / counts[1].clamp(min=1)  # of the batch
        sums = {
            "batches": share,
            "loss": loss,
            "masked": n_slots,
            "predicted": share * counts[0],
            "gen_loss": losses[0],
            "gen_accuracy": correct.sum(),
            "hidden": hidden.sum(),
            "gen_loss_hidden": (nll * hidden).sum(),
            "gen_accuracy_hidden": (correct * hidden).sum(),
            "masks_dropped": output.is_mlm_applied.sum() - n_slots,
        }
        self.other_losses = getattr(losses, "_fields", NAMES)[1:len(losses)]
        self.has_discriminator = output.disc_logits is not None
        if self.has_discriminator:
            bits = output.disc_logits.bfloat16().view(torch.int16)
            # in the order of the numbers; 0 is number _BINS // 2
            bins = torch.where(bits < 0, bits ^ 0x7fff, bits).long() + _BINS // 2
            counted = (output.attention_mask.bool() & is_counted).double()
            self.histogram.scatter_add_(0, (bins + _BINS * output.is_replaced.bool()).flatten(), counted.flatten())
        known = torch.stack([value.double() for value in (*map(sums.get, _SUMS), *losses[1:])])
        self.sums[:len(known)] += torch.where(is_counted, known, 0.)

    def compute(self):
        """{name: number, or None where it is undefined}. Waits for the device."""
        n = dict(zip((*_SUMS, *self.other_losses), self.sums.tolist()))
        shares = {"loss": "batches", "gen_loss": "batches", "gen_accuracy": "masked", "gen_loss_hidden": "hidden",
                  "gen_accuracy_hidden": "hidden"}
        metrics = {name: _ratio(n[name], n[whole]) for name, whole in shares.items()}
        if not n["predicted"]:  # the loss of no token is 0
            metrics["gen_loss"] = None
        metrics["gen_perplexity"] = math.exp(min(metrics["gen_loss"], 700.)) if n["predicted"] else None
        metrics["masks_dropped"] = n["masks_dropped"]  # beyond the fixed capacity: 0 in practice
        metrics |= {name: _ratio(n[name], n["batches"]) for name in self.other_losses}
        if not self.has_discriminator:
            return metrics
        histogram = self.histogram.view(2, _BINS).cpu()  # of original and of replaced tokens
        n_original, n_replaced = histogram.sum(1).tolist()
        false_positives, true_positives = histogram[:, _BINS // 2 + 1:].sum(1).tolist()  # logits above 0
        n_tokens = n_original + n_replaced
        return metrics | {
            "disc_auc": binned_auc(*histogram),
            "disc_precision": _ratio(true_positives, true_positives + false_positives),
            "disc_recall": _ratio(true_positives, n_replaced),
            "disc_accuracy": _ratio(n_original - false_positives + true_positives, n_tokens),
            "replaced_share": _ratio(n_replaced, n_tokens),
        }


def binned_auc(originals, replaced):
    """Return the probability that a replaced token has a higher logit than an original one.

    originals, replaced: histograms of the logits. Ties within a bin count half.
    """
    below = originals.cumsum(0) - originals / 2
    return _ratio(float((below * replaced).sum()), float(originals.sum() * replaced.sum()))


@torch.no_grad()
def evaluate(learn, loader, max_batches=None):
    """Return the metrics of a PretrainingLearner on the batches of a loader, as one batch without dropout.

    max_batches: use this many batches, evenly spaced; None: all.
    Masks and samples depend on the learner's seed only and are the same every time. Training seeds every step itself.
    """
    learner = type(learn)  # whose masks and forward pass are neither compiled nor CUDA graphs
    n_batches = max_batches or len(loader)
    chosen = {i * len(loader) // n_batches for i in range(n_batches)}  # from all of its corpora and documents
    of_training, learn.train_metrics = learn.train_metrics, PretrainingMetrics(learn.device)
    learn.model.eval()
    batches, counts_of_batches = [], []
    for n, batch in enumerate(batch for i, batch in enumerate(loader) if i in chosen):
        seed_step(learn.seed, n)
        masked, counts = learner.masks(learn, *learn.on_device(batch))
        batches.append(masked)
        counts_of_batches.append(counts)
    counts = [sum(of_batches) for of_batches in zip(*counts_of_batches)]
    for n, masked in enumerate(batches):
        for number, micro_batch in learn.micro_batches(masked):
            seed_step(learn.seed, n, number)
            learner.forward(learn, micro_batch, counts)
    learn.model.train()
    metrics, learn.train_metrics = learn.train_metrics.compute(), of_training
    return metrics


# Names of metrics and their units, the most important ones first.
_DESCRIPTIONS = {
    "gen_loss": "generator loss {} nats",
    "disc_auc": "AUC {}",
    "second_mlm_loss": "second network's loss {} nats",
    "gen_accuracy": "generator accuracy {}",
    "disc_loss": "discriminator loss {} nats",
    "disc_precision": "precision {}",
    "disc_recall": "recall {}",
    "gen_loss_hidden": "generator loss on hidden tokens {} nats",
}


def described(metrics):
    """Return the metrics that are defined as ["generator loss 6.21 nats", "AUC 0.712" ...].

    The most important ones come first. Losses are means over tokens.
    """
    others = [name for name in metrics if name.endswith("_loss") and name not in _DESCRIPTIONS]  # of an objective
    descriptions = _DESCRIPTIONS | {name: name.replace("_", " ") + " {}" for name in others}
    shown = {name: f"{metrics[name]:#.3g}" for name in descriptions if metrics.get(name) is not None}
    texts = [text.format(shown[name]) for name, text in descriptions.items() if name in shown]
    has_generator_only = all(name.startswith("gen_") for name in shown)
    return [text.removeprefix("generator ") for text in texts] if has_generator_only else texts


def warning_of_collapse(auc, share_done):
    """A warning if the discriminator does not learn; else None.

    auc: on held-out text, or None.   share_done: of the training, in [0, 1]. In the first half, values near .5 are
    normal.
    """
    if share_done < .5 or auc is None or auc >= .55:
        return None
    return (f"Warning: the discriminator's AUC on held-out text is {auc:.3f} after {share_done:.0%} of the training "
            "(chance is 0.5). See gen_loss_hidden in metrics.jsonl: if it is near the unigram entropy, which is "
            "printed at the start, the generator still predicts only token frequencies, as at the start of any "
            "training: train for more steps; if it stays above that, the learning rate is too high or the vocabulary "
            "does not fit the text; if replaced_share is near 0, the generator is too good: use a smaller one or "
            "raise temperature; otherwise the learning rate is too high for the discriminator.")


def warning_of_dropped_masks(n, step):
    """A warning about n masks of the steps up to this one that were not predicted."""
    return (f"Warning: {n:.0f} masks up to step {step:,} were not predicted, because batches had more of them than "
            "mask_prob lets expect. An edited masking needs its own number of slots: _utils/networks/slots.py: "
            "slot_capacity.")


def _ratio(share, whole):
    return share / whole if whole else None
