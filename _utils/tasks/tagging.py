"""Sentences with a label for each word."""
import itertools
import json
import re
from dataclasses import replace
from functools import partial
from typing import ClassVar

import datasets
import numpy as np
import pandas as pd
import torch.nn.functional as F
from sklearn.metrics import accuracy_score, f1_score
from torch import nn
from transformers import AutoModelForTokenClassification

from _utils.errors import UserError
from _utils.files import write_text_atomically
from _utils.tasks.base import Predictions, Task, kind_of_task
from _utils.tasks.custom_tables import class_fields, class_names, load
from _utils.tasks.definition import TEXTS_ADVICE, is_conll
from _utils.tasks.heads import WordPredictor, head_options
from _utils.tasks.rows import IGNORED, EncodedRows, Window
from _utils.tasks.spans import WORDS, is_nested, spans_of_tags, spans_to_tags, words_in
from _utils.tasks.tables import as_label, ids_of_lists, items, labels_in, shortened, write_rows
from _utils.tasks.tag_schemes import BIO, as_bioes, check_scheme, in_scheme, scheme_notices
from _utils.text.exported_tokenizer import exported_tokenizer_of_words
from _utils.text.special_tokens import template_of, text_tokenizer


@kind_of_task
class Tagging(Task):
    """A task that labels words (finetune/tagging, F51). Text and label of a row are lists with an item for each word.
    """
    kind: ClassVar[str] = "tagging"
    one_class: ClassVar[bool] = False
    metric_functions: ClassVar[dict] = {"entity_f1": None, "accuracy": accuracy_score,
                                        "macro_f1": partial(f1_score, average="macro", zero_division=0)}
    text_feature: ClassVar = datasets.List(datasets.Value("string"))
    label_feature: ClassVar = datasets.List(datasets.Value("int64"))
    text_format: ClassVar = "a list of words"
    suffix: ClassVar[str] = ".conll"
    advice_about_special_tokens: ClassVar[str] = ""
    transformers_class: ClassVar = AutoModelForTokenClassification
    words_of: ClassVar = staticmethod(items)  # the words of a text of a Dataset or a file
    word_splitter: ClassVar = None  # a PreTokenizer that divides texts into words, if not the tokenizer's own does

    # Tables

    @classmethod
    def from_files(cls, definition, tables, reason):
        """As `Task.from_files`; the TaskData of Spans if some labels are character spans."""
        [text, *_], [label, *_] = cls.columns_of(definition, tables)
        if is_conll(definition["train"]):
            _check_sentences(tables["train"], text, definition)
        has_spans = labels_in(tables["train"], label).map(is_nested).any()
        return load(Spans if has_spans else cls, definition, tables, reason)

    @classmethod
    def columns_of(cls, definition, tables):
        texts, label = super().columns_of(definition, tables)
        if len(texts) > 1:
            raise UserError(f"{definition['train']}: tagging labels the words of one column, but 'text' of the task "
                            f"{definition['name']!r} has two: {', '.join(texts)}. Set 'text' to one of them, "
                            "or 'kind' to another kind.")
        return texts, label

    @classmethod
    def labels_of(cls, tables, texts, columns, definition):
        """As `Task.labels_of`, with tags in the wanted scheme."""
        [label] = columns
        tags = {split: labels_in(table, label).map(items).dropna() for split, table in tables.items()}
        if definition["scheme"]:
            check_scheme(tags["train"], definition)
            _convert(tables, tags, label, partial(in_scheme, scheme=definition["scheme"]))
            notices = []
        else:
            notices = scheme_notices(tags["train"])
        labels = {split: of_split.explode().dropna().map(as_label) for split, of_split in tags.items()}
        return label, labels, notices, {}

    @classmethod
    def fields_of(cls, definition, labels):
        # A word of the dev set may have a tag that is in no training sentence.
        known = pd.concat([tags for split, tags in labels.items() if split != "test"])
        return class_fields(definition, class_names(known, definition))

    @classmethod
    def applicable_metrics(cls, labels):
        """entity_f1 counts whole entities, or chunks, as CoNLL's evaluation does."""
        has_entities = all(map(BIO.fullmatch, labels)) and set(labels) - {"O"}
        return [name for name in cls.metric_functions if name != "entity_f1" or has_entities]

    def with_test_labels(self, labels):
        # Tags that only the test file has are not in the Task itself: the file may change.
        if labels.empty:
            raise UserError(f"The test file of the task {self.name!r} has labels, but its texts have no words. Correct "
                            "it, or leave 'test' out.")
        unknown = [tag for tag in labels.unique() if tag not in self.label_ids]
        notices = [f"no training or dev sentence has the tags {shortened(unknown)} of the test file, which are never "
                   "predicted"]
        return replace(self, labels=(*self.labels, *unknown)), notices if unknown else []

    def parse_texts(self, cells):
        return cells.map(items)

    def parse_labels(self, cells):
        return ids_of_lists(cells.map(items), self.label_ids)

    @property
    def label_format(self):
        return f"a list of labels from {shortened(self.labels)}"

    def unlabelled(self, rows):
        return rows["text"].map(lambda text: [-1] * len(self.words_of(text)), na_action="ignore")

    def mismatches(self, rows):
        words = rows["text"].map(self.words_of, na_action="ignore")
        # Without a good row, all are NaN.
        n_words, n_tags = (cells.astype(object).str.len() for cells in (words, rows["label"]))
        return dict.fromkeys(rows.index[n_words != n_tags], "the numbers of words and tags differ")

    def hints(self):
        has_entities = "entity_f1" in self.applicable_metrics(self.labels)
        return "" if has_entities else " (entity_f1 needs tags such as B-PER, I-PER and O)"

    # Training

    def settings(self, c):
        return {}

    def encode(self, rows, hf_tokenizer, settings, training=False):
        """WordRows of a Dataset."""
        return WordRows(self.sentences(rows), rows["label"][:], hf_tokenizer, settings["max_length"])

    def network(self, pretrained, settings):
        encoder = pretrained.encoder()
        return WordPredictor(encoder, encoder.config.hidden_size, self.n_outputs, **head_options(settings))

    def loss(self):
        """The cross-entropy, summed over the words of each sentence; the mean over the batch (F51, D9)."""
        return WordLoss(self.loss_weight())

    def sentences(self, rows):
        """The words of each row of a Dataset."""
        return list(map(self.words_of, rows["text"][:]))

    # Predictions and scores

    def outputs(self, rows, logits):
        """Probabilities of all words, (N, C)."""
        return self.probabilities(logits)

    def predictions(self, outputs, rows):
        return Predictions(self.by_sentence(self.named(self.decide(outputs)), rows), outputs)

    def by_sentence(self, tags, rows):
        """The tags of all words as a list for each sentence of a Dataset."""
        tags = iter(tags)
        return [list(itertools.islice(tags, len(words))) for words in self.sentences(rows)]

    def targets(self, labels):
        """The class ids of all words, (N,)."""
        return np.concatenate(labels).astype(int)  # the array of an empty list has floats

    def metric(self, name, targets, decisions, labels):
        if name != "entity_f1":
            return super().metric(name, targets, decisions, labels)
        from seqeval.metrics import f1_score as entity_f1_score  # here, because only tagging needs it
        return entity_f1_score(*self._tags(labels, targets, decisions), zero_division=0)

    def classes(self, outputs, labels):
        """As `Task.classes`; of tags that mark entities, {type: ...} of whole entities."""
        if "entity_f1" not in self.metrics:
            return super().classes(outputs, labels)
        from seqeval.metrics import classification_report
        tags = self._tags(labels, self.targets(labels), self.decide(outputs))
        rows = classification_report(*tags, output_dict=True, zero_division=0)
        return {name: list(map(float, values.values())) for name, values in rows.items() if not name.endswith(" avg")}

    def _tags(self, labels, *ids):
        """For each array of ids of all words: the tags of each sentence, in BIOES instead of BILOU."""
        names, ends = list(map(as_bioes, self.labels)), np.cumsum(list(map(len, labels)))[:-1]
        return [[[names[i] for i in sentence] for sentence in np.split(words, ends)] for words in ids]

    # Files of predictions

    def write(self, path, rows, decisions):
        """Write the tag of each word; arguments as for `Task.write`."""
        write_words(path, rows["text"][:], self.by_sentence(self.written(decisions), rows))

    def header(self, columns):
        return None

    def lines(self, texts, predictions):
        """For each sentence, a line for each word: the word, its label and the label's probability."""
        probabilities = iter(predictions.probabilities.max(-1))
        for [text], tags in zip(texts.to_numpy(), predictions.labels):
            yield "".join(f"{word}\t{tag}\t{next(probabilities):.4f}\n" for word, tag in zip(self.words_of(text), tags))

    # transformers

    def why_not_exported(self, settings, family):
        return None

    def is_exact_in_half(self, hidden_size):
        return True

    def set_head(self, network, layer):
        network.classifier = layer

    def exported_tokenizer(self, hf_tokenizer, settings):
        """As `Task.exported_tokenizer`. It reads each word as if it followed a space (`wordpieces`)."""
        return exported_tokenizer_of_words(hf_tokenizer, settings["max_length"], self.word_splitter)


