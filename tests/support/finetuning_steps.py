"""Single finetuning steps with `recipe=google` on recorded batches."""
import torch
from recorded import GOLDEN, recorded
from torch import nn

from _utils.commands.convert_tf import convert, google_name
from _utils.tasks.rows import EncodedTask
from finetune import get_glue_learner


def micro_encoder():
    """The encoder of the recorded checkpoint."""
    folder = GOLDEN / "official/micro_ckpt"
    hparams = recorded(folder / "config.json")["pretraining_hparams"]
    return convert(folder / "model.ckpt-200", "discriminator", hparams)[0].electra


def learner_of(task, model, rows, settings):
    """The learner without dropout. task: Task or name.   rows: EncodedRows, on whose number the schedule depends."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.
    return get_glue_learner(task, model=model, data=EncodedTask(rows, {}), settings=settings,
                            device=torch.device("cpu"), precision="fp32")


def train_step(learn, inputs, labels, step):
    """Update a learner with a batch. Returns the norm that clips, and {parameter: gradient before clipping}.

    step: of the schedule.
    """
    seen, clip_and_update = {}, type(learn).clip_and_update

    def note(gradients, **options):
        seen["gradients"] = {p: p.grad.clone() for p in learn.model.parameters() if p.grad is not None}
        seen["norm"] = clip_and_update(learn, gradients, **options)

    learn.clip_and_update = note
    learn.xb, learn.yb, learn.train_iter = inputs, (labels,), step
    learn.schedule.before_batch()
    learn._do_one_batch()
    return seen["norm"].item(), seen["gradients"]


def encoder_parameters(model):
    """{Google's name: parameter} of a predictor's encoder."""
    return {google_name(f"electra.{name}", "discriminator", []): parameter
            for name, parameter in model.base_model.named_parameters()}


def statistics(name, tensor):
    """Norm, sum and cosine-weighted sum of a gradient or weight, in the order of Google's elements."""
    values = tensor.detach().double()
    values = (values.T if name.endswith("kernel") else values).flatten()
    return [float(values.norm()), float(values.sum()), float(values @ torch.arange(len(values)).double().cos())]
