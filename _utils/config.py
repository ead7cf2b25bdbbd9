"""MyConfig: the configuration that stands in the first cell of the notebook, and its `key=value` overrides.

What a key means stands beside it in the notebook; here stands which values it takes.
"""
import ast
import difflib
import importlib.util
import os
import random
from collections.abc import Callable
from dataclasses import dataclass

from _utils.errors import PlainError
from _utils.recipes import RECIPES


@dataclass(frozen=True)
class Rule:
    """What one key takes: Python types, a list of choices or a test of one's own, None where `optional`."""
    types: tuple = ()
    choices: tuple = ()
    optional: bool = False
    test: Callable = None
    says: str = ""

    def describe(self):
        if self.choices:
            words = ", ".join(repr(choice) for choice in self.choices)
        else:
            words = self.says or " or ".join(_TYPE_WORDS[kind] for kind in self.types)
        return words + (" or None" if self.optional and None not in self.choices else "")

    def convert(self, value):
        """The value in the key's own type; raises ValueError for one that the key does not take."""
        if value is None and (self.optional or None in self.choices):
            return None
        if list in self.types and isinstance(value, (str, tuple)):
            value = [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)
        if int in self.types and isinstance(value, float) and value.is_integer() and float not in self.types:
            value = int(value)  # steps=1e6
        if float in self.types and type(value) is int:
            value = float(value)
        kinds = map(type, self.choices) if self.choices else self.types  # 1 is no True
        ok = type(value) in kinds and (not self.choices or value in self.choices)
        if not ok or (self.test and not self.test(value)):
            raise ValueError
        return value


_TYPE_WORDS = {bool: "True or False", int: "a whole number", float: "a number", str: "a string", list: "a list of strings"}


def _count(minimum=1, optional=False):
    return Rule((int,), optional=optional, test=lambda n: n >= minimum, says=f"a whole number of at least {minimum}")


def _smoothing():
    return Rule((bool, float), test=lambda v: isinstance(v, bool) or 0 <= v < 1, says="True, False or a number in [0, 1)")


def _choice(*choices):
    return Rule(choices=choices)


def _is_device(value):
    return value == "cpu" or value == "cuda" or (value.startswith("cuda:") and value[5:].isdigit())


# Keys and rules of Pretrain.ipynb, in the order of its first cell.
PRETRAIN_RULES = {
    "quickstart": Rule((bool,)),
    "device": Rule((str,), optional=True, test=_is_device, says="'cpu', 'cuda' or 'cuda:N'"),
    "base_run_name": Rule((str,), test=lambda v: bool(v) and not set(v) & set('/\\:*?"<>|') and not v.startswith("."),
                          says="a name without / \\ : * ? \" < > | that does not start with a dot"),
    "seed": _count(0, optional=True),
    "adam_bias_correction": Rule((bool,)),
    "schedule": _choice("original_linear", "separate_linear", "one_cycle", "adjusted_one_cycle"),
    "sampling": _choice("fp32_gumbel", "fp16_gumbel", "multinomial"),
    "temperature": Rule((float,), test=lambda v: 0 < v < float("inf"), says="a number above 0"),
    "electra_mask_style": Rule((bool,)),
    "gen_smooth_label": _smoothing(),
    "disc_smooth_label": _smoothing(),
    "size": _choice(*RECIPES),
    "datas": Rule((list,), test=lambda v: bool(v) and all(isinstance(x, str) and x for x in v),
                  says="a list of corpus names or paths"),
    "encoding": Rule((str,)),
    "one_document_per_file": Rule((bool,)),
    "clean": _choice(None, True, False),
    "vocab": Rule((str, int), test=lambda v: bool(v) if isinstance(v, str) else v >= 200,
                  says="a hub tokenizer, the path of a vocab.txt, or a number of words of at least 200"),
    "precision": _choice(None, "bf16", "fp16", "fp32"),
    "micro_batch": _count(1, optional=True),
    "logger": _choice("tensorboard", "neptune", "wandb", None),
    "num_workers": _count(0),
    "steps": _count(1, optional=True),
    "bs": _count(1, optional=True),
    "lr": Rule((float,), optional=True, test=lambda v: 0 < v < float("inf"), says="a number above 0"),
    "warmup_steps": _count(0, optional=True),
    "max_length": Rule((int,), optional=True, test=lambda n: 8 <= n <= 512, says="a whole number from 8 to 512"),
    "mask_prob": Rule((float,), optional=True, test=lambda v: 0 < v < 1, says="a number between 0 and 1"),
}


