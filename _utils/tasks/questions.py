"""Question answering as in Google's code: encoded questions with spans of their contexts, the output layers, and the loss (F56-F71)."""
import re
import unicodedata
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import ConfigDict, NonNegativeFloat, PositiveInt
from pydantic.dataclasses import dataclass
from tokenizers import models
from torch import nn

from _utils.errors import PlainError
from _utils.tasks.rows import EncodedRows
from _utils.text.special_tokens import text_tokenizer

_WORD = re.compile("[^ \t\r\n\u202f]+")  # other spaces are part of a word (F53)
_LONGEST_WORD = 20  # characters
_SCRIPT_WITHOUT_SPACES = re.compile("[" + "".join((
    "\u0e01-\u109f",  # Thai, Lao, Tibetan, Burmese
    "\u1780-\u17ff",  # Khmer
    "\u1950-\u1aaf\u1b00-\u1b7f\ua980-\ua9ff\uaa60-\uaadf",  # other scripts of Southeast Asia
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u312f\u31a0-\u9fff\uf900-\ufaff\uff66-\uff9f",  # Chinese, Japanese
    "\ua000-\ua4cf",  # Yi
    "\U0001aff0-\U0001b2ff\U00020000-\U000323af",  # rare characters of Japanese and Chinese
)) + "]")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class QuestionOptions:
    """Settings of question answering. The defaults are Google's (F63).

    joint: predict the end of an answer given its start, else independently.   answerability: predict whether there is an answer with a
    layer of its own, else from the scores of [CLS].   answerable_from_start: this layer sees, beside [CLS], the mean of the hidden states
    weighted by the probabilities of the start; else it is linear in [CLS].   doc_stride: tokens from the beginning of a span to that of
    the next one.   max_query_length: tokens of a question; the rest is cut.   max_answer_length: in tokens.   n_best: answers per
    question.   beam: starts per span, and ends per start.   na_threshold: null odds above which a question counts as unanswerable.
    answerable_weight: of the answerability in the loss.   has_unanswerable: score as SQuAD 2.0, else as SQuAD 1.1 and MRQA.
    """
    joint: bool = True
    answerability: bool = True
    answerable_from_start: bool = True
    doc_stride: PositiveInt = 128
    max_query_length: PositiveInt = 64
    max_answer_length: PositiveInt = 30
    n_best: PositiveInt = 20
    beam: PositiveInt = 20
    na_threshold: float = -2.75
    answerable_weight: NonNegativeFloat = .5
    has_unanswerable: bool = False

    @property
    def threshold(self):
        """na_threshold, if there are unanswerable questions."""
        return self.na_threshold if self.has_unanswerable else np.inf


def words_of(context):
    """What is between the spaces of a context, as re.Match objects."""
    return list(_WORD.finditer(context))


def are_words(found):
    """Whether each string between the spaces of a context is a word. found: from `words_of`.

    It is not if it is longer than 20 characters, nor if at least half of the strings have letters of a script without
    spaces between words, such as those of Chinese, Japanese and Thai.
    """
    n = 0
    if found and _SCRIPT_WITHOUT_SPACES.search(found[0].string):
        n = sum(bool(_SCRIPT_WITHOUT_SPACES.search(word[0])) for word in found)
    return [2 * n < len(found) and len(word[0]) <= _LONGEST_WORD for word in found]


class Context(NamedTuple):
    """The text of a context, and where its words and tokens are.

    words: (W, 2) the first character of each of `words_of`, and the one after its last.
    is_word: (W,) whether Google's rules for words apply (F59, F74): from `are_words`; only for WordPiece.
    tokens: (T, 2) the first character of each token, and the one after its last.   word_of: (T,) the index of its word.
    """
    text: str
    words: np.ndarray
    is_word: np.ndarray
    tokens: np.ndarray
    word_of: np.ndarray

    def tokens_at(self, start, end):
        """(first, last) token of the characters from `start` to before `end`."""
        return int(np.searchsorted(self.tokens[:, 1], start, "right")), int(np.searchsorted(self.tokens[:, 0], end)) - 1

    def tokens_of(self, first, last):
        """(first, last) token of the words from `first` to `last`; last = first - 1 if they have none."""
        return int(np.searchsorted(self.word_of, first)), int(np.searchsorted(self.word_of, last, "right")) - 1

    def words_at(self, first, last):
        """The words of the tokens from `first` to `last`, with single spaces."""
        return " ".join(self.text[start:end] for start, end in self.words[self.word_of[first]:self.word_of[last] + 1])

    def text_at(self, first, last):
        """The characters of the tokens from `first` to `last`, with accents that the tokenizer drops at their end."""
        start, end = self.tokens[first, 0], self.tokens[last, 1]
        while unicodedata.category(self.text[end:end + 1] or " ").startswith("M"):
            end += 1
        return self.text[start:end].strip() or self.text[start:end]


