"""Metrics of pretraining, accumulated on the device and read only when they are shown."""
import itertools
import math

import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score

from _utils.networks.fast import argmax
from _utils.training.device import fork_rng, seed_step

_BINS = 4096
_LOGIT_RANGE = 16.  # logits beyond +-16 fall into the outermost bins
_SUMS = ("batches", "loss", "masked", "gen_loss", "gen_correct", "hidden", "hidden_loss", "hidden_correct", "masks_dropped",
         "tokens", "disc_loss", "true_positives", "false_positives", "false_negatives")


class PretrainingMetrics:
    """Loss, generator loss and accuracy, and, if there is a discriminator, its loss, precision, recall and AUC over several batches.

    The positive class is "replaced". Accuracy alone says nothing about the discriminator: about 90 % of the tokens are original.
    Of the masked positions, some show their original token (15 % in ELECTRA), which costs next to nothing; "hidden" are the others. Only on
    those can the generator be compared with the unigram entropy of the text.
    only_finite: skip micro-batches whose loss is not finite, as fp16 loss scaling skips the update.
    """

    def __init__(self, device="cpu", only_finite=False):
        self.only_finite, self.always = only_finite, torch.ones((), device=device, dtype=torch.bool)
        self.has_discriminator = False  # until an update shows otherwise
        self.sums = torch.zeros(len(_SUMS), device=device, dtype=torch.float64)
        self.histogram = torch.zeros(2, _BINS, device=device, dtype=torch.float64)  # of discriminator logits: originals, replaced

    def reset(self):
        """Start again from zero, in place."""
        self.sums.zero_()
        self.histogram.zero_()

    def state_dict(self):
        return {"sums": self.sums, "histogram": self.histogram}

    def load_state_dict(self, state):
        self.sums.copy_(state["sums"])
        self.histogram.copy_(state["histogram"])

    @torch.no_grad()
    def add(self, output, micro_batch, loss, losses, counts):
        """Add a micro-batch.

        output: ELECTRAOutput or MaskedLMOutput.   micro_batch: the model's inputs: ids that the generator saw (B, L) first, original ids of
        the masked tokens (B, L) last.   loss, losses: from the loss function.   counts: masked positions and tokens of the whole batch.
        """
        seen, labels, weights = output.gather(micro_batch[0], micro_batch[-1])  # (M,) each
        logits = output.mlm_gen_logits.float()
        correct = (argmax(logits) == labels) * weights
        hidden = (seen != labels) * weights
        nll = F.cross_entropy(logits, torch.where(weights.bool(), labels, 0), reduction="none")
        n_tokens, n_slots = output.attention_mask.sum(), weights.sum()
        is_counted = torch.stack([loss, *losses]).isfinite().all() if self.only_finite else self.always
        sums = [n_tokens / counts[1], loss, n_slots, losses[0] * counts[0], correct.sum(), hidden.sum(), (nll * hidden).sum(),
                (correct * hidden).sum(), output.is_mlm_applied.sum() - n_slots]
        self.has_discriminator = len(losses) > 1
        if self.has_discriminator:
            sums += [n_tokens, losses[1] * counts[1], *self._confusion(output, is_counted)]
        sums = torch.stack([number.double() for number in sums])
        self.sums[:len(sums)] += torch.where(is_counted, sums, 0.)

    def _confusion(self, output, is_counted):
        """True positives, false positives and false negatives of a micro-batch; also adds its logits to the histogram."""
        tokens, replaced, flagged = output.attention_mask.bool(), output.is_replaced.bool(), output.disc_logits > 0
        bins = ((output.disc_logits.float() / _LOGIT_RANGE + 1) / 2 * _BINS).long().clamp(0, _BINS - 1)
        counted = (tokens & is_counted).double()
        self.histogram.view(-1).scatter_add_(0, (bins + _BINS * replaced).flatten(), counted.flatten())
        return (flagged & replaced & tokens).sum(), (flagged & ~replaced & tokens).sum(), (~flagged & replaced & tokens).sum()

    def sum_over_processes(self, processes):
        processes.sum(self.sums)
        processes.sum(self.histogram)

    def compute(self):
        """{name: number, or None where it is undefined}. Waits for the device."""
        n = dict(zip(_SUMS, self.sums.tolist()))
        gen_loss = _ratio(n["gen_loss"], n["masked"])
        metrics = {
            "loss": _ratio(n["loss"], n["batches"]),
            "gen_loss": gen_loss,
            "gen_perplexity": None if gen_loss is None else math.exp(min(gen_loss, 700.)),
            "gen_accuracy": _ratio(n["gen_correct"], n["masked"]),
            "gen_loss_hidden": _ratio(n["hidden_loss"], n["hidden"]),
            "gen_accuracy_hidden": _ratio(n["hidden_correct"], n["hidden"]),
            "masks_dropped": n["masks_dropped"],  # beyond the fixed capacity: 0 in practice
        }
        if not self.has_discriminator:
            return metrics
        flagged, replaced = n["true_positives"] + n["false_positives"], n["true_positives"] + n["false_negatives"]
        return metrics | {
            "disc_loss": _ratio(n["disc_loss"], n["tokens"]),
            "disc_auc": self._auc(),
            "disc_precision": _ratio(n["true_positives"], flagged),
            "disc_recall": _ratio(n["true_positives"], replaced),
            "disc_accuracy": _ratio(n["tokens"] - n["false_positives"] - n["false_negatives"], n["tokens"]),
            "replaced_share": _ratio(replaced, n["tokens"]),
        }

    def _auc(self):
        """Probability that a replaced token has a higher logit than an original one; ties within a bin count half."""
        originals, replaced = self.histogram
        below = originals.cumsum(0) - originals
        return _ratio(((below + originals / 2) * replaced).sum().item(), (originals.sum() * replaced.sum()).item())


