"""The configuration of a run: MyConfig with its `key=value` overrides, and the values that `complete` derives.

It is read and checked before PyTorch and transformers, which take seconds, are imported.
"""
import ast
import contextlib
import copy
import difflib
import importlib.util
import secrets
import sys
import textwrap
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

from pydantic import ValidationError

from _utils.errors import UserError, as_user_error, n_processes
from _utils.keys import PRETRAIN_KEYS, Key, accepted
from _utils.loggers import PACKAGES
from _utils.names import announce_hub, check_text, find_checkpoint, hub_text, is_path, is_vocab_file, without_parts
from _utils.objectives.objective_keys import (
    ELECTRA,
    KEYS,
    conflicting_keys,
    default_name,
    keys_without_effect,
    selected,
    selecting,
)
from _utils.recipes import RECIPES, is_pair, warmup_in_steps
from _utils.schedules import UNUSED_KEYS


class MyConfig(dict):
    """A dictionary whose keys are also attributes. Every value is checked against the type of its key when it is set.

    values: of some keys; the others have their defaults.   known: {key: Key or type}.
    chosen: the keys that the user set; None: those with another value than the default. `override`, for example by the
    command line, and later assignments add to them.
    written: the configuration before the command line was read, in the copies made of it, with later assignments.
    Raises UserError for an unknown key and for a value that the type does not accept.
    """

    def __init__(self, values: dict, known: dict = PRETRAIN_KEYS, chosen: Iterable[str] | None = None, written=None):
        known = {name: key if isinstance(key, Key) else Key(key) for name, key in known.items()}
        vars(self).update(known=known, chosen=frozenset(), written=None)
        super().__init__({name: copy.deepcopy(key.default) for name, key in known.items()})
        for name, value in values.items():
            self[name] = value
        chosen = frozenset(filter(self.differs, values) if chosen is None else chosen)
        vars(self).update(chosen=chosen, written=written)

    def differs(self, name):
        """Whether a key has another value than its default."""
        return self[name] != self.known[name].default

    def __setitem__(self, name, value):
        if name not in self.known:
            raise _unknown_key(name, self.known)
        try:
            super().__setitem__(name, self.known[name].adapter.validate_python(value))
        except ValidationError:
            accepts = accepted(self.known[name].accepts)
            raise UserError(f"Invalid value for {name}: {value!r:.200}. Use {accepts}.") from None
        vars(self)["chosen"] |= {name}
        if self.written is not None:
            vars(self)["written"] = self.written.copy_with({name: value}, chosen=[name])

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    __setattr__ = __setitem__

    def copy_with(self, values, chosen=()):
        """A copy with some values replaced. The keys in `chosen` count as set by the user from then on."""
        return MyConfig({**self, **values}, self.known, self.chosen.union(chosen), self.written)

    def unless_chosen(self, values):
        """A copy with these values, except for keys that the user set."""
        return self.copy_with({name: value for name, value in values.items() if name not in self.chosen})

    def with_defaults(self, values):
        """A copy with these values for keys that are None."""
        return self.copy_with({name: value for name, value in values.items() if self[name] is None})

    def as_data(self):
        """A plain dictionary, to be saved. Functions, which only a notebook can set, are replaced by their names."""
        return {
            key: getattr(value, "__name__", repr(value)) if callable(value) else value for key, value in self.items()
        }

    def override(self, arguments):
        """A copy with `key=value` strings applied.

        A value is a Python literal, true or false that the key accepts; anything else is a string. Keys that accept a
        list also accept `a,b`. If a key is repeated, the last value is used. Raises UserError as the constructor does,
        and for an argument without '='.
        """
        values = {}
        for argument in arguments:
            name, equals, values[name] = argument.partition("=")
            if not equals:
                raise UserError(f"Invalid argument: {argument!r:.200}. Use key=value, quoted if it has spaces; --help "
                                f"explains the keys.")
            literal = {"true": "True", "false": "False"}.get(values[name], values[name])
            # A literal remains a string where the key accepts only strings: a run may be named 7.
            with contextlib.suppress(KeyError, TypeError, ValueError, SyntaxError, MemoryError, RecursionError):
                values[name] = self.known[name].adapter.validate_python(ast.literal_eval(literal))
        return self.copy_with(values, chosen=values)


