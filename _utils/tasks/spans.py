"""Character spans of annotation tools, such as [[0, 4, "PER"]], as tags of words, and tags of words as spans."""
from typing import NamedTuple

from tokenizers import Regex, pre_tokenizers

from _utils.tasks.tag_schemes import entities

# Spaces and punctuation divide words, as for BERT; in scripts without spaces, each Han character and each run of kana is one.
_WORDS = pre_tokenizers.Sequence([
    pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Split(Regex(r"\p{Han}|\p{Hiragana}+|[\p{Katakana}ー]+"), "isolated")])
_KEYS = (("start", "start_offset", "begin"), ("end", "end_offset"), ("label", "labels", "entity_group", "entity", "type", "tag"))


class Span(NamedTuple):
    """text[start:end] has this label."""
    start: int
    end: int
    label: str


class Tagged(NamedTuple):
    """The tags of the words of a text; spans that begin or end inside a word; and spans that overlap another one or cover no word."""
    tags: list
    widened: list
    dropped: list


def words_in(text):
    """[(word, start, end)] of a text."""
    return [(word, *place) for word, place in _WORDS.pre_tokenize_str(text)]


def read_spans(cell):
    """[Span] of a list of [start, end, label], or of dictionaries such as {"start": 0, "end": 4, "label": "PER"}; None for another cell.

    These are the exports of doccano, Label Studio, Prodigy and spaCy ({"entities": [...]}), and the output of pipelines of transformers.
    """
    if isinstance(cell, dict):
        cell = cell.get("entities")
    spans = list(map(_read_span, cell)) if isinstance(cell, list) else [None]
    return None if None in spans else spans


def _read_span(item):
    """The Span of an item of a list, or None."""
    if isinstance(item, dict):
        item = [next((item[key] for key in keys if key in item), None) for keys in _KEYS]
    if not isinstance(item, list | tuple) or len(item) < 3:
        return None
    start, end, label = item[:3]
    if isinstance(label, list) and len(label) == 1:
        [label] = label
    try:
        span = Span(int(start), int(end), str(label))
    except (TypeError, ValueError):
        return None
    return span if label and isinstance(label, str | int) and (span.start, span.end) == (float(start), float(end)) else None


def is_nested(cell):
    """Whether a cell is a dictionary, or a list of lists or dictionaries, none of which is a label or a list of labels."""
    return isinstance(cell, dict) or isinstance(cell, list) and any(isinstance(item, list | tuple | dict) for item in cell)


def tags_of_spans(text, spans):
    """Tagged: the words of a text with tags in the scheme IOB2, O outside of the spans. ValueError for a span outside of the text.

    A word that a span covers in part has its tag. Of spans that share a word, the longest counts.
    """
    if not isinstance(text, str):
        raise ValueError("character spans, but the text is not a string")
    words, widened, dropped = words_in(text), [], []
    tags = ["O"] * len(words)
    for span in sorted(spans, key=lambda span: span.start - span.end):
        if not 0 <= span.start < span.end <= len(text):
            raise ValueError(f"{[*span]} is not a part of the text, which has {len(text)} characters")
        covered = [i for i, (_, start, end) in enumerate(words) if start < span.end and span.start < end]
        if not covered or any(tags[i] != "O" for i in covered):
            dropped.append(span)
            continue
        tags[covered[0]:covered[-1] + 1] = [f"B-{span.label}"] + [f"I-{span.label}"] * (len(covered) - 1)
        if words[covered[0]][1] < span.start or span.end < words[covered[-1]][2]:
            widened.append(span)
    return Tagged(tags, widened, dropped)


def spans_of_tags(text, tags):
    """[[start, end, label]] of the entities that the tags of the words of a text mark."""
    words = words_in(text)
    return [[words[first][1], words[last][2], label] for label, first, last in entities(tags)]
