"""The training loop: learners, callbacks, metrics, processes and devices."""
from _utils.training.callbacks import LossProgress, Milestones, NonFiniteGuard, ResumePoint, Schedule, TrainLog
from _utils.training.device import choose_device, choose_micro_batch, choose_precision, compile_networks
from _utils.training.learners import FinetuningLearner, PretrainingLearner
from _utils.training.metrics import PretrainingMetrics, format_metrics
from _utils.training.processes import Processes
from _utils.training.seeds import set_seed
from _utils.training.stopping import StopSignals

__all__ = ["FinetuningLearner", "LossProgress", "Milestones", "NonFiniteGuard", "PretrainingLearner", "PretrainingMetrics", "Processes",
           "ResumePoint", "Schedule", "StopSignals", "TrainLog", "choose_device", "choose_micro_batch", "choose_precision",
           "compile_networks", "format_metrics", "set_seed"]
