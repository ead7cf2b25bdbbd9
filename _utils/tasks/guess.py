"""The kind of an own task, where it is guessed from the training labels; labels that are lists, marks or character spans."""
from functools import partial

import pandas as pd

from _utils.errors import PlainError
from _utils.tasks.spans import is_nested, read_spans, tags_of_spans
from _utils.tasks.table_files import as_label, items, labels_in, list_in, numbers_in, shortened

LISTS = "(labels)"  # column for the list of the labels of a row
# Cells of columns with a mark for each label, in lower case; numbers equal to 1 or 0 are read, too.
_MARKS = dict.fromkeys("1 true t yes y on".split(), True) | dict.fromkeys(["", *"0 false f no n off".split()], False)
FEW = .05  # share of the rows that may not decide on the kind by themselves


def kind_of(table, texts, columns, separator):
    """(kind that follows from the training labels, why): character spans are tags.

    Lists are tags if they are as long as the lists of words or texts, else labels; several columns are labels.
    Numbers of which some have a fraction are scores; if less than a tenth of the labels are not numbers, their rows are malformed.
    Otherwise, strings with the separator are several labels, and anything else is a class. PlainError for numbers with decimal commas, and
    if the kind depends on at most one row in twenty.
    """
    if len(columns) > 1:
        return "multilabel", ""
    labels = labels_in(table, columns[0])
    decided = partial(_decided, table.source, labels)
    has_spans = labels.map(is_nested).astype(bool)
    if has_spans.any():
        if not (has_spans | labels.map(lambda cell: cell == [])).all():
            decided(has_spans, "are character spans", "tagging")
        return "tagging", ""
    is_list = labels.map(lambda label: isinstance(label, list)).astype(bool)
    if is_list.any():
        words = table.rows.loc[labels.index, texts[0]]
        n_words, n_labels = (cells.map(items).str.len() for cells in (words, labels))
        kind = "tagging" if words.map(type).eq(list).any() or (n_words == n_labels).mean() > .5 else "multilabel"
        return kind, decided(is_list, "are lists", kind) if not is_list.all() else ""
    strings = labels.map(as_label)
    is_written_list = strings.map(list_in).notna()
    if is_written_list.any():
        return "multilabel", decided(is_written_list, "are lists", "multilabel")
    numbers = numbers_in(strings)
    if numbers.notna().mean() > .9 and (numbers % 1 > 0).any():
        return "regression", decided(numbers % 1 > 0, "have a fraction", "regression")
    has_separator = strings.str.contains(separator, regex=False)
    if has_separator.any():
        return "multilabel", decided(has_separator, f"contain {separator!r}", "multilabel")
    if strings.str.fullmatch(r"-?\d+(,\d+)?").all() and numbers.isna().any():
        raise PlainError(f"{table.source}: the labels are numbers with decimal commas, such as {max(strings, key=len)!r}. Write them with "
                         "points, or set 'kind': 'classification' if they are names of classes.")
    return "classification", ""


def _decided(source, labels, is_reason, what, kind):
    """Why labels have a kind. is_reason: whether each is a reason.   what: is true of these. PlainError if they are few."""
    n, place = is_reason.sum(), is_reason.idxmax()
    reason = f"{n:,} of {len(labels):,} labels {what}, such as {labels[place]!r:.60} in {place}"
    if is_reason.mean() <= FEW:
        raise PlainError(f"{source}: {reason}, which would make the task {kind}. Set 'kind' to {kind!r} or 'classification', or correct "
                         "these rows.")
    return reason


