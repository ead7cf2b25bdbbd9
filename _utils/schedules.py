"""Learning rate schedules. Their names are the values of the key `schedule`."""
from functools import partial


def linear_warmup_and_decay(
    pct: float,
    lr_max: float,
    total_steps: int,
    warmup_steps: int | None = None,
    warmup_pct: float | None = None,
    end_lr: float = 0.,
    decay_power: float = 1.,
) -> float:
    """ELECTRA's schedule: the product of warmup and decay, whose peak is slightly below lr_max (F31).

    pct: share of the steps done, in [0, 1]; the step is round(pct * total_steps).
    The decay takes all steps, from lr_max to end_lr. The warmup is given in steps or as a share of all steps.
    """
    step, warmup = _in_steps(pct, total_steps, warmup_steps, warmup_pct)
    decayed = (lr_max - end_lr) * (1 - step / total_steps) ** decay_power + end_lr
    return decayed * min(1., step / warmup) if warmup else decayed


def linear_warmup_and_then_decay(
    pct: float,
    lr_max: float,
    total_steps: int,
    warmup_steps: int | None = None,
    warmup_pct: float | None = None,
    end_lr: float = 0.,
    decay_power: float = 1.,
) -> float:
    """Warmup to lr_max, then decay over the remaining steps. Arguments as in `linear_warmup_and_decay`."""
    step, warmup = _in_steps(pct, total_steps, warmup_steps, warmup_pct)
    if step < warmup:
        return lr_max * (step / warmup)
    rest = total_steps - warmup
    done = (step - warmup) / rest if rest else 1.
    return (lr_max - end_lr) * (1 - done) ** decay_power + end_lr


def _in_steps(pct, total_steps, warmup_steps, warmup_pct):
    """(steps done, steps of the warmup); arguments as in `linear_warmup_and_decay`."""
    warmup = int(total_steps * (warmup_pct or 0)) if warmup_steps is None else warmup_steps
    return round(pct * total_steps), warmup


def _linear(function, lr, steps, warmup_steps, decay_power):
    return {"lr": partial(function, lr_max=lr, total_steps=steps, warmup_steps=warmup_steps, decay_power=decay_power)}


def _one_cycle(rise, div, lr):
    """fastai's fit_one_cycle, which also schedules momentum (D17). rise: share of the steps.   div: of the first lr."""
    from fastai.callback.schedule import combined_cos  # not to read the command line
    return {"lr": combined_cos(rise, lr / div, lr, lr / 1e5), "mom": combined_cos(rise, .95, .85, .95)}


# Functions of the learning rate by which they are multiplied, the steps, the warmup steps, and the power of a linear
# decay. They return what `schedules` returns: functions of pct, the share of the steps that are done.
# adjusted_one_cycle: fastai's with the given warmup and a start near 0.
SCHEDULES = {
    "original_linear": partial(_linear, linear_warmup_and_decay),
    "separate_linear": partial(_linear, linear_warmup_and_then_decay),
    "one_cycle": lambda lr, *_: _one_cycle(.25, 25., lr),
    "adjusted_one_cycle": lambda lr, steps, warmup, _: _one_cycle(min(warmup, steps - 1) / steps, 1e5, lr),
}
# Keys of pretraining that have no effect with a schedule.
UNUSED_KEYS = {"one_cycle": ("warmup_steps", "lr_decay_power"), "adjusted_one_cycle": ("lr_decay_power",)}


def schedules(name, lr, steps, warmup_steps, decay_power=1.):
    """Schedules by hyperparameter, {'lr': pct -> lr}, plus 'mom' if momentum is scheduled too."""
    return SCHEDULES[name](lr, steps, warmup_steps, decay_power)


def group_schedules(name, lrs, steps, warmup_steps, decay_power=1.):
    """`schedules` of parameter groups with different learning rates: 'lr' returns a list, a value for each of `lrs`."""
    of_groups = [schedules(name, lr, steps, warmup_steps, decay_power) for lr in lrs]
    return {**of_groups[0], "lr": lambda pct: [functions["lr"](pct) for functions in of_groups]}
