"""Scoring minimal pairs: the scores of sentences, accuracies and standard errors, the command's files, and invalid input."""
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from tiny_families import FAMILIES
from transformers import AlbertConfig, AutoModelForMaskedLM, AutoModelForTokenClassification

import pretrain
from _utils.__main__ import main
from _utils.commands.export_hf import export_hf
from _utils.config import complete
from _utils.errors import PlainError
from _utils.networks import load_with_head, replaced_logits
from _utils.runs.checkpoints import save_pretrained
from benchmarks.minimal_pairs import accuracy_by_paradigm, load_models, minimal_pairs, read_pairs, report, score, summarize

CPU = torch.device("cpu")
SENTENCES = ["The generator replaces some words.", "the words replaces some generator.", "A network.", "A network,", "THE words",
             "Each sentence has been written for this purpose, with common and uncommon letters.", "In 1843 the ¤ paper was read aloud:"]


def pair(good, bad, paradigm="order_1", phenomenon="order", field="syntax"):
    return {"sentence_good": good, "sentence_bad": bad, "field": field, "linguistics_term": phenomenon, "UID": paradigm, "pairID": "0"}


def write(path, pairs):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("\n".join(map(json.dumps, pairs)) + "\n")


@pytest.fixture
def blimp(tmp_path, monkeypatch):
    """A working directory with a folder of four paradigms of three phenomena. The last pair has twice the same tokens."""
    monkeypatch.chdir(tmp_path)
    a, b, c, d, *_ = SENTENCES
    write("blimp/order_1.jsonl", [pair(a, b), pair(a, c)])
    write("blimp/order_2.jsonl", [pair(a, d, "order_2"), pair(c, b, "order_2")])
    write("blimp/marks.jsonl", [pair(c, d, "marks", "punctuation", "morphology"), pair(d, b, "marks", "punctuation", "morphology")])
    write("blimp/case.jsonl", [pair("the words", "THE words", "case", "case", "syntax/semantics")])
    return tmp_path / "blimp"


@pytest.fixture(scope="module")
def masked_lm_checkpoint(small_tokenizer, tmp_path_factory):
    """Path of a checkpoint of a masked language model without a discriminator."""
    c = complete(pretrain.c.override(["quickstart=True", "objective=mlm"]))
    path = tmp_path_factory.mktemp("mlm") / "mlm_0_100.0%.pth"
    save_pretrained(path, pretrain.build_model(c, small_tokenizer), c, small_tokenizer, step=0)
    return path


def scores(name, part=None, sentences=SENTENCES):
    model = load_with_head(str(name), part)
    return score(model, sentences, CPU, "")


@torch.no_grad()
def plain_score(model, sentence):
    """The score of one sentence, computed as directly as possible."""
    ids = torch.tensor([[2, *model.hf_tokenizer(sentence, add_special_tokens=False).input_ids, 3]])
    network, inner = model.network.eval(), range(1, ids.shape[1] - 1)
    if model.part == "discriminator":
        replaced = replaced_logits(network(ids)).sigmoid()[0]
        return sum((1 - replaced[i]).log().item() for i in inner)
    total = 0
    for i in inner:
        masked = ids.clone()
        masked[0, i] = 4
        total += network(masked).logits[0, i].log_softmax(-1)[ids[0, i]].item()
    return total


@pytest.mark.parametrize("part", ["discriminator", "generator"])
def test_scores_equal_a_plain_computation(fresh_checkpoint, part, monkeypatch):
    monkeypatch.setattr("benchmarks.minimal_pairs.TOKENS_PER_BATCH", {"cpu": 40})  # several batches, also within one sentence
    sentences = [*SENTENCES, ""]
    found = scores(fresh_checkpoint, part, sentences)
    assert found == pytest.approx({sentence: plain_score(load_with_head(str(fresh_checkpoint), part), sentence)
                                   for sentence in sentences}, rel=1e-5)
    assert len(set(found.values())) == len(sentences)


def test_an_exported_folder_has_the_scores_of_its_checkpoint(fresh_checkpoint, masked_lm_checkpoint, exported, tmp_path):
    export_hf(str(masked_lm_checkpoint), str(tmp_path / "mlm"))
    for part, checkpoint, folder in (("discriminator", fresh_checkpoint, exported), ("generator", fresh_checkpoint, exported),
                                     ("generator", masked_lm_checkpoint, tmp_path / "mlm")):
        expected = pytest.approx(scores(checkpoint, part), rel=1e-5)
        assert scores(folder, part) == expected and scores(folder / part) == expected
    assert load_with_head(str(masked_lm_checkpoint)).part == "generator"
    with pytest.raises(PlainError, match="no discriminator, only a generator"):
        load_with_head(str(masked_lm_checkpoint), "discriminator")


