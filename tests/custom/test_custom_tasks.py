"""Custom tasks from their files to predictions, and to a pipeline of transformers; windows, and tagging."""
import random
import re
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
import tokenizers
import torch
import torch.nn.functional as F
from custom_tasks import loaded, predictions, write_csv, write_rows
from tiny_families import FAMILIES
from tiny_finetuning import run_own, table_row
from transformers import AutoModel, PreTrainedTokenizerFast, pipeline

import finetune
from _utils.commands.export_hf import export_hf
from _utils.commands.predict import predict
from _utils.custom.multilabel import MultiLabel
from _utils.custom.tagging import Tagging
from _utils.custom.words import WordRows
from _utils.errors import UserError
from _utils.finetuning.model import load_finetuned, predict_logits
from _utils.finetuning.results import report
from _utils.finetuning.runs import Runs, task_of
from _utils.networks import load_pretrained
from _utils.tasks.rows import EncodedRows, Window, finetuning_dataloaders
from _utils.tasks.settings import Settings
from _utils.tasks.submission import make_zip, read_submission, rows_of
from _utils.tasks.task import Task

WORDS = ("the generator replaces some words of text and discriminator finds every replaced word a small network makes "
         "good guesses").split()
OWN = {"name": "mine", "train": "train.csv"}
CHECKPOINT = "checkpoints/glue/g_mine_0.pth"


@pytest.fixture
def start(fresh_checkpoint, empty_folder):
    """`start(task, "key=value", ..., epochs=1)` finetunes one custom task, by default on train.csv; the Results."""
    write_classes("ab")
    return lambda task=OWN, *overrides, epochs=1, **values: run_own(fresh_checkpoint, task, *overrides, epochs=epochs,
                                                                    **values)


def sentences(n, seed=0):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(n)]


def write_classes(labels):
    """Write train.csv, whose labels take turns."""
    write_csv("train.csv", ("text", "label"), [(text, labels[i % len(labels)]) for i, text in enumerate(sentences(40))])


def exported_pipeline(kind, **options):
    """A pipeline of plain transformers with the first run of the task."""
    export_hf(CHECKPOINT, "exported")
    return pipeline(kind, model="exported/classifier", device="cpu", **options)


def printed_predictions(file, capsys):
    """The cells that the command `predict` prints, without its header, and its notices."""
    capsys.readouterr()
    predict(CHECKPOINT, file)
    printed = capsys.readouterr()
    return [line.split("\t") for line in printed.out.splitlines()[1:]], printed.err


def test_classification_from_csv_to_a_pipeline(start, capsys):
    """Labels are found in the file, and quoted cells may contain anything."""
    topic = lambda text: "nets, big" if "network" in text else "none" if len(text) > 30 else "short \"one\""
    write_csv("train.csv", ("id", "review", "topic"), [(i, text, topic(text)) for i, text in enumerate(sentences(80))])
    tests = [(f"x{i}", f"{text},\n\"quoted\"") for i, text in enumerate(sentences(12, seed=1))]
    write_csv("new.csv", ("id", "review"), tests)
    start(OWN | {"test": "new.csv", "text": "review", "label": "topic"})
    [row] = Runs()
    assert list(row.scores["validation"]) == ["accuracy", "macro_f1"] and row.train_rows == 72
    assert sum(map(sum, row.confusion["validation"])) == 8  # a tenth is the dev set
    assert Path("checkpoints/glue/g/confusion_mine.png").exists() and "nets, big" in report(Runs())
    predicted = pd.read_csv("new.csv").join(predictions())
    assert list(zip(predicted["id"], predicted["review"])) == tests
    texts, model = list(predicted["review"]), finetune.load("g_mine_0.pth")
    labels, probabilities = model.predict(texts)
    assert labels == list(predicted["prediction"]) == [model.labels[i] for i in probabilities.argmax(-1)]
    [first, *_], _ = printed_predictions("new.csv", capsys)
    assert first[:2] == [labels[0], f"{probabilities[0, 0]:.4f}"]
    classify = exported_pipeline("text-classification")
    assert [found["label"] for found in classify(texts)] == labels
    encoder = load_pretrained("exported/classifier", "tiny").encoder().state_dict()  # can be finetuned further
    assert all(torch.equal(weight, model.network.base_model.state_dict()[name]) for name, weight in encoder.items())


