"""Schemes of tags that mark entities: BIO, BIOES, BILOU, and conversions."""
import re

from _utils.errors import UserError
from _utils.tasks.tables import shortened

BIO = re.compile(r"O|[BIESLU]-\S.*")  # tags that mark where entities begin and end: BIO, BIOES, BILOU


def in_scheme(tags, scheme):
    """The tags of a sentence in the scheme 'iob2' or 'bioes' (as Google's chunking, F51).

    They may be in IOB1, IOB2, BIOES, BILOU or a mixture.
    """
    converted = ["O"] * len(tags)
    for kind, first, last in entities(tags):
        converted[first:last + 1] = [f"B-{kind}"] + [f"I-{kind}"] * (last - first)
        if scheme == "bioes":
            converted[last] = f"{'S' if first == last else 'E'}-{kind}"
    return converted


def entities(tags):
    """[(type, index of the first word, index of the last)] of a sentence, as CoNLL's evaluation counts them."""
    from seqeval.metrics.sequence_labeling import get_entities  # here, because only tagging needs it
    return get_entities(list(map(as_bioes, tags)))


def as_bioes(tag):
    """A tag of BILOU in BIOES, which seqeval knows; others as they are."""
    return {"L-": "E-", "U-": "S-"}.get(tag[:2], tag[:2]) + tag[2:]


def mark_entities(tags):
    """Whether all tags mark entities, and some is not O."""
    return all(map(BIO.fullmatch, tags)) and bool({*tags} - {"O"})


def scheme_warnings(tags):
    """[A warning] about tags, a Series of lists, of which a few do not mark entities; or []."""
    names = tags.explode().dropna().unique()
    others = [tag for tag in names if not BIO.fullmatch(tag)]
    if not 0 < 2 * len(others) < len(names):
        return []
    return [f"warning: entity_f1 is not computed, because the tags {shortened(list(map(repr, others)))} do not mark "
            "entities as the others do. If they are mistakes, correct them"]


def check_scheme(source, tags, definition):
    """UserError if the tags, a Series of lists, do not mark entities and so cannot be converted to a scheme.

    source: of their Table.
    """
    names = tags.explode().dropna().unique()  # missing in a sentence without words
    if others := [name for name in names if not BIO.fullmatch(name)]:
        raise UserError(f"{source}: scheme={definition['scheme']!r} of the task {definition['name']!r} needs tags such "
                        f"as B-NP, I-NP and O, but there are {shortened(others)}. Leave it out, or correct them.")