@pytest.mark.parametrize("family", FAMILIES)
def test_masked_language_models_of_every_family(family, small_tokenizer, tmp_path):
    torch.manual_seed(0)
    AutoModelForMaskedLM.from_config(FAMILIES[family]).save_pretrained(tmp_path)
    small_tokenizer.save_pretrained(tmp_path)
    model = load_with_head(str(tmp_path))
    assert model.part == "generator"
    assert scores(tmp_path) == pytest.approx({sentence: plain_score(model, sentence) for sentence in SENTENCES}, rel=1e-4)


def test_a_token_classifier_with_two_labels_is_a_discriminator(small_tokenizer, tmp_path):
    for labels in (2, 3):
        config = AlbertConfig(**FAMILIES["albert"].to_dict())
        config.num_labels = labels
        AutoModelForTokenClassification.from_config(config).save_pretrained(tmp_path / str(labels))
        small_tokenizer.save_pretrained(tmp_path / str(labels))
    model = load_with_head(str(tmp_path / "2"))
    assert model.part == "discriminator" and scores(tmp_path / "2") == scores(tmp_path / "2", "discriminator")
    assert scores(tmp_path / "2") == pytest.approx({text: plain_score(model, text) for text in SENTENCES}, rel=1e-4)
    with pytest.raises(PlainError, match="lacks an output layer with two labels"):
        load_with_head(str(tmp_path / "3"))
    with pytest.raises(PlainError, match="not a generator: it lacks predictions"):
        load_with_head(str(tmp_path / "2"), "generator")


def test_weights_without_a_head_are_refused(exported, tmp_path):
    shutil.copytree(exported / "discriminator", tmp_path / "pair/discriminator")
    for name, part, message in [
            (exported / "discriminator", "generator", "lacks generator_lm_head.bias"),
            (exported / "generator", "discriminator", "lacks discriminator_predictions.dense.bias"),
            (tmp_path / "pair", "generator", "pair' has no folder generator/"),
            (tmp_path, None, f"{tmp_path}.*Pass a transformers folder")]:
        with pytest.raises(PlainError, match=message):
            load_with_head(str(name), part)


def accuracies(pairs, score_of):
    return accuracy_by_paradigm(pairs, {"model": score_of})["model"]


def test_accuracy_counts_correct_pairs_and_half_of_the_ties(blimp):
    pairs = read_pairs(blimp)
    a, b, c, d, *_ = SENTENCES
    found = accuracies(pairs, {a: 4, b: 1, c: 4, d: 2, "the words": 1, "THE words": 1})
    assert found.to_dict() == {("morphology", "punctuation", "marks"): 100, ("syntax", "order", "order_1"): 75,
                               ("syntax", "order", "order_2"): 100, ("syntax_semantics", "case", "case"): 50}


def test_standard_errors_come_from_the_spread_between_paradigms(blimp):
    table = accuracy_by_paradigm(read_pairs(blimp), {})
    table["model"] = [40., 60., 80., 20.]  # marks, order_1, order_2, case
    means, errors = summarize(table)
    assert [*means.index] == [("morphology", "punctuation"), ("syntax", "order"), ("syntax_semantics", "case"), ("overall", "")]
    assert means["model"].tolist() == [40, 70, 20, 50]
    deviation = (2000 / 3) ** .5
    assert errors["model"].tolist() == pytest.approx([deviation, deviation / 2 ** .5, deviation, deviation / 2])


def test_two_correct_pairs_have_a_wide_interval():
    pairs = pd.DataFrame({"field": "f", "phenomenon": "p", "paradigm": "u", "good": ["a", "c"], "bad": ["b", "d"]})
    text = report(accuracy_by_paradigm(pairs, {"model": {"a": 2, "b": 1, "c": 2, "d": 1}}))
    assert "100.0 (34.2 to 100.0)" in text and "2 pairs, paradigms: 1)" in text  # Wilson: n / (n + 1.96 ** 2)


