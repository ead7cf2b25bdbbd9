"""The configuration of a run: MyConfig, `key=value` overrides, and the values that `complete` derives."""
import ast
import difflib
import importlib.util
import os
import random
import re

from _utils.config_rules import PRETRAIN_RULES, is_pair
from _utils.errors import PlainError
from _utils.recipes import RECIPES
from _utils.runs.log import check_address


class MyConfig(dict):
    """A dictionary whose keys are also attributes. Every value is checked against the rule of its key when it is set.

    rules: {key: Rule}.   defaults: the values before any override; None: `values`.
    overridden: the keys that were set by `override`, for example on the command line.
    Raises PlainError for an unknown or missing key and for a value that the rule does not accept.
    """

    def __init__(self, values, rules=PRETRAIN_RULES, defaults=None):
        super().__init__()
        object.__setattr__(self, "_rules", rules)
        object.__setattr__(self, "_defaults", defaults or values)
        object.__setattr__(self, "overridden", frozenset())
        self.update(values)
        for key, rule in rules.items():
            if key not in self:
                raise PlainError(f"Missing key: {key!r}. Add it to the first cell; it accepts {rule.accepts}.")

    def __setitem__(self, key, value):
        if key not in self._rules:
            raise _unknown_key(key, self._rules)
        try:
            super().__setitem__(key, self._rules[key].convert(value))
        except ValueError:
            raise _invalid_value(key, value, self._rules[key]) from None

    def update(self, *args, **kwargs):
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __getattr__(self, key):
        try:
            return self[key]
        except KeyError:
            raise AttributeError(key) from None

    def __setattr__(self, key, value):
        self[key] = value

    def copy_with(self, values, overridden=()):
        """A copy with some values replaced. The keys in `overridden` count as set by the user from then on."""
        new = MyConfig({**self, **values}, self._rules, self._defaults)
        object.__setattr__(new, "overridden", self.overridden | frozenset(overridden))
        return new

    def with_defaults(self):
        """A copy in which the overridden keys have their values from the first cell again."""
        return self.copy_with({key: self._defaults[key] for key in self.overridden})

    def as_data(self):
        """A plain dictionary, to be saved. Functions, which only a notebook can set, are replaced by their names."""
        return {key: getattr(value, "__name__", repr(value)) if callable(value) else value for key, value in self.items()}

    def override(self, arguments):
        """A copy with `key=value` strings applied.

        A value is a Python literal; anything else is a string. Keys that accept a list also accept `a,b`. If a key is repeated, the
        last value is used. Raises PlainError as the constructor does, and for an argument without '='.
        """
        values = {}
        for argument in arguments:
            key, equals, value = argument.partition("=")
            if not equals:
                raise PlainError(f"Invalid argument: {argument!r:.200}. Use key=value; the keys, which the first cell explains, are "
                                 f"{', '.join(self._rules)}.")
            values[key] = _parse(value, self._rules.get(key))
        return self.copy_with(values, overridden=values)


def _unknown_key(key, rules):
    near = nearest(key, rules)
    if "task_overrides" in rules and key in ("lr", "epochs", "bs", "rows"):
        advice = f"Set {key} by task, for example \"task_overrides={{'rte': {{'lr': 2e-5, 'epochs': 5, 'bs': 16, 'rows': 1000}}}}\"."
    elif near:
        advice = f"Did you mean {near!r}?"
    else:
        advice = f"Choose one of {', '.join(rules)}."
    return PlainError(f"Unknown key: {key!r:.40}. {advice}")


def _invalid_value(key, value, rule):
    near = nearest(value, rule.choices)
    hint = f" (did you mean {near!r}?)" if near else ""
    verb = "Choose one of" if rule.choices else "Use"
    return PlainError(f"Invalid value for {key}: {value!r:.200}. {verb} {rule.accepts}{hint}.")


