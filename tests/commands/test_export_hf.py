"""Exporting checkpoints to transformers folders, and loading these folders again (export_hf, load_pair,
load_pretrained).
"""
import itertools
import shutil
from types import SimpleNamespace
from typing import get_args

import pytest
import torch
import transformers
from fastcore.foundation import L
from hub_repositories import DISCRIMINATOR, GENERATOR
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from tiny_finetuning import table_row
from tiny_pretraining import save_fresh
from tokenizer_kinds import tokens_by_id
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    BertModel,
    LongformerConfig,
    LongformerModel,
    ModernBertConfig,
    ModernBertModel,
    RoFormerConfig,
    RoFormerModel,
)

import finetune
from _utils.commands.export_hf import export_hf
from _utils.custom.questions import QuestionOptions, Questions
from _utils.custom.tagging import Tagging
from _utils.custom.task_kinds import KINDS
from _utils.errors import UserError
from _utils.finetuning.config import FINETUNE_KEYS
from _utils.finetuning.model import save_finetuned
from _utils.networks import load_pair, load_pretrained
from _utils.networks.build import PARTS, network_class
from _utils.networks.pretrained import SELECTED_BY, load_with_head, network_of
from _utils.runs.checkpoints import load_checkpoint
from _utils.tasks.glue import TASKS
from _utils.tasks.predictor import head_options
from _utils.tasks.settings import Settings

IDS = torch.tensor([[2, 40, 41, 42, 3, 43, 44, 3], [2, 50, 51, 3, 0, 0, 0, 0]])
SMALL = dict(vocab_size=400, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
SEGMENTS = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1], [0] * 8])


@torch.no_grad()
def output(model):
    return model.eval()(IDS, attention_mask=(IDS > 0).long(), token_type_ids=SEGMENTS)


def assert_same_outputs(pair, other, tolerance=0):
    for networks in zip(*(load_pair(str(folder), "tiny") for folder in (pair, other))):
        torch.testing.assert_close(*(output(network).logits for network in networks), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("part", PARTS)
def test_the_folder_contains_the_network_its_tokenizer_and_a_card(exported, fresh_checkpoint, small_tokenizer, part):
    folder, name = exported / part, "ElectraForMaskedLM" if part == "generator" else "ElectraForPreTraining"
    assert {path.name: path.stat().st_mode & 0o044 for path in folder.iterdir()} == dict.fromkeys(
        ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "README.md"], 0o044)
    original = network_of(load_checkpoint(fresh_checkpoint), part, fresh_checkpoint)
    assert output(getattr(transformers, name).from_pretrained(folder)).logits.equal(output(original).logits)
    encoder = AutoModel.from_pretrained(folder)
    assert output(encoder).last_hidden_state.equal(output(original.electra).last_hidden_state)
    assert encoder.config.layer_norm_eps == 1e-12 and f"{name}.from_pretrained" in (folder / "README.md").read_text()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "The Generator replaces some words of the text", "uncommonly!"
    assert tokenizer(*text) == small_tokenizer(*text) and tokenizer.model_max_length == 32  # as in pretraining
    assert tokenizer.mask_token_id == 4


def test_half_precision_halves_the_files_and_hardly_changes_the_weights(exported, fresh_checkpoint, tmp_path):
    export_hf(str(fresh_checkpoint), str(tmp_path / "half"), half=True)
    full, half = (folder / "discriminator/model.safetensors" for folder in (exported, tmp_path / "half"))
    assert half.stat().st_size < .52 * full.stat().st_size
    assert_same_outputs(exported, tmp_path / "half", tolerance=2e-3)


def test_half_precision_keeps_the_angles_of_rotary_positions(small_tokenizer, tmp_path):
    path = save_fresh(tmp_path / "mini_0_100.0%.pth", small_tokenizer, "size=mini")
    export_hf(str(path), str(tmp_path / "half"), half=True)
    half, full = load_file(tmp_path / "half/discriminator/model.safetensors"), load_checkpoint(path)["model"]
    [name] = [name for name in half if "embed_positions" in name]
    assert half[name].equal(full[f"discriminator.{name}"])


