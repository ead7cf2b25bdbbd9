"""Tables of custom tasks on the Hugging Face hub."""
import contextlib
import re
from functools import partial

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
    on_hub = partial(split_on_hub, train)
    given = {key: on_hub(definition[key]) for key in ("dev", "test") if isinstance(definition[key], str)}
    used = [table.split for table in (train, *map(hub_table, given.values())) if table and table.path == train.path]
    unused = splits - {*re.findall(r"\w+", " ".join(used))}
    for key, names in (("dev", () if definition["groups"] else _DEV_SPLITS), ("test", ["test"])):
        found = filter(unused.__contains__, names)
        given.setdefault(key, definition[key] or next(map(on_hub, found), None))
    return definition | given


@contextlib.contextmanager
def _loading(source, table):
    """Context manager for calls to the hub libraries. source: as the user named the HubTable."""
    advice = ("Check the connection, and rerun the same command: what was downloaded is kept. Or set the keys of the "
              "task to files.")
    with hub_errors(repr(source), table.path, advice), names_what_exists(f"{source!r}:", HUB_TABLE_NOTATION):
        yield
