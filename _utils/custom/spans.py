"""Character spans of annotation tools, such as [[0, 4, "PER"]], which are tags of words in training and prediction."""
import json
from typing import Annotated

import pandas as pd
from pydantic import AliasChoices, BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError
from tokenizers import Regex, pre_tokenizers

from _utils.custom.tag_schemes import entities
from _utils.custom.tagging import TagFiles, Tagging, TagHead, TagInputs, find_tags, load_tags
from _utils.errors import UserError
from _utils.files import write_text_atomically
from _utils.tasks.parts import Inputs, with_texts
from _utils.tasks.tables import text_of_predictions
from _utils.tasks.task import kind_of_task

# Spaces and punctuation divide words, as for BERT; in scripts without spaces, each Han character and each run of kana
# is one.
WORDS = pre_tokenizers.Sequence([
    pre_tokenizers.BertPreTokenizer(),
    pre_tokenizers.Split(Regex(r"\p{Han}|\p{Hiragana}+|[\p{Katakana}ー]+"), "isolated")])
_Label = Annotated[str, Field(min_length=1)]


class _Item(BaseModel, coerce_numbers_to_str=True):
    """A span as a dictionary of an annotation tool."""
    start: int = Field(validation_alias=AliasChoices("start", "start_offset", "begin"))
    end: int = Field(validation_alias=AliasChoices("end", "end_offset"))
    label: _Label | tuple[_Label] = Field(
        validation_alias=AliasChoices("label", "labels", "entity_group", "entity", "type", "tag"))


def words_in(text):
    """[(word, start, end)] of a text."""
    return [(word, *place) for word, place in WORDS.pre_tokenize_str(text)]


def read_spans(cell):
    """[(start, end, label)] of a list of [start, end, label], or of dictionaries with these keys.

    These are the exports of doccano, Label Studio, Prodigy and spaCy ({"entities": [...]}), and the output of pipelines
    of transformers. ValueError for another cell.
    """
    try:
        spans = _ITEMS.validate_python(cell.get("entities") if isinstance(cell, dict) else cell)
    except ValidationError:
        raise ValueError(f"{cell!r:.60}, which is not a list of spans") from None
    return [(span.start, span.end, "".join(span.label)) for span in spans]


def _as_dictionary(item):
    return dict(zip(("start", "end", "label"), item)) if isinstance(item, list | tuple) else item


_ITEMS = TypeAdapter(list[Annotated[_Item, BeforeValidator(_as_dictionary)]])


def about_code_units(texts):
    """The end of a message about characters that are two code units in UTF-16, if a text has some."""
    has_some = any(max(text, default="") > "\uffff" for text in texts)
    return "; an emoji is one character here, and two in programs that count in UTF-16" if has_some else ""


def tags_of_spans(text, spans):
    """The tags of the words of a text in the scheme IOB2, O outside of the spans.

    ValueError for a span outside of the text.

    A word that a span covers in part has its tag. Of spans that share a word, the longest counts.
    """
    words = words_in(text)
    tags = ["O"] * len(words)
    for start, end, label in sorted(spans, key=lambda span: span[0] - span[1]):
        if not 0 <= start < end <= len(text):
            raise ValueError(f"{[start, end, label]}, which is not a part of the text, which has {len(text)} characters"
                             f"{about_code_units([text])}")
        covered = [i for i, (_, first, last) in enumerate(words) if first < end and start < last]
        if {tags[i] for i in covered} == {"O"}:
            tags[covered[0]:covered[-1] + 1] = [f"B-{label}"] + [f"I-{label}"] * (len(covered) - 1)
    return tags


def spans_of_tags(text, tags):
    """[[start, end, label]] of the entities that the tags of the words of a text mark."""
    words = words_in(text)
    return [[words[first][1], words[last][2], label] for label, first, last in entities(tags)]


def with_tags(table, text, label):
    """(the Table with tags of words in place of character spans, places of the texts whose spans the tags change).

    text, label: columns. Rows with other labels become problems of the Table. UserError if all rows do.
    """
    problems, tags, changed = dict(table.problems), {}, []
    for place, words, cell in zip(table.rows.index, table.rows[text].map(str), table.rows[label]):
        try:
            spans = read_spans(cell)
            tags[place] = tags_of_spans(words, spans)
        except ValueError as error:
            problems.setdefault(place, f"the column {label!r} contains {error}")
            continue
        if {*spans} != {*map(tuple, spans_of_tags(words, tags[place]))}:
            changed.append(place)
    if not tags:
        place = next(iter(problems))
        raise UserError(f"{table.source}, {place}: {problems[place]}. A span is [start, end, 'label'], in characters "
                        "from 0, or {'start': 0, 'end': 4, 'label': 'label'}.")
    rows = table.rows.assign(**{label: pd.Series(tags, dtype=object).reindex(table.rows.index)})
    return table._replace(rows=rows, problems=problems), changed


class SpanInputs(TagInputs):
    """The text of a row is a string."""
    text_column = Inputs.text_column

    @staticmethod
    def words_of(text):
        return [word for word, *_ in words_in(text)]


class SpanHead(TagHead):
    """As for words, which are those of the spans."""
    word_splitter = WORDS


class SpanFiles(TagFiles):
    """The spans of each text, [start, end, label]."""

    def write(self, path, rows, decisions):
        """Write a line with the spans of each text as JSON; arguments as for `PredictionFiles.write`."""
        spans = map(spans_of_tags, rows["text"][:], self.in_sentences(self.written(decisions), rows))
        lines = [json.dumps(of_text, ensure_ascii=False) for of_text in spans]
        write_text_atomically(path, text_of_predictions(lines))

    def predictions(self, outputs, rows):
        tags = super().predictions(outputs, rows)
        return tags._replace(labels=list(map(spans_of_tags, rows["text"][:], tags.labels)))

    def lines(self, texts, predictions):
        """(header, a line for each text: its spans as JSON, and the text)."""
        return with_texts(["spans"], ([json.dumps(spans, ensure_ascii=False)] for spans in predictions.labels), texts)


@kind_of_task
class Spans(Tagging):
    """A task on character spans: tagging with other labels in files."""
    kind = "spans"
    inputs_class = SpanInputs
    head_class = SpanHead
    files_class = SpanFiles
    suffix = ".tsv"

    @classmethod
    def load(cls, definition, tables):
        """As `CustomTask.load`. Character spans become tags."""
        tables = find_tags(tables, definition)
        [text], [label] = tables.texts, tables.labels
        for split, table in tables.labelled.items():
            tables.labelled[split], changed = with_tags(table, text, label)
            if changed:
                tables.messages.append(
                    f"warning: {table.source}: {len(changed):,} texts, the first in {changed[0]}, have spans that "
                    "begin or end inside a word, which counts as a whole (the end is after the last character), or "
                    "that share a word with a longer span and are left out"
                    f"{about_code_units(table.rows.loc[changed, text])}")
        return load_tags(cls, definition, tables, {})
