"""Sentences with a tag for each word."""
import itertools
import sys
from functools import partial

import datasets
import numpy as np
import pandas as pd
from transformers import AutoModelForTokenClassification

from _utils.custom.cells import is_nested, items, labels_in, refuse
from _utils.custom.definition import TEXTS_ADVICE, is_conll
from _utils.custom.table_files import by_sentence
from _utils.custom.tag_schemes import as_bioes, check_scheme, in_scheme, mark_entities, scheme_warnings
from _utils.custom.task import ClassHead, Classification, ClassMetrics, ListInputs, class_data, class_task
from _utils.custom.task_tables import find_labels
from _utils.custom.words import WordLoss, WordPredictor, WordRows
from _utils.errors import UserError
from _utils.files import write_text_atomically
from _utils.tasks.parts import Column, PredictionFiles
from _utils.tasks.tables import as_label, in_cell, shortened
from _utils.tasks.task import kind_of_task
from _utils.text.exported_tokenizer import exported_tokenizer_of_words


class TagInputs(ListInputs):
    """Text and label of a row are lists with an item for each word."""
    words_of = staticmethod(items)  # the words of a text of a Dataset

    @property
    def text_column(self):
        """Column of a list of words."""
        return Column(lambda cells: cells.map(items), "a list of words", datasets.List(datasets.Value("string")))

    def in_rows(self, table):
        """As `Inputs.in_rows`.

        UserError for lines that end with tags, which would be taken for words. Prints a warning if each text is a word.
        """
        if self.task.sentence in table.rows:
            return by_sentence(table, self.task.sentence, self.task.name, self.task.groups)
        _warn_of_single_words(table, self.task)
        cells = table.rows.get(self.task.texts[0], pd.Series(dtype=object))
        last = pd.Series([words[-1] for words in cells.map(str).str.split() if words], dtype=object)
        tags = [tag for tag in self.task.written_labels if any(map(str.isalnum, tag))]  # not "." of a full stop
        if last.isin(tags).mean() > .9:
            raise UserError(f"{table.source}: the lines end with tags, such as {last.iloc[0]!r}. Pass sentences "
                            "without tags. A model that was trained on CoNLL columns also reads them, as .conll.")
        return table

    def texts_in(self, rows):
        return [" ".join(words) for words in self.sentences(rows)]

    def sentences(self, rows):
        """The words of each row of a Dataset."""
        return list(map(self.words_of, rows["text"][:]))

    def encode(self, rows, hf_tokenizer, settings, sentence_predictor, training=False):
        """WordRows of a Dataset."""
        sentences = self.sentences(rows)
        labels = [tags or [-1] * len(words) for tags, words in zip(rows["label"][:], sentences)]
        return WordRows(sentences, labels, hf_tokenizer, settings.max_length)


class TagHead(ClassHead):
    """A logit for each tag at the first token of each word."""
    keys = ()
    network_class = WordPredictor
    transformers_class = AutoModelForTokenClassification
    word_splitter = None  # a PreTokenizer that divides texts into words, if not the tokenizer's own does

    def loss(self):
        """The cross-entropy, summed over the words of each sentence; the mean over the batch (F51, D9)."""
        return WordLoss(self.loss_weight())

    def outputs(self, rows, logits):
        """Probabilities of all words, (N, C)."""
        return logits.softmax(-1)

    def why_not_exported(self, settings, family):
        return None

    def set_head(self, network, weights):
        network.classifier.load_state_dict(weights)

    def exported(self, hf_tokenizer, settings):
        """As `Head.exported`. The tokenizer reads each word as if it followed a space (`wordpieces`)."""
        return exported_tokenizer_of_words(hf_tokenizer, settings.max_length, self.word_splitter), {}


def split_tags(tags, sentences):
    """The tags of all words as a list for each sentence."""
    tags = iter(tags)
    return [list(itertools.islice(tags, len(words))) for words in sentences]