@torch.no_grad()
def evaluate(learn, loader, max_batches=None):
    """Metrics of a PretrainingLearner on the batches of a loader, or on the first `max_batches` of them, without dropout.

    Masks and samples depend on the learner's seed only and are the same every time; the training's random numbers are not disturbed.
    """
    metrics, logits, replaced = PretrainingMetrics(learn.device), [], []
    learn.model.eval()
    with fork_rng(learn.device):
        for n, batch in enumerate(itertools.islice(loader, max_batches)):
            seed_step(learn.seed, n)
            masked, _ = learn.masking.mask(*learn.on_device(batch))  # not learn.masks, which may be a CUDA graph
            counts = learn.model.counts(*masked)
            for number, micro_batch in learn.micro_batches(masked):
                seed_step(learn.seed, n, number)
                with learn.autocast():
                    output = learn.model(*micro_batch)
                    loss, losses = learn.loss_func(output, micro_batch[-1], counts, return_losses=True)
                metrics.add(output, micro_batch, loss, losses, counts)
                if metrics.has_discriminator:
                    tokens = output.attention_mask.bool()
                    logits.append(output.disc_logits[tokens].float().cpu())
                    replaced.append(output.is_replaced[tokens].cpu())
    learn.model.train()
    return metrics.compute() | ({"disc_auc": exact_auc(torch.cat(logits), torch.cat(replaced))} if logits else {})


def exact_auc(logits, replaced):
    """AUC of the discriminator over all tokens, (N,) each; None if it is undefined."""
    if not 0 < replaced.sum() < len(replaced) or not logits.isfinite().all():
        return None
    return float(roc_auc_score(replaced.numpy(), logits.numpy()))


def format_metrics(metrics):
    """Metrics of generator and discriminator on one line."""
    names = {"gen_loss": "gen loss", "gen_loss_hidden": "hidden", "gen_accuracy": "acc", "disc_loss": "disc loss", "disc_auc": "AUC",
             "disc_precision": "prec", "disc_recall": "rec"}
    return ", ".join(f"{label} -" if metrics[name] is None else f"{label} {metrics[name]:.3g}"
                     for name, label in names.items() if name in metrics)


def warning_of_collapse(aucs, share_done):
    """A warning if the discriminator stopped training, or never started to; None while it looks healthy.

    aucs: on held-out text at the milestones after the first quarter of the training, newest last. Earlier values are normally near .5, or
    fall from an easy start, when the generator still samples random tokens.   share_done: of the training, in [0, 1].
    """
    if share_done >= .5 and aucs and aucs[-1] < .55:
        problem = f"the discriminator's AUC on held-out text is {aucs[-1]:.3f} after {share_done:.0%} of the training (chance is .5)"
    elif aucs and aucs[-1] < max(aucs) - .1:
        problem = f"the discriminator's AUC on held-out text dropped from {max(aucs):.3f} to {aucs[-1]:.3f}"
    else:
        return None
    return (f"Warning: {problem}. Check the curves in training.png: if the generator loss does not fall either, the learning rate is too "
            "high or the vocabulary does not fit the text; if replaced_share is near 0, the generator is too good: use a smaller one or "
            "raise temperature; otherwise the learning rate is too high for the discriminator.")


def _ratio(share, whole):
    return share / whole if whole else None
