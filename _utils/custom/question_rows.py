"""Encoded questions with spans of their contexts, as in Google's code (F56-F61)."""
import unicodedata
from typing import NamedTuple

import numpy as np
from tokenizers import models

from _utils.custom.question_files import are_words, words_of
from _utils.tasks.rows import EncodedRows, Window
from _utils.text.special_tokens import text_tokenizer


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
    context), first_word and last_word (of the answer; -1: unknown), and is_impossible.
    options: QuestionOptions.
    labels: (N, 3) start and end of the answer in the row, and whether the question is unanswerable. In training, spans
    without the answer have start and end 0, but count as answerable (F61).
    spans: (N, 3) of each row, the first of the context's tokens in it, the position of this token in the row, and their
    number.   contexts: the Context of each row.
    A question that leaves no room for its context, where Google's code does not terminate (F56), is cut to half of the
    room.
    """
    n_inp = 5

    def __init__(self, questions, hf_tokenizer, max_length, options):
        tokenizer = text_tokenizer(hf_tokenizer)
        self.hf_tokenizer, self.options = hf_tokenizer, options
        self.contexts = []
        room, texts, labels, spans = max_length - tokenizer.num_special_tokens_to_add(True), [], [], []
        for row in questions:
            document, context = encode_context(row["context"], tokenizer)
            query, answer = (tokenizer.encode(row[name], add_special_tokens=False) for name in ("question", "answer"))
            query.truncate(options.max_query_length)
            if len(query) >= room:
                query.truncate(room // 2)
            start, end = target_of(row, context, document.ids, answer.ids)
            windows, step = [], min(options.doc_stride, room - len(query))
            document.truncate(room - len(query), room - len(query) - step)
            for first, part in enumerate([document, *document.overflowing] if document else ()):
                span, first = tokenizer.post_process(query, part), first * step
                offset = span.sequence_ids.index(1)
                is_inside = row["first_word"] >= 0 and first <= start and end < first + len(part)
                labels.append(
                    [start - first + offset, end - first + offset, 0] if is_inside else [0, 0, row["is_impossible"]]
                )
                # [CLS], the context and the token after it (F68)
                is_answer = [i == 0 or i >= offset for i in range(len(span))]
                windows.append(Window(span.ids, span.type_ids, is_answer))
                spans.append((first, offset, len(part)))
                self.contexts.append(context)
            texts.append((windows, 0))  # of any length: dividing them is the rule
        super().__init__(texts, labels, hf_tokenizer.pad_token_id)
        self.spans = np.array(spans)

    def batch(self, rows, multiple=1):
        """(inp_ids, attn_mask, token_type_ids, is_answer, starts, labels) of these rows.

        The first four are (B, L), starts (B,) and labels (B, 3).
        """
        *inputs, is_answer = super().batch(rows, multiple)
        return *inputs, is_answer == 1, self.labels[rows, 0], self.labels[rows]


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