def test_regression_from_json_lines_to_a_pipeline(start):
    """Scores of any size are learned: they are standardized for training, and predicted in their own unit."""
    for name, texts in {"train": sentences(120), "new": sentences(10, seed=1)}.items():
        rows = pd.DataFrame({"text": texts, "price": [5000.5 + 10 * len(text) for text in texts]})
        rows.to_json(f"{name}.jsonl", orient="records", lines=True)
    start(OWN | {"train": "train.jsonl", "test": "new.jsonl", "label": "price", "dev": .2}, "keep=best", epochs=2)
    scores, prices = predictions().tolist(), pd.read_json("train.jsonl", lines=True)["price"]
    assert len(scores) == 10 and abs(sum(scores) / 10 - prices.mean()) < 2 * prices.std()
    [row] = Runs()
    assert list(row.scores["validation"]) == ["spearman", "pearson", "rmse", "r2"] and row.best_epoch in (1, 2)
    assert row.baselines["validation"]["rmse"] == pytest.approx(prices.std(), rel=.3)
    found = exported_pipeline("text-classification")(sentences(10, seed=1))
    assert [score["score"] for score in found] == pytest.approx(scores, abs=.05)


def test_pairs_from_parquet_to_a_pipeline(start):
    table = pd.DataFrame({"question": sentences(60), "answer": sentences(60, seed=1), "good": [0, 1, 1] * 20})
    table.to_parquet("qa.parquet")
    table.head(9).drop(columns="good").to_parquet("new.parquet")
    start(OWN | {"train": "qa.parquet", "dev": "qa.parquet", "test": "new.parquet", "text": ["question", "answer"],
                 "label": "good", "metrics": ["f1", "matthews"]})
    assert list(Runs()[0].scores["validation"]) == ["f1", "matthews"]
    pairs = table[["question", "answer"]].head(9).set_axis(["text", "text_pair"], axis=1).to_dict("records")
    exported = exported_pipeline("text-classification")(pairs)
    assert [found["label"] for found in exported] == list(map(str, predictions()))


def test_several_labels_per_text_from_json_lines_to_a_pipeline(start, capsys):
    """A list of labels; a text may have none. Each label applies from a probability of .5."""
    found = lambda text: [label for label in ("network", "word", "text") if label in text]
    for name, texts in {"train": sentences(200), "new": sentences(12, seed=1)}.items():
        write_rows(f"{name}.jsonl", [{"text": text, "label": found(text)} for text in texts])
    start(OWN | {"kind": "multilabel", "train": "train.jsonl", "test": "new.jsonl"}, epochs=10, lr=3e-3, bs=8)
    [row] = Runs()
    assert list(row.scores["validation"]) == ["micro_f1", "macro_f1"]
    assert row.scores["test"]["micro_f1"] > .7 > row.baselines["validation"]["micro_f1"]
    labels, probabilities = finetune.load("g_mine_0.pth").predict(sentences(12, seed=1))
    assert predictions().tolist() == ["|".join(found) for found in labels]
    [first, *_], _ = printed_predictions("new.jsonl", capsys)
    assert first[:2] == ["|".join(labels[0]), f"{probabilities[0, 0]:.4f}"]
    exported = exported_pipeline("text-classification", top_k=None)(sentences(12, seed=1))
    assert [{one["label"] for one in row if one["score"] >= .5} for row in exported] == list(map(set, labels))


@pytest.mark.parametrize("keep", ["best", "last"])
def test_a_run_whose_last_update_diverges_stops_with_a_message(start, keep):
    write_csv("train.csv", ("text", "label"), [(text, len(text) / 4) for text in sentences(20)])
    with pytest.raises(UserError, match="mine"):
        start(OWN | {"metrics": "pearson"}, f"keep={keep}", lr=1e30)  # one update
    assert not Runs()


def test_class_weights_are_balanced(empty_folder):
    write_classes("abbb")
    task, weights = loaded("train.csv", class_weights="balanced").task, (2., 2 / 3)
    assert task.class_weights == pytest.approx(weights)
    logits, targets = torch.randn(2, len(weights)), torch.tensor([0, 1])
    expected = F.cross_entropy(logits, targets, weight=torch.tensor(weights))
    torch.testing.assert_close(task.head.loss()(logits, targets), expected)


LONG = " ".join(WORDS * 3)


