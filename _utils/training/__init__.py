"""Training steps, callbacks, metrics, processes and devices."""
from _utils.training.callbacks import LossProgress, Milestones, Progress, Schedule
from _utils.training.device import choose_device, choose_micro_batch, choose_precision, compile_networks
from _utils.training.learners import FinetuningLearner, PretrainingLearner
from _utils.training.metrics import PretrainingMetrics
from _utils.training.processes import Processes
from _utils.training.seeds import set_seed

__all__ = ["FinetuningLearner", "LossProgress", "Milestones", "PretrainingLearner", "PretrainingMetrics", "Processes", "Progress",
           "Schedule", "choose_device", "choose_micro_batch", "choose_precision", "compile_networks", "set_seed"]
