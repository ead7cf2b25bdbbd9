"""What describes a task: names of columns, labels, files and metrics."""
import os
from dataclasses import field
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from _utils.errors import UserError

# {name of a task of GLUE: {split of a test set: file of its predictions}}; AX is a test set of MNLI (F38)
GLUE_TEST_FILES = {
    "cola": {"test": "CoLA.tsv"},
    "sst2": {"test": "SST-2.tsv"},
    "mrpc": {"test": "MRPC.tsv"},
    "stsb": {"test": "STS-B.tsv"},
    "qqp": {"test": "QQP.tsv"},
    "mnli": {"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "test_ax": "AX.tsv"},
    "qnli": {"test": "QNLI.tsv"},
    "rte": {"test": "RTE.tsv"},
    "wnli": {"test": "WNLI.tsv"},
}

kind_of_task = dataclass(frozen=True, config=ConfigDict(extra="forbid"))  # the decorator of a kind


@kind_of_task
class Description:
    """A task on one or two texts. GLUE's have the file layout of the GLUE download.

    name: in `tasks` and on the hub.   title: its folder and its name in tables.   texts: columns of its one or two
    texts on the hub.
    labels: class names on the hub, by id; () for scores.
    test_files: {split of a test set: file of its predictions}.   devs: splits that are evaluated, the first of which
    ranks the runs.
    file_labels: labels as the files spell them.   file_columns: (texts, label) as the files' headers spell them; each
    if it differs.
    headerless: columns of training and dev files that have no header.
    metrics: computed on the dev sets; the first one ranks runs.   rows: official sizes of the splits.
    majority: the most frequent training label, or the mean score.   score_titles: (split, line in tables) where it is
    not the title.
    unordered: the order of a pair carries no meaning, so training uses both orders (F42).
    is_own: a task of the user (custom.py) instead of GLUE's.   class_weights: of the labels in the loss; (): all equal.
    positive: the label whose F1 the metric f1 is; None: the second one.
    """

    name: str
    title: str
    texts: Annotated[tuple[str, ...], Field(min_length=1)]
    labels: tuple[str, ...] = ()
    test_files: dict[str, str] = field(default_factory=dict, hash=False)
    devs: tuple[str, ...] = ("validation",)
    file_labels: tuple[str, ...] = ()
    file_columns: tuple[str, ...] = ()
    headerless: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("accuracy",)
    rows: tuple[int, ...] = ()
    majority: int | float = 0
    epochs: int = 3
    score_titles: tuple[tuple[str, str], ...] = ()
    unordered: bool = False
    is_own: bool = False
    class_weights: tuple[float, ...] = ()
    positive: str | None = None
    unsaved: ClassVar[frozenset] = frozenset({"test_files"})  # fields that runs of a custom task need not share

    @property
    def written_labels(self):
        """The labels as the files spell them, by id."""
        return self.file_labels or self.labels

    @property
    def columns_in_files(self):
        """Columns of the texts and of the label in the files, in that order."""
        return self.file_columns or (*self.texts, "label")

    @property
    def splits(self):
        """The splits on the hub."""
        return "train", *self.devs, *self.test_files

    @property
    def official_rows(self):
        """{split: rows} of the official tables of GLUE; {} if `rows` is not set."""
        return dict(zip(self.splits, self.rows))

    @property
    def advice_about_special_tokens(self):
        """What to do about texts that contain "[SEP]"."""
        return "Put two texts into two columns, and set 'text' to both." if len(self.texts) == 1 else ""

    def file(self, split):
        """The file of a split in the GLUE download, where AX has a folder of its own."""
        return "AX/diagnostic.tsv" if split == "test_ax" else f"{self.title}/{split.replace('validation', 'dev')}.tsv"

    def title_of(self, split):
        """The line in tables for the scores of a split."""
        return dict(self.score_titles).get(split, self.title)


def check_glue_dir(folder):
    """UserError if a value of the key glue_dir is not a folder; None is the hub."""
    if folder is not None and not os.path.isdir(folder):
        raise UserError(f"Invalid value for glue_dir: {str(folder)!r} is not a folder. Pass the folder of a GLUE "
                        "download (with CoLA/, SST-2/ ...), or None to read the hub.")