def test_a_pair_with_different_embeddings_raises(exported, tmp_path):
    mixed = shutil.copytree(exported, tmp_path / "mixed")
    other = network_class("generator", "electra").from_pretrained(exported / "generator")
    torch.nn.init.normal_(other.electra.embeddings.position_embeddings.weight)
    other.save_pretrained(mixed / "generator")
    with pytest.raises(UserError, match="position_embeddings.weight"):
        load_pair(str(mixed), "tiny")


def finetuned(folder, fresh_checkpoint, task=TASKS["cola"], model=None, **more):
    """(path, model) of a checkpoint as finetune.py writes it, with a new output layer. more: for the row of the run."""
    pretrained = load_pretrained(str(fresh_checkpoint), "tiny")
    torch.manual_seed(1)
    settings = {"own_task": task.as_data(), "max_length": 24, **more.pop("settings", {})}
    predictor = task.head.network(SimpleNamespace(encoder=lambda: model) if model else pretrained, Settings(**settings),
                                  finetune.SentencePredictor)
    for parameter in predictor.classifier.parameters():
        torch.nn.init.normal_(parameter, std=.1)
    row = table_row(task.name, settings=settings, **more)
    save_finetuned(folder / f"{task.name}.pth", predictor, pretrained.hf_tokenizer, row)
    return folder / f"{task.name}.pth", predictor


TAGGING = Tagging("mine", "mine", ("text",), ("0", "1", "2"))
LINEAR_QUESTIONS = Questions("q", "q", ("question", "context"),
                             questions=QuestionOptions(joint=False, answerability=False))
INTENTS = KINDS["multilabel"]("intents", "intents", ("text",), (*map("intent {}".format, range(300)),))
ENCODERS = {"electra": lambda: None, "roformer": lambda: RoFormerModel(RoFormerConfig(**SMALL)),
            "bert": lambda: BertModel(BertConfig(**SMALL)),
            "longformer": lambda: LongformerModel(LongformerConfig(**SMALL, attention_window=8)),
            "modernbert": lambda: ModernBertModel(ModernBertConfig(**SMALL, pad_token_id=0))}


@pytest.mark.parametrize("task, family", [
    (TASKS["mnli"], "electra"), (TASKS["stsb"], "electra"), (TASKS["mnli"], "roformer"),
    (TAGGING, "bert"), (INTENTS, "electra")])
def test_an_exported_classifier_computes_the_same_logits(tmp_path, fresh_checkpoint, task, family):
    path, original = finetuned(tmp_path, fresh_checkpoint, task, model=ENCODERS[family]())
    export_hf(str(path), str(tmp_path / "out"))
    kind = AutoModelForTokenClassification if task.kind == "tagging" else AutoModelForSequenceClassification
    loaded = kind.from_pretrained(tmp_path / "out/classifier")
    with torch.no_grad():
        expected = original.eval()(IDS, (IDS > 0).long(), SEGMENTS)
    tolerance = 1e-3 if task is INTENTS else 1e-5
    torch.testing.assert_close(output(loaded).logits.squeeze(-1), expected, atol=tolerance, rtol=0)
    assert tuple(loaded.config.id2label.values()) == (task.labels or ("score",))


def test_scores_of_recipe_google_are_in_the_unit_of_the_labels(tmp_path, fresh_checkpoint):
    """Its network predicts a fifth of the score (F45)."""
    path, original = finetuned(tmp_path, fresh_checkpoint, TASKS["stsb"], settings={"recipe": "google"})
    export_hf(str(path), str(tmp_path / "out"))
    exported = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out/classifier")
    with torch.no_grad():
        scores = 5 * original.eval()(IDS, (IDS > 0).long(), SEGMENTS)
    torch.testing.assert_close(output(exported).logits.squeeze(-1), scores, atol=1e-5, rtol=0)
    rows = SimpleNamespace(mean=lambda logits: logits)
    torch.testing.assert_close(finetune.load(path, "cpu").task.head.outputs(rows, scores / 5), scores)