@pytest.mark.parametrize("text, notice", [("собака быстро бежит через старый лес", "100%"), (LONG, "max_length=48")])
def test_texts_in_another_language_or_too_long_are_noticed_in_training_and_predictions(start, capsys, text, notice):
    """With the share of tokens that are not in the vocabulary, and the number of long texts. Otherwise nothing is said.
    """
    write_csv("train.csv", ("a", "b", "label"), [(text, text, "xy"[i % 2]) for i in range(40)])
    start(OWN | {"text": ["a", "b"]}, "max_length=48")
    assert notice in capsys.readouterr().out
    for pair, is_noticed in ((f"{text}\t{text}", True), ("the generator\tthe discriminator", False)):
        Path("x.txt").write_text(pair)
        assert (notice in printed_predictions("x.txt", capsys)[1]) == is_noticed


@pytest.mark.parametrize("marker, columns, noticed", [
    ("[SEP]", ["text"], r"20 of 40 .*'\[SEP\]'"),
    ("[MASK]", ["a", "b"], r"20 of 80 .*'\[MASK\]'"), ("[sep]", ["text"], None)])
def test_texts_with_special_tokens_are_counted(start, capsys, marker, columns, noticed):
    others = ["a text"] * (len(columns) - 1)
    rows = [[f"the network {marker * (i % 2)} a word", *others, "ab"[i % 3 % 2]] for i in range(40)]
    write_csv("train.csv", (*columns, "label"), rows)
    start(OWN | {"dev": "train.csv", "text": columns})
    printed = capsys.readouterr().out
    assert re.search(noticed, printed) if noticed else "special tokens" not in printed


def test_the_advice_about_long_texts_is_possible(start, capsys):
    """No longer texts than those of the pretraining, and windows where they apply."""
    write_csv("train.csv", ("text", "label"), [(LONG, "ab"[i % 2]) for i in range(40)])
    start(OWN, "max_length=16")
    printed = capsys.readouterr().out
    assert "max_length (at most 32)" in printed and "window_stride" in printed
    start(OWN, "group_name=h")
    printed = capsys.readouterr().out
    assert "Set max_length" not in printed and "Set window_stride" in printed
    write_csv("train.csv", ("text", "a", "b", "label"), [(LONG, "a word", "the text", i % 2) for i in range(40)])
    start(OWN | {"kind": "choices", "choices": ["a", "b"]}, "group_name=i")
    finetune.load("i_mine_0.pth").predict([(LONG, "a word", "the text")])
    printed, of_predictions = capsys.readouterr()
    assert "Shorten" in printed and "Shorten" in of_predictions and "window_stride" not in printed + of_predictions


def encoded_in_windows(texts, max_length, stride, hf_tokenizer):
    """EncodedRows of one text or pair."""
    names = tuple(f"text{i}" for i in range(len(texts)))
    rows = datasets.Dataset.from_list([{**dict(zip(names, texts)), "label": 0}])
    settings = Settings(max_length=max_length, window_stride=stride)
    return finetune.encode(Task("t", "t", names, ("x", "y")), rows, hf_tokenizer, settings)


@pytest.mark.parametrize("n_words", [(18,), (3,), (3, 18), (18, 3), (18, 18), (18, 0)])
def test_windows_have_all_tokens_of_single_texts_and_pairs(small_tokenizer, n_words):
    texts = [" ".join(WORDS[:n]) for n in n_words]
    encoded = encoded_in_windows(texts, 16, 6, small_tokenizer)
    window_ids, _, types, _ = encoded.batch(range(len(encoded)))
    whole = [small_tokenizer(text, add_special_tokens=False).input_ids for text in texts]
    for i, ids in enumerate(whole):
        assert set(window_ids[types == i].tolist()) - set(small_tokenizer.all_special_ids) == set(ids)
    [length] = encoded.full_lengths
    assert length == len(sum(whole, [])) + 1 + len(texts)
    assert encoded.lengths.max() <= 16 and (len(encoded) > 1) == (length > 16)


def test_windows_of_two_long_texts_overlap(small_tokenizer):
    texts = [" ".join(WORDS[:18])] * 2
    encoded = encoded_in_windows(texts, 16, 8, small_tokenizer)
    n_tokens = sum(encoded.lengths - 3)
    assert n_tokens > 1.3 * (encoded.full_lengths[0] - 3)


