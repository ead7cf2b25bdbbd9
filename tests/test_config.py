"""MyConfig, `key=value` overrides, --help, and the values that `complete` derives from recipe and quickstart."""
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_pretraining import save_fresh
from transformers import AutoConfig, AutoModel

import finetune
import pretrain
from _utils.config import MyConfig, complete, from_command_line
from _utils.custom.definition import KEYS_OF_KINDS
from _utils.custom.task_kinds import KINDS
from _utils.errors import UserError
from _utils.finetuning.config import complete_finetuning
from _utils.finetuning.plan import for_checkpoint, seeds_of
from _utils.keys import accepted
from _utils.networks.pretrained import Pretrained
from _utils.objectives.objective_keys import KEYS
from _utils.objectives.registry import OBJECTIVES
from _utils.recipes import RECIPES
from _utils.tasks.glue import TASKS
from _utils.tasks.task_names import GLUE_TEST_FILES
from pretrain import c


def in_cell(config, arguments):
    """The configuration of a first cell with values that a command line could also set."""
    values = config.override(arguments)
    return MyConfig({**config, **{key: values[key] for key in values.chosen}}, config.known)


def completed(*arguments):
    return complete(c.override(arguments))


def finetuning(*arguments):
    return complete_finetuning(finetune.c.override(arguments))


def completed_in_cell(*arguments):
    return complete(in_cell(c, arguments))


def finetuning_in_cell(*arguments):
    return complete_finetuning(in_cell(finetune.c, arguments))


def assert_raises(expected, function, *arguments):
    """The call raises a UserError on one line that contains the expected fragments."""
    with pytest.raises(UserError) as error:
        function(*arguments)
    message = str(error.value)
    assert all(fragment in message for fragment in expected) and "\n" not in message, message


PRETRAINING = {
    "quickstart=True": True,
    "device=cuda:1": "cuda:1",
    "base_run_name=2026-01-31": "2026-01-31",
    "seed=None": None,
    "schedule='one_cycle'": "one_cycle",
    "temperature=2": 2.,
    "gen_smooth_label=0": 0.,
    "size=small++": "small++",
    "generator={'model_type': 'bert', 'hidden_size': 64}": {"model_type": "bert", "hidden_size": 64},
    "datas=wikipedia, texts/*.txt": ["wikipedia", "texts/*.txt"],
    "datas=['one, two.txt', 'three']": ["one, two.txt", "three"],
    "datas=2014,2015": ["2014", "2015"],
    "revisions={'wikipedia': 'main'}": {"wikipedia": "main"},
    "stream=1e6": 1_000_000,
    "stream=1": 1,
    "stream=5e9 characters": "5e9 characters",
    "vocab=my/vocab.txt": "my/vocab.txt",
    "vocab=3e4": 30000,
    "milestones=50,100": [50., 100.],
    "steps=1e6": 1_000_000,
    "lr=1": 1.,
    "quickstart=true": True,
    "cased=false": False,
    "base_run_name=true": "true",
}
FINETUNING = {
    "tasks=cola,rte": ["cola", "rte"],
    "seeds=7": [7],
    "start_from_mnli=True": True,
    "start_from_mnli=other": "other",
    "th_run=[0,2]": [0, 2],
    "th_run={'rte': [0, 2], 'cola': 1}": {"rte": [0, 2], "cola": [1]},
    "task_overrides={'rte': {'lr': 2e-5, 'epochs': 5}}": {"rte": {"lr": 2e-5, "epochs": 5}},
    "weight_decay=0": 0.,
    "group_name=2026": "2026",
}


def for_both(pretraining, finetuning):
    """Parameters (configuration of the script, argument, expected value)."""
    return [(config, *item) for config, items in ((c, pretraining), (finetune.c, finetuning)) for item in items.items()]


@pytest.mark.parametrize("config, argument, value", for_both(PRETRAINING, FINETUNING))
def test_an_override_changes_only_its_key_and_has_the_type_of_the_key(config, argument, value):
    key = argument.partition("=")[0]
    changed = config.override([argument])
    assert changed[key] == value and type(changed[key]) is type(value)
    assert {**changed, key: None} == {**config, key: None}


