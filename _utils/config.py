"""The configuration of a run: the keys and their types, MyConfig with its `key=value` overrides, and the values that
`complete` derives.
"""
import ast
import contextlib
import copy
import difflib
import importlib.util
import os
import re
import secrets
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import NoneType
from typing import Annotated, Literal, get_args, get_origin

from annotated_types import Predicate
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from _utils.errors import PlainError
from _utils.networks.pretrained import FRESH_WEIGHTS, is_pair
from _utils.objectives import kinds
from _utils.recipes import RECIPES, TYINGS, warmup_in_steps
from _utils.runs.checkpoints import find_checkpoint, load_pretraining_checkpoint
from _utils.runs.log import check_address
from _utils.text.readers import HUB_CORPORA
from _utils.text.vocabulary import is_vocab_file

def _listed(value):
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return list(value) if isinstance(value, list | tuple) else [value]


def _whole(value):
    return int(value) if isinstance(value, float) and value.is_integer() else value


# Types of values. The description of a type appears in error messages and in --help.
def count(minimum=1, maximum=None):
    """An integer in a range; also a float without a fraction, such as steps=1e6."""
    description = f"an integer from {minimum} to {maximum}" if maximum else f"an integer of at least {minimum}"
    return Annotated[int, BeforeValidator(_whole), Field(ge=minimum, le=maximum, description=description)]


def number(description, **bounds):
    """A finite number within pydantic's bounds gt, ge, lt and le."""
    return Annotated[float, Field(allow_inf_nan=False, description=description, **bounds)]


def list_of(item, description):
    """A list, tuple or comma-separated string of items, or a single item."""
    return Annotated[list[item], BeforeValidator(_listed), Field(min_length=1, description=description)]


Text = Annotated[str, Field(min_length=1, description="a string")]
FileName = Annotated[str, Field(pattern=r'^[^./\\:*?"<>|\x00-\x1f][^/\\:*?"<>|\x00-\x1f]{0,99}$', description=(
    'a name of at most 100 characters without / \\ : * ? " < > | that does not start with a dot'))]
Device = Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$", description="'cpu', 'cuda' or 'cuda:N'")]
Count, Index, Length = count(), count(0), count(8, 512)
Positive = number("a number above 0", gt=0)
NonNegative = number("a number of at least 0", ge=0)
Percent = number("a percentage above 0, at most 100", gt=0, le=100)
Schedule = Literal["original_linear", "separate_linear", "one_cycle", "adjusted_one_cycle"]
Size = Literal[tuple(RECIPES)]
Precision = Literal["bf16", "fp16", "fp32", None]
Logger = Literal["tensorboard", "neptune", "wandb", None]
_Smoothing = bool | number("a number in [0, 1)", ge=0, lt=1)
_Pair = Annotated[str, Predicate(is_pair), Field(description="a checkpoint (.pth), a folder with generator/ and discriminator/, "
                                                 "the hub id of a discriminator")]
_Network = (Annotated[dict, Field(description="a dictionary with model_type")]
            | Annotated[str, Field(min_length=1, description="a folder with a config.json, a hub id")] | None)


