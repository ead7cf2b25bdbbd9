"""MyConfig, `key=value` overrides, and the values that `complete` derives from recipe and quickstart."""
import importlib.util

import pytest

import finetune
from _utils.config import MyConfig, complete
from _utils.errors import PlainError
from _utils.glue.config import complete_finetuning
from _utils.glue.tasks import TASKS
from _utils.recipes import RECIPES
from pretrain import c


def completed(*arguments):
    return complete(c.override(arguments))


@pytest.mark.parametrize("argument, value", [
    ("quickstart=True", True),
    ("device=cuda:1", "cuda:1"),
    ("base_run_name=7", "7"),
    ("base_run_name=1e5", "1e5"),
    ("base_run_name=2026-01-31", "2026-01-31"),
    ("seed=None", None),
    ("schedule=one_cycle", "one_cycle"),
    ("schedule='one_cycle'", "one_cycle"),
    ("temperature=2", 2.),
    ("gen_smooth_label=True", True),
    ("gen_smooth_label=.2", .2),
    ("size=small++", "small++"),
    ("datas=wikipedia", ["wikipedia"]),
    ("datas=wikipedia,openwebtext", ["wikipedia", "openwebtext"]),
    ("datas=wikipedia, texts/*.txt", ["wikipedia", "texts/*.txt"]),
    ("datas=['one, two.txt', 'three']", ["one, two.txt", "three"]),
    ("datas='one','two'", ["one", "two"]),
    ("datas=language=en.txt", ["language=en.txt"]),
    ("datas=2014", ["2014"]),
    ("datas=2014,2015", ["2014", "2015"]),
    ("clean=False", False),
    ("vocab=my/vocab.txt", "my/vocab.txt"),
    ("vocab=30522", 30522),
    ("vocab=3e4", 30000),
    ("logger=None", None),
    ("steps=1000", 1000),
    ("steps=1_000", 1000),
    ("steps=1e6", 1_000_000),
    ("lr=5e-4", 5e-4),
    ("lr=1", 1.),
])
def test_an_override_changes_only_its_key_and_has_the_type_of_the_key(argument, value):
    key = argument.partition("=")[0]
    config = c.override([argument])
    assert config[key] == value and type(config[key]) is type(value)
    assert all(config[other] == c[other] for other in c if other != key)


@pytest.mark.parametrize("argument, expected", [
    ("sise=base", ["'sise'", "Did you mean 'size'?"]),
    ("--steps=100", ["'--steps'", "Did you mean 'steps'?"]),
    ("xyz=1", ["'xyz'", "Choose one of quickstart, device"]),
    ("steps", ["'steps'", "key=value", "quickstart, device"]),
    ("size=huge", ["for size: 'huge'", *map(repr, RECIPES)]),
    ("size=smal", ["Invalid value for size: 'smal'. Choose one of 'small', ", " (did you mean 'small'?)"]),
    ("schedule=linear", ["for schedule: 'linear'", "'original_linear', 'separate_linear', 'one_cycle', 'adjusted_one_cycle'"]),
    ("sampling=gumbel", ["for sampling: 'gumbel'", "'fp32_gumbel', 'fp16_gumbel', 'multinomial'"]),
    ("precision=fp8", ["for precision: 'fp8'", "None, 'bf16', 'fp16', 'fp32'"]),
    ("logger=none", ["for logger: 'none'", "'tensorboard', 'neptune', 'wandb', None"]),
    ("clean=yes", ["for clean: 'yes'", "None, True, False"]),
    ("clean=1", ["for clean: 1", "None, True, False"]),
    ("quickstart=yes", ["for quickstart: 'yes'", "True or False"]),
    ("quickstart=1", ["for quickstart: 1", "True or False"]),
    ("device=gpu", ["for device: 'gpu'", "'cpu', 'cuda' or 'cuda:N', or None"]),
    ("base_run_name=runs/first", ["for base_run_name: 'runs/first'", "without /"]),
    ("seed=-1", ["for seed: -1", "an integer from 0 to 9,223,372,036,854,775,807, or None"]),
    ("temperature=0", ["for temperature: 0", "a number above 0"]),
    ("gen_smooth_label=1.5", ["for gen_smooth_label: 1.5", "True, False or a number in [0, 1)"]),
    ("datas=", ["for datas: ''", "a list of corpus names or paths"]),
    ("datas=None", ["for datas: None", "a list of corpus names or paths"]),
    ("revisions=main", ["for revisions: 'main'", "{corpus: commit, branch or tag of its hub dataset}"]),
    ("revisions={'docs': 'main'}", ["for revisions: {'docs': 'main'}", "the corpora openwebtext, wikipedia, bookcorpus"]),
    ("revisions={'openwebtext': 1}", ["for revisions: {'openwebtext': 1}", "commit, branch or tag"]),
    ("vocab=100", ["for vocab: 100", "a hub tokenizer, the path of a vocab.txt, or a vocabulary size of at least 200"]),
    ("steps=1.5", ["for steps: 1.5", "an integer from 1 to 1,000,000,000, or None"]),
    ("steps=True", ["for steps: True", "an integer from 1 to 1,000,000,000, or None"]),
    ("bs=0", ["for bs: 0", "an integer from 1 to 1,000,000,000, or None"]),
    ("lr=fast", ["for lr: 'fast'", "a number above 0, or None"]),
    ("max_length=1024", ["for max_length: 1024", "from 8 to 512"]),
    ("mask_prob=15", ["for mask_prob: 15", "a number between 0 and 1"]),
])
def test_an_invalid_override_raises_with_key_value_and_choices(argument, expected):
    with pytest.raises(PlainError) as error:
        c.override([argument])
    assert not [fragment for fragment in expected if fragment not in str(error.value)]
    assert "\n" not in str(error.value)