def encode_context(text, tokenizer):
    """(tokenizers.Encoding, Context) of a text, which is tokenized word by word (F57)."""
    words = words_of(text)
    # Byte-level tokenizers recognize the beginning of a word by the space before it; others ignore the space.
    document = tokenizer.encode([f" {word[0]}" for word in words], is_pretokenized=True, add_special_tokens=False)
    spans = np.array([word.span() for word in words], np.int32).reshape(-1, 2)
    in_word = np.array(document.offsets, np.int32).reshape(-1, 2) - 1  # without the space
    word_of = np.array(document.word_ids, np.int32)
    is_word = np.array(are_words(words), bool) & isinstance(tokenizer.model, models.WordPiece)
    return document, Context(text, spans, is_word, spans[word_of, :1] + in_word.clip(0), word_of)


class QuestionRows(EncodedRows):
    """Encoded questions, with a row for each span of their contexts, of at most max_length tokens (F56-F61).

    questions: Dataset with the columns question, context, answer (text), answer_start (its first character in the
    context), first_word and last_word (of the answer; -1: unknown), is_impossible, and label (the true answers).
    options: QuestionOptions.
    gold: (N, 3) start and end of the answer in the row, and whether the question is unanswerable. In training, spans without the answer
    have start and end 0, but count as answerable (F61).
    rows_of: the range of the rows of each question.   spans: (N, 3) of each row, the first of the context's tokens in it, the position of
    this token in the row, and their number.   contexts: the Context of each row.
    A question that leaves no room for its context, where Google's code does not terminate (F56), is cut to half of the row.
    Raises PlainError if no context has a token.
    """
    n_inp = 5

    def __init__(self, questions, hf_tokenizer, max_length, options):
        tokenizer = text_tokenizer(hf_tokenizer)
        self.questions, self.hf_tokenizer, self.options = questions, hf_tokenizer, options
        self.rows_of, self.contexts = [], []
        room, encoded, labels, spans = max_length - tokenizer.num_special_tokens_to_add(True), [], [], []
        for row in questions:
            document, context = encode_context(row["context"], tokenizer)
            query, answer = (tokenizer.encode(row[name], add_special_tokens=False) for name in ("question", "answer"))
            query.truncate(options.max_query_length if options.max_query_length < room else room // 2)
            start, end = target_of(row, context, document.ids, answer.ids)
            n_before, step = len(encoded), min(options.doc_stride, room - len(query))
            document.truncate(room - len(query), room - len(query) - step)
            for first, part in enumerate([document, *document.overflowing] if document else ()):
                span, first = tokenizer.post_process(query, part), first * step
                offset = span.sequence_ids.index(1)
                is_inside = row["first_word"] >= 0 and first <= start and end < first + len(part)
                labels.append([start - first + offset, end - first + offset, 0] if is_inside else [0, 0, row["is_impossible"]])
                is_answer = [i == 0 or i >= offset for i in range(len(span))]  # [CLS], the context and the token after it (F68)
                encoded.append({"inp_ids": span.ids, "token_type_ids": span.type_ids, "token_labels": is_answer})
                spans.append((first, offset, len(part)))
                self.contexts.append(context)
            self.rows_of.append(range(n_before, len(encoded)))
        if not encoded:
            raise PlainError(f"None of {len(questions):,} questions has a context with tokens, the first one is "
                             f"{questions[0]['context']!r:.60}. Correct it, or use a vocabulary of its language.")
        super().__init__(encoded, labels, hf_tokenizer.pad_token_id)
        self.spans, self.gold, self.labels = np.array(spans), self.labels, questions["label"][:]

    def batch(self, rows, multiple=1):
        """(inp_ids, attn_mask, token_type_ids, is_answer, starts, labels) of these rows: four times (B, L), (B,) and (B, 3)."""
        *inputs, is_answer = super().batch(rows, multiple)
        return *inputs, is_answer == 1, self.gold[rows, 0], self.gold[rows]


def target_of(row, context, document, answer):
    """(first, last) token of the answer in its context, on which the model is trained.

    The tokens at the answer's characters, unless it consists of words and these tokens are not those of the answer
    alone. Then, as in Google's code, the first of its words' tokens that are, or else all of its words' tokens (F59).
    Words without tokens give last = first - 1, on which Google's code trains too (F60).
    row: of `read_questions`.   document, answer: ids of tokens.
    """
    first, last = context.tokens_at(row["answer_start"], row["answer_start"] + len(row["answer"]))
    has_words = context.is_word[row["first_word"]:row["last_word"] + 1].all()
    if not has_words or document[first:last + 1] == answer:
        return first, last
    first, last = context.tokens_of(row["first_word"], row["last_word"])
    for start in range(first, last - len(answer) + 2) if answer else ():
        if document[start:start + len(answer)] == answer:
            return start, start + len(answer) - 1
    return first, last


class QuestionHead(nn.Module):
    """Output layers on the encoder's hidden states: start and end of the answer, and whether the question is unanswerable (F65-F71).

    options.joint: the end depends on the start: on the true one in training, on each of the best ones in evaluation. Without `joint` and
    `answerability` this is the linear layer of transformers' question answering models.
    """

    def __init__(self, hidden_size, options):
        super().__init__()
        self.options = options
        layers = lambda has_two_inputs: nn.Sequential(
            nn.Linear(2 * hidden_size, 512), nn.GELU(), nn.Linear(512, 1)) if has_two_inputs else nn.Linear(hidden_size, 1)
        self.start, self.end = layers(False), layers(options.joint)
        self.impossible = layers(options.answerable_from_start) if options.answerability else None

    def forward(self, hidden, is_answer, starts):
        """hidden (B, L, H), is_answer (B, L), starts (B,) -> in training logits of start, end and, with options.answerability, of
        "unanswerable" at every position (B, 2 or 3, L, at least options.beam); in evaluation `candidates`."""
        joint, beam = self.options.joint, self.options.beam
        missing = max(0, beam - hidden.shape[1])  # Google's rows are never that short, because they have the maximum length
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
        start_scores, found = scores(start_logits).topk(beam)
        given = found.T if joint else found.T[:1]  # ends that do not depend on the start are computed once
        end_scores, ends = map(partial(torch.stack, dim=1), zip(*(scores(end_logits(start)).topk(beam) for start in given)))
        null_odds = impossible[0] if impossible else start_logits if joint else start_logits + end_logits(starts)  # F76
        return candidates(start_scores, found, end_scores, ends, null_odds[:, 0])


def candidates(start_scores, starts, end_scores, ends, null_odds):
    """The pairs of a start and an end of each row, and its odds that there is no answer, in one tensor (B, 3 * (n * n + 1)).

    start_scores, starts: (B, n).   end_scores, ends: (B, n or 1, n), for each start or for all.   null_odds: (B,).
    A pair is (start, end, sum of both scores), the last one (0, 0, odds) (F70, F73).
    """
    pairs = torch.broadcast_tensors(starts[..., None].float(), ends.float(), start_scores[..., None] + end_scores)
    return torch.cat([torch.stack(pairs, dim=-1).flatten(1), F.pad(null_odds[:, None], (2, 0))], dim=1)


class QuestionLoss(nn.Module):
    """(Cross-entropy of start + of end) / 2 + answerable_weight x binary cross-entropy of "unanswerable"; the mean (F67, D9)."""

    def __init__(self, options):
        super().__init__()
        self.weight = options.answerable_weight

    def forward(self, logits, labels):
        """logits (B, 2 or 3, L), labels (B, 3) -> ()."""
        loss = F.cross_entropy(logits[:, :2].flatten(0, 1), labels[:, :2].flatten())
        if logits.shape[1] == 3:
            loss = loss + self.weight * F.binary_cross_entropy_with_logits(logits[:, 2, 0], labels[:, 2].float())
        return loss