def nearest(value, options):
    """The option that a value may be a misspelling of, or None."""
    near = difflib.get_close_matches(str(value), [option for option in options if isinstance(option, str)], n=1, cutoff=.65)
    return near[0] if near else None


def each_once(arguments):
    """The `key=value` arguments unchanged; PlainError if they set a key twice to different values."""
    given = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and given.setdefault(key, value) != value:
            raise PlainError(f"{key} is set twice: {key}={given[key]} and {argument}. Remove one of them.")
    return arguments


def _parse(text, rule):
    """The value of a `key=value` string: a Python literal, or the text itself.

    Numbers also stay text if the key accepts text but no numbers: a run may be named 7, and two folders 2014,2015.
    """
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    parts = value if isinstance(value, tuple) else (value,)
    is_numeric = any(type(part) in (int, float, complex) for part in parts)
    return text if is_numeric and rule and rule.takes_text and not rule.takes_numbers else value


# What quickstart=True replaces, except for keys that the user overrides.
QUICKSTART = {"size": "tiny", "datas": ["docs"], "vocab": 8192, "base_run_name": "quickstart"}
# Keys for which None means the value of the recipe.
_FROM_RECIPE = ("bs", "lr", "max_length", "mask_prob", "steps", "schedule", "optimizer", "electra_mask_style", "objective", "tying")
# Of these, the keys that the user sets for continued pretraining: a recipe's schedule is that of a whole training.
_SCHEDULE_KEYS = ("lr", "steps", "warmup_steps")


def complete(config):
    """Derive the values that depend on other keys, then check that the values fit together; see `_derive` and `_validate`.

    Raises PlainError for values that contradict each other.
    """
    config = _derive(config)
    _validate(config)
    return config


def with_recipe(config, size, **values):
    """A completed configuration changed to another recipe, with `values` on top."""
    reset = dict.fromkeys((*_FROM_RECIPE, "warmup_steps"))
    return complete(config.copy_with({**reset, "size": size, **values}, overridden=("size", *values)))


def with_quickstart(config, values):
    """A copy with the values of the quickstart if quickstart=True, except for overridden keys."""
    return unless_given(config, values) if config.quickstart else config


def unless_given(config, values):
    """A copy with these values, except for overridden keys."""
    return config.copy_with({key: value for key, value in values.items() if key not in config.overridden})


def _derive(config):
    """A copy with the values of the quickstart, the vocabulary of a pair, the recipe's values for None, and a seed.

    Explicit values are kept. If `steps` is set and `warmup_steps` is not, warmup keeps the recipe's share of the steps.
    """
    config = with_quickstart(config, QUICKSTART)
    continues = is_pair(config.initial_weights)
    if continues:
        config = unless_given(config, {"vocab": config.initial_weights})
    if config.objective is None and config.discriminator:
        config = config.copy_with({"objective": "electra"})
    config = config.copy_with(_recipe_values(config, except_for=_SCHEDULE_KEYS if continues else ()))
    if config.seed is None and os.environ.get("WORLD_SIZE", "1") == "1":  # several processes would draw different seeds
        config = config.copy_with({"seed": random.SystemRandom().randrange(2 ** 32)})
    return config


def _recipe_values(config, except_for):
    """{key: value of the recipe} of the keys that are None."""
    recipe = RECIPES[config.size]
    values = {key: getattr(recipe, key) for key in _FROM_RECIPE if config[key] is None and key not in except_for}
    if config.warmup_steps is None and "warmup_steps" not in except_for:
        steps = values.get("steps", config.steps)
        values["warmup_steps"] = round(steps * recipe.warmup_steps / recipe.steps)
    return values