def test_the_first_cell_is_checked_like_the_command_line():
    with pytest.raises(PlainError, match="for size: 'huge'.*'small'"):
        MyConfig({**c, "size": "huge"})
    with pytest.raises(PlainError, match="'sise'.*Did you mean 'size'"):
        MyConfig({**c, "sise": "base"})
    with pytest.raises(PlainError, match="Missing key: 'schedule'.*'original_linear'"):
        MyConfig({key: value for key, value in c.items() if key != "schedule"})


def test_keys_are_attributes_and_checked_when_set():
    config = c.copy_with({})
    config.size = "base"
    assert config.size == config["size"] == "base" and c.size == "small"
    with pytest.raises(PlainError, match="for size: 'huge'"):
        config.size = "huge"
    assert not hasattr(config, "sise")


def test_a_suggestion_replaces_the_list_of_keys():
    with pytest.raises(PlainError) as error:
        c.override(["lrr=1"])
    assert str(error.value) == "Unknown key: 'lrr'. Did you mean 'lr'?"


def test_the_defaults_are_the_vanilla_run_of_electra_small():
    vanilla = dict(size="small", datas=["openwebtext"], base_run_name="vanilla", quickstart=False, schedule="original_linear",
                   sampling="fp32_gumbel", temperature=1., electra_mask_style=True, adam_bias_correction=False,
                   gen_smooth_label=False, disc_smooth_label=False)
    config = completed()
    assert {key: config[key] for key in vanilla} == vanilla


# The appendix of the paper; small++: Google's released model; tiny: this project.
@pytest.mark.parametrize("size, bs, lr, max_length, mask_prob, steps, warmup_steps", [
    ("small", 128, 5e-4, 128, .15, 1_000_000, 10_000),
    ("base", 256, 2e-4, 512, .15, 766_000, 10_000),
    ("large", 2048, 2e-4, 512, .25, 400_000, 10_000),
    ("small++", 128, 5e-4, 512, .15, 4_000_000, 10_000),
    ("tiny", 64, 3e-4, 32, .15, 3_000, 300),
])
def test_size_selects_the_settings_of_its_recipe(size, bs, lr, max_length, mask_prob, steps, warmup_steps):
    config = completed(f"size={size}")
    assert (config.bs, config.lr, config.max_length, config.mask_prob) == (bs, lr, max_length, mask_prob)
    assert (config.steps, config.warmup_steps) == (steps, warmup_steps)


@pytest.mark.parametrize("argument, value", [
    ("bs=32", 32), ("lr=3e-4", 3e-4), ("max_length=64", 64), ("mask_prob=.3", .3), ("steps=2000", 2000), ("warmup_steps=0", 0),
])
def test_an_explicit_value_replaces_that_of_the_recipe(argument, value):
    assert completed("size=base", argument)[argument.partition("=")[0]] == value


@pytest.mark.parametrize("arguments, warmup_steps", [
    (["steps=100_000"], 1000),
    (["steps=50"], 0),
    (["size=tiny", "steps=500"], 50),
    (["steps=100_000", "warmup_steps=7"], 7),
    (["warmup_steps=20_000"], 20_000),
])
def test_warmup_keeps_its_share_of_the_steps_unless_set(arguments, warmup_steps):
    assert completed(*arguments).warmup_steps == warmup_steps