# What is set by task, also as other programs call it.
OF_TASKS = {"lr": "lr", "learning_rate": "lr", "bs": "bs", "batch_size": "bs", "per_device_train_batch_size": "bs",
            "epochs": "epochs", "num_train_epochs": "epochs", "rows": "rows"}


def _unknown_key(name, known):
    of_task = difflib.get_close_matches(name, OF_TASKS, n=1, cutoff=.75) if "task_overrides" in known else ()
    if of_task:
        advice = f"Set it by task: \"task_overrides={{'TASK': {{'{OF_TASKS[of_task[0]]}': VALUE}}}}\", such as 'rte'."
    elif near := difflib.get_close_matches(name, known, n=1, cutoff=.65):
        advice = f"Did you mean {near[0]!r}?"
    else:
        advice = f"Choose one of {', '.join(known)}."
    return UserError(f"Unknown key: {name!r:.40}. {advice}")


def from_command_line(config, argv):
    """The configuration with the `key=value` arguments of a script. argv: its name and arguments.

    With --help it prints the keys and exits. In a notebook, a later command line takes the place of an earlier one.
    The arguments of a kernel, in which a cell of a script runs (ipykernel_launcher.py -f FILE), are not ours.
    """
    script, *arguments = argv
    if {"-h", "--help"} & set(arguments):
        print(explain_keys(config, script))
        sys.exit()
    if "kernel" in script and any(argument.startswith(("-f", "--f=")) for argument in arguments):
        arguments = []
    written = config.written or config
    config = written.override(arguments)
    vars(config)["written"] = written
    return config