def test_positions_that_were_not_trained_and_windows_with_gaps_are_noticed(start, capsys):
    start(OWN, "window_stride=64", "max_length=128")
    assert "max_length=128" in capsys.readouterr().out
    with pytest.raises(UserError, match="window_stride=16"):  # windows that leave out tokens
        start(OWN, "window_stride=16", "max_length=16")


def test_each_window_of_both_orders_of_a_pair_has_the_label_of_its_row(small_tokenizer):
    long = " ".join(WORDS * 2)
    rows = datasets.Dataset.from_dict({"text1": ["the network", long], "text2": [long, "a word"], "label": [0, 1]})
    settings = Settings(max_length=16, double_unordered=True, window_stride=5)
    pair = Task("p", "p", ("text1", "text2"), ("x", "y"), unordered=True)
    encoded = finetune.encode(pair, rows, small_tokenizer, settings, training=True)
    labels = encoded.batch(range(len(encoded)))[3].tolist()
    assert len(encoded.n_windows) == 4 == encoded.n_examples < len(encoded)
    assert labels == [label for label, n in zip([0, 1, 0, 1], encoded.n_windows) for _ in range(n)]
    assert encoded.mean(torch.tensor(labels).float()[:, None]).flatten().tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("kind", [Task, MultiLabel])
def test_the_prediction_of_a_text_is_the_mean_of_the_probabilities_of_its_windows(kind):
    rows = EncodedRows([([Window([2, 3], [0, 0])] * 2, 99)], [0])
    outputs = kind("t", "t", ("text",), ("x", "y")).head.outputs(rows, torch.tensor([[5., -5.], [0., 0.]]))
    torch.testing.assert_close(outputs, torch.tensor([[.75, .25]]), atol=.01, rtol=0)


def write_conll(path, n, seed=0):
    """Sentences in which 'generator' and 'discriminator' are entities, with a word that precedes them."""
    text = "\n\n".join("\n".join(f"{word} {len(word)} O" for word in text.split()) for text in sentences(n, seed))
    text = re.sub(r"(\w+) (\d+) O\n(generator|discriminator) (\d+) O", r"\1 \2 B-NET\n\3 \4 I-NET", text)
    text = re.sub(r"(generator|discriminator) (\d+) O", r"\1 \2 B-NET", text)
    Path(path).write_text(f"-DOCSTART- 0 O\n\n{text}\n")


def test_tagging_from_conll_to_a_pipeline(start, capsys):
    """Every word of the test file gets a tag; a test file with tags is scored too."""
    write_conll("train.txt", 200)
    write_conll("test.txt", 20, seed=1)
    results = start(OWN | {"train": "train.txt", "test": "test.txt"}, epochs=8)
    assert list(Runs()[0].scores["test"]) == ["entity_f1", "accuracy"]
    assert results.scores.loc["mine (test)", "mean"] > 30
    given = [line.split() for line in Path("test.txt").read_text().split("\n")[2:]]
    predicted = [line.split("\t") for line in Path("test_outputs/g/mine.conll").read_text().split("\n")]
    assert [word for word, *_ in predicted] == [line[0] if line else "" for line in given] + [""]
    n = given.index([])  # words of the first sentence
    words, tags = map(list, zip(*predicted[:n]))
    table = pd.DataFrame({"text": [" ".join(words), words, np.array(words), tuple(words)]})  # pandas reads arrays
    assert finetune.load("g_mine_0.pth").predict(table).labels == [tags] * 4
    found = exported_pipeline("token-classification", aggregation_strategy="first")(" ".join(words))
    assert [entity["entity_group"] for entity in found if entity["entity_group"] != "O"] == [
        tag[2:] for tag in tags if tag.startswith("B-")]
    with pytest.raises(UserError, match="test.txt.*conll"):
        predict(CHECKPOINT, "test.txt")
    Path("x.txt").write_text(" ".join(words))
    Path("test.txt").rename("x.conll")
    for name in ("x.txt", "x.conll"):
        capsys.readouterr()
        predict(CHECKPOINT, name)
        lines = [line.split("\t")[:2] for line in capsys.readouterr().out.split("\n")]
        assert lines[:n] == predicted[:n]


