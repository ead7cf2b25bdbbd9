"""Training utilities shared by pretraining and finetuning."""
from _utils.training.callbacks import LossProgress, Schedule, StopSignals, TrainingRecorder
from _utils.training.cuda_graph import CompiledStep, check_compiler, keep_compiled, seconds_per_step
from _utils.training.device import choose_device, choose_precision, micro_batch_size, seed_step, set_seed
from _utils.training.learners import DTYPES, ClippingLearner, FinetuningLearner, Gradients, split_micro_batches
from _utils.training.metrics import PretrainingMetrics
from _utils.training.processes import Processes
