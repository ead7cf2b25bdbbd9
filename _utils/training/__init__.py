"""What pretraining and finetuning share: learners, gradients, metrics, what follows a step, processes and devices."""
from _utils.training.callbacks import LossProgress, Schedule, StopSignals, TrainingRecorder
from _utils.training.cuda_graph import CompiledStep, check_compiler, keep_compiled
from _utils.training.data import load_data, prepare_data
from _utils.training.device import (
    choose_device,
    choose_precision,
    micro_batch_size,
    seed_step,
    set_seed,
)
from _utils.training.learners import DTYPES, ClippingLearner, FinetuningLearner, Gradients, split_micro_batches
from _utils.training.metrics import PretrainingMetrics
from _utils.training.processes import Processes
from _utils.training.trial import seconds_per_step
