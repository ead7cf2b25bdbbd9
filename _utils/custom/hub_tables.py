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

    Without 'dev' and 'groups', the split "validation" (or "dev") is used if there is one; without 'test', "test",
    unless all its labels are -1, as where they are not public. The training split is neither.
    """
    train = hub_table(definition["train"])
    if train is None:
        return definition
    with _loading(definition["train"], train):
        builder = open_builder(train.path, train.config)
        splits = {*(builder.info.splits or datasets.get_dataset_split_names(train.path, train.config))}
    splits -= {*re.findall(r"\w+", train.split)}
    known = {"dev": next((split for split in _DEV_SPLITS if split in splits and not definition["groups"]), None),
             "test": "test" if "test" in splits else None}
    given = {key: definition[key] for key in known if definition[key] is not None}
    found = {key: split_on_hub(train, split) for key, split in {**known, **given}.items() if isinstance(split, str)}
    if "test" in found and "test" not in given and not _is_labelled(load_rows(found["test"])):
        del found["test"]
    return {**definition, "dev": definition["dev"] or .1, **found}


def _is_labelled(rows):
    """Whether some row of a Dataset has a label: False if those of a column of classes are all -1."""
    classes = [name for name, feature in rows.features.items() if isinstance(feature, datasets.ClassLabel)]
    return all({*rows[name]} != {-1} for name in classes)


@contextlib.contextmanager
def _loading(source, table):
    """Context manager for calls to the hub libraries. source: as the user named the HubTable."""
    advice = ("Check the connection, and rerun the same command: what was downloaded is kept. Or set the keys of the "
              "task to files.")
    with hub_errors(repr(source), table.path, advice), names_what_exists(f"{source!r}:", HUB_TABLE_NOTATION):
        yield
