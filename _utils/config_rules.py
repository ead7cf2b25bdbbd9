"""Which values each key of a configuration takes; what a key means stands beside it in the first cell of the notebook."""
import codecs
import os
from collections.abc import Callable
from dataclasses import dataclass

from _utils.pretraining_data.hub_corpora import HUB_CORPORA
from _utils.recipes import RECIPES, TYINGS


@dataclass(frozen=True)
class Rule:
    """What one key takes: Python types, a list of choices or a test of one's own, None where `optional`.

    items: the type of a list's items.
    """
    types: tuple = ()
    choices: tuple = ()
    optional: bool = False
    test: Callable = None
    says: str = ""
    items: type = str

    def describe(self):
        """What the key takes, in words."""
        if self.choices:
            words = ", ".join(repr(choice) for choice in self.choices)
        else:
            words = self.says or " or ".join(_TYPE_WORDS[kind] for kind in self.types)
        return words + (" or None" if self.optional and None not in self.choices else "")

    def convert(self, value):
        """The value in the key's own type; raises ValueError for one that the key does not take."""
        if value is None and (self.optional or None in self.choices):
            return None
        value = self._in_its_type(value)
        if not self._is_taken(value):
            raise ValueError
        return value

    def _in_its_type(self, value):
        """What may be written in a shorter way, as it is meant."""
        if list in self.types and isinstance(value, (str, tuple)):
            value = [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)
        if list in self.types and self.items not in self.types and isinstance(value, self.items):
            value = [value]  # seeds=7
        if int in self.types and isinstance(value, float) and value.is_integer() and float not in self.types:
            value = int(value)  # steps=1e6
        if float in self.types and type(value) is int:
            value = float(value)
        return value

    def _is_taken(self, value):
        if self.choices:
            return value in self.choices and type(value) in map(type, self.choices)  # 1 is no True
        is_of_type = type(value) in self.types or (Callable in self.types and callable(value))
        if isinstance(value, list):
            is_of_type = is_of_type and all(type(item) is self.items for item in value)
        return is_of_type and (self.test is None or self.test(value))


_TYPE_WORDS = {bool: "True or False", int: "a whole number", float: "a number", str: "a string", list: "a list of strings"}
MOST = 1_000_000_000  # of anything that is counted
LAST_SEED = 2 ** 63 - 1


def count(minimum=1, optional=False, maximum=MOST):
    """The rule of a whole number."""
    return Rule((int,), optional=optional, test=lambda n: minimum <= n <= maximum, says=f"a whole number from {minimum} to {maximum:,}")


def _smoothing():
    return Rule((bool, float), test=lambda v: isinstance(v, bool) or 0 <= v < 1, says="True, False or a number in [0, 1)")


def choice(*choices):
    """The rule of a value out of some."""
    return Rule(choices=choices)


def _is_device(value):
    return value == "cpu" or value == "cuda" or (value.startswith("cuda:") and value[5:].isdigit())


def _is_encoding(value):
    try:
        codecs.lookup(value)
        return "".encode(value) is not None  # LookupError for a codec of something else, such as base64
    except (LookupError, ValueError):
        return False


def is_count(value, minimum=0, maximum=MOST):
    """Whether this is a whole number in a range, and not True."""
    return type(value) is int and minimum <= value <= maximum


def _are_revisions(value):
    return set(value) <= set(HUB_CORPORA) and all(isinstance(revision, str) and revision for revision in value.values())


def is_positive(value):
    return type(value) in (int, float) and 0 < value < float("inf")


_NETWORK = Rule((dict, str), optional=True, test=lambda v: "model_type" in v if isinstance(v, dict) else bool(v),
                says="a dictionary with model_type, a folder with a config.json, or a hub id")
DEVICE = Rule((str,), optional=True, test=_is_device, says="'cpu', 'cuda' or 'cuda:N'")
SCHEDULES = ("original_linear", "separate_linear", "one_cycle", "adjusted_one_cycle")
LOGGER = choice("tensorboard", "neptune", "wandb", None)
PRECISION = choice(None, "bf16", "fp16", "fp32")
LENGTH = Rule((int,), optional=True, test=lambda n: 8 <= n <= 512, says="a whole number from 8 to 512")


