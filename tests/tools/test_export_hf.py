"""Exporting checkpoints to transformers folders, and loading these folders again (export_hf, load_pair, load_pretrained)."""
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from fastcore.foundation import L
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    BertModel,
    RoFormerConfig,
    RoFormerModel,
)

import finetune
import pretrain
from _utils.commands.export_hf import export_hf, new_folder
from _utils.config import complete
from _utils.errors import PlainError
from _utils.networks import load_pair, load_pretrained
from _utils.networks.build import PARTS, network_class
from _utils.networks.pretrained import network_of
from _utils.objectives.kinds import NAMES
from _utils.runs.checkpoints import load_checkpoint, save_pretrained
from _utils.runs.log import Run
from _utils.tasks.glue import TASKS
from _utils.tasks.kinds import KINDS
from _utils.tasks.tagging import Tagging
from benchmarks.minimal_pairs import load_models

IDS = torch.tensor([[2, 40, 41, 42, 3, 43, 44, 3], [2, 50, 51, 3, 0, 0, 0, 0]])
SMALL = dict(vocab_size=400, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
SEGMENTS = torch.tensor([[0, 0, 0, 0, 0, 1, 1, 1], [0] * 8])


@torch.no_grad()
def output(model):
    return model.eval()(IDS, attention_mask=(IDS > 0).long(), token_type_ids=SEGMENTS)


@torch.no_grad()
def logits_of(predictor):
    return predictor.eval()(IDS, (IDS > 0).long(), SEGMENTS)


@pytest.mark.parametrize("part", PARTS)
def test_the_folder_contains_the_network_its_tokenizer_and_a_card(exported, fresh_checkpoint, small_tokenizer, part):
    files = {path.name: path.stat().st_mode & 0o044 for path in (exported / part).iterdir()}
    assert files == dict.fromkeys(["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "README.md"], 0o044)
    original, loaded = network_of(load_checkpoint(fresh_checkpoint), part, fresh_checkpoint), AutoModel.from_pretrained(exported / part)
    assert output(network_class(part, "electra").from_pretrained(exported / part)).logits.equal(output(original).logits)
    assert output(loaded).last_hidden_state.equal(output(original.electra).last_hidden_state)
    assert loaded.config.layer_norm_eps == 1e-12
    card = (exported / part / "README.md").read_text()
    name = "ElectraForMaskedLM" if part == "generator" else "ElectraForPreTraining"
    assert "held-out metrics" not in card  # the run has none
    assert '"seed": 11081' in card and '"transformers"' in card and f"{name}.from_pretrained" in card
    tokenizer = AutoTokenizer.from_pretrained(exported / part)
    text = "The Generator replaces some words of the text", "uncommonly!"
    assert tokenizer(*text) == small_tokenizer(*text) and tokenizer.model_max_length == 512
    assert isinstance(tokenizer, transformers.BertTokenizer) and tokenizer.mask_token_id == 4


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["ElectraModel", "ElectraForPreTraining", "ElectraForMaskedLM", "ElectraForSequenceClassification",
                                  "ElectraForTokenClassification", "ElectraForQuestionAnswering", "ElectraForMultipleChoice"])
def test_either_part_loads_into_any_electra_class(exported, part, name):
    loaded = getattr(transformers, name).from_pretrained(exported / part).state_dict()
    saved = load_file(exported / part / "model.safetensors")
    prefix = "" if name == "ElectraModel" else "electra."
    encoder = [key for key in saved if key.startswith("electra.")]
    assert len(encoder) > 30
    for key in encoder:
        assert loaded[prefix + key.removeprefix("electra.")].equal(saved[key]), key
    if name == "ElectraForMaskedLM":  # the output layer stays tied, even if the head is new
        assert loaded["generator_lm_head.weight"].equal(saved["electra.embeddings.word_embeddings.weight"])


def test_half_precision_halves_the_files_and_hardly_changes_the_weights(exported, fresh_checkpoint, tmp_path):
    export_hf(str(fresh_checkpoint), str(tmp_path / "half"), half=True)
    for part in PARTS:
        full, half = (folder / part / "model.safetensors" for folder in (exported, tmp_path / "half"))
        assert half.stat().st_size / full.stat().st_size == pytest.approx(.5, abs=.02)
        assert "from_pretrained(\"PATH\", dtype='float32')" in half.with_name("README.md").read_text()
    for original, loaded in zip(load_pair(str(exported), "tiny", 32), load_pair(str(tmp_path / "half"), "tiny", 32)):
        assert {p.dtype for p in loaded.parameters()} == {torch.float32}
        torch.testing.assert_close(output(loaded).logits, output(original).logits, atol=2e-3, rtol=2e-3)


def test_loading_the_folder_gives_the_same_networks(exported, fresh_checkpoint):
    for original, loaded in zip(load_pair(str(fresh_checkpoint), "tiny", 32), load_pair(str(exported), "tiny", 32)):
        assert all(a.equal(b) for a, b in zip(original.state_dict().values(), loaded.state_dict().values()))
    original, loaded = (load_pretrained(str(name), "tiny", 128) for name in (fresh_checkpoint, exported / "discriminator"))
    assert original.digest == loaded.digest and loaded.hf_tokenizer.get_vocab() == original.hf_tokenizer.get_vocab()


def test_an_invalid_pair_raises(exported, tmp_path):
    mixed, untied, single = (shutil.copytree(exported, tmp_path / name) for name in ("mixed", "untied", "single"))
    other = network_class("generator", "electra").from_pretrained(exported / "generator")
    torch.nn.init.normal_(other.electra.embeddings.position_embeddings.weight)
    other.save_pretrained(mixed / "generator")
    other = network_class("generator", "electra").from_pretrained(exported / "generator", tie_word_embeddings=False)
    torch.nn.init.normal_(other.generator_lm_head.weight)
    other.save_pretrained(untied / "generator")
    shutil.rmtree(single / "generator")
    for load, folder, size, length, message in [
            (load_pair, exported, "small", 32, "Set size=tiny"), (load_pair, exported, "tiny", 513, "512 positions"),
            (load_pair, mixed, "tiny", 32, "not trained together: their position_embeddings.weight"),
            (load_pair, untied, "tiny", 32, "The output layer of .* differs from its token embeddings"),
            (load_pair, single, "tiny", 32, "has no folder generator"),
            (load_pretrained, exported, "tiny", 32, "contains two networks. Set pretrained_checkpoint=.*discriminator"),
            (load_pretrained, exported / "none", "tiny", 32, "there is no such folder")]:
        with pytest.raises(PlainError, match=message):
            load(str(folder), size, length)


def finetuned(folder, fresh_checkpoint, task=TASKS["cola"], model=None):
    """(path, model) of a checkpoint as finetune.py writes it, with a new output layer."""
    pretrained = load_pretrained(str(fresh_checkpoint), "tiny", 128)
    torch.manual_seed(1)
    predictor = task.network(SimpleNamespace(encoder=lambda: model) if model else pretrained, {})
    torch.nn.init.normal_(predictor.classifier.bias)
    path = folder / f"{task.name}.pth"
    row = {"group": "g", "task": task.name, "run": 3, "seed": 3, "scores": {"validation": {"accuracy": 1.}}, "train_rows": 1,
           "synthetic": False, "settings": {"wsc_trick": False, "own_task": task.record()}}
    finetune.save_finetuned(path, predictor, pretrained.hf_tokenizer, row)
    return path, predictor


TAGGING = Tagging("mine", "mine", ("text",), ("0", "1", "2"), is_own=True)
ENCODERS = {"electra": lambda: None, "roformer": lambda: RoFormerModel(RoFormerConfig(**SMALL)),
            "bert": lambda: BertModel(BertConfig(**SMALL)),
            "bert without pooler": lambda: BertModel(BertConfig(**SMALL), add_pooling_layer=False)}


@pytest.mark.parametrize("task, family", [(TASKS["cola"], "electra"), (TASKS["mnli"], "electra"), (TASKS["stsb"], "electra"),
                                          (TASKS["mnli"], "roformer"), (TAGGING, "bert"), (TAGGING, "bert without pooler")])
def test_an_exported_classifier_computes_the_same_logits(tmp_path, fresh_checkpoint, task, family):
    path, original = finetuned(tmp_path, fresh_checkpoint, task, model=ENCODERS[family]())
    export_hf(str(path), str(tmp_path / "half"), half=True)
    export_hf(str(path), str(tmp_path / "out"))
    weights = load_file(tmp_path / "half/classifier/model.safetensors")
    assert {name for name, weight in weights.items() if weight.dtype != torch.float16} == \
        ({"roformer.encoder.embed_positions.weight"} if family == "roformer" else set())
    folder = tmp_path / "out/classifier"
    kind = AutoModelForTokenClassification if task.kind == "tagging" else AutoModelForSequenceClassification
    loaded = kind.from_pretrained(folder)
    torch.testing.assert_close(output(loaded).logits.squeeze(-1), logits_of(original), atol=1e-5, rtol=1e-5)
    assert tuple(loaded.config.id2label.values()) == (task.labels or ("score",))
    assert task.title in (folder / "README.md").read_text()
    if task.kind == "classification":
        [found] = transformers.pipeline("text-classification", model=str(folder))("the text")
        assert found["label"] in task.labels


@pytest.mark.parametrize("family, n, kind", [("electra", 64, "classification"), ("electra", 65, "classification"),
                                             ("electra", 300, "multilabel"), ("roformer", 77, "classification")])
def test_any_number_of_labels_can_be_exported(tmp_path, fresh_checkpoint, family, n, kind):
    """The head of transformers has fewer hidden units than two for each label; in 16 bits it would not be exact enough."""
    intents = KINDS[kind]("intents", "intents", ("text",), (*map("intent {}".format, range(n)),), is_own=True)
    path, original = finetuned(tmp_path, fresh_checkpoint, intents, model=ENCODERS[family]())
    export_hf(str(path), str(tmp_path / "out"))
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out/classifier")
    torch.testing.assert_close(output(loaded).logits, logits_of(original), atol=1e-3, rtol=0)
    if n > 64:
        with pytest.raises(PlainError, match="16 bits"):
            export_hf(str(path), str(tmp_path / "half"), half=True)
        assert not (tmp_path / "half").exists()


def test_checkpoints_that_cannot_be_exported_raise(tmp_path, fresh_checkpoint):
    bert, _ = finetuned(tmp_path, fresh_checkpoint, model=ENCODERS["bert"]())
    wnli, _ = finetuned(tmp_path, fresh_checkpoint, TASKS["wnli"])
    content = load_checkpoint(wnli)
    content["run"]["settings"]["wsc_trick"] = True
    torch.save(content, wnli)
    torch.save({"weights": torch.ones(1)}, tmp_path / "other.pth")
    torch.save({"model": {"generator.electra.x": torch.ones(1)}, "config": {}}, tmp_path / "resume.pth")
    for path, message in {bert: "Cannot export .* bert model", wnli: "Cannot export .* WSC trick",
                          tmp_path / "other.pth": "was not written by pretrain.py", tmp_path / "resume.pth": "only for resuming"}.items():
        with pytest.raises(PlainError, match=message):
            export_hf(str(path), str(tmp_path / "out"))
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize("with_optimizer", [True, False])
def test_a_checkpoint_of_electra_pytorch_is_exported_with_its_vocabulary(fresh_checkpoint, small_tokenizer, exported, tmp_path,
                                                                         with_optimizer):
    path, vocab, out = tmp_path / "vanilla_11081_100.0%.pth", tmp_path / "vocab.txt", tmp_path / "out"
    weights = dict(load_checkpoint(fresh_checkpoint)["model"])
    for part in PARTS:
        weights[f"{part}.electra.embeddings.position_ids"] = torch.arange(512)[None]
    optimizer = {"state": [{"step": 3, "grad_avg": torch.ones(2)}], "hypers": L({"lr": 1e-4, "wd": .01})}
    torch.save({"model": weights, "opt": optimizer} if with_optimizer else weights, path, pickle_protocol=2)
    with pytest.raises(PlainError, match="Pass --vocab"):
        export_hf(str(path), str(out))
    words = small_tokenizer.get_vocab()
    vocab.write_text("\n".join(sorted(words, key=words.get)))
    export_hf(str(path), str(out), vocab=str(vocab))
    for original, loaded in zip(load_pair(str(exported), "tiny", 32), load_pair(str(out), "tiny", 32)):
        assert output(original).logits.equal(output(loaded).logits)
    assert AutoTokenizer.from_pretrained(out / "discriminator").get_vocab() == words


def test_checkpoints_are_found_by_name(fresh_checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, path in (("pretrain", fresh_checkpoint), ("glue", finetuned(tmp_path, fresh_checkpoint)[0])):
        Path("checkpoints", folder).mkdir(parents=True)
        shutil.copy(path, Path("checkpoints", folder, f"{folder}.pth"))
        export_hf(f"{folder}.pth", f"of_{folder}")
    assert Path("of_pretrain/generator").is_dir() and Path("of_glue/classifier").is_dir()


def exported_card(checkpoint, folder, part, name="run_5_50.0%.pth"):
    """The model card of a part of a checkpoint with changes, exported to a folder."""
    torch.save(checkpoint, folder / name)
    shutil.rmtree(folder / "out", ignore_errors=True)
    export_hf(str(folder / name), str(folder / "out"))
    return ModelCard.load(folder / "out" / part / "README.md")


def made_by(card):
    """The JSON of a model card."""
    return json.loads(re.search(r"```json\n(.*)```", card.text, re.DOTALL)[1])


def test_a_pretrained_card_has_metrics_but_no_local_folders(fresh_checkpoint, tmp_path):
    checkpoint = load_checkpoint(fresh_checkpoint)
    checkpoint["config"] |= {"datas": ["openwebtext", "/home/somebody/texts", "~/secret/*.txt"], "vocab": "../secret/vocab.txt",
                             "upload_to": "s3://secret/runs"}
    (tmp_path / "run_5").mkdir()
    row = {"step": checkpoint["step"], "split": "held_out", "gen_loss": 5.5, "gen_accuracy": .25, "disc_auc": .75, "disc_loss": None}
    (tmp_path / "run_5/metrics.jsonl").write_text(json.dumps(row) + "\n")
    other = {**checkpoint, "config": {**checkpoint["config"], "discriminator": {"model_type": "electra"}}}  # not the recipe's
    assert "# electra, generator" in exported_card(other, tmp_path, "generator").text
    lone = {key: value for key, value in checkpoint.items() if not key.startswith("generator")}  # of uniform_generator=True
    assert "masked language" not in exported_card(lone, tmp_path, "discriminator").text
    for part in PARTS:
        card = exported_card(checkpoint, tmp_path, part)
        assert "somebody" not in card.content and "secret" not in card.content and '"texts"' in card.text and '"vocab.txt"' in card.text
        data = card.data
        assert f"# ELECTRA-tiny, {part}" in card.text
        assert (data.library_name, data.tags, data.datasets) == ("transformers", ["electra"], ["Skylion007/openwebtext"])
        assert data.pipeline_tag == ("fill-mask" if part == "generator" else None)
        assert made_by(card)["held-out metrics"] == row


@pytest.mark.parametrize("percent", [100., 6.25, 2.5e-05, 1e-07])
def test_a_card_has_the_metrics_of_any_milestone(fresh_checkpoint, tmp_path, percent):
    checkpoint = load_checkpoint(fresh_checkpoint)
    (tmp_path / "run_5").mkdir()
    (tmp_path / "run_5/metrics.jsonl").write_text(json.dumps({"step": checkpoint["step"], "split": "held_out", "gen_loss": 5.5}) + "\n")
    card = exported_card(checkpoint, tmp_path, "generator", Run("run", 5).milestone(percent).name)
    assert made_by(card)["held-out metrics"]["gen_loss"] == 5.5


VARIANTS = {  # {settings of pretrain.py: (title of the cards, {part in the checkpoint: what its card says})}
    "objective=electra": ("ELECTRA-tiny", {"generator": "by masked language modelling, as the generator",
                                           "discriminator": "by replaced token detection, as the discriminator"}),
    "objective=mlm": ("tiny, masked language model", {"generator": "by masked language modelling."}),
    "objective=electra_15": ("ELECTRA-tiny", {"generator": "by masked language modelling, as the generator",
                                              "discriminator": "by replaced token detection at the masked positions only"}),
    "objective=replace_mlm": ("tiny, Replace MLM", {"generator": "by Replace MLM"}),
    "objective=all_tokens_mlm": ("tiny, All-Tokens MLM", {"generator": "by All-Tokens MLM"}),
    "objective=two_stage": ("ELECTRA-tiny", {"generator": "in two stages", "discriminator": "in two stages"}),
    "objective=adversarial": ("ELECTRA-tiny", {"generator": "by reinforcement learning", "discriminator": "an adversarial generator"}),
    "uniform_generator=True": ("ELECTRA-tiny", {"discriminator": "by replaced token detection with uniformly drawn replacements"})}


def variant(setting, hf_tokenizer, path):
    """Write the checkpoint of an untrained network of a variant."""
    c = complete(pretrain.c.override(["size=tiny", "steps=4", setting]))
    save_pretrained(path, pretrain.build_model(c, hf_tokenizer), c, hf_tokenizer, step=0)


@pytest.mark.parametrize("setting", VARIANTS)
def test_a_card_names_the_objective(small_tokenizer, tmp_path, setting):
    path, (title, texts) = tmp_path / "run_5_50.0%.pth", VARIANTS[setting]
    variant(setting, small_tokenizer, path)
    for part, text in texts.items():
        card = exported_card(load_checkpoint(path), tmp_path, part)
        assert text in card.text and f"# {title}" in card.text


@pytest.mark.parametrize("setting", ["objective=replace_mlm", "objective=all_tokens_mlm"])
def test_a_network_that_has_not_seen_masks_is_not_called_a_masked_language_model(small_tokenizer, tmp_path, setting):
    variant(setting, small_tokenizer, tmp_path / "run.pth")
    card = exported_card(load_checkpoint(tmp_path / "run.pth"), tmp_path, "generator")
    assert "masked language model" not in card.text and card.data.pipeline_tag is None and "no [MASK]" in card.text
    with pytest.raises(PlainError, match="without .MASK"):
        load_models([str(tmp_path / "run.pth")])


def test_every_objective_has_a_text_and_others_are_named(fresh_checkpoint, tmp_path):
    assert {f"objective={objective}" for objective in NAMES} < VARIANTS.keys()
    checkpoint = load_checkpoint(fresh_checkpoint)
    for objective, text in (("mine", "with the objective 'mine'"), (None, "by replaced token detection, as the discriminator")):
        checkpoint["config"]["objective"] = objective
        assert text in exported_card(checkpoint, tmp_path, "discriminator").text
    del checkpoint["config"]["objective"], checkpoint["discriminator_config"]  # of an early version
    assert "Pretrained by masked language modelling." in exported_card(checkpoint, tmp_path, "generator").text


@pytest.mark.parametrize("setting, text", [
    ("objective=electra", "by replaced token detection"), ("objective=mlm", "by masked language modelling."),
    ("objective=replace_mlm", "by Replace MLM"), ("uniform_generator=True", "by replaced token detection with uniformly drawn")])
def test_the_card_of_a_finetuned_model_names_the_objective_of_its_pretraining(small_tokenizer, tmp_path, setting, text):
    path = tmp_path / "run_5_100.0%.pth"
    variant(setting, small_tokenizer, path)
    pretrained = load_pretrained(str(path), "tiny", 128)
    checkpoint = load_checkpoint(finetuned(tmp_path, path)[0])
    checkpoint["run"] |= {"pretrained_checkpoint": str(path), "objective": pretrained.objective}
    card = exported_card(checkpoint, tmp_path, "classifier").text
    assert f"Pretrained {text}" in card
    assert ("# ELECTRA" in card) == ("mlm" not in setting)


@pytest.mark.parametrize("name", ["google/electra-small-discriminator", "/home/somebody/models/mine"])
def test_the_card_of_a_finetuned_model_whose_pretraining_is_not_known_names_that_model(fresh_checkpoint, tmp_path, name):
    checkpoint = load_checkpoint(finetuned(tmp_path, fresh_checkpoint)[0])
    checkpoint["run"] |= {"pretrained_checkpoint": name, "objective": None}
    card = exported_card(checkpoint, tmp_path, "classifier")
    assert f"Pretrained as {name.removeprefix('/home/somebody/models/')}." in card.text and "somebody" not in card.text
    assert "masked language" not in card.text and "replaced token" not in card.text


def test_a_finetuned_card_has_the_dev_scores(fresh_checkpoint, tmp_path):
    checkpoint = load_checkpoint(finetuned(tmp_path, fresh_checkpoint, TASKS["mrpc"])[0])
    checkpoint["run"]["scores"] = {"validation": {"accuracy": .875, "f1": .5}}
    card = exported_card(checkpoint, tmp_path, "classifier")
    assert card.data.pipeline_tag == "text-classification" and "# ELECTRA finetuned on MRPC" in card.text
    assert made_by(card)["run"]["scores"] == {"validation": {"accuracy": .875, "f1": .5}}


def test_existing_files_are_kept_and_partial_folders_deleted(fresh_checkpoint, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("mine")
    with pytest.raises(PlainError, match="already exists"):
        export_hf(str(fresh_checkpoint), str(tmp_path / "out"))
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "new") as folder:
        (Path(folder) / "half").write_text("")
        raise KeyboardInterrupt
    with pytest.raises(PlainError, match="mine.txt' is a file"):
        export_hf(str(fresh_checkpoint), str(tmp_path / "out/mine.txt/out"))
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine.txt"]