def explain_keys(config, script):
    """The text of --help: every key with its value, its help, and what it accepts, in sections."""
    blocks = [f"{Path(script).name} key=value ...",
              "A value is a Python literal, true or false; anything else is a string.",
              "F12, D3 and the like refer to docs/facts.md, which also describes lmtuners."]
    for name, key in config.known.items():
        if key.heading:
            blocks.append(f"{key.heading}\n{'-' * len(key.heading)}")
        text = f"{key.help} Accepts {accepted(key.accepts)}.".strip()
        lines = textwrap.wrap(text, 110, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
        blocks.append("\n".join([f"{name}={config[name]}", *lines]))
    return "\n\n".join(blocks)


# What quickstart=True sets, except for keys that the user set.
QUICKSTART = {
    "size": "quickstart",
    "datas": ["prose"],
    "vocab": "prose",
    "base_run_name": "quickstart",
    "adam_bias_correction": True,
}
# What recipe=... sets, except for keys that the user set.
BY_RECIPE = {"google": {"masking": "official", "initial_weights": "official", "long_lines": "truncate",
                        "clean": False}}
# Keys that have no effect: the key that decides, a test of its value, and they.
NO_EFFECT = [
    *(("schedule", name.__eq__, keys) for name, keys in UNUSED_KEYS.items()),
    ("optimizer", "lamb".__eq__, ["adam_bias_correction"]),  # it never has it
    ("generator", bool, ["generator_hidden_size", "generator_layers"]),  # of the recipe's generator
    ("tying", "all".__eq__, ["generator_hidden_size", "generator_layers"]),  # the generator is the discriminator's size
    ("datas", lambda datas: not any(map(is_path, datas)), ["documents", "encoding"]),
    ("datas", lambda datas: not any(map(hub_text, datas)), ["stream"]),
]
NETWORKS_AND_VOCABULARY = "vocab initial_weights generator discriminator".split()  # may be ids on the hub
# Keys for which None means the value of the recipe.
FROM_RECIPE = "bs lr max_length mask_prob steps schedule optimizer electra_mask_style tying disc_weight".split()


def complete(config):
    """Derive the values that depend on other keys, then check that the values fit together.

    Derived are the values of the quickstart, those of trained networks to continue from, those of `recipe`, the size's
    values for None, and a seed. Explicit values are kept. `warmup_steps` is as in `with_schedule`.
    Raises UserError for values that contradict each other.
    """
    if config.quickstart:
        config = with_quickstart(config, QUICKSTART)
    if is_pair(config.initial_weights):
        config = config.unless_chosen(_values_of_pair(config))
    if config.recipe:
        config = config.unless_chosen(BY_RECIPE[config.recipe])
    recipe = RECIPES[config.size]
    usual = ELECTRA if selecting(config) else default_name(recipe, bool(config.discriminator))
    config = config.with_defaults({"objective": usual})
    objective = KEYS[selected(config)]
    decider, value = objective.selected_by
    for key in conflicting_keys(config):
        raise UserError(f"{key}={config[key]!r} contradicts {decider}={value!r}. Change or leave out one of them.")
    defaults = {key: getattr(recipe, key) for key in FROM_RECIPE}
    if is_pair(config.initial_weights):  # with its own number of steps: `continued_steps`
        defaults |= {"steps": None, "lr": recipe.lr if objective.has_new_generator else recipe.lr / 10}
    defaults |= objective.defaults(config)
    no_effect = [(decider, value.__eq__, keys_without_effect(objective)), *NO_EFFECT]
    config = without_unused(config, no_effect, config.with_defaults(defaults)).with_defaults(defaults)
    if config.steps:
        config = with_schedule(config, config.steps)
    if config.seed is None and n_processes() > 1:
        raise UserError("seed=None would draw a different seed in each process. Set seed to a number.")
    config = config.with_defaults({"seed": secrets.randbits(32)})
    _check(config, objective)
    announce_hub(*map(without_parts, config.datas), *(config[key] for key in NETWORKS_AND_VOCABULARY))
    return config


def with_quickstart(config, values):
    """A copy with the values of the quickstart for keys that the user did not set, which are printed."""
    values = {name: value for name, value in values.items() if name not in config.chosen}
    print("quickstart=True sets", ", ".join(f"{name}={value}" for name, value in values.items()) or "nothing")
    return config.copy_with(values)


def without_unused(config, no_effect, decided):
    """A copy with the defaults of the keys that have no effect. Prints those that the user set to another value.

    no_effect: [(key that decides, test of its value, keys that have no effect then)].   decided: the configuration with
    the values of the keys that decide.
    """
    for decider, applies, keys in no_effect:
        unused = [key for key in keys if key in config.chosen and config.differs(key)]
        if unused and applies(decided[decider]):
            print(f"Notice: no effect with {decider}={decided[decider]!s:.80}: {', '.join(unused)}")
            config = config.copy_with({key: config.known[key].default for key in unused})
    return config


def with_schedule(config, steps):
    """The configuration with `steps`, and with warmup_steps as a number of steps.

    None is the recipe's share of the steps; in continued pretraining a twentieth.
    Raises UserError if warmup_steps is more than the steps.
    """
    recipe, warmup = RECIPES[config.size], config.warmup_steps
    if warmup is None:
        warmup = Fraction(1, 20) if is_pair(config.initial_weights) else Fraction(recipe.warmup_steps, recipe.steps)
    config = config.copy_with({"steps": steps, "warmup_steps": warmup_in_steps(warmup, steps)})
    if config.warmup_steps > steps:
        raise UserError(f"warmup_steps={config.warmup_steps} is more than steps={steps}. Lower it or leave it out.")
    return config


def _values_of_pair(config):
    """Return {key: value} that follow from trained networks to continue from.

    The keys are their vocabulary, and size, length, masking, tying and objective as far as they are known.
    """
    name = config.initial_weights
    values = {"vocab": name}
    if name.endswith(".pth"):
        path = find_checkpoint(name)
        from _utils.runs.checkpoints import load_pretraining_checkpoint  # PyTorch reads it
        run = load_pretraining_checkpoint(path)["config"]
        values |= {key: run[key] for key in "size max_length masking electra_mask_style tying mask_prob".split()}
        objective = KEYS[selected(run)]
        if not objective.has_new_generator and config.objective is None and not selecting(config):
            values |= dict([objective.selected_by])
    elif name.startswith("google/"):
        values["masking"] = "official"
    return values


def continued_steps(config, n_examples):
    """The default number of steps of continued pretraining on n_examples (docs/pretraining.md).

    It is ten epochs, but at most a twentieth of the recipe's steps.
    """
    return max(1, min(RECIPES[config.size].steps // 20, 10 * n_examples // config.bs))


def _check(config, objective):
    """Raise UserError for values that contradict each other or name something that does not exist."""
    if is_pair(config.initial_weights):
        _check_pair(config, objective)
    for check in objective.checks:
        check(config)
    _check_texts(config)
    _check_normalization(config)
    _check_address(config.upload_to)
    check_logger(config)


def _check_texts(config):
    """Raise UserError for entries of `datas` that do not exist, and of `revisions` that are not in `datas`."""
    for source in config.datas:
        check_text(source)
    on_hub = [without_parts(source) for source in config.datas if hub_text(source)]
    if unknown := [name for name in config.revisions if name not in on_hub]:
        raise UserError(f"Invalid value for revisions: {unknown[0]!r} is not a corpus of the hub in datas "
                        f"({', '.join(on_hub) or 'none'}).")


def _check_normalization(config):
    """Raise UserError for cased or strip_accents beside a tokenizer that determines both."""
    if not is_pair(config.initial_weights) and (isinstance(config.vocab, int) or is_vocab_file(config.vocab)):
        return
    key_of_tokenizer = "initial_weights" if is_pair(config.initial_weights) else "vocab"
    for key in ("cased", "strip_accents"):
        if config[key] is not None:
            raise UserError(f"{key}={config[key]} requires fresh weights and a vocabulary to train, such as "
                            f"vocab=30522, or a vocab.txt. It is part of the tokenizer of "
                            f"{key_of_tokenizer}={config[key_of_tokenizer]!r}. Leave out {key}.")


def _check_pair(config, objective):
    """Raise UserError for keys that conflict with continued pretraining."""
    of_pair = ["generator", "discriminator"]
    if not objective.has_new_generator:
        of_pair += ["generator_hidden_size", "generator_layers"]
    conflicting = [key for key in of_pair if config[key] is not None]
    if not objective.continues_pairs:
        key, value = objective.selected_by
        is_checkpoint = config.initial_weights.endswith(".pth")
        default = "that of the checkpoint" if is_checkpoint else f"the default of size={config.size}"
        origin = "" if key in config.chosen else f", {default},"
        raise UserError(f"A training with {key}={value}{origin} begins with fresh weights, so it cannot continue from "
                        f"initial_weights={config.initial_weights!r}. Leave out initial_weights, or set "
                        f"objective={ELECTRA} to continue a generator and a discriminator with ELECTRA's.")
    for key in conflicting:
        raise UserError(f"initial_weights={config.initial_weights!r} contains trained networks and their "
                        f"vocabulary, which {key}={config[key]!r} contradicts. Remove {key} (size={config.size}).")
    if isinstance(config.vocab, int):
        raise UserError(f"vocab={config.vocab} trains a vocabulary, but initial_weights={config.initial_weights!r} has "
                        "one. Leave out vocab, or set it to a vocab.txt with words to add.")


def _check_address(where):
    """Raise UserError for an address to upload to whose kind is unknown or requires a package that is not installed."""
    if isinstance(where, str):
        import fsspec
        with as_user_error(f"Invalid value for upload_to: {where!r} ({{error}}). Pass a folder, or install the "
                           "package for this kind of address.", (ImportError, ValueError)):
            fsspec.get_filesystem_class(fsspec.utils.get_protocol(where))


def check_logger(config):
    """Raise UserError for a logger whose package is not installed."""
    package = PACKAGES.get(config.logger)
    if package and importlib.util.find_spec(package) is None:
        raise UserError(f"logger={config.logger!r} requires a package that is not installed. Run pip install "
                        f"{package}, or set logger=tensorboard.")