def test_a_task_on_character_spans_predicts_spans_of_new_texts(start, capsys):
    """Words and punctuation are the same in training and for every way to predict."""
    rows = [{"text": f"({text})", "label": [[1, 1 + len(text.split()[0]), "FIRST"]]} for text in sentences(60)]
    write_rows("train.jsonl", rows)
    start(OWN | {"kind": "spans", "train": "train.jsonl"}, epochs=6, lr=3e-3, bs=8)
    model, texts = finetune.load("g_mine_0.pth"), ["(network makes guesses)", "(a, b)"]
    assert model.predict(texts).labels == [[[1, 8, "FIRST"]], [[1, 2, "FIRST"]]]
    Path("x.txt").write_text("\n".join(texts))
    assert printed_predictions("x.txt", capsys)[0] == [['[[1, 8, "FIRST"]]', texts[0]], ['[[1, 2, "FIRST"]]', texts[1]]]
    find = exported_pipeline("token-classification", aggregation_strategy="first")
    [entity] = [found for found in find(texts[0]) if found["entity_group"] == "FIRST"]
    assert (entity["start"], entity["end"]) == (1, 8)
    with pytest.raises(UserError, match="'b'"):
        model.predict([["a", "b"]])


def test_custom_tasks_beside_glue_are_neither_in_its_mean_nor_in_the_submission(start, glue):
    write_csv("new.tsv", ("text",), [(text,) for text in sentences(5)])
    small = {name: {"epochs": 1, "rows": 32} for name in ("rte", "mine")}
    start(OWN, f"tasks={['rte', OWN | {'test': 'new.tsv'}]}", f"glue_dir={glue}", f"task_overrides={small}")
    folder = Path("test_outputs/g")
    assert {path.name for path in folder.iterdir()} == {"RTE.tsv", "mine.tsv"}
    assert len(read_submission(make_zip(folder, rows_of(glue), majority_for_missing=True))) == 11
    assert "mean of 1" in report(Runs())


def test_a_finished_run_is_kept_until_the_task_changes(start, capsys):
    own = OWN | {"dev": .5}
    start(own)
    start(own)
    assert "already finished" in capsys.readouterr().out and len(Runs()) == 1
    write_csv("dev.csv", ("text", "label"), [("the text", "a")])
    for override in ("weight_decay=.01", "window_stride=64", "keep=best", "pooling=mean"):
        with pytest.raises(UserError, match=override.partition("=")[0]):
            start(own, override, "end=2")
    for change, named in ({"metrics": "matthews"}, "metrics"), ({"dev": "dev.csv"}, "dev_table"), ({"dev": .2}, "dev"):
        with pytest.raises(UserError, match=named):
            start(own | change)
    write_classes("abc")
    with pytest.raises(UserError, match="'mine'"):
        start(own | {"test": "train.csv"}, "do_finetune=False")


def test_a_checkpoint_of_another_group_is_not_overwritten(start):
    """The names of groups and custom tasks may contain the character between them in the names of checkpoints."""
    start(OWN | {"name": "b_c"}, "group_name=a")
    with pytest.raises(UserError, match="'a_b'.*group_name"):
        start(OWN | {"name": "c"}, "group_name=a_b")


def test_labels_of_the_test_file_may_come_later_and_change(start, capsys):
    """Finished runs are scored on the labels that the test file has now."""
    texts = sentences(20, seed=1)

    def start_with(labels):
        write_csv("new.csv", ("text", "label") if labels else ("text",), zip(texts, labels) if labels else zip(texts))
        return start(OWN | {"test": "new.csv"}).scores
    _, all_a, all_b, unlabelled = map(start_with, ("", "a" * 20, "b" * 20, ""))
    assert all_a.loc["mine (test)", "mean"] + all_b.loc["mine (test)", "mean"] == pytest.approx(100)
    assert len(Runs()) == 1 and unlabelled.loc["mine (test)", "mean"] == all_b.loc["mine (test)", "mean"]
    assert capsys.readouterr().out.count("an earlier one with 20 rows") == 1
    start_with(list(predictions()))
    assert Runs()[0].scores["test"]["accuracy"] == 1.


def test_without_training_a_task_without_a_test_file_has_no_predictions_which_is_said(start, capsys):
    start(OWN)
    capsys.readouterr()
    start(OWN, "do_finetune=False")
    assert re.search("Without predictions: .*mine", capsys.readouterr().out)