@kind_of_task
class Spans(Tagging):
    """A task on character spans, which are read as tags of the words in a text (spans.py), and predicted. The text of a
    row is a string.
    """
    kind: ClassVar[str] = "spans"
    empty_is_label: ClassVar[bool] = True
    text_feature: ClassVar = datasets.Value("string")
    text_format: ClassVar = "a text"
    suffix: ClassVar[str] = ".tsv"
    word_splitter: ClassVar = WORDS

    @classmethod
    def labels_of(cls, tables, texts, columns, definition):
        """As `Tagging.labels_of`; character spans become tags."""
        notices = spans_to_tags(tables, texts[0], columns[0])
        label, labels, more, fields = super().labels_of(tables, texts, columns, definition)
        return label, labels, notices + more, fields

    def parse_texts(self, cells):
        return Task.parse_texts(self, cells)

    def words_of(self, text):
        return [word for word, *_ in words_in(text)]

    def write(self, path, rows, decisions):
        """Write a line with the spans of each text as JSON; arguments as for `Task.write`."""
        spans = map(spans_of_tags, rows["text"][:], self.by_sentence(self.written(decisions), rows))
        write_rows(path, [json.dumps(of_text, ensure_ascii=False) for of_text in spans])

    def labels_of_texts(self, texts, labels):
        """The predicted labels of texts as the training file spells them."""
        return list(map(spans_of_tags, texts, labels))

    def header(self, columns):
        return "\t".join(["spans", *columns])

    def lines(self, texts, predictions):
        """A line for each text: its spans as JSON, and the text."""
        texts = texts.iloc[:, 0]
        for text, spans in zip(texts, self.labels_of_texts(texts, predictions.labels)):
            yield "\t".join([json.dumps(spans, ensure_ascii=False), re.sub(r"\s", " ", text)])