class TagMetrics(ClassMetrics):
    """Tags of all words, and whole entities."""
    functions = {"entity_f1": None, "accuracy": ClassMetrics.functions["accuracy"],
                 "macro_f1": ClassMetrics.functions["macro_f1"]}
    default_metrics = ("entity_f1", "accuracy")

    @classmethod
    def applicable(cls, labels):
        """As `ClassMetrics.applicable`. entity_f1 counts whole entities, or chunks, as CoNLL's evaluation does."""
        return [name for name in cls.functions if name != "entity_f1" or mark_entities(labels)]

    def targets(self, labels):
        """The class ids of all words, (N,)."""
        return np.concatenate(labels).astype(int)  # the array of an empty list has floats

    def metric(self, name, targets, decisions, labels):
        if name != "entity_f1":
            return super().metric(name, targets, decisions, labels)
        from seqeval.metrics import f1_score as entity_f1_score  # here, because only tagging needs it
        return entity_f1_score(*self._tags(labels, targets, decisions), zero_division=0)

    def classes(self, outputs, labels):
        """As `ClassMetrics.classes`; of tags that mark entities, {type: ...} of whole entities."""
        if "entity_f1" not in self.task.metrics:
            return super().classes(outputs, labels)
        from seqeval.metrics import classification_report
        tags = self._tags(labels, self.targets(labels), self.decide(outputs))
        rows = classification_report(*tags, output_dict=True, zero_division=0)
        return {name: list(map(float, values.values())) for name, values in rows.items() if not name.endswith(" avg")}

    def confusion(self, outputs, labels):
        return []

    def _tags(self, labels, *ids):
        """For each array of ids of all words: the tags of each sentence, in BIOES instead of BILOU."""
        names = list(map(as_bioes, self.task.labels))
        return [split_tags(map(names.__getitem__, words), labels) for words in ids]


class TagFiles(PredictionFiles):
    """The tag of each word."""

    def in_sentences(self, tags, rows):
        """The tags of all words as a list for each sentence of a Dataset."""
        return split_tags(tags, self.task.inputs.sentences(rows))

    def write(self, path, rows, decisions):
        """Write `word TAB tag` for each word, and an empty line after each sentence.

        Arguments as for `PredictionFiles.write`.
        """
        sentences = zip(rows["text"][:], self.in_sentences(self.written(decisions), rows))
        lines = [[f"{in_cell(word)}\t{in_cell(tag)}\n" for word, tag in zip(*pair)] for pair in sentences]
        write_text_atomically(path, "".join("".join(of_sentence) + "\n" for of_sentence in lines))

    def predictions(self, outputs, rows):
        tags = super().predictions(outputs, rows)
        return tags._replace(labels=self.in_sentences(tags.labels, rows))

    def lines(self, texts, predictions):
        """(None, for each sentence a line for each word: the word, its label and the label's probability)."""
        probabilities, lines = iter(predictions.probabilities.max(-1)), []
        for [text], tags in zip(texts.to_numpy(), predictions.labels):
            words = zip(map(in_cell, self.task.inputs.words_of(text)), map(in_cell, tags), probabilities)
            lines.append("".join(f"{word}\t{tag}\t{p:.4f}\n" for word, tag, p in words))
        return None, lines


@kind_of_task
class Tagging(Classification):
    """A task that labels words (finetune/tagging, F51).

    sentence: the column with the numbers of sentences in files with a word in each row.
    """
    kind = "tagging"
    inputs_class = TagInputs
    head_class = TagHead
    metrics_class = TagMetrics
    files_class = TagFiles
    suffix = ".conll"

    # Columns of a table with a word in each row: the number of its sentence, and the group that sentences do not cross.
    sentence: str | None = None
    groups: str | None = None

    @classmethod
    def load(cls, definition, tables):
        """As `CustomTask.load`, of lists of words and of tags, CoNLL columns, or tables with a word in each row."""
        if definition["sentence"]:
            column, name = definition["sentence"], definition["name"]
            tables = {split: by_sentence(table, column, name, definition["groups"]) for split, table in tables.items()}
        tables = find_tags(tables, definition)
        [text], [label], train = tables.texts, tables.labels, tables.labelled["train"]
        labels = labels_in(train, label)
        refuse(train.source, labels, labels.map(is_nested), "labels are not lists of tags",
               f"If they are character spans, set 'kind': 'spans' of the task {definition['name']!r}.")
        mismatches = {split: _mismatches(table, text, label) for split, table in tables.labelled.items()}
        return load_tags(cls, definition, tables, mismatches)


def find_tags(tables, definition):
    """As `find_labels`, with one column of texts and one of tags. UserError if they are not those of sentences."""
    found = find_labels(tables, definition)
    if len(found.texts) > 1:
        raise UserError(f"{definition['train']}: tagging labels the words of one column, but 'text' of the task "
                        f"{definition['name']!r} has two: {', '.join(found.texts)}. Set 'text' to one of them, or "
                        "'kind' to another kind.")
    if is_conll(definition["train"]):
        _check_sentences(tables["train"], *found.texts, definition)
    return found


