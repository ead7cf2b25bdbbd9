"""Encoding, layer-wise learning rates, steps and metrics of finetuning against recorded values of both originals
(F37-F47).
"""
import re

import datasets
import numpy as np
import pytest
from recorded import GOLDEN, recorded
from transformers import ElectraConfig, ElectraModel

from _utils.networks import layer_groups
from _utils.recipes import RECIPES
from _utils.tasks.glue import TASKS
from _utils.tasks.rows import EncodedRows, Window, finetuning_dataloaders
from _utils.tasks.settings import Settings
from _utils.text.vocabulary import from_vocab_file, tokenizer_from_tokens
from finetune import encode, get_layer_lrs, tokenize_sents_max_len, truncated_lengths

NUMBERS = recorded("official/finetuning_numbers.json")


def test_encoding_matches_electra_pytorch():
    tokenizer = from_vocab_file(GOLDEN / "electra_pytorch/vocab2000.txt")
    examples = recorded("electra_pytorch/tokenize_sents_max_len.json")
    assert {(row["swap"], row["cols"]) for row in examples} >= {(True, 2), (False, 2), (False, 1)}
    for row in examples:
        cols = [key for key in row if key.startswith("sentence")]
        example = {col: row[col] for col in cols}
        encoded = tokenize_sents_max_len(example, cols, row["max_len"], row["swap"], hf_tokenizer=tokenizer)
        assert encoded == {**example, **{name: row[name] for name in ("inp_ids", "attn_mask", "token_type_ids")}}


@pytest.mark.parametrize("name, cols", [("featurize_pair_L32", ["a", "b"]), ("featurize_single_L16", ["a"])])
def test_encoding_matches_google_except_for_padding(name, cols):
    examples = recorded("official/featurize.json")
    ids = examples["vocabulary"]  # the tokens of these texts in BERT's vocabulary
    tokens = [f"[unused{i}]" for i in range(max(ids.values()) + 1)]
    for token, i in ids.items():
        tokens[i] = token
    tokenizer = tokenizer_from_tokens(tokens)
    assert len(examples[name]) >= 3
    for row in examples[name]:
        encoded = tokenize_sents_max_len(row, cols, len(row["input_ids"]), hf_tokenizer=tokenizer)
        n = sum(row["input_mask"])
        assert encoded["inp_ids"] == row["input_ids"][:n] and not any(row["input_ids"][n:])
        assert encoded["token_type_ids"] == row["segment_ids"][:n] and encoded["attn_mask"] == [1] * n


def test_truncation_of_pairs_matches_google():
    for a, b, kept_a, kept_b in NUMBERS["truncate_pair_lengths"]:
        assert truncated_lengths(a, b, 32 - 3) == (kept_a, kept_b)


def test_recipe_google_swaps_pairs_before_truncation():
    """D12: of two texts that are equally long, the second one is cut, which is the first one of the table."""
    tokenizer = from_vocab_file(GOLDEN / "electra_pytorch/vocab2000.txt")
    pair = {"sentence1": "one two three four five six", "sentence2": "in the house of a man"}
    rows = datasets.Dataset.from_list([pair | {"label": 1}])
    for recipe, is_equal in (("google", True), (None, False)):
        settings = Settings(recipe=recipe, max_length=10, double_unordered=True)
        encoded = encode(TASKS["mrpc"], rows, tokenizer, settings, training=True)
        swapped = tokenize_sents_max_len(pair, ["sentence2", "sentence1"], 10, hf_tokenizer=tokenizer)
        ids, _, types, labels = encoded.batch(np.array([1]))
        assert (ids.tolist() == [swapped["inp_ids"]]) == is_equal
        assert types.tolist() == [swapped["token_type_ids"]] or not is_equal
        assert labels.tolist() == [1]


def test_layer_lrs_match_electra_pytorch():
    settings = recorded("electra_pytorch/layer_lrs.json")
    assert len(settings) >= 6
    for setting, lrs in settings.items():
        lr, decay, layers, as_original = re.search(
            r"lr=(.*),decay=(.*),layers=(.*),original_lr_layer_decays=(.*)", setting
        ).groups()
        assert get_layer_lrs(float(lr), float(decay), int(layers), as_original == "True") == pytest.approx(
            lrs, rel=1e-12
        )


@pytest.mark.parametrize("size", ["small", "base", "large"])
def test_learning_rates_of_all_parameters_match_google(size):
    expected, recipe = recorded("official/layer_lrs.json")[size], RECIPES[size]
    # Only the depth matters, so a narrow model saves memory.
    model = ElectraModel(
        ElectraConfig(
            vocab_size=20,
            embedding_size=4,
            hidden_size=8,
            num_hidden_layers=recipe.encoder.layers,
            num_attention_heads=2,
            intermediate_size=8,
        )
    )
    lrs = get_layer_lrs(1., recipe.layer_decay, recipe.encoder.layers)
    assert recipe.layer_decay == expected["decay"]
    for lr, group in zip(lrs, layer_groups(model)):
        for name, _ in group:
            place = (
                "/embeddings_project/"
                if "embeddings_project" in name
                else "/embeddings/"
                if "embeddings" in name
                else f"encoder/layer_{re.search(r'layer.([0-9]+).', name)[1]}/"
            )
            assert lr == pytest.approx(expected["by_key"][place]), name
    assert lrs[-1] == expected["by_key"]["task_specific/"] and len(lrs) == recipe.encoder.layers + 2


def test_numbers_of_steps_match_google():
    for row in NUMBERS["train_steps"]:
        encoded = EncodedRows([([Window([1], [0])], 1)] * row["n"], [0] * row["n"])
        dls = finetuning_dataloaders(encoded, [], row["batch"], 0, "cpu")
        assert len(dls.train) * row["epochs"] == row["steps"]


def test_metrics_match_google():
    scorers = NUMBERS["scorers"]
    results = {name: dict(values) for name, values in scorers["results"].items()}
    logits = [[0., 1.] if label else [1., 0.] for label in scorers["p"]]
    assert 100 * TASKS["rte"].scores.score(logits, scorers["y"])["accuracy"] == pytest.approx(
        results["AccuracyScorer"]["accuracy"]
    )
    matthews = TASKS["cola"].scores.score(logits, scorers["y"])["matthews"]
    assert 100 * matthews == pytest.approx(results["MCCScorer"]["mcc"])
    metrics = TASKS["stsb"].scores.score(scorers["pr"], scorers["yt"])
    assert {name: 100 * value for name, value in metrics.items()} == pytest.approx(
        {name: results["RegressionScorer"][name] for name in ("spearman", "pearson")})