def values_of(key):
    """All values of a key of the configuration, and one more where these are words."""
    kind = FINETUNE_KEYS[key].accepts
    return (False, True) if kind is bool else (*get_args(kind), "another")


def test_each_setting_of_the_network_is_exported_or_refused(tmp_path, fresh_checkpoint):
    of_network, refused = [*head_options(Settings(), ["pooling"])], []
    settings = [(key, value) for key in of_network for value in values_of(key)]
    for key, value in settings:
        path, original = finetuned(tmp_path, fresh_checkpoint, settings={key: value})
        folder = tmp_path / f"{key}_{value}"
        try:
            export_hf(str(path), str(folder))
        except UserError as error:
            refused.append(value)
            assert f"{key}={value}" in str(error)
        else:
            exported = AutoModelForSequenceClassification.from_pretrained(folder / "classifier")
            with torch.no_grad():
                expected = original.eval()(IDS, (IDS > 0).long(), SEGMENTS)
            torch.testing.assert_close(output(exported).logits, expected, atol=1e-5, rtol=0)
    assert len(of_network) == 3 and refused == ["mean", "another"]


class Squared(finetune.SentencePredictor):
    """An edit of `forward`, with the same weights."""

    def forward(self, *inputs):
        return super().forward(*inputs).square()


def test_an_edited_predictor_is_not_exported_and_its_checkpoint_is_recognized(
        tmp_path, fresh_checkpoint, monkeypatch, capsys):
    with monkeypatch.context() as edit:
        edit.setattr(finetune, "SentencePredictor", Squared)
        path, _ = finetuned(tmp_path, fresh_checkpoint)
        with pytest.raises(UserError, match="SentencePredictor"):
            export_hf(str(path), str(tmp_path / "out"))
        finetune.load(path)
        assert not capsys.readouterr().err
    finetune.load(path)
    assert "SentencePredictor" in capsys.readouterr().err


@pytest.mark.parametrize("task", [TASKS["cola"], TASKS["rte"]])
def test_a_classifier_of_texts_that_are_truncated_otherwise_is_not_exported(
        tmp_path, fresh_checkpoint, monkeypatch, task):
    path, _ = finetuned(tmp_path, fresh_checkpoint, task)
    monkeypatch.setattr(finetune, "truncated_lengths", lambda *lengths_and_room: (5, 1))
    with pytest.raises(UserError, match="encode"):
        export_hf(str(path), str(tmp_path / "out"))


def test_an_activation_that_the_exported_head_cannot_have_is_refused(tmp_path, fresh_checkpoint):
    path, _ = finetuned(tmp_path, fresh_checkpoint, model=RoFormerModel(RoFormerConfig(**SMALL, hidden_act="tanh")))
    with pytest.raises(UserError, match="activation"):
        export_hf(str(path), str(tmp_path / "out"))


@pytest.mark.parametrize("scale", [(1e6, 3e4), (30007., 4.)])
def test_weights_that_half_precision_cannot_hold_are_refused(tmp_path, fresh_checkpoint, scale):
    """Infinite, or so coarse that scores would change by a quarter of their standard deviation or more."""
    task = KINDS["regression"]("price", "price", ("text",), scale=scale)
    path, _ = finetuned(tmp_path, fresh_checkpoint, task)
    with pytest.raises(UserError, match="--half"):
        export_hf(str(path), str(tmp_path / "out"), half=True)
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize("options", [dict(zip(("joint", "answerability", "answerable_from_start"), values))
                                     for values in itertools.product((False, True), repeat=3)])
