"""The training loop: learners, callbacks, metrics, processes and devices."""
from _utils.training.after_step import LossProgress, Milestones, NonFiniteGuard, ResumePoint, Schedule, StopSignals, TrainLog
from _utils.training.cuda_graph import StaticStep
from _utils.training.device import check_compiler, choose_device, choose_micro_batch, choose_precision, set_seed
from _utils.training.learners import FinetuningLearner, PretrainingLearner
from _utils.training.metrics import PretrainingMetrics
from _utils.training.processes import Processes

__all__ = ["FinetuningLearner", "LossProgress", "Milestones", "NonFiniteGuard", "PretrainingLearner", "PretrainingMetrics", "Processes",
           "ResumePoint", "Schedule", "StaticStep", "StopSignals", "TrainLog", "check_compiler", "choose_device", "choose_micro_batch",
           "choose_precision", "set_seed"]
