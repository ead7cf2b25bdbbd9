"""What the result of a finetuning run depends on, beside its seed."""
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Settings:
    """The settings of a run, stored with its scores to detect changes within a group.

    lr, epochs, bs, rows, layer_decay: the hyperparameters; rows: of the training set, None: all.
    The keys of the configuration, the last four of which have their defaults for kinds of tasks to which they do not
    apply.   start_from_mnli: the group of the MNLI runs, or False.
    precision: as chosen for the device.   own_task: `Task.as_data`.   training_table, dev_table: `table_key` of the
    tables.   pretrained_weights: their hash.
    """
    lr: float = 3e-4
    epochs: int = 3
    bs: int = 32
    rows: int | None = None
    layer_decay: float = .8
    size: str = "small"
    max_length: int = 128
    weight_decay: float = 0.
    adam_bias_correction: bool = False
    xavier_reinited_outlayer: bool = True
    schedule: str = "original_linear"
    original_lr_layer_decays: bool = True
    freeze: bool = False
    keep: str = "last"
    recipe: str | None = None
    start_from_mnli: bool | str = False
    pooling: str = "first"
    window_stride: int | None = None
    double_unordered: bool = False
    wsc_trick: bool = False
    precision: str = "fp32"
    own_task: dict | None = None
    training_table: str = ""
    dev_table: str = ""
    pretrained_weights: str = ""
