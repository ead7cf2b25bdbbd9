"""The output layers of question answering and their loss, as in Google's code (F65-F71)."""
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from _utils.custom.words import WordPredictor


class QuestionHead(nn.Module):
    """Output layers for the start and end of the answer, and for whether the question is unanswerable (F65-F71).

    options.joint: the end depends on the start: on the true one in training, on each of the best ones in evaluation.
    Without `joint` and `answerability` this is the linear layer of transformers' question answering models.
    """

    def __init__(self, hidden_size, options):
        super().__init__()
        self.options = options
        layers = lambda has_two_inputs: (
            nn.Sequential(nn.Linear(2 * hidden_size, 512), nn.GELU(), nn.Linear(512, 1))
            if has_two_inputs
            else nn.Linear(hidden_size, 1)
        )
        self.start, self.end = layers(False), layers(options.joint)
        self.impossible = layers(options.answerable_from_start) if options.answerability else None

    def forward(self, hidden, is_answer, starts):
        """hidden (B, L, H), is_answer (B, L), starts (B,) -> logits, or `candidates` in evaluation.

        Logits (B, 2 or 3, L) of start, end and, with options.answerability, of "unanswerable" at every position.
        L is at least options.n_starts.
        """
        joint, beam = self.options.joint, self.options.n_starts
        # Google's rows are never that short, because they have the maximum length
        missing = max(0, beam - hidden.shape[1])
        hidden, is_answer = F.pad(hidden, (0, 0, 0, missing)), F.pad(is_answer, (0, missing))
        mask = 1000 * (is_answer.float() - 1)  # F68
        start_logits, impossible = self.start(hidden).squeeze(-1) + mask, []
        if self.impossible:
            inputs = [hidden[:, :1]]  # (B, 1, H)
            if self.options.answerable_from_start:
                inputs.append(start_logits.softmax(-1)[:, None] @ hidden)  # F71
            impossible.append(self.impossible(torch.cat(inputs, dim=-1)).squeeze(-1).expand_as(mask))

        def end_logits(starts):  # F69
            at_start = torch.take_along_dim(hidden, starts[:, None, None], dim=1).expand_as(hidden)
            return self.end(torch.cat([at_start, hidden], dim=-1) if joint else hidden).squeeze(-1) + mask
        if self.training:
            return torch.stack([start_logits, end_logits(starts), *impossible], dim=1)
        scores = partial(torch.log_softmax, dim=-1) if joint else lambda logits: logits
        start_scores, best = scores(start_logits).topk(beam)
        given = best.T if joint else best.T[:1]  # ends that do not depend on the start are computed once
        end_scores, ends = map(
            partial(torch.stack, dim=1), zip(*(scores(end_logits(start)).topk(beam) for start in given))
        )
        null_odds = impossible[0] if impossible else start_logits if joint else start_logits + end_logits(starts)  # F76
        return candidates(start_scores, best, end_scores, ends, null_odds[:, 0])


class QuestionPredictor(WordPredictor):
    """A WordPredictor with a QuestionHead. num_class: its options."""
    layer = QuestionHead


def candidates(start_scores, starts, end_scores, ends, null_odds):
    """The pairs of a start and an end of each row, and its odds of no answer, in one tensor (B, 3 * (n * n + 1)).

    start_scores, starts: (B, n).   end_scores, ends: (B, n or 1, n), for each start or for all.   null_odds: (B,).
    A pair is (start, end, sum of both scores), the last one (0, 0, odds) (F70, F73).
    """
    pairs = torch.broadcast_tensors(starts[..., None].float(), ends.float(), start_scores[..., None] + end_scores)
    return torch.cat([torch.stack(pairs, dim=-1).flatten(1), F.pad(null_odds[:, None], (2, 0))], dim=1)


class QuestionLoss(nn.Module):
    """The mean cross-entropy of start and end, plus the weighted one of "unanswerable" (F67, D9).

    The weight is options.answerable_weight. The loss is averaged over the batch.
    """

    def __init__(self, options):
        super().__init__()
        self.weight = options.answerable_weight

    def forward(self, logits, labels):
        """logits (B, 2 or 3, L), labels (B, 3) -> ()."""
        loss = F.cross_entropy(logits[:, :2].flatten(0, 1), labels[:, :2].flatten())
        if logits.shape[1] == 3:
            loss = loss + self.weight * F.binary_cross_entropy_with_logits(logits[:, 2, 0], labels[:, 2].float())
        return loss