def write_words(path, sentences, tags):
    """Write `word TAB tag` for each word, and an empty line after each sentence.

    sentences, tags: lists of equally long lists. Tabs and line breaks in words, which other formats allow, are written
    as spaces.
    """
    lines = []
    for words, tags_of_words in zip(sentences, tags, strict=True):
        words = [re.sub(r"[\t\r\n]", " ", word) for word in words]
        lines += [f"{word}\t{tag}\n" for word, tag in zip(words, tags_of_words, strict=True)]
        lines.append("\n")
    write_text_atomically(path, "".join(lines))


def _check_sentences(table, text, definition):
    """UserError for CoNLL columns of one sentence, or of sentences of one word, or whose first column numbers words."""
    words, n = table.rows[text].explode(), len(table.rows)
    if n in (1, len(words)):
        raise UserError(f"{table.source} has {n:,} sentences and {len(words):,} words, so its lines are not words. "
                        f"{TEXTS_ADVICE}")
    if definition["text"] is None and words.str.fullmatch(r"\d+([-.]\d+)?").mean() > .9:
        raise UserError(f"{table.source}: the first column has numbers, such as {words.iloc[0]}, instead of words. Set "
                        f"'text' of the task {definition['name']!r} to the column of the words, such as 1, and 'label' "
                        "to that of the tags.")


