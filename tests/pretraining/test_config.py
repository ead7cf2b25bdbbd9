"""MyConfig, `key=value` overrides, --help, and the values that `complete` derives from recipe and quickstart."""
import re
from types import SimpleNamespace

import pytest

import finetune
import pretrain
from _utils.config import MyConfig, complete
from _utils.errors import UserError
from _utils.finetuning.config import complete_finetuning, for_checkpoint
from _utils.recipes import RECIPES
from _utils.tasks.glue import TASKS
from pretrain import c


def completed(*arguments):
    return complete(c.override(arguments))


def finetuning(*arguments):
    return complete_finetuning(finetune.c.override(arguments))


def assert_contains(config, expected):
    assert {key: config[key] for key in expected} == expected


def assert_raises(expected, function, *arguments):
    """The call raises a UserError on one line that contains the expected fragments."""
    with pytest.raises(UserError) as error:
        function(*arguments)
    assert not [fragment for fragment in expected if fragment not in str(error.value)], error.value
    assert "\n" not in str(error.value)


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
    "vocab=my/vocab.txt": "my/vocab.txt",
    "vocab=3e4": 30000,
    "milestones=50,100": [50., 100.],
    "steps=1e6": 1_000_000,
    "lr=1": 1.,
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
    "sise=base": ["'size'"], "--steps=100": ["'steps'"], "steps": ["key=value"], "size=huge": ["'small'", "'base'"],
    "quickstart=1": ["True or False"], "device=gpu": ["'cuda'"], "base_run_name=runs/first": ["without /"],
    "revisions={'docs': 'main'}": ["openwebtext"], "vocab=100": ["200"], "milestones=50,0": ["above 0"],
    "steps=1.5": ["an integer"], "lr=fast": ["a number above 0"], "max_length=1024": ["512"],
    "mask_prob=15": ["between 0 and 1"]}
INVALID_FINETUNING = {
    "lr=1e-4": ["task_overrides"], "task=rte": ["'tasks'"], "tasks=cola,sst": ["sst2"], "seeds=a,b": ["integers"],
    "end=0": ["an integer"], "th_run=best": ["a list of runs"], "task_overrides={'rte': {'size': 3}}": ["'epochs'"],
    "task_overrides={'rte': {'lr': -1}}": ["'lr'"]}


@pytest.mark.parametrize("config, argument, expected", for_both(INVALID_PRETRAINING, INVALID_FINETUNING))
def test_an_invalid_override_raises_with_key_value_and_choices(config, argument, expected):
    key, _, value = argument.partition("=")
    assert_raises([key, value if key in config else "", *expected], config.override, [argument])


def test_keys_are_checked_when_set_and_in_the_first_cell():
    config = c.copy_with({})
    config.size = "base"
    assert config.size == config["size"] == "base"
    with pytest.raises(UserError):
        config.size = "huge"
    assert_raises(["size", "'huge'", "'small'"], MyConfig, {**c, "size": "huge"})
    assert_raises(["'learning_rate'", "'lr'"], MyConfig, {**c, "learning_rate": 1e-3})
    assert MyConfig({}).schedule is None


