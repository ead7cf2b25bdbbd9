"""The values that each configuration key accepts. The first cell of the notebook explains what the keys mean."""
import codecs
import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from _utils.recipes import RECIPES, TYINGS
from _utils.text.readers import HUB_CORPORA

MAX_COUNT = 1_000_000_000
MAX_SEED = 2 ** 63 - 1


@dataclass(frozen=True)
class Rule:
    """The values that one key accepts.

    accepts: their description in error messages.
    convert: returns a value in the type of the key; raises ValueError for a value that the key does not accept.
    choices: all accepted values, if they can be listed.
    takes_text, takes_numbers: if a key takes text but no numbers, `key=7` on the command line means the text '7'.
    """
    accepts: str
    convert: Callable
    choices: tuple = ()
    takes_text: bool = False
    takes_numbers: bool = False


def _accept(value, condition):
    if not condition:
        raise ValueError
    return value


def choice(*choices):
    """One of the given values."""
    def convert(value):
        return _accept(value, any(type(value) is type(option) and value == option for option in choices))  # 1 is not True
    return Rule(", ".join(map(repr, choices)), convert, choices)


def flag():
    """True or False."""
    return Rule("True or False", lambda value: _accept(value, type(value) is bool))


def count(minimum=1, maximum=MAX_COUNT):
    """An integer in a range; also a float without a fraction, such as steps=1e6."""
    def convert(value):
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return _accept(value, type(value) is int and minimum <= value <= maximum)
    return Rule(f"an integer from {minimum} to {maximum:,}", convert, takes_numbers=True)


def number(accepts, test):
    """A finite number that passes a test, as a float."""
    def convert(value):
        if type(value) is int:
            value = _accept(value, abs(value) < 1 << 64)
        return float(_accept(value, type(value) in (int, float) and abs(value) < float("inf") and test(value)))
    return Rule(accepts, convert, takes_numbers=True)


def text(accepts="a string", test=bool):
    """A string that passes a test; by default any but the empty one."""
    return Rule(accepts, lambda value: _accept(value, isinstance(value, str) and test(value)), takes_text=True)


def custom(accepts, test):
    """Any value that passes a test."""
    return Rule(accepts, lambda value: _accept(value, test(value)))


def list_of(item, accepts, test=bool):
    """A list, tuple or comma-separated string of items, or a single item; the list must pass the test."""
    def convert(value):
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        elif not isinstance(value, list | tuple):
            value = [value]
        items = [item.convert(part) for part in value]
        return _accept(items, test(items))
    return Rule(accepts, convert, takes_text=item.takes_text, takes_numbers=item.takes_numbers)


def mapping(rules, accepts):
    """A dictionary with some of the given keys; `rules` has a rule for the value of each."""
    def convert(value):
        _accept(value, isinstance(value, dict) and set(value) <= set(rules))
        return {key: rules[key].convert(item) for key, item in value.items()}
    return Rule(accepts, convert)


def by_name(rule, accepts):
    """A dictionary with names as keys, for whose values there is one rule."""
    def convert(value):
        _accept(value, isinstance(value, dict) and all(isinstance(key, str) for key in value))
        return {key: rule.convert(item) for key, item in value.items()}
    return Rule(accepts, convert)


def either(*rules, accepts):
    """A value that one of several rules accepts; the first one that does converts it."""
    def convert(value):
        for rule in rules:
            try:
                return rule.convert(value)
            except ValueError:
                continue
        raise ValueError
    return Rule(accepts, convert, takes_text=any(rule.takes_text for rule in rules),
                takes_numbers=any(rule.takes_numbers for rule in rules))


def optional(rule):
    """None, or a value that the rule accepts."""
    return replace(rule, accepts=f"{rule.accepts}, or None", convert=lambda value: None if value is None else rule.convert(value))


def _is_device(value):
    return value in ("cpu", "cuda") or (value.startswith("cuda:") and value[5:].isdigit())


def _is_encoding(value):
    try:
        "".encode(codecs.lookup(value).name)  # LookupError for codecs that do not encode text, such as base64
    except (LookupError, ValueError):
        return False
    return True


def _is_file_name(value):
    """True if `value` can be the stem of a file name on common file systems and stays in its folder."""
    is_safe = value.isprintable() and not set(value) & set('/\\:*?"<>|') and not value.startswith(".")
    return is_safe and 0 < len(value.encode()) <= 100