class MyConfig(dict):
    """A dictionary whose keys are attributes too, checked against `rules` (key -> Rule) as it is made.

    Raises PlainError naming key, value and choices for an unknown or missing key, a wrong type or a wrong choice.
    """

    def __init__(self, values, rules=PRETRAIN_RULES):
        super().__init__()
        object.__setattr__(self, "_rules", rules)
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
            raise PlainError(f"unknown key {key!r} (value {value!r}): {hint}the keys are {', '.join(self._rules)}.")
        try:
            value = rule.convert(value)
        except ValueError:
            raise PlainError(f"{key}={value!r} cannot be: {key} takes {rule.describe()}.") from None
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
        new = MyConfig({**self, **values}, self._rules)
        object.__setattr__(new, "overridden", self.overridden | frozenset(overridden))
        return new

    def override(self, arguments):
        """A copy with `key=value` strings applied, as they stand on the command line.

        A value is a Python literal; what is not one is a string; keys that take a list also take `a,b`.
        Raises PlainError as the constructor does, and for an argument without '='.
        """
        values = {}
        for argument in arguments:
            key, equals, text = argument.partition("=")
            if not equals:
                raise PlainError(f"{argument!r} is not of the form key=value: the keys are {', '.join(self._rules)}.")
            values[key] = _parse(text, self._rules.get(key))
        return self.copy_with(values, overridden=values)


def _parse(text, rule):
    """The value of the right side of `key=value`: a Python literal, or the text as it stands where it is none.

    A number that the key does not take is text too: a run may be called 7, and folders 2014,2015.
    """
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    takes_only_text = rule and {str, list} & set(rule.types) and not {int, float} & set(rule.types)
    parts = value if isinstance(value, tuple) else (value,)
    is_number = any(isinstance(part, (int, float, complex)) and not isinstance(part, bool) for part in parts)
    return text if takes_only_text and is_number else value


# What quickstart=True puts in the place of the vanilla run, unless overridden by hand. Its size `tiny` stands in the recipes.
QUICKSTART = {"size": "tiny", "datas": ["docs"], "vocab": 8192, "base_run_name": "quickstart"}


def complete(config):
    """Fill in what depends on other keys: the quickstart's values, a fresh seed for None, the recipe's steps, lengths and rates.

    An explicit value of a derived key wins. Overridden `steps` without `warmup_steps` keep the recipe's share of warmup.
    Raises PlainError for values that contradict each other.
    """
    if config.quickstart:
        config = config.copy_with({key: value for key, value in QUICKSTART.items() if key not in config.overridden})
    recipe = RECIPES[config.size]
    derived = {key: getattr(recipe, key) for key in ("bs", "lr", "max_length", "mask_prob", "steps") if config[key] is None}
    steps = derived.get("steps", config.steps)
    if config.warmup_steps is None:
        derived["warmup_steps"] = round(steps * recipe.warmup_steps / recipe.steps)
    if config.seed is None:
        derived["seed"] = random.SystemRandom().randrange(2 ** 32)
    config = config.copy_with(derived)
    if config.warmup_steps > config.steps:
        raise PlainError(f"warmup_steps={config.warmup_steps} is more than steps={config.steps}: lower it or leave it out.")
    if config.micro_batch is not None and config.bs % config.micro_batch:
        raise PlainError(f"micro_batch={config.micro_batch} does not divide bs={config.bs}: choose a divisor of it.")
    if isinstance(config.vocab, str) and config.vocab.endswith(".txt") and not os.path.isfile(config.vocab):
        raise PlainError(f"vocab={config.vocab!r}: there is no such file.")
    if config.logger == "wandb" and importlib.util.find_spec("wandb") is None:
        raise PlainError("logger='wandb' needs a package that is not installed here: pip install wandb, "
                         "or choose logger=tensorboard.")
    return config