def file_name(optional=False):
    return Rule((str,), optional=optional, test=_is_name,
                says="a name of at most 100 characters without / \\ : * ? \" < > | that does not start with a dot")


def _is_name(value):
    """Whether a file may be called so, with an ending, and stays in its folder."""
    return 0 < len(value.encode()) <= 100 and value.isprintable() and not set(value) & set('/\\:*?"<>|') and not value.startswith(".")


FRESH_WEIGHTS = ("huggingface", "official")


def is_pair(initial_weights):
    """Whether this names a trained pair: a checkpoint, a folder of two, or the hub id of a discriminator; else the weights are fresh."""
    looks_like_one = initial_weights.endswith(".pth") or os.path.isdir(initial_weights) or "discriminator" in initial_weights
    return looks_like_one and initial_weights not in FRESH_WEIGHTS


# Keys and rules of Pretrain.ipynb, in the order of its first cell.
PRETRAIN_RULES = {
    "quickstart": Rule((bool,)),
    "device": DEVICE,
    "base_run_name": file_name(),
    "seed": count(0, optional=True, maximum=LAST_SEED),
    "data_seed": count(0, maximum=LAST_SEED),
    "adam_bias_correction": Rule((bool,)),
    "schedule": choice(None, *SCHEDULES),
    "optimizer": choice(None, "adam", "lamb"),
    "sampling": choice("fp32_gumbel", "fp16_gumbel", "multinomial"),
    "temperature": Rule((float,), test=is_positive, says="a number above 0"),
    "disallow_correct": Rule((bool,)),
    "masking": choice("bernoulli", "official"),
    "electra_mask_style": choice(None, True, False, "always"),
    "gen_smooth_label": _smoothing(),
    "disc_smooth_label": _smoothing(),
    "size": choice(*RECIPES),
    "objective": choice(None, "electra", "mlm"),
    "generator": _NETWORK,
    "discriminator": _NETWORK,
    "tying": choice(None, *TYINGS),
    "initial_weights": Rule((str,), test=lambda v: v in FRESH_WEIGHTS or is_pair(v), says="'huggingface', 'official', a checkpoint (.pth), "
                            "a folder with generator/ and discriminator/, or the hub id of a discriminator"),
    "datas": Rule((list,), test=lambda v: bool(v) and all(isinstance(x, str) and x for x in v),
                  says="a list of corpus names or paths"),
    "encoding": Rule((str,), test=_is_encoding, says="an encoding that Python knows, such as utf-8, latin-1 or utf-16"),
    "revisions": Rule((dict,), test=_are_revisions, says="{corpus: commit, branch or tag of its hub dataset}, for corpora out of "
                      f"{', '.join(HUB_CORPORA)}"),
    "one_document_per_file": Rule((bool,)),
    "examples": choice("electra", "line_pairs"),
    "clean": choice(None, True, False),
    "vocab": Rule((str, int), test=lambda v: bool(v) if isinstance(v, str) else v >= 200,
                  says="a hub tokenizer, the path of a vocab.txt, or a number of words of at least 200"),
    "precision": PRECISION,
    "micro_batch": count(1, optional=True),
    "compile": Rule((bool,)),
    "logger": LOGGER,
    "upload_to": Rule((str, Callable), optional=True, test=lambda v: v != "",
                      says="a folder, an fsspec address, or a function of a path"),
    "num_workers": count(0),
    "resume": Rule((bool,)),
    "save_minutes": Rule((float,), test=lambda v: v >= 0, says="a number of minutes, 0 or more"),
    "steps": count(1, optional=True),
    "bs": count(1, optional=True),
    "lr": Rule((float,), optional=True, test=is_positive, says="a number above 0"),
    "warmup_steps": count(0, optional=True),
    "max_length": LENGTH,
    "mask_prob": Rule((float,), optional=True, test=lambda v: 0 < v < 1, says="a number between 0 and 1"),
}
