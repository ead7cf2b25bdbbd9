"""Answers from the outputs of a question answering model, and their scores as in the official scripts (F73-F80)."""
import re
import string
from collections import Counter
from functools import cache
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from scipy.special import softmax
from tokenizers import normalizers, pre_tokenizers

_WITHOUT_PUNCTUATION = dict.fromkeys(map(ord, string.punctuation))


class Answers(NamedTuple):
    """Answers to one question.

    n_best: {text: probability among them}, best first.   null_odds: the higher, the less answerable (F76).
    """
    n_best: dict
    null_odds: float

    @property
    def text(self):
        """The best text; never "" (F77)."""
        return next(iter(self.n_best))


def find_answers(rows, outputs):
    """The Answers to each question; those to one without a context are "empty" (F75).

    rows: QuestionRows.   outputs: of each row, (N, 3 * (n * n + 1)), from `questions.candidates`.
    """
    answers, options, outputs = [], rows.options, outputs.unflatten(1, (-1, 3))
    for end, n in zip(np.cumsum(rows.n_windows), rows.n_windows):
        texts, pairs, indexes = {}, outputs[end - n:end].tolist(), range(end - n, end)
        for score, *place in _valid_pairs(rows, indexes, pairs) if indexes else ():
            texts.setdefault(_text(rows, *place), score)
            if len(texts) == options.n_best:
                break
        scores = [*texts.values()] or [0.]
        null_odds = min([odds for *_, (_, _, odds) in pairs], default=1_000_000.0) - (
            0 if options.answerability else scores[0]
        )
        answers.append(Answers(dict(zip(texts or ["empty"], softmax(scores).tolist())), null_odds))
    return answers


def _valid_pairs(rows, indexes, outputs):
    """[(score, row, start, end)] of valid answers, best first; of equal scores, the first (F73).

    start and end count the row's tokens of the context.
    """
    spans, valid = rows.spans[indexes], []
    first, _, length = spans.T[..., None]
    to_left = np.arange(sum(spans[-1, ::2])) - first  # of each token in each span (S, tokens)
    margin = np.minimum(to_left, length - 1 - to_left)
    best_span = (margin + .01 * length * (margin >= 0)).argmax(0)  # F58
    for i, ((first, offset, length), pairs) in enumerate(zip(spans.tolist(), outputs)):
        for start, end, score in pairs[:-1]:
            start, end = int(start) - offset, int(end) - offset
            if (
                0 <= start <= end < min(length, start + rows.options.max_answer_length)
                and best_span[first + start] == i
            ):
                valid.append((score, indexes[i], start, end))
    return sorted(valid, key=itemgetter(0), reverse=True)


def _text(rows, row, start, end):
    """The text of the tokens `start` to `end` of a row's context.

    It is as in Google's code (F74), or consists of their characters where the context has no words.
    """
    context, (first, offset, _) = rows.contexts[row], rows.spans[row]
    first, last = first + start, first + end
    if not context.is_word[context.word_of[first]:context.word_of[last] + 1].all():
        return context.text_at(first, last)
    ids = rows.flat["inp_ids"][rows.starts[row] + offset:][start:end + 1]
    text = " ".join(rows.hf_tokenizer.convert_ids_to_tokens(ids.tolist())).replace(" ##", "").replace("##", "")
    return final_text(text, context.words_at(first, last), word_splitter(rows.hf_tokenizer))


@cache
def word_splitter(hf_tokenizer):
    """A function that puts spaces between the words and punctuation of a text, as BERT's basic tokenizer."""
    normalizer = hf_tokenizer.backend_tokenizer.normalizer or normalizers.Sequence([])
    return lambda text: " ".join(
        word for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normalizer.normalize_str(text)))


def final_text(text, original, split):
    """The part of `original` that tokenization turned into `text` (get_final_text, F74).

    All of `original` if the two cannot be aligned.
    """
    tokenized = split(original)
    in_original, in_tokenized = (
        [i for i, character in enumerate(string) if character != " "] for string in (original, tokenized)
    )
    start = tokenized.find(text)
    if not text or start < 0 or len(in_original) != len(in_tokenized):
        return original
    first, last = (in_original[in_tokenized.index(i)] for i in (start, start + len(text) - 1))
    return original[first:last + 1]


def normalize(text):
    """Lower case, without punctuation, articles and repeated spaces."""
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def score_text(prediction, answer, if_empty=1.):
    """(exact match, F1 of the words) of two texts after normalization.

    if_empty: F1 of two texts without words; 1 in SQuAD 2.0's script, 0 in those of 1.1 and MRQA (F80).
    """
    predicted, true = normalize(prediction).split(), normalize(answer).split()
    common = (Counter(predicted) & Counter(true)).total()
    return float(predicted == true), 2 * common / (len(predicted) + len(true)) if predicted or true else if_empty


def score_answers(predictions, true_texts, options):
    """{metric: value} of the Answers to questions. true_texts: a list for each question, empty for unanswerable ones.

    With options.has_unanswerable as SQuAD 2.0's script: exact and f1 with na_threshold, best_exact and best_f1 with the
    best threshold, which is in best_exact_threshold and best_f1_threshold (F77). Else exact and f1 are those of SQuAD
    1.1's and MRQA's scripts.
    """
    is_v2, scores, metrics = options.has_unanswerable, [], {}
    odds, is_answerable = np.array([one.null_odds for one in predictions]), np.array(list(map(bool, true_texts)))
    for one, texts in zip(predictions, true_texts):
        if is_v2:
            texts = list(filter(normalize, texts)) or [""]
        scores.append(np.max([(0., 0.), *(score_text(one.text, text, float(is_v2)) for text in texts)], axis=0))
    for name, values in zip(("exact", "f1"), np.transpose(scores)):
        metrics[name] = float(np.where(odds > options.threshold, ~is_answerable, values).mean())
        metrics[f"best_{name}"], metrics[f"best_{name}_threshold"] = best_threshold(values, odds, is_answerable)
    return metrics


def best_threshold(scores, odds, is_answerable):
    """(best mean score, its threshold) of a sweep over the odds, from no answered question to all of them (F79).

    With equal odds the score may be unreachable by that threshold, as in the official script.
    """
    order = odds.argsort(kind="stable")
    totals = np.cumsum([(~is_answerable).sum(), *np.where(is_answerable, scores, -1)[order]])
    best = totals.argmax()
    return float(totals[best] / len(scores)), float([0., *odds[order]][best])


def ensemble(runs):
    """The Answers of several runs to the same questions, combined. runs: lists of Answers.

    The probabilities of a text are averaged, 0 in a run that does not have it, and so are null odds.
    """
    combined = []
    for answers in zip(*runs):
        totals = sum((Counter(one.n_best) for one in answers), Counter())
        means = {text: total / len(answers) for text, total in totals.most_common()}
        combined.append(Answers(means, float(np.mean([one.null_odds for one in answers]))))
    return combined