@pytest.mark.parametrize("script", [pretrain, finetune])
def test_help_has_every_key_with_default_comment_and_accepted_values(scripts, script, repo, tmp_path):
    path = repo / f"{script.__name__}.py"
    done = scripts.run(path.name, ["--help"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and not list(tmp_path.iterdir())
    blocks = {block.partition("=")[0]: block for block in re.split(r"\n\n(?=\w+=)", done.stdout)}
    for key, value in script.c.items():
        first, *lines = blocks[key].strip().split("\n")
        assert first == f"{key}={value}"
        assert re.search(r"\S.* Accepts ", " ".join(lines))


def test_the_defaults_are_the_vanilla_run_of_electra_small():
    vanilla = dict(
        size="small",
        datas=["openwebtext"],
        base_run_name="vanilla",
        quickstart=False,
        schedule="original_linear",
        sampling="fp32_gumbel",
        temperature=1.0,
        electra_mask_style=True,
        adam_bias_correction=False,
        gen_smooth_label=False,
        disc_smooth_label=False,
    )
    assert_contains(completed(), vanilla)


def test_google_as_recipe_sets_masking_and_initial_weights_unless_they_are_set():
    assert_contains(completed("recipe=google"), {"masking": "official", "initial_weights": "official"})
    assert_contains(
        completed("recipe=google", "masking=bernoulli"), {"masking": "bernoulli", "initial_weights": "official"}
    )


# The appendix of the paper; small++: Google's released model; tiny, quickstart: this project.
@pytest.mark.parametrize("size, bs, lr, max_length, mask_prob, steps, warmup_steps", [
    ("small", 128, 5e-4, 128, .15, 1_000_000, 10_000),
    ("base", 256, 2e-4, 512, .15, 766_000, 10_000),
    ("large", 2048, 2e-4, 512, .25, 400_000, 10_000),
    ("small++", 128, 5e-4, 512, .15, 4_000_000, 10_000),
    ("tiny", 64, 3e-4, 32, .15, 3_000, 300),
    ("quickstart", 32, 2e-3, 48, .25, 1_500, 60),
])
def test_size_selects_the_settings_of_its_recipe(size, bs, lr, max_length, mask_prob, steps, warmup_steps):
    config = completed(f"size={size}")
    assert (config.bs, config.lr, config.max_length, config.mask_prob) == (bs, lr, max_length, mask_prob)
    assert (config.steps, config.warmup_steps) == (steps, warmup_steps)


@pytest.mark.parametrize("arguments, warmup_steps", [
    (["steps=100_000"], 1000), (["size=tiny", "steps=500"], 50), (["steps=100_000", "warmup_steps=7"], 7),
    (["steps=100_000", "warmup_steps=.05"], 5000), (["steps=100_000", "warmup_steps=0"], 0),
])
def test_warmup_keeps_its_share_of_the_steps_unless_set(arguments, warmup_steps):
    assert completed(*arguments).warmup_steps == warmup_steps


# size=small is the default, but here the user sets it
@pytest.mark.parametrize("changes", [{}, {"size": "small"}, {"datas": ["texts"], "vocab": 500, "steps": 10}])
def test_quickstart_replaces_only_its_keys_unless_overridden(changes):
    config = completed("quickstart=True", *(f"{key}={value}" for key, value in changes.items()))
    of_quickstart = {
        "size": "quickstart",
        "datas": ["docs"],
        "vocab": 2000,
        "base_run_name": "quickstart",
        "adam_bias_correction": True,
    }
    assert_contains(config, {**of_quickstart, "schedule": "original_linear", "seed": c.seed, **changes})


@pytest.mark.parametrize("derive, arguments, expected", [
    (completed, ["micro_batch=32", "bs=16"], ["micro_batch=32", "bs=16"]),
    (completed, ["size=tiny", "warmup_steps=3001"], ["warmup_steps=3001", "steps=3000"]),
    (completed, ["steps=100", "minutes=10"], ["steps=100", "minutes=10"]),
    (completed, ["steps=100", "stop_at=101"], ["stop_at=101", "steps=100"]),
    (completed, ["initial_weights=google/electra-small-discriminator", "generator_layers=.5"],
     ["initial_weights=", "generator_layers=0.5"]),
    (completed, ["vocab=mine/tokenizer", "cased=True"], ["cased=True", "vocab='mine/tokenizer'"]),
    (finetuning, ["start=3", "end=3"], ["start=3", "end=3"]),
    (finetuning, ["seeds=1,2", "end=3"], ["seeds", "2 entries"]),
    (finetuning, ["tasks=cola", "th_run={'rte': 1}"], ["th_run", "'rte'", "cola"]),
    (finetuning, ["task_overrides={'nli': {'lr': 1}}"], ["task_overrides", "'nli'", "mnli"]),
    (finetuning, ["freeze=True", "wsc_trick=True"], ["freeze=True", "wsc_trick=True"]),
])
def test_contradicting_values_raise_with_both_keys(derive, arguments, expected):
    assert_raises(expected, derive, *arguments)


QUICK = {"group_name": "quickstart", "glue_dir": "datasets/quickstart_glue",
         "pretrained_checkpoint": "quickstart_11081_100.0%.pth", "wsc_dir": "datasets/quickstart_glue/WSC"}


@pytest.mark.parametrize("arguments, expected", [
    ([], {"group_name": "vanilla_11081_100.0%"}),
    (["pretrained_checkpoint=some/model"], {"group_name": "model"}),
    (["pretrained_checkpoint=a/b/discriminator"], {"group_name": "b_discriminator"}),
    (["pretrained_checkpoint=None", "size=base"], {"group_name": "electra_base_google"}),
    (["pretrained_checkpoint=None"], {"group_name": "electra_small_google"}),
    (["quickstart=True", "end=1", "wsc_trick=True"], {**QUICK, "end": 1}),
])
def test_derived_values_of_finetuning(arguments, expected):
    assert_contains(finetuning(*arguments), expected)


@pytest.mark.parametrize("name, size, arguments, expected", [
    ("a.pth", "small", [], {"size": "small", "max_length": 128}),
    ("a.pth", "base", [], {"size": "base", "max_length": 512}),
    ("a.pth", "small", ["max_length=64", "size=base"], {"size": "base", "max_length": 64}),
    ("some/model", "small", [], {"size": "small", "max_length": 512}),
])
def test_size_and_length_follow_from_the_checkpoint(name, size, arguments, expected):
    model = SimpleNamespace(base_model=None, config=SimpleNamespace(max_position_embeddings=512))
    assert_contains(
        for_checkpoint(finetuning(*arguments), SimpleNamespace(name=name, size=size, model=model)), expected
    )


def test_the_defaults_of_finetuning_are_those_of_the_paper():
    c = finetuning()
    assert (c.start, c.end, c.weight_decay, c.double_unordered, c.original_lr_layer_decays) == (0, 10, 0., True, True)
    rates = {size: (recipe.glue_lr, recipe.layer_decay, recipe.glue_length) for size, recipe in RECIPES.items()}
    assert rates["small"] == (3e-4, .8, 128) and rates["base"] == (1e-4, .8, 512) and rates["large"] == (5e-5, .9, 512)
    assert {name: task.epochs for name, task in TASKS.items() if task.epochs != 3} == {"rte": 10, "stsb": 10}
    assert {name for name, task in TASKS.items() if task.unordered} == {"mrpc", "stsb"}
