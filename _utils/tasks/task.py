"""A task: its description, and the four parts that make up its kind."""
from dataclasses import field, replace
from functools import cached_property
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from _utils.tasks.parts import Head, Inputs, Metrics, PredictionFiles

kind_of_task = dataclass(frozen=True, config=ConfigDict(extra="forbid"))  # the decorator of a kind


@kind_of_task
class Task:
    """A task that assigns a class to each sentence or pair, as most of GLUE's do. Other kinds have other parts.

    name: in `tasks`.   title: its folder and its name in tables.   hub: its dataset on the hub and the configuration.
    texts: columns of its texts on the hub.   labels: class names on the hub, by id; () for scores.
    test_files: {split of a test set: file of its predictions}.   devs: splits that are evaluated, the first of which
    ranks the runs.
    file_labels: labels as the files spell them.   file_columns: (texts, label) as the files' headers spell them; each
    if it differs.   headerless: columns of training and dev files that have no header.
    metrics: computed on the dev sets; the first one ranks runs.   rows: official sizes of the splits, or ().
    majority: the most frequent training label, or the mean score.   score_titles: (split, line in tables) where it is
    not the title.
    unordered: the order of a pair carries no meaning, so training uses both orders (F42).
    google: (field, value) of those that recipe=google replaces.
    min_updates: for which a run has more epochs, if there are few rows.
    """
    kind = "classification"
    min_updates = 0
    inputs_class = Inputs
    head_class = Head
    metrics_class = Metrics
    files_class = PredictionFiles

    name: str
    title: str
    texts: Annotated[tuple[str, ...], Field(min_length=1)]
    labels: tuple[str, ...] = ()
    test_files: dict[str, str] = field(default_factory=dict, hash=False)
    hub: tuple[str, ...] = ()
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
    google: tuple[tuple[str, Any], ...] = ()

    @cached_property
    def inputs(self):
        return self.inputs_class(self)

    @cached_property
    def head(self):
        return self.head_class(self)

    @cached_property
    def scores(self):
        return self.metrics_class(self)

    @cached_property
    def prediction_files(self):
        return self.files_class(self)

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

    def file(self, split):
        """The file of a split in the GLUE download, where AX has a folder of its own."""
        return "AX/diagnostic.tsv" if split == "test_ax" else f"{self.title}/{split.replace('validation', 'dev')}.tsv"

    def title_of(self, split):
        """The line in tables for the scores of a split."""
        return dict(self.score_titles).get(split, self.title)

    def as_data(self):
        """What a record of a run has to know of the task beside its name, as JSON; None: nothing."""

    def in_recipe(self, recipe):
        """The Task as the key `recipe` trains it."""
        return replace(self, **dict(self.google)) if recipe == "google" else self

    def of_runs(self, records):
        """The Task with what these runs determined; of several, with the mean."""
        return self