def _convert(tables, tags, column, convert):
    """Replace the tags of each sentence, in {split: Table} and in {split: Series of lists}."""
    for split, of_split in tags.items():
        tags[split] = of_split.map(convert)
        rows = tables[split].rows.copy()
        rows[column] = tags[split].combine_first(rows[column])
        tables[split] = tables[split]._replace(rows=rows)


class WordRows(EncodedRows):
    """Encoded sentences of words, with a label at the first wordpiece of each word (finetune/tagging, F51).

    Other tokens have the label IGNORED.

    sentences: lists of words.   word_labels: a list of class ids for each sentence, of any value if they are unknown.
    A sentence of more than max_len tokens is divided at a word, so that every word has a prediction. A word that the
    tokenizer drops, such as a control character, becomes [UNK].
    labels: of all words, (N,).
    """

    def __init__(self, sentences, word_labels, hf_tokenizer, max_len):
        template = template_of(text_tokenizer(hf_tokenizer))
        before, after = ([(i, IGNORED) for i in special] for special in (template.before, template.after))
        pieces, labels = wordpieces(sentences, hf_tokenizer), list(itertools.chain.from_iterable(word_labels))
        following, texts, n_words = iter(labels), [], []
        for sentence in sentences:
            words, windows = [pieces[word] for word in sentence], []
            for part in divide(words, max_len - template.n_single):
                labels_of_words = [itertools.chain([next(following)], itertools.repeat(IGNORED)) for _ in part]
                labelled = itertools.chain.from_iterable(map(zip, part, labels_of_words))
                ids, token_labels = zip(*before, *labelled, *after)
                windows.append(Window(ids, [0] * len(ids), token_labels))
                n_words.append(len(part))
            texts.append((windows, sum(map(len, words)) + template.n_single))
        super().__init__(texts, labels, hf_tokenizer.pad_token_id)
        # Of each row, the indexes of its words among all words.
        self.words = np.split(np.arange(len(labels)), np.cumsum(n_words)[:-1])

    def positions(self, rows):
        return np.concatenate([self.words[row] for row in rows])


def wordpieces(sentences, hf_tokenizer):
    """{word: token ids} of all words."""
    tokenizer = text_tokenizer(hf_tokenizer)
    words = list(dict.fromkeys(itertools.chain.from_iterable(sentences)))
    # Byte-level tokenizers recognize the beginning of a word by the space before it; others ignore the space.
    encoded = tokenizer.encode_batch([f" {word}" for word in words], add_special_tokens=False)
    return {word: encoding.ids or [hf_tokenizer.unk_token_id] for word, encoding in zip(words, encoded)}


def divide(words, room):
    """The token ids of the words of a sentence in parts of at most `room` tokens. A longer word is truncated."""
    parts, used = [[]], 0
    for word in words:
        ids = word[:room]
        if used + len(ids) > room:
            parts.append([])
            used = 0
        parts[-1].append(ids)
        used += len(ids)
    return parts


class WordLoss(nn.Module):
    """Cross-entropy, summed over the words of each sentence; the mean over the batch (F51, D9).

    weight: (C,) or None.
    """
    name = "loss per sentence"

    def __init__(self, weight=None):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, logits, labels):
        """logits (B, L, C), labels (B, L) -> ()."""
        words = logits.flatten(0, 1), labels.flatten()
        return F.cross_entropy(*words, self.weight, ignore_index=IGNORED, reduction="sum") / len(logits)