def _validate(config):
    """PlainError for values that contradict each other or name something that does not exist."""
    if is_pair(config.initial_weights):
        _check_pair(config)
    if config.seed is None:
        raise PlainError("seed=None would draw a different seed in each process. Set seed to a number.")
    _check_numbers(config)
    if unused := [name for name in config.revisions if name not in config.datas]:
        raise PlainError(f"revisions names {unused[0]!r}, which is not in datas={config.datas!r}. Add it to datas, or remove it.")
    if isinstance(config.vocab, str) and config.vocab.endswith(".txt") and not os.path.isfile(config.vocab):
        raise PlainError(f"File not found: vocab={config.vocab!r}. Pass the path of a vocab.txt, a hub tokenizer or a vocabulary size.")
    _check_networks(config)
    check_address(config.upload_to)
    _check_run_name(config)
    check_logger(config)


def _check_pair(config):
    """PlainError for keys that conflict with continued pretraining, or that it needs."""
    start = f"initial_weights={config.initial_weights!r}"
    if config.objective == "mlm":
        raise PlainError(f"{start} continues training a generator and a discriminator, which objective='mlm' (size={config.size}) cannot "
                         "do. Choose the size of an ELECTRA.")
    if config.generator or config.discriminator:
        raise PlainError(f"{start} contains both networks. Remove generator and discriminator.")
    if "vocab" in config.overridden and config.vocab != config.initial_weights:
        raise PlainError(f"{start} contains a vocabulary. Remove vocab={config.vocab!r}.")
    missing = [key for key in _SCHEDULE_KEYS if config[key] is None]
    if missing:
        raise PlainError(f"{start} continues training with a new schedule, for which the recipe has no values. Set {', '.join(missing)}.")


def _check_numbers(config):
    if config.warmup_steps > config.steps:
        raise PlainError(f"warmup_steps={config.warmup_steps} is more than steps={config.steps}. Lower it or leave it out.")
    if config.stop_at is not None and config.stop_at > config.steps:
        raise PlainError(f"stop_at={config.stop_at} is more than steps={config.steps}. Lower it or leave it out.")
    if config.micro_batch is not None and config.micro_batch > config.bs:
        raise PlainError(f"micro_batch={config.micro_batch} is more than bs={config.bs}. Lower it or leave it out.")
    if config.masking == "official" and (config.mask_prob + .005) * config.max_length < 1:
        raise PlainError(f"mask_prob={config.mask_prob} masks no token of max_length={config.max_length} with masking='official'. "
                         "Raise one of them.")


# Keys that have no effect without a discriminator.
_DISCRIMINATOR_KEYS = ("sampling", "temperature", "disallow_correct", "disc_smooth_label", "tying")


def _check_networks(config):
    if config.optimizer == "lamb" and config.adam_bias_correction:
        raise PlainError("adam_bias_correction=True requires optimizer='adam', but optimizer='lamb'. Change one of them.")
    unused = [key for key in _DISCRIMINATOR_KEYS if key in config.overridden]
    if config.objective == "mlm" and unused:
        raise PlainError(f"{unused[0]}={config[unused[0]]!r} has no effect with objective='mlm', which trains no discriminator. "
                         "Leave it out.")
    if config.objective == "electra" and not (config.discriminator or RECIPES[config.size].discriminator):
        raise PlainError(f"size={config.size} has no discriminator, but objective='electra' requires one. Set discriminator or choose "
                         "another size.")
    if config.objective == "mlm" and config.discriminator:
        raise PlainError(f"discriminator={config.discriminator!r} has no effect with objective='mlm'. Set generator instead.")


def _check_run_name(config):
    """PlainError if the run has the name of the run it starts from, whose checkpoints would be archived first."""
    run_name = f"{config.base_run_name}_{config.seed}"
    if re.fullmatch(re.escape(run_name) + r"_[\d.]+%\.pth", os.path.basename(config.initial_weights)):
        raise PlainError(f"initial_weights={config.initial_weights!r} belongs to the run {run_name}, the name of this run. Set another "
                         "base_run_name.")


def check_logger(config):
    """PlainError for a logger whose package is not installed."""
    if config.logger == "wandb" and importlib.util.find_spec("wandb") is None:
        raise PlainError("logger='wandb' requires a package that is not installed. Run pip install wandb, or set logger=tensorboard.")