def test_own_pairs_need_only_two_sentences(fresh_checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    a, b, c, d, *_ = SENTENCES
    write("own.jsonl", [{"sentence_good": a, "sentence_bad": b}, {"sentence_good": c, "sentence_bad": d, "id": 7}])
    main(["minimal_pairs", str(fresh_checkpoint), "own.jsonl", "--device", "cpu", "--csv", "own.csv"])
    assert "95 % interval" in capsys.readouterr().out
    assert pd.read_csv("own.csv", index_col=[0, 1, 2]).index.tolist() == [("own",) * 3]
    expected, table = scores(fresh_checkpoint), pd.read_csv("own_scores.csv")
    assert table["good"].tolist() == [a, c] and table["bad"].tolist() == [b, d]
    for side, texts in (("good", [a, c]), ("bad", [b, d])):
        assert table[f"fresh_0_100.0%, {side}"].tolist() == pytest.approx([expected[text] for text in texts], abs=1e-4)


def test_the_sentences_of_a_text_file_are_scored(fresh_checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("own.txt").write_text("\n\n".join(SENTENCES) + "\n", encoding="utf-8")
    main(["minimal_pairs", str(fresh_checkpoint), "own.txt", "--device", "cpu"])
    assert SENTENCES[2] in capsys.readouterr().out
    table = pd.read_csv("checkpoints/minimal_pairs_scores.csv")
    assert [*table["sentence"]] == SENTENCES
    assert dict(zip(SENTENCES, table["fresh_0_100.0%, sentence"])) == pytest.approx(scores(fresh_checkpoint), abs=1e-4)
    Path("empty.txt").write_text(" \n")
    with pytest.raises(PlainError, match="empty.txt contains no sentences"):
        minimal_pairs(["missing.pth"], "empty.txt")


def test_the_command_prints_a_table_and_writes_the_paradigms(fresh_checkpoint, masked_lm_checkpoint, blimp, capsys):
    main(["minimal_pairs", str(fresh_checkpoint), str(masked_lm_checkpoint), "--untrained", str(blimp), "--device", "cpu"])
    text = capsys.readouterr().out
    names = ["fresh_0_100.0%", "fresh_0_100.0%, untrained", "mlm_0_100.0%", "mlm_0_100.0%, untrained"]
    assert "7 pairs, paradigms: 4" in text and all(name in text for name in names)
    table = pd.read_csv("checkpoints/minimal_pairs.csv", index_col=[0, 1, 2])
    assert [*table.columns] == ["pairs", *names] and table["pairs"].tolist() == [2, 2, 2, 1]
    expected = accuracies(read_pairs(blimp), scores(fresh_checkpoint, sentences=[*SENTENCES, "the words"]))
    assert table["fresh_0_100.0%"].tolist() == expected.tolist()
    assert table.loc[("syntax_semantics", "case", "case"), names].tolist() == [50] * 4


def test_untrained_networks_depend_on_the_seed_only(fresh_checkpoint, tmp_path):
    def weights(seed):
        _, untrained = load_models([str(fresh_checkpoint)], untrained_seed=seed).values()
        return untrained.network.electra.encoder.layer[0].output.dense.weight
    assert weights(0).equal(weights(0)) and not weights(0).equal(weights(1))
    other = shutil.copy(fresh_checkpoint, tmp_path)
    assert [*load_models([str(fresh_checkpoint), other])] == ["fresh_0_100.0%", other]  # equal file names


def test_an_untrained_network_is_near_chance_on_blimp(fresh_checkpoint, shared):
    pairs = read_pairs(shared / "data/blimp").groupby("paradigm").head(10)
    untrained = load_models([str(fresh_checkpoint)], untrained_seed=1)["fresh_0_100.0%, untrained"]
    score_of = score(untrained, [*pairs["good"], *pairs["bad"]], CPU, "")
    means, errors = summarize(accuracy_by_paradigm(pairs, {"model": score_of}))
    [mean], [error] = means.loc["overall", "model"], errors.loc["overall", "model"]
    assert abs(mean - 50) < 3 * error < 18
    phenomena = [phenomenon for _, phenomenon in means.index[:-1]]
    assert len(phenomena) == len(set(phenomena)) == 13 and ("semantics", "npi_licensing") in means.index  # whose paradigms have two fields


GOOD = json.dumps(pair("a", "b"))


@pytest.mark.parametrize("content, message", [
    (None, "No pairs found in 'pairs.jsonl'.*the strings sentence_good and sentence_bad and"),
    (f"{GOOD}\n\n{GOOD[:-4]}", "pairs.jsonl, line 3 is not valid JSON .*Expected"),
    (GOOD.replace("sentence_bad", "bad"), "pairs.jsonl, line 1 has no string 'sentence_bad'. Expected")])
def test_invalid_files_raise(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("pairs.jsonl").write_text(content)
    with pytest.raises(PlainError, match=message):
        minimal_pairs(["missing.pth"], "pairs.jsonl")
    assert not Path("checkpoints").exists()


@pytest.mark.parametrize("arguments, message", [
    ("missing.pth blimp", "Checkpoint not found: 'missing.pth'"),
    ("blimp --csv checkpoints", "Invalid value for --csv: 'checkpoints'"),
    ("long.jsonl", "602 is more than the 512 positions of 'fresh_0")])
def test_invalid_arguments_raise_and_write_nothing(fresh_checkpoint, blimp, arguments, message):
    write("long.jsonl", [pair("words " * 600, "b")])
    with pytest.raises(PlainError, match=message):
        main(["minimal_pairs", str(fresh_checkpoint), *arguments.split()])
    assert not Path("checkpoints").exists()
