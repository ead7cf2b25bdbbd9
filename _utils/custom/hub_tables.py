"""Tables of custom tasks on the Hugging Face hub."""
import contextlib
import re

import datasets

from _utils.custom.definition import HUB_TABLE_NOTATION, hub_table, split_on_hub
from _utils.hub import hub_errors, load_split, names_what_exists, open_builder

_DEV_SPLITS = "validation", "dev"


def load_rows(source):
    """The datasets.Dataset of a table on the hub, in HUB_TABLE_NOTATION."""
    table = hub_table(source)
    with _loading(source, table):
        return load_split(table.path, table.config, table.split)


def with_hub_splits(definition):
    """A definition whose 'dev' and 'test' are full names, if 'train' is on the hub.

    Without 'dev' and 'groups', the split "validation" (or "dev") is used if there is one; without 'test', "test". No
    split is used twice.
    """
    train = hub_table(definition["train"])
    if train is None:
        return definition
    with _loading(definition["train"], train):
        builder = open_builder(train.path, train.config)
        splits = {*(builder.info.splits or datasets.get_dataset_split_names(train.path, train.config))}
    given = [split_on_hub(train, definition[key]) for key in ("dev", "test") if isinstance(definition[key], str)]
    used = [table.split for table in (train, *map(hub_table, given)) if table and table.path == train.path]
    splits -= {*re.findall(r"\w+", " ".join(used))}
    chosen = dict(definition)
    for key, names in (("dev", () if definition["groups"] else _DEV_SPLITS), ("test", ("test",))):
        split = definition[key] or next(filter(splits.__contains__, names), None)
        chosen[key] = split_on_hub(train, split) if isinstance(split, str) else split
    return {**chosen, "dev": chosen["dev"] or .1}


@contextlib.contextmanager
def _loading(source, table):
    """Context manager for calls to the hub libraries. source: as the user named the HubTable."""
    advice = ("Check the connection, and rerun the same command: what was downloaded is kept. Or set the keys of the "
              "task to files.")
    with hub_errors(repr(source), table.path, advice), names_what_exists(f"{source!r}:", HUB_TABLE_NOTATION):
        yield
