"""MyConfig: the configuration that stands in the first cell of the notebook, its `key=value` overrides, and what follows from them."""
import ast
import difflib
import importlib.util
import os
import random
import re

from _utils.config_rules import PRETRAIN_RULES, is_pair
from _utils.errors import PlainError
from _utils.recipes import RECIPES
from _utils.run_files.uploads import check_address


class MyConfig(dict):
    """A dictionary whose keys are attributes too, checked against `rules` (key -> Rule) as it is made.

    Raises PlainError naming key, value and choices for an unknown or missing key, a wrong type or a wrong choice.
    """

    def __init__(self, values, rules=PRETRAIN_RULES, defaults=None):
        super().__init__()
        object.__setattr__(self, "_rules", rules)
        object.__setattr__(self, "_defaults", defaults or values)
        object.__setattr__(self, "overridden", frozenset())
        for key, value in values.items():
            self[key] = value
        missing = [key for key in rules if key not in self]
        if missing:
            raise PlainError(f"MyConfig lacks the key {missing[0]!r} ({rules[missing[0]].describe()}): "
                             "give it back its line in the first cell.")

    def __setitem__(self, key, value):
        rule = self._rules.get(key)
        if rule is None:
            near = difflib.get_close_matches(str(key), self._rules, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise PlainError(f"unknown key {key!r:.40} (value {value!r:.200}): {hint}the keys are {', '.join(self._rules)}.")
        try:
            value = rule.convert(value)
        except ValueError:
            raise PlainError(f"{key}={value!r:.200} cannot be: {key} takes {rule.describe()}.") from None
        super().__setitem__(key, value)

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
        """A checked copy with some values replaced; `overridden` adds to the keys that were given by hand."""
        new = MyConfig({**self, **values}, self._rules, self._defaults)
        object.__setattr__(new, "overridden", self.overridden | frozenset(overridden))
        return new

    def with_defaults(self):
        """A copy with the values of the first cell in place of those given by hand."""
        return self.copy_with({key: self._defaults[key] for key in self.overridden})

    def as_data(self):
        """A plain dictionary; functions, which only a notebook's first cell can hold, by their name."""
        return {key: getattr(value, "__name__", repr(value)) if callable(value) else value for key, value in self.items()}

    def override(self, arguments):
        """A copy with `key=value` strings applied, as they stand on the command line.

        A value is a Python literal; what is not one is a string; keys that take a list also take `a,b`. Of a key that comes twice
        the last counts (`each_once` forbids it).
        Raises PlainError as the constructor does, and for an argument without '='.
        """
        values = {}
        for argument in arguments:
            key, equals, text = argument.partition("=")
            if not equals:
                raise PlainError(f"{argument!r:.200} is not of the form key=value: the keys are {', '.join(self._rules)}; each "
                                 "is explained in the first cell of the notebook and the script.")
            values[key] = _parse(text, self._rules.get(key))
        return self.copy_with(values, overridden=values)


def each_once(arguments):
    """The arguments of a command line as they are; PlainError for a key that is given twice with different values."""
    given = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if equals and given.setdefault(key, value) != value:
            raise PlainError(f"{key} is given twice, as {key}={given[key]} and {argument}: leave one of them out.")
    return arguments


def _parse(text, rule):
    """The value of the right side of `key=value`: a Python literal, or the text as it stands where it is none.

    A number that the key does not take is text too: a run may be called 7, and folders 2014,2015.
    """
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    takes_only_text = rule and {str, list} & set(rule.types) and not {int, float} & {*rule.types, rule.items}
    parts = value if isinstance(value, tuple) else (value,)
    is_number = any(isinstance(part, (int, float, complex)) and not isinstance(part, bool) for part in parts)
    return text if takes_only_text and is_number else value


# What quickstart=True puts in the place of the vanilla run, unless overridden by hand. Its size `tiny` stands in the recipes.
QUICKSTART = {"size": "tiny", "datas": ["docs"], "vocab": 8192, "base_run_name": "quickstart"}
# Keys that the recipe decides where they are None.
_FROM_RECIPE = ("bs", "lr", "max_length", "mask_prob", "steps", "schedule", "optimizer", "electra_mask_style", "objective", "tying")


def complete(config):
    """Fill in what depends on other keys: the quickstart's values, a fresh seed for None, the recipe's steps, lengths and rates.

    An explicit value of a derived key wins. Overridden `steps` without `warmup_steps` keep the recipe's share of warmup.
    Raises PlainError for values that contradict each other.
    """
    config = _with_pair(with_quickstart(config, QUICKSTART))
    recipe = RECIPES[config.size]
    derived = {key: getattr(recipe, key) for key in _FROM_RECIPE if config[key] is None}
    if config.objective is None and config.discriminator:
        derived["objective"] = "electra"
    steps = derived.get("steps", config.steps)
    if config.warmup_steps is None:
        derived["warmup_steps"] = round(steps * recipe.warmup_steps / recipe.steps)
    if config.seed is None:
        if int(os.environ.get("WORLD_SIZE", 1)) > 1:
            raise PlainError("seed=None would draw another for each of several processes: give a number.")
        derived["seed"] = random.SystemRandom().randrange(2 ** 32)
    config = config.copy_with(derived)
    _check_numbers(config)
    if isinstance(config.vocab, str) and config.vocab.endswith(".txt") and not os.path.isfile(config.vocab):
        raise PlainError(f"vocab={config.vocab!r}: there is no such file.")
    _check_networks(config)
    check_address(config.upload_to)
    _check_start(config)
    check_logger(config)
    return config


def with_recipe(config, size, **values):
    """A completed configuration with the settings of another recipe, and `values` instead of what stands in it."""
    reset = dict.fromkeys((*_FROM_RECIPE, "warmup_steps"))
    return complete(config.copy_with({**reset, "size": size, **values}, overridden=("size", *values)))


def with_quickstart(config, values):
    return unless_given(config, values) if config.quickstart else config


def unless_given(config, values):
    """A copy with these values, but for the keys that were given by hand."""
    return config.copy_with({key: value for key, value in values.items() if key not in config.overridden})


def _with_pair(config):
    """A pair to go on from brings its vocabulary; its schedule has to be said, since the recipe's is that of a whole training."""
    if not is_pair(config.initial_weights):
        return config
    if (config.objective or RECIPES[config.size].objective) == "mlm":
        raise PlainError(f"initial_weights={config.initial_weights!r} goes on with a generator and a discriminator, and masked language "
                         f"modelling alone (size={config.size}) cannot be continued: choose an ELECTRA's size.")
    if config.generator or config.discriminator:
        raise PlainError(f"initial_weights={config.initial_weights!r} brings both networks: leave out generator and discriminator.")
    if "vocab" in config.overridden:
        raise PlainError(f"initial_weights={config.initial_weights!r} brings its own vocabulary: leave vocab={config.vocab!r} out.")
    missing = [key for key in ("lr", "steps", "warmup_steps") if config[key] is None]
    if missing:
        raise PlainError(f"initial_weights={config.initial_weights!r} goes on with a schedule of its own, which the recipe does not know: "
                         f"give {', '.join(missing)} too.")
    return config.copy_with({"vocab": config.initial_weights})


def _check_numbers(config):
    if config.warmup_steps > config.steps:
        raise PlainError(f"warmup_steps={config.warmup_steps} is more than steps={config.steps}: lower it or leave it out.")
    if config.masking == "official" and (config.mask_prob + .005) * config.max_length < 1:
        raise PlainError(f"mask_prob={config.mask_prob} leaves no mask in max_length={config.max_length} with masking='official': raise "
                         "one of them.")
    if config.micro_batch is not None and config.bs % config.micro_batch:
        raise PlainError(f"micro_batch={config.micro_batch} does not divide bs={config.bs}: choose a divisor of it.")


# Keys that a masked language model alone does not read.
_OF_DISCRIMINATORS = ("sampling", "temperature", "disallow_correct", "disc_smooth_label", "tying")


def _check_networks(config):
    if config.optimizer == "lamb" and config.adam_bias_correction:
        raise PlainError("adam_bias_correction=True belongs to optimizer='adam', and this is optimizer='lamb': leave one of them out.")
    unused = [key for key in _OF_DISCRIMINATORS if key in config.overridden]
    if config.objective == "mlm" and unused:
        raise PlainError(f"{unused[0]}={config[unused[0]]!r} has no effect on objective='mlm', which has no discriminator: leave it out.")
    if config.objective == "electra" and not (config.discriminator or RECIPES[config.size].discriminator):
        raise PlainError(f"size={config.size} has no discriminator, which objective='electra' needs: give one, or another size.")
    if config.objective == "mlm" and config.discriminator:
        raise PlainError(f"discriminator={config.discriminator!r} has no place in objective='mlm': give its configuration as generator.")


def _check_start(config):
    """A run must not go on from a checkpoint of its own name, which it would move aside."""
    run_name = f"{config.base_run_name}_{config.seed}"
    if re.fullmatch(re.escape(run_name) + r"_[\d.]+%\.pth", os.path.basename(config.initial_weights)):
        raise PlainError(f"initial_weights={config.initial_weights!r} is of the run {run_name}, as this one would be called: give another "
                         "base_run_name.")


def check_logger(config):
    if config.logger == "wandb" and importlib.util.find_spec("wandb") is None:
        raise PlainError("logger='wandb' needs a package that is not installed here: pip install wandb, "
                         "or choose logger=tensorboard.")