class PretrainKeys(TypedDict):
    """The keys of Pretrain.ipynb, in the order of its first cell, which explains them."""
    quickstart: bool
    device: Device | None
    base_run_name: FileName
    seed: Index | None
    data_seed: Index
    adam_bias_correction: bool
    schedule: Schedule | None
    lr_decay_power: NonNegative
    optimizer: Literal["adam", "lamb", None]
    weight_decay_rate: NonNegative
    sampling: Literal["fp32_gumbel", "fp16_gumbel", "multinomial", "inverse_cdf"]
    temperature: Positive
    disallow_correct: bool
    masking: Literal["bernoulli", "official"]
    electra_mask_style: Literal[True, False, "always", None]
    gen_smooth_label: _Smoothing
    disc_smooth_label: _Smoothing
    size: Size
    objective: Literal[(*kinds.NAMES, None)]
    two_stage_steps: Count | None
    gen_weight: NonNegative
    disc_weight: NonNegative | None
    generator: _Network
    discriminator: _Network
    generator_hidden_size: Positive | None
    generator_layers: Positive | None
    uniform_generator: bool
    tying: Literal[(*TYINGS, None)]
    initial_weights: Literal[FRESH_WEIGHTS] | _Pair
    new_generator: bool
    datas: list_of(Text, "a list of corpus names or paths")
    encoding: Text
    revisions: Annotated[dict[Literal[tuple(HUB_CORPORA)], Text],
                         Field(description=f"{{corpus: commit, branch or tag}} with the corpora {', '.join(HUB_CORPORA)}")]
    documents: Literal["blank_line", "file", "line"]
    clean: Literal[True, False, None]
    long_lines: Literal["truncate", "keep"]
    vocab: count(200) | Annotated[str, Field(pattern=r"\D", description="a hub tokenizer, the path of a vocab.txt")]
    cased: Literal[True, False, None]
    strip_accents: Literal[True, False, None]
    precision: Precision
    micro_batch: Count | None
    compile: bool
    logger: Logger
    upload_to: Text | Annotated[Callable, Field(description="a function of a path")] | None
    num_workers: Index
    resume: bool
    save_minutes: NonNegative
    milestones: list_of(Percent, "a list of percentages of the steps, each above 0 and at most 100")
    stop_at: Count | None
    steps: Count | None
    minutes: Positive | None
    bs: Count | None
    lr: Positive | None
    warmup_steps: Index | number("a share of the steps below 1", gt=0, lt=1) | None
    max_length: Length | None
    mask_prob: number("a number between 0 and 1", gt=0, lt=1) | None


PRETRAIN_KEYS = PretrainKeys.__annotations__


def accepted(kind):
    """What a type accepts, in words."""
    if kind in (bool, NoneType):
        return "True or False" if kind is bool else "None"
    if get_origin(kind) is Literal:
        return ", ".join(map(repr, get_args(kind)))
    described = [field.description for field in get_args(kind) if isinstance(field, FieldInfo)]
    return described[0] if described else ", or ".join(map(accepted, get_args(kind)))