def test_quickstart_replaces_only_its_keys():
    config = completed("quickstart=True")
    assert (config.size, config.datas, config.vocab, config.base_run_name) == ("tiny", ["docs"], 8192, "quickstart")
    assert config.steps == 3000 and config.schedule == completed().schedule and config.seed == c.seed


# size=small is the default, but here the user sets it
@pytest.mark.parametrize("argument, value", [
    ("size=small", "small"), ("datas=texts", ["texts"]), ("vocab=500", 500), ("base_run_name=mine", "mine"), ("steps=10", 10)])
def test_quickstart_keeps_overridden_keys(argument, value):
    key = argument.partition("=")[0]
    expected = {"size": "tiny", "datas": ["docs"], "vocab": 8192, "base_run_name": "quickstart", key: value}
    config = completed("quickstart=True", argument)
    assert {name: config[name] for name in expected} == expected


def test_seed_none_draws_a_seed():
    drawn = [completed("seed=None").seed for _ in range(3)]
    assert len(set(drawn)) == 3 and all(0 <= seed < 2 ** 32 for seed in drawn)
    assert completed("seed=5").seed == 5


@pytest.mark.parametrize("arguments, expected", [
    (["micro_batch=32", "bs=16"], ["micro_batch=32", "bs=16"]),
    (["warmup_steps=2000", "steps=1000"], ["warmup_steps=2000", "steps=1000"]),
    (["size=tiny", "warmup_steps=3001"], ["warmup_steps=3001", "steps=3000"]),
    (["masking=official", "mask_prob=.05", "max_length=16"], ["mask_prob=0.05", "max_length=16"]),
    (["initial_weights=x.pth", "steps=9"], ["initial_weights='x.pth'", "Set lr, warmup_steps"]),
    (["initial_weights=google/electra-small-discriminator", "lr=1e-4", "steps=9", "warmup_steps=2", "vocab=9000"],
     ["initial_weights=", "vocab=9000"]),
])
def test_contradicting_values_raise_with_both_keys(arguments, expected):
    with pytest.raises(PlainError) as error:
        completed(*arguments)
    assert not [fragment for fragment in expected if fragment not in str(error.value)]


def test_a_micro_batch_that_divides_the_batch_is_accepted():
    assert completed("micro_batch=32").micro_batch == 32


def test_a_logger_that_is_not_installed_raises(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PlainError, match="logger='wandb'.*pip install wandb"):
        completed("logger=wandb")


@pytest.mark.parametrize("argument, value", [
    ("tasks=cola", ["cola"]),
    ("tasks=cola,rte", ["cola", "rte"]),
    ("tasks=['stsb']", ["stsb"]),
    ("seeds=1,2", [1, 2]),
    ("seeds=7", [7]),
    ("seeds=[3]", [3]),
    ("seeds=None", None),
    ("pretrained_checkpoint=None", None),
    ("pretrained_checkpoint=google/electra-small-discriminator", "google/electra-small-discriminator"),
    ("th_run=3", 3),
    ("th_run=[0,2]", [0, 2]),
    ("th_run={'rte': [0, 2], 'cola': 1}", {"rte": [0, 2], "cola": 1}),
    ("task_overrides={'rte': {'lr': 2e-5, 'epochs': 5, 'bs': 16, 'rows': 100}}", {"rte": {"lr": 2e-5, "epochs": 5, "bs": 16, "rows": 100}}),
    ("weight_decay=0", 0.),
    ("group_name=2026", "2026"),
    ("glue_dir=my/glue", "my/glue"),
])
def test_overrides_of_finetuning(argument, value):
    key = argument.partition("=")[0]
    config = finetune.c.override([argument])
    assert config[key] == value and type(config[key]) is type(value)
    assert all(config[other] == finetune.c[other] for other in finetune.c if other != key)


