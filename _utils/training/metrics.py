"""What is measured while pretraining, gathered on the device and read only when it is shown."""
import math

import torch

_BINS = 4096
_LOGIT_RANGE = 16.  # logits beyond +-16 fall into the outermost bins


class PretrainingMetrics:
    """Sums over batches of both losses, the generator's accuracy, and the discriminator's confusion and AUC where there is one.

    "Positive" means replaced. Accuracy alone says nothing there: about 90 % of the tokens are originals.
    only_finite: leave out what has a loss that is not finite, as loss scaling skips such a step.
    """

    def __init__(self, device="cpu", only_finite=False):
        self.only_finite, self.always = only_finite, torch.ones((), device=device, dtype=torch.bool)
        self.sums = torch.zeros(9, device=device, dtype=torch.float64)
        self.histogram = torch.zeros(2, _BINS, device=device, dtype=torch.float64)

    @torch.no_grad()
    def update(self, pred, labels, parts, totals):
        """Add a batch or a part of one.

        pred: the output of ELECTRAModel or MaskedLMModel.   labels: of masked tokens, (B, L).   parts: the losses, as shares of the
        means over the whole batch.   totals: masked positions and tokens of the whole batch.
        """
        slot_labels, slot_weights = pred.slots(labels)
        correct = (pred.mlm_gen_logits.argmax(-1) == slot_labels) * slot_weights
        counts = [slot_weights.sum(), parts[0] * totals[0], correct.sum(), pred.is_mlm_applied.sum() - slot_weights.sum()]
        is_counted = torch.stack(parts).isfinite().all() if self.only_finite else self.always
        if len(parts) > 1:
            counts += self._judge(pred, parts[1] * totals[1], is_counted)
        counts = torch.stack([count.double() for count in counts])
        self.sums[:len(counts)] += torch.where(is_counted, counts, 0.)

    def _judge(self, pred, disc_loss, is_counted):
        """What the discriminator's confusion adds to the sums; its logits go into the histogram where `is_counted`, ()."""
        tokens, replaced, flagged = pred.attention_mask.bool(), pred.is_replaced.bool(), pred.disc_logits > 0
        bins = ((pred.disc_logits.float() / _LOGIT_RANGE + 1) / 2 * _BINS).long().clamp(0, _BINS - 1)
        counted = (tokens & is_counted).double()
        self.histogram.view(-1).scatter_add_(0, (bins + _BINS * replaced).flatten(), counted.flatten())
        return [tokens.sum(), disc_loss, (flagged & replaced & tokens).sum(), (flagged & ~replaced & tokens).sum(),
                (~flagged & replaced & tokens).sum()]

    def add_up(self, processes):
        """Put in what the others of several Processes have measured."""
        processes.add_up([self.sums, self.histogram])

    def compute(self):
        """{name: number}; None where there was nothing to measure. Waits for the device."""
        n_slots, gen_loss, correct, overflow, n_tokens, disc_loss, hits, false_alarms, missed = self.sums.tolist()
        of_generator = {
            "gen_loss": _ratio(gen_loss, n_slots),
            "gen_perplexity": math.exp(min(gen_loss / n_slots, 700.)) if n_slots else None,
            "gen_accuracy": _ratio(correct, n_slots),
            "masks_without_slot": overflow,  # where the number of slots is fixed: practically never above 0
        }
        return of_generator if not n_tokens else {
            **of_generator,
            "disc_loss": _ratio(disc_loss, n_tokens),
            "disc_auc": self._auc(),
            "disc_precision": _ratio(hits, hits + false_alarms),
            "disc_recall": _ratio(hits, hits + missed),
            "disc_accuracy": _ratio(n_tokens - false_alarms - missed, n_tokens),
            "replaced_share": _ratio(hits + missed, n_tokens),
        }

    def _auc(self):
        """Chance that a replaced token gets a higher logit than an original one; ties within a bin count half."""
        originals, replaced = self.histogram
        below = originals.cumsum(0) - originals
        return _ratio(((below + originals / 2) * replaced).sum().item(), (originals.sum() * replaced.sum()).item())


def warning_of_collapse(aucs, share_done):
    """What to look at when the discriminator has stopped to learn, or never began; None while it looks healthy.

    aucs: of held-out text at the milestones since a quarter of the training, the newest last; before it is normal that they are near .5,
    or fall from the easy start, when the generator still draws words at random.   share_done: of the training, in [0, 1].
    """
    if share_done >= .5 and aucs and aucs[-1] < .55:
        told = f"the discriminator's AUC on held-out text is {aucs[-1]:.3f} after {share_done:.0%} of the training, and .5 is guessing"
    elif aucs and aucs[-1] < max(aucs) - .1:
        told = f"the discriminator's AUC on held-out text has fallen from {max(aucs):.3f} to {aucs[-1]:.3f}"
    else:
        return None
    return (f"warning: {told}. Look at the curves in training.png: a generator's loss that does not fall either means a learning rate "
            "that is too high or text that the vocabulary does not fit; a replaced_share near 0 means a generator that is too good: make "
            "it smaller or raise temperature.")


def _ratio(part, whole):
    return part / whole if whole else None