def with_lists(table, columns, separator):
    """The Table with the labels of each row as a list in one more column: from a list, a string with separators, or columns of 1 and 0."""
    if not {*columns} <= {*table.rows}:
        return table
    cells = table.rows[columns].map(lambda cell: cell if isinstance(cell, list) else as_label(cell))
    if len(columns) == 1:
        lists = cells[columns[0]].map(partial(_several_labels, separator))
        for place, labels in lists[lists.map(lambda labels: len(set(labels)) < len(labels))].items():
            raise PlainError(f"{table.source}, {place}: the labels {shortened(labels)} repeat one. If they are 1 and 0 for each label, "
                             "write the names of the labels instead, or a column for each label.")
    else:
        marks = cells.map(_mark)
        for (place, column), _ in marks.isna().stack().loc[lambda is_unknown: is_unknown].items():
            raise PlainError(f"{table.source}, {place}: the column {column!r} contains {cells.loc[place, column]!r:.60}. With several "
                             f"columns of labels, each cell is one of {', '.join(filter(None, _MARKS))}.")
        lists = marks.apply(lambda row: [str(column) for column in columns if row[column]], axis=1)
    return table._replace(rows=table.rows.assign(**{LISTS: lists}))


def _several_labels(separator, cell):
    """The labels in a cell: a list, or a string that is written as one or has separators."""
    if isinstance(cell, str) and (cell := list_in(cell) or cell) and isinstance(cell, str):
        return [*filter(None, map(str.strip, cell.split(separator)))]
    return list(map(as_label, cell))


def _mark(cell):
    """Whether a cell marks that a label applies; None for another cell."""
    text = str(cell).strip().casefold()
    number = pd.to_numeric(text, errors="coerce")
    return number == 1 if number in (0, 1) else _MARKS.get(text)


def check_no_spans(table, label, kind):
    """PlainError if labels of a Table are character spans, which only tagging reads."""
    labels = labels_in(table, label)
    for place, cell in labels[labels.map(is_nested).astype(bool)].items():
        raise PlainError(f"{table.source}, {place}: the column {label!r} contains {cell!r:.60}. Character spans need "
                         f"'kind': 'tagging'; for {kind}, set 'label' to a column of labels.")


def read_span_labels(tables, text, label):
    """[notices] about labels that are character spans, which become tags of words in {split: Table}; [] if there are none.

    text, label: columns. PlainError for lists of something else.
    """
    labels = labels_in(tables["train"], label)
    has_spans = labels.map(is_nested).astype(bool)
    if not has_spans.any():
        return []
    place = has_spans.idxmax()
    tagged = {}
    for split, table in tables.items():
        if label in table.rows and table.rows[label].map(is_nested).any():  # otherwise a test file without labels
            tables[split], found = _with_tags(table, text, label)
            tagged |= {f"{place} of {table.source}": one for place, one in found.items()}
    notices = [f"character spans such as {labels[place]!r:.60} in {place} are read as tags of words"]
    for part, what in (("widened", "begin or end inside a word, which counts as a whole (the end is after the last character)"),
                       ("dropped", "are left out, because they share a word with a longer one or have no word")):
        spans = [f"{[*span]} in {place}" for place, one in tagged.items() for span in getattr(one, part)]
        if spans:
            notices.append(f"warning: {len(spans):,} spans {what}, such as {spans[0]}")
    return notices


def _with_tags(table, text, label):
    """(the Table with tags of the words of each text in place of character spans, {place: Tagged}). PlainError for other lists."""
    rows, problems, tagged = table.rows.copy(), dict(table.problems), {}
    for place, words, cell in zip(rows.index, rows[text], rows[label]):
        spans = read_spans(cell)
        if spans is None and is_nested(cell):
            raise PlainError(f"{table.source}, {place}: the column {label!r} contains {cell!r:.60}, which is neither a list of labels nor "
                             "of spans. A span is [start, end, 'label'] or {'start': 0, 'end': 4, 'label': 'label'}.")
        try:
            if spans is not None:
                tagged[place] = tags_of_spans(words, spans)
        except ValueError as error:
            problems.setdefault(place, f"the column {label!r} contains {error}")
    for place, problem in problems.items() if not tagged else ():
        raise PlainError(f"{table.source}, {place}: {problem}. A span is [start, end, 'label'], in characters from 0.")
    rows[label] = pd.Series({place: one.tags for place, one in tagged.items()}, dtype=object).combine_first(rows[label])
    return table._replace(rows=rows, problems=problems), tagged