# {an invalid argument: what its message contains besides key and value}
INVALID_PRETRAINING = {
    "sise=base": "'size'", "--steps=100": "'steps'", "steps": "key=value", "size=huge": "'small'",
    "quickstart=1": "True or False", "device=gpu": "'cuda'", "base_run_name=runs/first": "without /",
    f"base_run_name={34 * '评'}": "100 bytes", "seed=20000000000000000000": "9223372036854775807",
    "revisions=main": "commit", "stream=1e5 letters": "characters",
    **dict.fromkeys(("stream=_ characters", "stream=1e400 characters", "stream=nan characters"), "'5e9 characters'"),
    "vocab=100": "200", "milestones=50,0": "above 0",
    "steps=1.5": "an integer", "encoding=uft-8": "cp1252", "encoding=rot13": "cp1252", "lr=fast": "a number above 0",
    "max_length=1024": "512",
    "mask_prob=15": "between 0 and 1"}
INVALID_FINETUNING = {
    "lr=1e-4": "task_overrides", "learning_rate=1e-4": "'lr'", "batch_size=16": "'bs'", "task=rte": "'tasks'",
    "tasks=cola,sst": "sst2", "seeds=a,b": "integers",
    "end=0": "an integer", "th_run=best": "a list of runs", "task_overrides={'rte': {'size': 3}}": "'epochs'",
    "task_overrides={'rte': {'lr': -1}}": "'lr'"}


@pytest.mark.parametrize("config, argument, expected", for_both(INVALID_PRETRAINING, INVALID_FINETUNING))
def test_an_invalid_override_raises_with_key_value_and_choices(config, argument, expected):
    key, _, value = argument.partition("=")
    assert_raises([key, value if key in config else "", expected], config.override, [argument])


def test_keys_are_checked_when_set_and_in_the_first_cell():
    config = c.copy_with({})
    config.size = "base"
    assert config.size == config["size"] == "base"
    assert_raises(["size", "'huge'", "'small'"], setattr, config, "size", "huge")
    assert_raises(["size", "'huge'", "'small'"], MyConfig, {**c, "size": "huge"})
    assert_raises(["'learning_rate'", " lr,"], MyConfig, {**c, "learning_rate": 1e-3})


