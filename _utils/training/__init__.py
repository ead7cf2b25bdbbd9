"""Training utilities shared by pretraining and finetuning."""
from _utils.seeds import seed_step, set_seed
from _utils.training.callbacks import LossProgress, Schedule, TrainingRecorder
from _utils.training.device import choose_device, choose_precision
from _utils.training.learners import (
    DTYPES,
    ClippingLearner,
    FinetuningLearner,
    Gradients,
    SummingLearner,
    split_micro_batches,
)
from _utils.training.metrics import PretrainingMetrics
from _utils.training.processes import Processes, RunProcesses
