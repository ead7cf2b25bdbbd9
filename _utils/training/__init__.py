"""Training utilities shared by pretraining and finetuning."""
from _utils.seeds import seed_step, set_seed
from _utils.training.callbacks import LossProgress, Schedule, TrainingLog
from _utils.training.device import choose_device, choose_precision
from _utils.training.learners import (
    DTYPES,
    FinetuningLearner,
    MicroBatchLearner,
    SummingLearner,
)
from _utils.training.processes import Processes, RunProcesses