@pytest.mark.parametrize("script", [pretrain, finetune])
def test_help_has_every_key_with_its_default_help_and_choices(scripts, script, tmp_path):
    done = scripts.run(f"{script.__name__}.py", ["--help"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and not list(tmp_path.iterdir())
    shown = " ".join(done.stdout.split())
    for name, key in script.c.known.items():
        explained = f" {name}={script.c[name]} {key.help} Accepts {accepted(key.accepts)}. "
        assert key.help and " ".join(explained.split()) in shown


def test_help_may_be_cut(repo, tmp_path):
    """As by `| head`: its reader reads nothing."""
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "w") as output:
        done = subprocess.run([sys.executable, repo / "pretrain.py", "--help"], cwd=tmp_path, stdout=output,
                              stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# The appendix of the paper; small++: Google's released model; tiny, mini, quickstart: this project; others: lmtuners.
SIZES = {
    "size=small": "bs=128 lr=5e-4 max_length=128 mask_prob=.15 steps=1_000_000 warmup_steps=10_000",
    "size=base": "bs=256 lr=2e-4 max_length=512 mask_prob=.15 steps=766_000 warmup_steps=10_000",
    "size=large": "bs=2048 lr=2e-4 max_length=512 mask_prob=.25 steps=400_000 warmup_steps=10_000",
    "size=small++": "bs=128 lr=5e-4 max_length=512 mask_prob=.15 steps=4_000_000 warmup_steps=10_000",
    "size=tiny": "bs=64 lr=3e-4 max_length=32 mask_prob=.15 steps=3_000 warmup_steps=300",
    "size=mini": "bs=64 lr=5e-4 max_length=64 mask_prob=.15 steps=37_000 warmup_steps=1_000",
    "size=quickstart": "bs=32 lr=2e-3 max_length=48 mask_prob=.25 steps=1_500 warmup_steps=60",
    "size=alectra_small": "bs=512 lr=2e-3 max_length=128 mask_prob=.15 steps=500_000 warmup_steps=40_000 "
                          "electra_mask_style=always optimizer=lamb schedule=separate_linear",
    "size=bert_small": "bs=128 lr=5e-4 max_length=128 mask_prob=.15 steps=1_500_000 warmup_steps=10_000 "
                       "electra_mask_style=False optimizer=lamb schedule=separate_linear",
}
DERIVED = {
    "": "size=small datas=openwebtext base_run_name=vanilla quickstart=False schedule=original_linear "
        "sampling=fp32_gumbel temperature=1. electra_mask_style=True adam_bias_correction=False gen_smooth_label=False "
        "disc_smooth_label=False gen_weight=1 disc_weight=50 tying=embeddings optimizer=adam weight_decay_rate=.01 "
        "lr_decay_power=1",
    "objective=two_stage steps=100": "two_stage_steps=50 tying=none",
    "objective=replace_mlm": "disc_weight=1", "objective=all_tokens_mlm": "disc_weight=1",
    "initial_weights=google/electra-small-discriminator": "masking=official lr=5e-5",
    "initial_weights=google/electra-small-discriminator new_generator=True": "masking=official lr=5e-4",
    "initial_weights=someone/electra new_generator=True": "vocab=someone/electra lr=5e-4",
    "recipe=google": "masking=official initial_weights=official long_lines=truncate clean=False",
    "recipe=google masking=bernoulli": "masking=bernoulli initial_weights=official",
    # warmup keeps its share of the steps
    "steps=100_000": "warmup_steps=1000", "size=tiny steps=500": "warmup_steps=50",
    "steps=100_000 warmup_steps=7": "warmup_steps=7", "steps=100_000 warmup_steps=.05": "warmup_steps=5000",
    "warmup_steps=0": "warmup_steps=0",
    "quickstart=True": "size=quickstart datas=prose vocab=prose base_run_name=quickstart adam_bias_correction=True "
                       "schedule=original_linear seed=11081",
    "quickstart=True size=small": "size=small datas=prose",  # the default, but here the user sets it
    "quickstart=True datas=bookcorpus vocab=500 steps=10": "size=quickstart datas=bookcorpus vocab=500 steps=10",
}


@pytest.mark.parametrize("arguments, expected", [*SIZES.items(), *DERIVED.items()])
def test_values_that_are_not_set_follow_from_recipe_and_quickstart(arguments, expected):
    config, expected = completed(*arguments.split()), expected.split()
    values = c.override(expected)
    for key in (argument.partition("=")[0] for argument in expected):
        assert config[key] == values[key], key


# {arguments: fragments of the message}
CONTRADICTIONS = {
    "size=tiny warmup_steps=3001": "warmup_steps=3001 steps=3000",
    "objective=two_stage steps=5 two_stage_steps=5": "two_stage_steps=5 steps=5",
    "objective=replace_mlm tying=disentangled": "tying='disentangled' objective='replace_mlm'",
    "objective=adversarial temperature=2": "temperature=2.0 objective='adversarial'",
    "objective=adversarial sampling=fp16_gumbel": "sampling='fp16_gumbel' objective='adversarial'",
    "objective=electric sampling=fp16_gumbel": "sampling='fp16_gumbel' objective='electric'",
    "objective=mlm two_tower_generator=True": "two_tower_generator=True objective='mlm'",
    "objective=mlm discriminator={'model_type':'bert'}": "discriminator= objective='mlm'",
    "objective=two_stage generator={'model_type':'bert'}": "generator= objective='two_stage'",
    "objective=adversarial tying=disentangled": "tying='disentangled' objective='adversarial'",
    "uniform_generator=True tying=disentangled": "tying='disentangled' uniform_generator",
    "two_tower_generator=True tying=embeddings+encoder": "tying='embeddings+encoder' two towers",
    "two_tower_generator=True uniform_generator=True": "two_tower_generator uniform_generator",
    "objective=electric tying=all": "tying='all' two towers",
    "objective=electric temperature=2": "temperature=2.0 objective='electric'",
    "objective=electric disallow_correct=True": "disallow_correct=True objective='electric'",
    "objective=electric uniform_generator=True": "objective='electric' uniform_generator",
    "initial_weights=google/electra-small-discriminator generator_layers=.5": "initial_weights= generator_layers=0.5",
    "initial_weights=google/electra-small-discriminator vocab=31000": "initial_weights= vocab=31000",
    "revisions={'wikipedia':'main'}": "revisions 'wikipedia' openwebtext",
    "datas=prose,nowhere": "'nowhere' .jsonl owner/name",
    "datas=a/b:c:d:e:f": "datas a/b:c:d:e:f owner/name:configuration:split:column",
    "vocab=mine/tokenizer cased=True": "cased=True vocab='mine/tokenizer'",
}
CONTRADICTIONS_OF_FINETUNING = {
    "start=3 end=3": "start=3 end=3", "seeds=1,2 end=3": "seeds 2",
    "tasks=cola th_run={'rte':1}": "th_run 'rte' cola", "task_overrides={'nli':{'lr':1}}": "task_overrides 'nli' mnli",
    "freeze=True wsc_trick=True": "freeze=True wsc_trick=True",
}


def for_both_ways(of_pretraining, of_finetuning):
    """Parameters (function of arguments, which are set on the command line or in the first cell; arguments; ...)."""
    return [(derive, *item) for functions, items in (((completed, completed_in_cell), of_pretraining),
                                                     ((finetuning, finetuning_in_cell), of_finetuning))
            for derive in functions for item in items.items()]


@pytest.mark.parametrize("derive, arguments, expected", for_both_ways(CONTRADICTIONS, CONTRADICTIONS_OF_FINETUNING))
def test_contradicting_values_raise_with_both_keys(derive, arguments, expected):
    assert_raises(expected.split(), derive, *arguments.split())


# {arguments: what they have no effect with, and the keys}
WITHOUT_EFFECT = {
    "two_stage_steps=5": "objective=electra: two_stage_steps",
    "objective=two_stage tying=tokens gen_weight=2": "objective=two_stage: gen_weight, tying",
    "objective=replace_mlm disc_smooth_label=True": "objective=replace_mlm: disc_smooth_label",
    "objective=mlm disc_weight=3 tying=tokens": "objective=mlm: disc_weight, tying",
    "size=bert_small temperature=2": "objective=mlm: temperature",
    "objective=electric gen_smooth_label=True": "objective=electric: gen_smooth_label",
    "two_tower_generator=True electra_mask_style=False": "two_tower_generator=True: electra_mask_style",
    "uniform_generator=True gen_weight=2 generator={'model_type':'bert'} electra_mask_style=False sampling=fp16_gumbel":
        "uniform_generator=True: generator, gen_weight, electra_mask_style, sampling",
    "initial_weights=google/electra-small-discriminator new_generator=True disc_weight=2 temperature=2":
        "new_generator=True: disc_weight, temperature",
    "generator={'model_type':'bert'} generator_hidden_size=.5":
        "generator={'model_type': 'bert'}: generator_hidden_size",
    "quickstart=True generator_hidden_size=.5": "tying=all: generator_hidden_size",
    "schedule=one_cycle warmup_steps=5": "schedule=one_cycle: warmup_steps",
    "schedule=adjusted_one_cycle lr_decay_power=2": "schedule=adjusted_one_cycle: lr_decay_power",
    "size=alectra_small adam_bias_correction=True": "optimizer=lamb: adam_bias_correction",
    "datas=prose documents=line encoding=latin-1": "datas=['prose']: documents, encoding",
    "datas=prose stream=9": "datas=['prose']: stream",
}
WITHOUT_EFFECT_IN_FINETUNING = {
    "tasks={'train':'nli.csv'} start_from_mnli=other": "tasks=: start_from_mnli",
    "freeze=True start_from_mnli=True": "freeze=True: start_from_mnli",
    "tasks=cola,qnli wsc_trick=True": "tasks=['cola', 'qnli']: wsc_trick",
    "tasks=cola,qnli start_from_mnli=True": "tasks=['cola', 'qnli']: start_from_mnli",
}


@pytest.mark.parametrize("derive, arguments, expected", for_both_ways(WITHOUT_EFFECT, WITHOUT_EFFECT_IN_FINETUNING))
def test_keys_without_effect_are_named_and_have_none(capsys, derive, arguments, expected):
    """Also when other keys have their defaults explicitly. The configuration is that without them."""
    decider, keys = expected.rsplit(": ", 1)
    config = derive(*arguments.split())
    [notice] = [line for line in capsys.readouterr().out.splitlines() if "no effect" in line]
    assert decider.rstrip("=") in notice and notice.endswith(f": {keys}")
    assert config == derive(*(part for part in arguments.split() if part.partition("=")[0] not in keys.split(", ")))
    assert "no effect" not in capsys.readouterr().out


def test_defaults_that_are_set_have_an_effect_everywhere(capsys):
    completed("objective=mlm", "sampling=fp32_gumbel", "two_stage_steps=None", "datas=prose", "encoding=utf-8")
    assert "no effect" not in capsys.readouterr().out


def test_the_quickstart_keeps_what_was_edited_in_the_first_cell(capsys):
    """Values that differ from the shipped ones; the output says which keys it sets."""
    edited = {"datas": ["bookcorpus"], "vocab": 500, "base_run_name": "mine"}
    config = complete(MyConfig({**c, **edited, "quickstart": True}))
    assert edited.items() <= config.items() and (config.size, config.adam_bias_correction) == ("quickstart", True)
    assert "size=quickstart, adam_bias_correction=True\n" in capsys.readouterr().out
    config = finetuning_in_cell("quickstart=True", "end=3", "glue_dir=mine")
    assert (config.end, config.glue_dir, config.group_name) == (3, "mine", "quickstart")


def test_the_first_cells_have_the_defaults():
    for config in (c, finetune.c):
        assert not config.chosen and not [*filter(config.differs, config)]


@pytest.mark.parametrize("config, derive", [(c, complete), (finetune.c, complete_finetuning)])
def test_a_later_command_line_of_a_notebook_replaces_the_earlier_one(config, derive):
    """The cell that reads it assigns the completed configuration to the same name."""
    first, second = ["script.py", "quickstart=True", "max_length=64"], ["script.py", "device=cpu"]
    again = derive(from_command_line(derive(from_command_line(config, first)), second))
    assert again == derive(from_command_line(config, second))
    again.copy_with({}).num_workers = 5  # of a copy
    again.num_workers = 7  # in a cell after these, which are then run again
    again = derive(from_command_line(again, second))
    assert again.num_workers == 7 and "num_workers" in again.chosen and config.num_workers != 7


@pytest.mark.parametrize("arguments", [["-f", "/tmp/kernel-1.json"], ["--f=/tmp/kernel-1.json"]])
def test_the_arguments_of_a_kernel_are_not_ours(arguments):
    assert from_command_line(c, ["/usr/lib/ipykernel_launcher.py", *arguments]) == c
    assert_raises([arguments[0].partition("=")[0]], from_command_line, c, ["pretrain.py", *arguments])


@pytest.mark.parametrize("arguments, expected", {
    "": "group_name=vanilla_11081_100.0%", "pretrained_checkpoint=some/model": "group_name=model",
    "pretrained_checkpoint=a/b/discriminator": "group_name=b_discriminator",
    "pretrained_checkpoint=None size=base": "group_name=electra_base_google",
    "quickstart=True end=1 wsc_trick=True":
        "end=1 group_name=quickstart glue_dir=datasets/quickstart_glue "
        "pretrained_checkpoint=quickstart_11081_100.0%.pth",
    "tasks=stsb start_from_mnli=True group_name=g": "start_from_mnli=g"}.items())
def test_derived_values_of_finetuning(arguments, expected):
    config = finetuning(*arguments.split())
    assert all(str(config[key]) == value for key, value in (part.split("=") for part in expected.split()))


def pretrained(size, length=None, allowed=512, positions=512):
    """A Pretrained with a recipe's family. length: of its pretraining; None: of other origin, with a tokenizer that
    allows `allowed` tokens.
    """
    small = dict(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
    family = RECIPES[size].encoder.family
    model = AutoModel.from_config(AutoConfig.for_model(family, **small, max_position_embeddings=positions))
    run = {} if length is None else {"size": size, "max_length": length}
    return Pretrained("a", model, SimpleNamespace(model_max_length=allowed), "", size, run)


@pytest.mark.parametrize("given, arguments, expected", [
    (("small", 128), "", 128), (("base", 512), "", 512), (("tiny", 32), "", 32), (("small", 256), "", 256),
    (("small", 128), "tasks=squad", 128), (("mini", 64), "", 128), (("mini", 256), "", 256),
    (("mini", 64), "tasks=squad", 128), (("base",), "", 512),
    (("base", None, 1 << 60), "", 512), (("base", None, 128), "", 128), (("base", None, 512, 64), "", 64),
    (("small", 128), "max_length=64", 64)])
def test_size_and_length_follow_from_the_checkpoint(given, arguments, expected):
    """The length is that of the pretraining; with rotary positions, at least 128."""
    config = for_checkpoint(finetuning(*arguments.split()), pretrained(*given))
    assert (config.size, config.max_length) == (given[0], expected)
    assert not pretrained(*given).length_warnings(config.max_length)


@pytest.mark.parametrize("given, warned", [
    (("tiny", 32), "32 tokens"), (("tiny", 256), ""), (("mini", 64), ""), (("base",), ""),
    (("base", None, 128), "128 tokens")])
def test_a_length_beyond_the_trained_positions_is_warned_of(given, warned):
    """Rotary positions are not trained."""
    config = for_checkpoint(finetuning("max_length=200"), pretrained(*given))
    warnings = pretrained(*given).length_warnings(config.max_length)
    assert len(warnings) == bool(warned) and all(warned in text for text in warnings)


def test_continued_pretraining_has_the_settings_of_the_checkpoint_below_those_of_a_recipe(small_tokenizer, tmp_path):
    for masking in ("official", "bernoulli"):
        settings = [f"masking={masking}", "max_length=16", "mask_prob=.2", "electra_mask_style=always", "tying=all"]
        checkpoint, expected = save_fresh(tmp_path / "short.pth", small_tokenizer, *settings), c.override(settings)
        continued = completed(f"initial_weights={checkpoint}")
        assert continued.size == "tiny" and all(continued[key] == expected[key] for key in expected.chosen)
    continued = completed(f"initial_weights={checkpoint}", "recipe=google")
    assert (continued.masking, continued.initial_weights) == ("official", str(checkpoint))


def test_samples_of_the_same_distribution_may_be_drawn_in_another_way():
    for objective in ("adversarial", "electric"):
        assert completed(f"objective={objective}", "sampling=multinomial").sampling == "multinomial"


def test_continued_pretraining_keeps_the_objective_or_names_it(small_tokenizer, tmp_path):
    for keys in ("objective=electra_15", "tying=disentangled", "objective=adversarial", "objective=two_stage"):
        checkpoint, (key, value) = save_fresh(tmp_path / "pair.pth", small_tokenizer, keys), keys.split("=")
        if value in ("electra_15", "disentangled"):
            assert completed(f"initial_weights={checkpoint}")[key] == value
        else:
            assert_raises([keys, "objective=electra"], completed, f"initial_weights={checkpoint}")
        assert completed(f"initial_weights={checkpoint}", "objective=electra").objective == "electra"


def test_what_the_keys_select_exists():
    assert KEYS.keys() == OBJECTIVES.keys()
    assert KEYS_OF_KINDS.keys() == KINDS.keys()


def test_the_defaults_of_finetuning_are_those_of_the_paper():
    c = finetuning()
    assert (c.start, c.end, c.weight_decay, c.double_unordered, c.original_lr_layer_decays) == (0, 10, 0., True, True)
    assert not c.adam_bias_correction
    for size, (lr, decay) in {"small": (3e-4, .8), "base": (1e-4, .8), "large": (5e-5, .9)}.items():
        found = finetune.hyperparameters(TASKS["cola"], finetuning(f"size={size}"), 8551)
        assert found == {"lr": lr, "layer_decay": decay, "bs": 32, "epochs": 3, "rows": None}
    of_glue = {name: TASKS[name] for name in GLUE_TEST_FILES}
    assert {name: task.epochs for name, task in of_glue.items() if task.epochs != 3} == {"rte": 10, "stsb": 10}
    assert {name for name, task in of_glue.items() if task.unordered} == {"mrpc", "stsb"}
    ranked_by = {name: task.metrics[0] for name, task in of_glue.items() if task.metrics[0] != "accuracy"}
    assert ranked_by == {"cola": "matthews", "stsb": "spearman"} and TASKS["mnli"].devs[0] == "validation_matched"


def test_a_run_has_the_seed_of_its_number():
    assert seeds_of(finetuning("start=1", "end=3", "seeds=5,6,7")) == {1: 6, 2: 7}


def test_a_path_with_the_name_of_a_corpus_is_pointed_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("prose").mkdir()
    completed("datas=prose")
    assert "./prose" in capsys.readouterr().out
