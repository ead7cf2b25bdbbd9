"""The kind of an own task, where it is guessed from the training labels."""
from _utils.errors import UserError
from _utils.tasks.spans import is_nested
from _utils.tasks.tables import as_label, items, labels_in, numbers_in

FEW = .05  # share of the rows that may not decide on the kind by themselves


def kind_of(table, texts, columns, separator):
    """(kind that follows from the training labels, why).

    Several columns are several labels. Character spans are tags, and so are lists if they are as long as the lists of
    words; other lists are several labels. Numbers are scores if some have a fraction; if less than a tenth of the
    labels are not numbers, their rows are malformed. Strings with the separator are several labels, and anything else
    is a class. UserError if the kind depends on at most one row in twenty.
    """
    if len(columns) > 1:
        return "multilabel", ""
    labels = labels_in(table, columns[0])
    spans = labels.map(is_nested).astype(bool)
    lists = labels.map(lambda label: isinstance(label, list)).astype(bool)
    if spans.any():
        without_spans = labels.map(lambda label: label == [])
        return "tagging", _reason(table, labels, spans | without_spans, "are character spans", "tagging")
    if lists.any():
        words = table.rows.loc[labels.index, texts[0]]
        are_as_long = words.map(items).str.len() == labels.map(items).str.len()
        kind = "tagging" if words.map(type).eq(list).any() or are_as_long.mean() > .5 else "multilabel"
        return kind, _reason(table, labels, lists, "are lists", kind)
    strings = labels.map(as_label)
    numbers = numbers_in(strings)
    has_fraction = numbers % 1 > 0
    if has_fraction.any() and numbers.notna().mean() > .9:
        return "regression", _reason(table, labels, has_fraction, "have a fraction", "regression")
    has_separator = strings.str.contains(separator, regex=False)
    if has_separator.any():
        return "multilabel", _reason(table, labels, has_separator, f"contain {separator!r}", "multilabel")
    return "classification", ""


def _reason(table, labels, is_reason, what, kind):
    """Why labels have a kind; "" if all of them say so. UserError if few do.

    is_reason: whether each label is a reason.   what: is true of these.
    """
    n, place = is_reason.sum(), is_reason.idxmax()
    reason = f"{n:,} of {len(labels):,} labels {what}, such as {labels[place]!r:.60} in {place}"
    if is_reason.mean() <= FEW:
        raise UserError(f"{table.source}: {reason}, which would make the task {kind}. Set 'kind' to {kind!r} or "
                        "'classification', or correct these rows.")
    return "" if is_reason.all() else reason