def test_a_frozen_encoder_keeps_its_weights_and_has_no_dropout(start, fresh_checkpoint):
    start(OWN, "freeze=True")
    model, _, row = load_finetuned(CHECKPOINT, finetune.SentencePredictor)
    pretrained = load_pretrained(str(fresh_checkpoint), "tiny")
    encoder = model.base_model.state_dict()
    assert all(torch.equal(encoder[name], weight) for name, weight in pretrained.encoder().state_dict().items())
    assert model.classifier.bias.any()
    frozen = task_of(row).head.network(pretrained, Settings(freeze=True), finetune.SentencePredictor).train()
    assert not any(module.training for module in frozen.base_model.modules()) and frozen.dropout.training


def test_mean_pooling_reads_all_tokens_but_no_padding_also_from_the_checkpoint(start):
    start(OWN, "pooling=mean")
    model, ids = finetune.load("g_mine_0.pth").network, torch.randint(5, 99, (2, 6))
    is_token = torch.ones_like(ids)
    is_token[1, 4:] = 0
    states = [model.base_model(ids[i:i + 1, :n]).last_hidden_state[0] for i, n in enumerate((6, 4))]
    expected = torch.stack([model.classifier(of_tokens.mean(0)) for of_tokens in states])
    torch.testing.assert_close(model(ids, is_token, torch.zeros_like(ids)), expected)


def test_a_classifier_does_not_read_a_word_in_place_of_cls(start):
    """Of a tokenizer without a token before the text, it reads the mean."""
    vocabulary = {token: i for i, token in enumerate(["[PAD]", "[UNK]", *sorted(set(WORDS))])}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]").save_pretrained("bert")
    AutoModel.from_config(FAMILIES["bert"]).save_pretrained("bert")
    with pytest.raises(UserError, match="CLS.*pooling=mean"):
        start(OWN, "pretrained_checkpoint=bert")
    assert not Runs()
    start(OWN, "pretrained_checkpoint=bert", "pooling=mean")


@pytest.mark.parametrize("sentences, predicted, f1", [
    (["B-X I-X", "O B-Y B-X"], "B-X I-X O O B-Y", .4),  # of three entities, two are predicted, one with the right end
    (["B-X I-X", "I-X"], "B-X I-X I-X", 1.),  # an entity does not reach into the next sentence
    (["B-X E-X B-X E-X"], "O O B-X E-X", 2 / 3), (["U-X U-X"], "B-X L-X", 0.)])
def test_entity_f1_counts_whole_entities_within_sentences(sentences, predicted, f1):
    tags = sorted({*" ".join(sentences).split(), *predicted.split()})
    ids = lambda text: [tags.index(tag) for tag in text.split()]
    task = Tagging("t", "t", ("text",), tuple(tags), metrics=("entity_f1",))
    scores = task.scores.score(torch.eye(len(tags))[ids(predicted)], list(map(ids, sentences)))
    assert scores["entity_f1"] == pytest.approx(f1)


def test_long_sentences_are_divided_and_every_word_is_predicted(small_tokenizer):
    """At its first token: [MASK] is plain text, and a zero-width space, which the tokenizer drops, becomes [UNK]."""
    words = [*WORDS * 3, "discriminator" * 9, "\u200b", "[MASK]", *WORDS]
    rows = WordRows([words, words[:2]], [list(range(len(words))), [0, 1]], small_tokenizer, 16)
    assert rows.lengths.max() == 16 and len(rows) > 2 and rows.n_examples == 2
    batches, logits = finetuning_dataloaders(rows, [rows], bs=3, num_workers=0, device="cpu").loaders[1], []
    for ids, _, _, labels in batches:
        for token, word in zip(small_tokenizer.convert_ids_to_tokens(ids[labels >= 0]), labels[labels >= 0]):
            assert token == "[UNK]" or words[word].lower().startswith(token)
        logits.append(F.one_hot(labels.clamp(min=0), len(words)))
    model = torch.nn.Module()
    model.forward = lambda *_: logits.pop(0)
    predicted = predict_logits(model, batches, "fp32", "a tagger")
    assert predicted.argmax(-1).tolist() == rows.labels.tolist()


def test_a_record_of_a_stranger_is_checked():
    task = Tagging("t", "t", ("text",), ("O", "B-X", "I-X", "B-Y"), metrics=("entity_f1", "accuracy"))
    row_of = lambda record: table_row("t", settings={"own_task": record})
    assert task_of(row_of(task.as_data())) == task
    for change in ({"name": "other"}, {"kind": "x"}, {"surprise": 1}):
        with pytest.raises(ValueError):
            task_of(row_of(task.as_data() | change))