def _check_sentences(table, text, definition):
    """UserError for CoNLL columns of one sentence, or whose first column numbers words."""
    words = table.rows[text].explode()
    if len(table.rows) == 1:
        raise UserError(f"{table.source} has {len(words):,} words in one sentence. {TEXTS_ADVICE}")
    if definition["text"] is None and words.str.fullmatch(r"\d+([-.]\d+)?").mean() > .9:
        raise UserError(f"{table.source}: the first column has numbers, such as {words.iloc[0]}, instead of words. Set "
                        f"'text' of the task {definition['name']!r} to the column of the words, such as 1, and 'label' "
                        "to that of the tags.")


def _mismatches(table, text, label):
    """{place: message} of rows whose numbers of words and tags differ."""
    n_words, n_tags = (table.rows[name].map(items).map(len, na_action="ignore") for name in (text, label))
    differ = (n_words != n_tags) & n_words.notna() & n_tags.notna()
    return dict.fromkeys(table.rows.index[differ], "the numbers of words and tags differ")


def load_tags(kind, definition, tables, mismatches):
    """TaskData of TaskTables whose labels are tags, which are converted to the wanted scheme.

    mismatches: {split: {place: message}} of malformed rows.
    """
    tags = _tags_in_scheme(definition, tables)
    for split, problems in mismatches.items():
        table = tables.labelled[split]
        tables.labelled[split] = table._replace(problems=problems | table.problems)
    _check_lengths(tables.labelled["train"], *tables.labels, definition["name"])
    labels = {split: of_split.explode().dropna().map(as_label) for split, of_split in tags.items()}
    of_test = labels.pop("test", pd.Series(dtype=object))
    known = pd.concat(labels.values())  # a word of the dev set may have a tag that is in no training sentence
    if definition["metrics"] is None and not mark_entities(known):
        definition = {**definition, "metrics": ClassMetrics.default_metrics}
    groups = definition["groups"] if definition["sentence"] else None
    task = class_task(kind, definition, tables, known, sentence=definition["sentence"], groups=groups)
    unknown = [tag for tag in of_test.unique() if tag not in task.inputs.label_ids]
    if unknown:
        tables.messages.append(f"no training or dev sentence has the tags {shortened(unknown)} of the test file, "
                               "which are never predicted")
    return class_data(task, definition, tables, unknown=unknown)


def _tags_in_scheme(definition, tables):
    """{split: Series of the tags of each sentence}, which replace those of the TaskTables."""
    [label], scheme = tables.labels, definition["scheme"]
    tags = {split: labels_in(table, label).map(items).dropna() for split, table in tables.labelled.items()}
    if not scheme:
        tables.messages.extend(scheme_warnings(tags["train"]))
        return tags
    for split, table in tables.labelled.items():
        check_scheme(table.source, tags[split], definition)
        tags[split] = tags[split].map(partial(in_scheme, scheme=scheme))
        rows = table.rows.assign(**{label: tags[split].combine_first(table.rows[label])})
        tables.labelled[split] = table._replace(rows=rows)
    return tags


def _check_lengths(table, label, name):
    """UserError if all sentences have one word."""
    if n := _n_single_words(table, label):
        raise UserError(f"{table.source}: each of the {n:,} texts has one word. If a row is a word of a "
                        f"sentence, set 'sentence' of the task {name!r} to the column with the number of the sentence. "
                        f"{TEXTS_ADVICE}")


def _warn_of_single_words(table, task):
    """Print a warning if all texts to predict have one word. Their column has the name of the training file, or not."""
    columns = table.rows.columns.intersection([task.columns_in_files[0], task.texts[0]])
    if n := max((_n_single_words(table, column) for column in columns), default=0):
        advice = f"a table with the column {task.sentence!r}" if task.sentence else "whole sentences, or a .conll file"
        print(f"warning: each of the {n:,} texts has one word. If they are the words of sentences, pass {advice}.",
              file=sys.stderr)


def _n_single_words(table, column):
    """The number of texts if there are several and all have one word, else 0. column: of words or tags."""
    n_words = labels_in(table, column).map(items).dropna().map(len)
    return len(n_words) if len(n_words) > 1 and n_words.max() == 1 else 0