FRESH_WEIGHTS = ("huggingface", "official")


def is_pair(initial_weights):
    """True for a trained generator and discriminator: a .pth checkpoint, a folder or a hub id. False for freshly drawn weights."""
    names_a_pair = initial_weights.endswith(".pth") or os.path.isdir(initial_weights) or "discriminator" in initial_weights
    return names_a_pair and initial_weights not in FRESH_WEIGHTS


DEVICE = optional(text("'cpu', 'cuda' or 'cuda:N'", _is_device))
SCHEDULES = ("original_linear", "separate_linear", "one_cycle", "adjusted_one_cycle")
LOGGER = choice("tensorboard", "neptune", "wandb", None)
PRECISION = choice(None, "bf16", "fp16", "fp32")
LENGTH = optional(count(8, 512))
SEED = count(0, MAX_SEED)
POSITIVE = number("a number above 0", lambda value: value > 0)
PERCENT = number("a percentage above 0, at most 100", lambda value: 0 < value <= 100)
FILE_NAME = text("a name of at most 100 characters without / \\ : * ? \" < > | that does not start with a dot", _is_file_name)
_SMOOTHING = either(flag(), number("a number", lambda value: 0 <= value < 1), accepts="True, False or a number in [0, 1)")
_NETWORK = optional(either(custom("a dictionary", lambda value: isinstance(value, dict) and "model_type" in value), text(),
                           accepts="a dictionary with model_type, a folder with a config.json, or a hub id"))

# The keys of Pretrain.ipynb, in the order of its first cell.
PRETRAIN_RULES = {
    "quickstart": flag(),
    "device": DEVICE,
    "base_run_name": FILE_NAME,
    "seed": optional(SEED),
    "data_seed": SEED,
    "adam_bias_correction": flag(),
    "schedule": choice(None, *SCHEDULES),
    "optimizer": choice(None, "adam", "lamb"),
    "sampling": choice("fp32_gumbel", "fp16_gumbel", "multinomial"),
    "temperature": POSITIVE,
    "disallow_correct": flag(),
    "masking": choice("bernoulli", "official"),
    "electra_mask_style": choice(None, True, False, "always"),
    "gen_smooth_label": _SMOOTHING,
    "disc_smooth_label": _SMOOTHING,
    "size": choice(*RECIPES),
    "objective": choice(None, "electra", "mlm"),
    "generator": _NETWORK,
    "discriminator": _NETWORK,
    "tying": choice(None, *TYINGS),
    "initial_weights": text("'huggingface', 'official', a checkpoint (.pth), a folder with generator/ and discriminator/, or the hub id "
                            "of a discriminator", lambda value: value in FRESH_WEIGHTS or is_pair(value)),
    "datas": list_of(text(), "a list of corpus names or paths"),
    "encoding": text("an encoding that Python supports, such as utf-8, latin-1 or utf-16", _is_encoding),
    "revisions": mapping(dict.fromkeys(HUB_CORPORA, text()), "{corpus: commit, branch or tag of its hub dataset} with the corpora "
                         f"{', '.join(HUB_CORPORA)}"),
    "one_document_per_file": flag(),
    "examples": choice("electra", "line_pairs"),
    "clean": choice(None, True, False),
    "vocab": either(count(200), text(), accepts="a hub tokenizer, the path of a vocab.txt, or a vocabulary size of at least 200"),
    "precision": PRECISION,
    "micro_batch": optional(count()),
    "compile": flag(),
    "logger": LOGGER,
    "upload_to": optional(either(text(), custom("a function", callable), accepts="a folder, an fsspec URL, or a function of a path")),
    "num_workers": count(0),
    "resume": flag(),
    "save_minutes": number("a number of minutes, 0 or more", lambda value: value >= 0),
    "milestones": list_of(PERCENT, "a list of percentages of the steps, each above 0 and at most 100"),
    "stop_at": optional(count()),
    "steps": optional(count()),
    "bs": optional(count()),
    "lr": optional(POSITIVE),
    "warmup_steps": optional(count(0)),
    "max_length": LENGTH,
    "mask_prob": optional(number("a number between 0 and 1", lambda value: 0 < value < 1)),
}