class MyConfig(dict):
    """A dictionary whose keys are also attributes. Every value is checked against the type of its key when it is set.

    types: {key: type}, such as PRETRAIN_KEYS.
    overridden: the keys that were set by `override`, for example on the command line.
    Raises PlainError for an unknown or missing key and for a value that the type does not accept.
    """

    def __init__(self, values, types=PRETRAIN_KEYS):
        vars(self).update(types=types, overridden=frozenset(), _adapters={
            key: TypeAdapter(kind, config=ConfigDict(strict=True)) for key, kind in types.items()})
        for key, value in values.items():
            self[key] = value
        for key in types:
            if key not in self:
                raise PlainError(f"Missing key: {key!r}. Add it to the first cell; it accepts {accepted(types[key])}.")

    def __setitem__(self, key, value):
        if key not in self.types:
            raise _unknown_key(key, self.types)
        try:
            super().__setitem__(key, self._adapters[key].validate_python(value))
        except ValidationError:
            raise PlainError(f"Invalid value for {key}: {value!r:.200}. Use {accepted(self.types[key])}.") from None

    def __getattr__(self, key):
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None

    __setattr__ = __setitem__

    def copy_with(self, values, overridden=()):
        """A copy with some values replaced. The keys in `overridden` count as set by the user from then on."""
        new = copy.copy(self)
        vars(new)["overridden"] = self.overridden | frozenset(overridden)
        for key, value in values.items():
            new[key] = value
        return new

    def unless_given(self, values):
        """A copy with these values, except for overridden keys."""
        return self.copy_with({key: value for key, value in values.items() if key not in self.overridden})

    def with_defaults(self, values):
        """A copy with these values for keys that are None."""
        return self.copy_with({key: value for key, value in values.items() if self[key] is None})

    def as_data(self):
        """A plain dictionary, to be saved. Functions, which only a notebook can set, are replaced by their names."""
        return {key: getattr(value, "__name__", repr(value)) if callable(value) else value for key, value in self.items()}

    def override(self, arguments):
        """A copy with `key=value` strings applied.

        A value is a Python literal that the key accepts; anything else is a string. Keys that accept a list also accept
        `a,b`. If a key is repeated, the last value is used. Raises PlainError as the constructor does, and for an
        argument without '='.
        """
        values = {}
        for argument in arguments:
            key, equals, values[key] = argument.partition("=")
            if not equals:
                raise PlainError(f"Invalid argument: {argument!r:.200}. Use key=value, quoted if it has spaces; --help explains the keys.")
            # A literal remains a string where the key accepts only strings: a run may be named 7.
            with contextlib.suppress(KeyError, TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
                values[key] = self._adapters[key].validate_python(ast.literal_eval(values[key]))
        return self.copy_with(values, overridden=values)


def _unknown_key(key, types):
    meant = {"learning_rate": "lr", "batch_size": "bs", "one_document_per_file": "documents"}.get(key, key)
    if "task_overrides" in types and meant in ("lr", "epochs", "bs", "rows"):
        advice = f"Set {meant} by task, for example \"task_overrides={{'rte': {{'lr': 2e-5, 'epochs': 5, 'bs': 16, 'rows': 1000}}}}\"."
    elif near := difflib.get_close_matches(meant, types, n=1, cutoff=.65):
        advice = f"Did you mean {near[0]!r}?"
    else:
        advice = f"Choose one of {', '.join(types)}."
    return PlainError(f"Unknown key: {key!r:.40}. {advice}")


def from_command_line(config, argv):
    """The configuration with the `key=value` arguments of a script. argv: its name and arguments.

    With --help it prints the keys and exits.
    """
    script, *arguments = argv
    if {"-h", "--help"} & set(arguments):
        print(explain_keys(config, script))
        sys.exit()
    return config.override(arguments)


def explain_keys(config, script):
    """The text of --help: every key with its default, its comment in the first cell of a script, and the values that it
    accepts.
    """
    path = Path(script)
    cell = path.read_text(encoding="utf-8").partition("MyConfig({")[2].partition("\n}")[0]
    comments, comment = {}, ""
    for above, key in re.findall(r'((?: +# .*\n)*) +"(\w+)":', cell):
        comment = above or comment  # several keys may share one
        comments[key] = comment.replace("# ", "")
    blocks = [f"{key}={config[key]}\n{comments.get(key, '')}    Accepts {accepted(kind)}." for key, kind in config.types.items()]
    return "\n\n".join([f"{path.name} key=value ...", "A value is a Python literal; anything else is a string.", *blocks])


# What quickstart=True replaces, except for keys that the user overrides.
QUICKSTART = {"size": "tiny", "datas": ["docs"], "vocab": 8192, "base_run_name": "quickstart"}
# Keys for which None means the value of the recipe.
FROM_RECIPE = "bs lr max_length mask_prob steps schedule optimizer electra_mask_style tying".split()


def complete(config):
    """Derive the values that depend on other keys, then check that the values fit together.

    Derived are the values of the quickstart, those of a pair to continue from, the recipe's values for None, and a
    seed. Explicit values are kept. If `steps` is set and `warmup_steps` is not, warmup keeps the recipe's share of the
    steps.
    Raises PlainError for values that contradict each other.
    """
    if config.quickstart:
        config = config.unless_given(QUICKSTART)
    if is_pair(config.initial_weights):
        config = config.unless_given(_values_of_pair(config.initial_weights))
    config = config.with_defaults({"objective": kinds.default_name(RECIPES[config.size], bool(config.discriminator))})
    objective = kinds.objective_of(config)
    config = objective.derive(config)
    if config.minutes and config.steps:
        raise PlainError(f"minutes={config.minutes:g} chooses the number of steps, which conflicts with steps={config.steps}. Leave out "
                         "one of them.")
    config = config.with_defaults(_recipe_values(config, objective))
    if config.steps:
        config = with_schedule(config)
    config = config.with_defaults(objective.defaults(config))
    if os.environ.get("WORLD_SIZE", "1") == "1":  # several processes would draw different seeds
        config = config.with_defaults({"seed": secrets.randbits(32)})
    _check(config, objective)
    return config


def _recipe_values(config, objective):
    """{key: value for None} of keys that the recipe determines. Continued pretraining has a schedule of its own:
    `continued_schedule`.
    """
    recipe = RECIPES[config.size]
    values = {key: getattr(recipe, key) for key in FROM_RECIPE}
    if is_pair(config.initial_weights):
        values |= {"steps": None, "lr": recipe.lr / objective.pair_lr_divisor}
    return values | ({"steps": None} if config.minutes else {})


def with_schedule(config, steps=None):
    """The configuration with `steps`, if it has none yet, and with warmup_steps as a number of steps.

    None is the recipe's share of the steps; in continued pretraining a twentieth.
    """
    recipe, steps, warmup = RECIPES[config.size], config.steps or steps, config.warmup_steps
    if warmup is None:
        warmup = Fraction(1, 20) if is_pair(config.initial_weights) else Fraction(recipe.warmup_steps, recipe.steps)
    return config.copy_with({"steps": steps, "warmup_steps": warmup_in_steps(warmup, steps)})


def _values_of_pair(name):
    """{key: value} that follow from a pair to continue from: its vocabulary, and size, masking and tying as far as they
    are known.
    """
    values = {"vocab": name}
    if name.endswith(".pth"):
        run = load_pretraining_checkpoint(find_checkpoint(name))["config"]
        values |= {key: run[key] for key in "size masking electra_mask_style tying mask_prob".split() if key in run}
    elif name.startswith("google/"):
        values["masking"] = "official"
    return values


def continued_schedule(config, n_examples):
    """The configuration with steps and warmup_steps of continued pretraining on n_examples, where they are None.

    Ten epochs, but at most a twentieth of the recipe's steps, of which a twentieth is warmup
    (docs/continued_pretraining.md).
    Raises PlainError if warmup_steps or stop_at is more than these steps.
    """
    if config.steps or config.minutes:
        return config
    completed = with_schedule(config, max(1, min(RECIPES[config.size].steps // 20, 10 * n_examples // config.bs)))
    check_schedule(completed)
    return completed


def timed_schedule(config, seconds_per_step):
    """The configuration with as many steps as fit into `minutes`. Raises PlainError if warmup_steps or stop_at is more
    than these.
    """
    completed = with_schedule(config, max(1, round(60 * config.minutes / seconds_per_step)))
    check_schedule(completed)
    return completed


def _check(config, objective):
    """PlainError for values that contradict each other or name something that does not exist."""
    if is_pair(config.initial_weights):
        _check_pair(config, objective)
    if config.seed is None:
        raise PlainError("seed=None would draw a different seed in each process. Set seed to a number.")
    check_schedule(config)
    if (config.micro_batch or 0) > config.bs:
        raise PlainError(f"micro_batch={config.micro_batch} is more than bs={config.bs}. Lower it or leave it out.")
    for key in kinds.conflicting_keys(config, objective):
        raise PlainError(f"{key}={config[key]!r} is not used with objective={objective.name!r}. Leave it out.")
    has_no_fractions = config.generator or not RECIPES[config.size].discriminator
    if (config.generator_hidden_size or config.generator_layers) and has_no_fractions:
        raise PlainError("generator_hidden_size and generator_layers are fractions of the recipe's discriminator. Leave out generator, or "
                         f"choose another size than {config.size}.")
    objective.check(config)
    _check_normalization(config)
    check_address(config.upload_to)
    check_logger(config)


def check_schedule(config):
    """PlainError for warmup_steps or stop_at beyond the last step, if that is known."""
    for key in ("warmup_steps", "stop_at") if config.steps else ():
        if (config[key] or 0) > config.steps:
            raise PlainError(f"{key}={config[key]} is more than steps={config.steps}. Lower it or leave it out.")


def _check_normalization(config):
    """PlainError for cased or strip_accents beside a tokenizer that determines both."""
    applies = isinstance(config.vocab, int) or is_vocab_file(config.vocab)
    for key in ("cased", "strip_accents"):
        if config[key] is not None and (is_pair(config.initial_weights) or not applies):
            raise PlainError(f"{key}={config[key]} requires fresh weights and a vocabulary to train, such as vocab=30522, "
                             f"or a vocab.txt. It is part of the tokenizer vocab={config.vocab!r}. Leave out {key}.")


def _check_pair(config, objective):
    """PlainError for keys that conflict with continued pretraining."""
    conflicting = [key for key in objective.of_pair if config[key] is not None]
    if not objective.continues_pairs:
        conflicting.extend(objective.selected_by)
    for key in conflicting:
        raise PlainError(f"initial_weights={config.initial_weights!r} contains a generator, a discriminator and their vocabulary, "
                         f"which {key}={config[key]!r} contradicts. Remove {key} (size={config.size}).")


def check_logger(config):
    """PlainError for a logger whose package is not installed."""
    if config.logger == "wandb" and importlib.util.find_spec("wandb") is None:
        raise PlainError("logger='wandb' requires a package that is not installed. Run pip install wandb, or set logger=tensorboard.")