@pytest.mark.parametrize("argument, expected", [
    ("steps=5", ["'steps'", "quickstart, device, start, end"]),
    ("lr=1e-4", ["'lr'", "task_overrides={'rte': {'lr': 2e-5,"]),
    ("epochs=2", ["'epochs'", "task_overrides="]),
    ("bs=16", ["'bs'", "task_overrides="]),
    ("task=rte", ["'task'", "Did you mean 'tasks'?"]),
    ("tasks=cola,sst", ["for tasks: 'cola,sst'", "cola, sst2, mrpc"]),
    ("tasks=cola,cola", ["for tasks: ", "two tasks are called 'cola'"]),
    ("tasks=ax", ["for tasks: 'ax'"]),
    ("tasks=[]", ["for tasks: []"]),
    ("tasks=[['cola']]", ["for tasks: [['cola']]"]),
    ("tasks=3", ["for tasks: "]),
    ("seeds=a,b", ["for seeds: ", "integers"]),
    ("seeds=[1.5]", ["for seeds: [1.5]"]),
    ("seeds=True", ["for seeds: True"]),
    ("seeds=[-1]", ["for seeds: [-1]"]),
    ("end=0", ["for end: 0", "from 1 to"]),
    ("start=-1", ["for start: -1"]),
    ("th_run=best", ["for th_run: 'best'", "a run, a list of runs"]),
    ("th_run=[]", ["for th_run: []"]),
    ("th_run={'rte': 'a'}", ["for th_run: "]),
    ("task_overrides={'rte': 3}", ["for task_overrides: ", "'epochs': count"]),
    ("task_overrides={'rte': {'size': 3}}", ["for task_overrides: "]),
    ("task_overrides={'rte': {'epochs': 0}}", ["for task_overrides: "]),
    ("task_overrides={'rte': {'epochs': 2.5}}", ["for task_overrides: "]),
    ("task_overrides={'rte': {'lr': -1}}", ["for task_overrides: "]),
    ("task_overrides=[1]", ["for task_overrides: "]),
    ("group_name=a/b", ["for group_name: 'a/b'"]),
    ("weight_decay=1", ["for weight_decay: 1"]),
    ("size=medium", ["for size: 'medium'", "'small'"]),
])
def test_an_invalid_override_of_finetuning_raises_with_key_value_and_choices(argument, expected):
    with pytest.raises(PlainError) as error:
        finetune.c.override([argument])
    assert not [fragment for fragment in expected if fragment not in str(error.value)], error.value
    assert "\n" not in str(error.value)


def finetuning(*arguments):
    return complete_finetuning(finetune.c.override(arguments))


def test_derived_values_of_finetuning():
    assert finetuning().max_length == 128 and finetuning("size=base").max_length == 512
    assert finetuning("pretrained_checkpoint=None").max_length == finetuning("pretrained_checkpoint=some/model").max_length == 512
    assert finetuning("pretrained_checkpoint=None", "max_length=64").max_length == 64
    assert finetuning().group_name == "vanilla_11081_100.0%"
    assert finetuning("pretrained_checkpoint=a/b/").group_name == "b"
    assert finetuning("pretrained_checkpoint=a/b/discriminator").group_name == "b_discriminator"
    assert finetuning("pretrained_checkpoint=google/electra-small-discriminator").group_name == "electra-small-discriminator"
    assert finetuning("quickstart=True", "pretrained_checkpoint=a/b").group_name == "b"
    assert finetuning("pretrained_checkpoint=None", "size=base").group_name == "electra_base_google"
    quick = finetuning("quickstart=True", "end=1")
    assert (quick.size, quick.end, quick.group_name, quick.glue_dir) == ("tiny", 1, "quickstart", "datasets/quickstart_glue")
    assert quick.pretrained_checkpoint == "quickstart_11081_100.0%.pth"
    assert finetuning("quickstart=True", "wsc_trick=True").wsc_dir == "datasets/quickstart_glue/WSC"


@pytest.mark.parametrize("arguments, expected", [
    (["start=3", "end=3"], "start=3 and end=3 select no run"),
    (["seeds=1,2", "end=3"], "seeds has 2 entries, but the last run is 2"),
    (["wsc_dir=x"], "wsc_dir='x' is only used with wsc_trick=True"),
])
def test_contradicting_values_of_finetuning_raise(arguments, expected):
    with pytest.raises(PlainError, match=expected):
        finetuning(*arguments)


def test_lmtuners_protocol_sets_runs_and_tasks_except_overridden_ones():
    c = finetuning("protocol=lmtuners")
    assert (c.end, c.start_from_mnli, "wnli" in c.tasks, len(c.tasks)) == (5, True, False, 8)
    given = finetuning("protocol=lmtuners", "end=2", "tasks=cola,rte")
    assert (given.end, given.tasks) == (2, ["cola", "rte"])


def test_the_defaults_of_finetuning_are_those_of_the_paper():
    c = finetuning()
    assert (c.start, c.end, c.weight_decay, c.double_unordered, c.original_lr_layer_decays) == (0, 10, 0., True, True)
    rates = {size: (recipe.glue_lr, recipe.layer_decay, recipe.glue_length) for size, recipe in RECIPES.items()}
    assert rates["small"] == (3e-4, .8, 128) and rates["base"] == (1e-4, .8, 512) and rates["large"] == (5e-5, .9, 512)
    assert {name: task.epochs for name, task in TASKS.items() if task.epochs != 3} == {"rte": 10, "stsb": 10}
    assert {name for name, task in TASKS.items() if task.unordered} == {"mrpc", "stsb"}