def test_each_output_layer_of_questions_is_exported_or_refused(tmp_path, fresh_checkpoint, options):
    task = Questions("q", "q", ("question", "context"), questions=QuestionOptions(**options))
    path, original = finetuned(tmp_path, fresh_checkpoint, task)
    if options["joint"] or options["answerability"]:
        with pytest.raises(UserError, match="joint"):
            export_hf(str(path), str(tmp_path / "out"))
        return
    export_hf(str(path), str(tmp_path / "out"))
    exported = output(AutoModelForQuestionAnswering.from_pretrained(tmp_path / "out/classifier"))
    original.base_model.eval()  # without dropout, but with the logits that are the outputs in training
    with torch.no_grad():
        inputs = IDS, (IDS > 0).long(), SEGMENTS
        logits = original(*inputs, torch.ones_like(IDS), torch.zeros(2, dtype=torch.long))[..., :IDS.shape[1]]
    expected = torch.stack([exported.start_logits, exported.end_logits], dim=1)
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_checkpoints_that_cannot_be_exported_raise(tmp_path, fresh_checkpoint):
    bert, _ = finetuned(tmp_path, fresh_checkpoint, model=ENCODERS["bert"]())
    wnli, _ = finetuned(tmp_path, fresh_checkpoint, TASKS["wnli"], settings={"wsc_trick": True})
    longformer, _ = finetuned(tmp_path, fresh_checkpoint, LINEAR_QUESTIONS, model=ENCODERS["longformer"]())
    torch.save({"weights": torch.ones(1)}, tmp_path / "other.pth")
    for path, message in ((bert, "bert"), (wnli, "WSC"), (longformer, "longformer model for questions"),
                          (tmp_path / "other.pth", "other.pth")):
        with pytest.raises(UserError, match=message):
            export_hf(str(path), str(tmp_path / "out"))
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize("task, message", [(TAGGING, "head.dense"), (LINEAR_QUESTIONS, "qa_outputs")])
def test_a_class_of_transformers_with_more_layers_is_refused(tmp_path, fresh_checkpoint, task, message):
    """ModernBERT's has a layer before the output layer, whose weights would be random."""
    path, _ = finetuned(tmp_path, fresh_checkpoint, task, model=ENCODERS["modernbert"]())
    with pytest.raises(UserError, match=message):
        export_hf(str(path), str(tmp_path / "out"))
    assert not list(tmp_path.glob("*out*"))


def test_a_checkpoint_of_electra_pytorch_is_exported(fresh_checkpoint, small_tokenizer, exported, tmp_path):
    path, vocab, out = tmp_path / "vanilla_11081_100.0%.pth", tmp_path / "vocab.txt", tmp_path / "out"
    weights = dict(load_checkpoint(fresh_checkpoint)["model"])
    for part in PARTS:
        weights[f"{part}.electra.embeddings.position_ids"] = torch.arange(512)[None]
    optimizer = {"state": [{"step": 3, "grad_avg": torch.ones(2)}], "hypers": L({"lr": 1e-4, "wd": .01})}
    torch.save({"model": weights, "opt": optimizer}, path, pickle_protocol=2)
    with pytest.raises(UserError, match="--vocab"):
        export_hf(str(path), str(out))
    vocab.write_text("\n".join(tokens_by_id(small_tokenizer)))
    export_hf(str(path), str(out), vocab=str(vocab))
    assert_same_outputs(exported, out)
    assert AutoTokenizer.from_pretrained(out / "discriminator").get_vocab() == small_tokenizer.get_vocab()


def exported_card(checkpoint, folder, part, **options):
    """The model card of a part of a checkpoint, exported to a folder, as the hub's library reads it."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    torch.save(checkpoint, folder / "run_5_50.0%.pth")
    export_hf(str(folder / "run_5_50.0%.pth"), str(folder / "out"), **options)
    return ModelCard.load(folder / "out" / part / "README.md", ignore_metadata_errors=False)


def test_cards_have_metrics_but_no_local_folders(fresh_checkpoint, tmp_path):
    checkpoint = load_checkpoint(fresh_checkpoint)
    checkpoint["config"] |= {"datas": ["openwebtext", "/home/secret/texts", "~/secret/*.txt", "secret/texts",
                                       "a/secret/*.txt"],
                             "vocab": "../secret/vocab.txt", "upload_to": "s3://secret/runs"}
    checkpoint["held-out metrics"] = {"disc_auc": .75}
    path, _ = finetuned(tmp_path, fresh_checkpoint, pretrained_checkpoint="/home/secret/mine", objective=None)
    for content, part, task, shown in ((checkpoint, "generator", "fill-mask", "0.75"),
                                       (checkpoint, "discriminator", None, "texts"),
                                       (load_checkpoint(path), "classifier", "text-classification", "0.875")):
        card = exported_card(content, tmp_path, part)
        assert shown in card.text and card.data.pipeline_tag == task and "secret" not in card.content


def test_a_card_has_what_the_page_of_a_pretrained_model_shows(fresh_checkpoint, tmp_path):
    checkpoint = load_checkpoint(fresh_checkpoint)
    checkpoint["config"] |= {"datas": ["openwebtext", "wikipedia"], "revisions": {}}
    shown = exported_card(checkpoint, tmp_path, "generator", license="cc-by-4.0").data.to_dict()
    assert shown == {"library_name": "transformers", "tags": ["electra"], "pipeline_tag": "fill-mask",
                     "datasets": ["Skylion007/openwebtext", "wikimedia/wikipedia"], "language": "en",
                     "license": "cc-by-4.0"}
    checkpoint["config"] |= {"datas": ["someone/texte:news", "own/folder"], "revisions": {"someone/texte": "0" * 40},
                             "initial_weights": DISCRIMINATOR}
    shown = exported_card(checkpoint, tmp_path, "generator", language="de").data
    assert (shown.datasets, shown.language, shown.license) == (["someone/texte"], "de", None)
    assert shown.base_model == GENERATOR


def test_a_card_names_what_was_trained(fresh_checkpoint, tmp_path):
    """The family of networks that are not the recipe's, and no generator that was not loaded."""
    checkpoint = load_checkpoint(fresh_checkpoint)
    checkpoint["config"] |= {"size": "small", "initial_weights": DISCRIMINATOR, "new_generator": True}
    card = exported_card(checkpoint, tmp_path, "generator")
    assert "ELECTRA-small" not in card.text and card.data.base_model == DISCRIMINATOR


def test_the_objective_of_an_earlier_training_is_not_exported(fresh_checkpoint, tmp_path):
    checkpoint = load_checkpoint(fresh_checkpoint)
    checkpoint["discriminator_config"] |= {SELECTED_BY: {"objective": "electric"}}
    exported_card(checkpoint, tmp_path, "discriminator")
    assert load_with_head(str(tmp_path / "out/discriminator"), "discriminator").run == {}


def test_a_card_has_the_scores_of_a_finetuned_model(fresh_checkpoint, tmp_path):
    scores = {"scores": {"validation": {"matthews": .5, "accuracy": .75}}, "pretrained_checkpoint": DISCRIMINATOR}
    path, _ = finetuned(tmp_path, fresh_checkpoint, **scores)
    data = exported_card(load_checkpoint(path), tmp_path, "classifier").data
    found = {(result.dataset_type, result.dataset_config, result.dataset_split, result.metric_type,
              result.metric_value) for result in data.eval_results}
    assert found == {("nyu-mll/glue", "cola", "validation", "matthews_correlation", .5),
                     ("nyu-mll/glue", "cola", "validation", "accuracy", .75)}
    assert data.metrics == ["matthews_correlation", "accuracy"] and data.datasets == ["nyu-mll/glue"]
    assert (data.base_model, data.language, data.license) == (DISCRIMINATOR, "en", None)
    path, _ = finetuned(tmp_path, fresh_checkpoint, TAGGING, **scores)
    data = exported_card(load_checkpoint(path), tmp_path, "classifier").data
    assert {result.dataset_type for result in data.eval_results} == {"mine"} and not data.datasets
