"""Own tasks from their files to predictions, and to a pipeline of transformers; tagging, its metric and its loss."""
import json
import math
import random
import re
from pathlib import Path
from types import SimpleNamespace

import datasets
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from csv_files import write_csv
from documents import read
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import ElectraForTokenClassification, PreTrainedTokenizerFast, pipeline

import finetune
from _utils.commands.export_hf import export_hf
from _utils.commands.predict import predict
from _utils.errors import UserError
from _utils.finetuning import group
from _utils.finetuning.config import complete_finetuning
from _utils.finetuning.model import KeepBest, load_finetuned
from _utils.finetuning.results import report
from _utils.finetuning.runs import Runs, run_path
from _utils.networks import load_pretrained
from _utils.runs.checkpoints import load_checkpoint
from _utils.tasks.base import Task
from _utils.tasks.custom import complete_custom_task, load_custom_task
from _utils.tasks.kinds import task_of
from _utils.tasks.rows import IGNORED, finetuning_dataloaders
from _utils.tasks.submission import check_submission, make_zip, read_record, rows_of, write_majorities
from _utils.tasks.tagging import Tagging, WordRows
from _utils.text import text_tokenizer

WORDS = ("the generator replaces some words of text and discriminator finds every replaced word a small network makes "
         "good guesses").split()


OWN = {"name": "mine", "train": "train.csv"}


@pytest.fixture
def start(fresh_checkpoint, tmp_path, monkeypatch):
    """`start(task, "key=value", ...)` finetunes one own task for an epoch, by default on train.csv; the Results."""
    monkeypatch.chdir(tmp_path)
    write_classes("ab")

    def start(task=OWN, *overrides, epochs=1):
        c = finetune.c.override([f"pretrained_checkpoint={fresh_checkpoint}", "size=tiny", "end=1", "logger=None",
                                 "group_name=g",
                                 f"tasks={task}", f"task_overrides={{'{task['name']}': {{'epochs': {epochs}}}}}",
                                 *overrides])
        return finetune.run(complete_finetuning(c))
    return start


def sentences(n, seed=0):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) for _ in range(n)]


def write_classes(labels):
    """Write train.csv, whose labels take turns."""
    write_csv("train.csv", ("text", "label"), [(text, labels[i % len(labels)]) for i, text in enumerate(sentences(40))])


def predictions_of(file):
    return pd.read_csv(f"test_outputs/g/{file}", sep="\t", index_col="index", keep_default_na=False)


def exported_pipeline(kind, task, **options):
    """A pipeline of plain transformers with the first run of a task."""
    export_hf(str(run_path("g", task, 0)), f"exported_{task}")
    return pipeline(kind, model=f"exported_{task}/classifier", device="cpu", **options)


def test_classification_from_csv_to_a_pipeline(start, capsys):
    """Labels are found in the file, and quoted cells may contain anything."""
    topic = lambda text: "nets, big" if "network" in text else "none" if len(text) > 30 else "short \"one\""
    write_csv("train.csv", ("id", "review", "topic"), [(i, text, topic(text)) for i, text in enumerate(sentences(80))])
    tests = [(f"x{i}", f"{text},\n\"quoted\"") for i, text in enumerate(sentences(12, seed=1))]
    write_csv("new.csv", ("id", "review"), tests)
    results = start(OWN | {"test": "new.csv", "text": "review", "label": "topic"})
    [row] = Runs()
    assert list(row["scores"]["validation"]) == ["accuracy", "macro_f1"]
    rows_of_classes = [n for *_, n in row["classes"]["validation"].values()]
    assert sum(map(sum, row["confusion"]["validation"])) == sum(rows_of_classes) == 8
    assert re.search(r"precision +recall +f1 +rows\nnets, big ", report(Runs()))
    assert Path("checkpoints/glue/g/confusion_mine.png").exists()
    assert len(results.tables["mine"].splits["train"]) == 72  # a tenth is the dev set
    predicted = pd.read_csv("new.csv").join(predictions_of("mine.tsv"))
    assert list(zip(predicted["id"], predicted["review"])) == tests
    model = finetune.load("g_mine_0.pth")
    labels, probabilities = model.predict(list(predicted["review"]))
    assert labels == list(predicted["prediction"]) == [model.labels[i] for i in probabilities.argmax(-1)]
    capsys.readouterr()
    predict("g_mine_0.pth", "new.csv")
    header, first, *_ = capsys.readouterr().out.split("\n")
    assert header == 'label\tP(nets, big)\tP(none)\tP(short "one")\treview'
    assert first.startswith(f"{labels[0]}\t{probabilities[0, 0]:.4f}")
    classify = exported_pipeline("text-classification", "mine")
    further = load_pretrained("exported_mine/classifier", "tiny").encoder().state_dict()
    assert all(torch.equal(weight, model.network.base_model.state_dict()[name]) for name, weight in further.items())
    assert [found["label"] for found in classify(list(predicted["review"]))] == list(predicted["prediction"])
    score = results.scores.loc["mine", "best"]
    assert read_record(Path("test_outputs/g")) == {"mine.tsv": f"mine run 0 (dev {score:.2f})"}
    assert "accuracy for mine" in report(Runs()) and "published" not in report(Runs())


def test_regression_from_json_lines_to_a_pipeline(start):
    """Scores of any size are learned: they are standardized for training, and predicted in their own unit."""
    for name, texts in {"train": sentences(120), "new": sentences(10, seed=1)}.items():
        rows = pd.DataFrame({"text": texts, "price": [5000.5 + 10 * len(text) for text in texts]})
        rows.to_json(f"{name}.jsonl", orient="records", lines=True)
    results = start(OWN | {"train": "train.jsonl", "test": "new.jsonl", "label": "price", "dev": .2}, epochs=2)
    scores, (mean, std) = predictions_of("mine.tsv")["prediction"].tolist(), results.tables["mine"].task.scale
    assert len(scores) == 10 and abs(sum(scores) / 10 - mean) < 2 * std
    [row] = Runs()
    assert list(row["scores"]["validation"]) == ["spearman", "pearson", "rmse", "r2"]
    assert row["baselines"]["validation"]["rmse"] == pytest.approx(std, rel=.3)  # both in the unit of the scores
    found = exported_pipeline("text-classification", "mine")(sentences(10, seed=1))
    assert [score["score"] for score in found] == pytest.approx(scores, abs=.05)


def test_pairs_from_parquet_to_a_pipeline(start):
    table = pd.DataFrame({"question": sentences(60), "answer": sentences(60, seed=1), "good": [0, 1, 1] * 20})
    table.to_parquet("qa.parquet")
    table.head(9).drop(columns="good").to_parquet("new.parquet")
    start(OWN | {"train": "qa.parquet", "dev": "qa.parquet", "test": "new.parquet", "text": ["question", "answer"],
                 "label": "good",
                 "metrics": ["f1", "matthews"]})
    assert list(Runs()[0]["scores"]["validation"]) == ["f1", "matthews"]
    predicted = pd.read_parquet("new.parquet").join(predictions_of("mine.tsv"))
    assert len(predicted) == 9
    pairs = predicted[["question", "answer"]].set_axis(["text", "text_pair"], axis=1).to_dict("records")
    exported = exported_pipeline("text-classification", "mine")(pairs)
    assert [found["label"] for found in exported] == list(map(str, predicted["prediction"]))


def test_several_labels_per_text_from_json_lines_to_a_pipeline(start, capsys):
    """A list of labels; a text may have none. Each label applies from a probability of .5."""
    found = lambda text: [label for label in ("network", "word", "text") if label in text]
    for name, texts in {"train": sentences(300), "new": sentences(12, seed=1)}.items():
        Path(f"{name}.jsonl").write_text("\n".join(json.dumps({"text": text, "label": found(text)}) for text in texts))
    start(OWN | {"train": "train.jsonl", "test": "new.jsonl"}, epochs=15)
    [row] = Runs()
    assert list(row["scores"]["validation"]) == ["micro_f1", "macro_f1"] and row["scores"]["test"]["micro_f1"] > .8
    assert set(row["classes"]["validation"]) == {"network", "word", "text"}
    assert row["baselines"]["validation"]["micro_f1"] < .8
    rows = pd.read_json("new.jsonl", lines=True).join(predictions_of("mine.tsv")).to_dict("records")
    labels, probabilities = finetune.load("g_mine_0.pth").predict([row["text"] for row in rows])
    assert [row["prediction"] for row in rows] == ["|".join(found) for found in labels]
    Path("x.txt").write_text(rows[0]["text"])
    capsys.readouterr()
    predict("g_mine_0.pth", "x.txt")
    assert capsys.readouterr().out.split("\n")[1].startswith("|".join(labels[0]) + f"\t{probabilities[0, 0]:.4f}")
    classify = exported_pipeline("text-classification", "mine", top_k=None)
    found = classify([row["text"] for row in rows])
    exported = [{label["label"] for label in row if label["score"] >= .5} for row in found]
    assert exported == list(map(set, labels))


def test_an_own_task_is_described_before_its_runs(start, capsys):
    write_csv("new.csv", ("text", "label"), [(text, "ab"[i % 2]) for i, text in enumerate(sentences(12, seed=5))])
    start(OWN | {"test": "new.csv"}, "end=2")
    before, _, report = capsys.readouterr().out.partition("mine, run 0")
    of_rows = "train 36", "validation 4", "test 12", "train: a 18, b 18", "test: a 6, b 6"
    assert all(text in before for text in (*of_rows, "classification", "accuracy"))
    assert "mine, run 1" in report and report.count("mine.tsv") == 1


def test_few_rows_are_repeated_until_there_are_about_300_updates(start, capsys):
    results = start()
    assert "= 2 updates per run (few" in capsys.readouterr().out
    task, c = results.tables["mine"].task, complete_finetuning(finetune.c.override([f"tasks={OWN}", "size=tiny"]))
    assert finetune.hyperparameters(task, c, 36)["epochs"] == 150  # of two batches


def test_the_best_epoch_is_kept_if_wanted(start, capsys, monkeypatch):
    """The dev score of the weights that are kept is the best of all epochs."""
    scores = []
    monkeypatch.setattr(finetune, "KeepBest",
                        lambda score_of: KeepBest(lambda learn: scores.append(score_of(learn)) or scores[-1]))
    write_csv("train.csv", ("text", "label"), [(text, "short" if len(text) < 40 else "long") for text in sentences(80)])
    start(OWN | {"dev": .5}, "keep=best", "task_overrides={'mine': {'epochs': 6, 'lr': 2e-3, 'bs': 4}}")
    [row] = Runs()
    assert row["settings"]["keep"] == "best" and row["best_epoch"] == 1 + scores.index(max(scores)) and len(scores) == 6
    assert 100 * row["scores"]["validation"]["accuracy"] == max(scores) > min(scores)
    assert f"weights of epoch {row['best_epoch']})" in capsys.readouterr().out
    with pytest.raises(UserError, match="keep='best', not None"):
        start(OWN | {"dev": .5}, "task_overrides={'mine': {'epochs': 6, 'lr': 2e-3, 'bs': 4}}")


@pytest.mark.parametrize("scores, best", [
    ([.1, .7, .7, .3], 2), ([math.nan, .2, math.nan], 2), ([math.nan, math.nan], 1)])
def test_the_weights_of_the_best_epoch_are_restored_the_first_of_equal_ones(scores, best):
    following, model = iter(scores), torch.nn.Linear(1, 1)
    keep = KeepBest(lambda learn: next(following))
    for epoch in range(len(scores)):
        keep.learn = SimpleNamespace(model=model, epoch=epoch)
        torch.nn.init.constant_(model.weight, epoch + 1)
        keep.after_epoch()
    keep.after_fit()
    assert keep.best_epoch == best == model.weight.item()


@pytest.mark.parametrize("keep", ["best", "last"])
def test_r2_of_one_row_is_a_number_and_the_dev_set_is_named(start, capsys, keep):
    write_csv("train.csv", ("text", "label"), [(text, len(text) / 4) for text in sentences(40)])
    write_csv("dev.csv", ("text", "label"), [("the text", 1.5)])
    results = start(OWN | {"dev": "dev.csv", "metrics": ["r2", "pearson"]}, "end=2", f"keep={keep}")
    assert results.scores.loc["mine", "best"] == 0. and "only 1 row" in capsys.readouterr().out


@pytest.mark.parametrize("keep", ["best", "last"])
def test_a_run_whose_last_update_diverges_stops_with_a_message(start, keep):
    write_csv("train.csv", ("text", "label"), [(text, len(text) / 4) for text in sentences(20)])
    overrides = "task_overrides={'mine': {'epochs': 1, 'lr': 1e30}}", f"keep={keep}"  # one update
    with pytest.raises(UserError, match="mine: .*not finite"):
        start(OWN | {"metrics": "pearson"}, *overrides)
    assert not Runs()


def test_class_weights_are_balanced_or_given_by_label(start):
    write_csv("train.csv", ("text", "label"), [(text, "b" if i % 4 else "a") for i, text in enumerate(sentences(40))])
    task = load_custom_task(complete_custom_task(OWN | {"class_weights": "balanced"})).task
    assert task.class_weights == pytest.approx((2., 2 / 3))
    loss, logits = task.loss(), torch.tensor([[1., 0.], [1., 0.]])
    expected = F.cross_entropy(logits, torch.tensor([0, 1]), weight=torch.tensor([2., 2 / 3]))
    torch.testing.assert_close(loss(logits, torch.tensor([0, 1])), expected)
    start(OWN | {"class_weights": {"a": 5}})
    assert load_finetuned(run_path("g", "mine", 0))[2]["settings"]["own_task"]["class_weights"] == [5., 1.]
    with pytest.raises(UserError, match="'c' .* a, b"):
        start(OWN | {"class_weights": {"c": 5}})
    write_csv("train.csv", ("text", "label"), [(text, i % 3) for i, text in enumerate(sentences(40))])
    assert load_custom_task(complete_custom_task(OWN | {"class_weights": {"2": 5}})).task.class_weights == (1., 1., 5.)


@pytest.mark.parametrize("kind, max_length, counted",
                         [("classification", 24, "18 of 36 texts"), ("tagging", 8, "texts")])
def test_texts_that_are_too_long_are_counted_in_training_and_in_predictions(start, capsys, kind, max_length, counted):
    """Texts lose their ends; sentences to tag are divided."""
    long = " ".join(WORDS * 2)
    write_csv("train.csv", ("text", "label"), [("the network", "a"), (long, "b")] * 20)
    if kind == "tagging":
        write_conll("train.conll", 100)
    start(OWN | ({"train": "train.conll"} if kind == "tagging" else {}), f"max_length={max_length}")
    notice = f"{counted} are longer than max_length={max_length} tokens"
    assert notice in capsys.readouterr().out
    Path("x.txt").write_text(f"the network\n{long}")
    predict(str(run_path("g", "mine", 0)), "x.txt")
    printed = capsys.readouterr().err
    assert f"1 of 2 texts are longer than max_length={max_length}" in printed
    assert ("are divided" in printed) == (kind == "tagging")


@pytest.mark.parametrize("kind", ["classification", "pair", "tagging"])
def test_texts_in_another_language_are_noticed_in_training_and_in_predictions(start, capsys, kind):
    """With the share of their tokens that are not in the vocabulary, and examples. Without them, nothing is said."""
    words, n_texts = "собака быстро бежит через старый лес".split(), 1 + (kind == "pair")
    texts = [" ".join(words[i % 3:]) for i in range(40)]
    if kind == "tagging":
        tagged = ["\n".join(f"{word} {len(word)}" for word in text.split()) for text in texts]
        Path("train.conll").write_text("\n\n".join(tagged))
        own = OWN | {"train": "train.conll"}
    else:
        columns = ("a", "b")[:n_texts]
        write_csv("train.csv", (*columns, "label"), [[text] * n_texts + ["xy"[i % 2]] for i, text in enumerate(texts)])
        own = OWN | {"text": list(columns)}
    start(own)
    printed = capsys.readouterr().out
    assert "100% of the tokens" in printed and "'бежит'" in printed
    for text, is_noticed in ((texts[0], True), ("the generator and the discriminator", False)):
        Path("x.txt").write_text("\t".join([text] * n_texts))
        predict(str(run_path("g", "mine", 0)), "x.txt")
        assert ("100% of the tokens" in capsys.readouterr().err) == is_noticed


def windows_of(columns, tokenizer, max_len=16, stride=6, swap=False):
    [(windows, length)] = finetune.tokenize_in_windows([[column] for column in columns], max_len, swap, stride,
                                                       tokenizer)
    assert all(len(window) <= max_len for window in windows)
    parts = []
    for window in windows:
        tokens = list(zip(window.ids, window.special_tokens_mask, window.type_ids))
        parts.append([[ids for ids, special, kind in tokens if not special and kind == i] for i in range(len(columns))])
    whole = [tokenizer.backend_tokenizer.encode(column, add_special_tokens=False).ids for column in columns]
    return parts, whole[::-1] if swap else whole, length


def joined(parts, whole):
    """The tokens at every place of `whole` that one of the parts has."""
    found = set()
    for part in parts:
        n = len(part)
        found |= {start + i for start in range(len(whole)) if whole[start:start + n] == part for i in range(n)}
    return [whole[i] for i in sorted(found)]


@pytest.mark.parametrize("n_words", [(40,), (3,), (4, 40), (40, 4), (30, 40), (40, 40), (40, 0), (2, 2)])
@pytest.mark.parametrize("swap", [False, True])
def test_windows_have_all_tokens_of_single_texts_and_pairs(small_tokenizer, n_words, swap):
    rng = random.Random(0)
    texts = [" ".join(rng.choices(WORDS, k=n)) for n in n_words]
    parts, whole, length = windows_of(texts, small_tokenizer, swap=swap and len(texts) == 2)
    for i, ids in enumerate(whole):
        assert joined([part[i] for part in parts], ids) == ids
    assert length == sum(map(len, whole)) + 2 + (len(texts) == 2) and (len(parts) > 1) == (length > 16)
    if n_words == (4, 40):
        assert all(part[1 if swap else 0] == whole[1 if swap else 0] for part in parts)  # the whole shorter text


@torch.no_grad()
def logits_of_windows(model, text):
    [(windows, _)] = finetune.tokenize_in_windows([[text]], 128, False, 64, model.hf_tokenizer)
    inputs = [[torch.tensor([values]) for values in (one.ids, one.attention_mask, one.type_ids)] for one in windows]
    return torch.cat([model.network(*of_window) for of_window in inputs])


def make_outputs_different(path, text):
    """Magnify the differences between the outputs of a checkpoint that has hardly been trained and those of a text."""
    offset, checkpoint = logits_of_windows(finetune.load(path), text)[0], load_checkpoint(path)
    checkpoint["model"]["classifier.weight"] *= 100
    checkpoint["model"]["classifier.bias"] = 100 * (checkpoint["model"]["classifier.bias"] - offset)
    torch.save(checkpoint, path)


@pytest.mark.parametrize("kind, labels",
                         [("classification", "ab"), ("regression", [.5, 1.5, 3.]), ("multilabel", ["a|b", "a", "b"])])
def test_long_texts_are_predicted_as_the_mean_of_windows_everywhere(start, capsys, kind, labels):
    """In dev and test sets, in Python, by `predict`, and by transformers as the documents say."""
    texts = [" ".join(random.Random(i).choices(WORDS, k=10 + 240 * (i % 2))) for i in range(40)]
    write_csv("train.csv", ("text", "label"), [(text, labels[i % len(labels)]) for i, text in enumerate(texts)])
    results = start(OWN | {"test": "train.csv", "kind": kind}, "window_stride=64")
    printed = capsys.readouterr().out
    assert Runs()[0]["train_rows"] == 36 and re.search(r"20 of 40|18 of 36", printed) and "64 tokens" in report(Runs())
    assert "lose their ends" not in printed
    make_outputs_different(run_path("g", "mine", 0), texts[1])
    model = finetune.load("g_mine_0.pth")
    found = model.outputs(results.tables["mine"].splits["test"])
    activations = {"classification": lambda logits: logits.softmax(-1), "multilabel": torch.sigmoid}
    activate = activations.get(kind, lambda scores: scores)
    for i in range(4):
        outputs = activate(logits_of_windows(model, texts[i]))
        assert i % 2 == 0 or len(outputs) > 2 and outputs.std(0).max() > .01
        torch.testing.assert_close(found[i], outputs.mean(0), atol=1e-3, rtol=1e-3)
    if kind == "classification":
        export_hf("g_mine_0.pth", "exported_reviews")
        example = re.search(r"```python\n([^`]*overflow[^`]*)```", read("finetuning.md"), re.S)[1]
        variables = {"text": texts[1]}
        exec(example, variables)
        torch.testing.assert_close(variables["probabilities"], found[1], atol=1e-3, rtol=1e-3)
    with pytest.raises(UserError, match="window_stride=64, not None"):
        start(OWN | {"test": "train.csv", "kind": kind})


def test_windows_are_off_by_default_and_leave_out_no_tokens(start):
    with pytest.raises(UserError, match="window_stride=16"):
        start(OWN, "window_stride=16", "max_length=16")
    start(OWN)
    assert Runs()[0]["settings"]["window_stride"] is None


def test_each_window_of_both_orders_of_a_pair_has_the_label_of_its_row(small_tokenizer):
    rows = datasets.Dataset.from_dict({"text1": ["the network", " ".join(WORDS * 2)],
                                       "text2": [" ".join(WORDS * 2), "a word"],
                                       "label": [0, 1]})
    pair = Task("p", "p", ("text1", "text2"), ("x", "y"), unordered=True)
    encoded = pair.encode(rows, small_tokenizer, {"max_length": 16, "double_unordered": True, "window_stride": 5},
                          training=True)
    labels = encoded.batch(range(len(encoded)))[3].tolist()
    assert len(encoded.n_windows) == 4 == encoded.n_examples < len(encoded)
    assert labels == [label for label, n in zip([0, 1, 0, 1], encoded.n_windows) for _ in range(n)]
    outputs = torch.tensor(labels).float()
    assert encoded.mean(torch.stack([outputs, 1 - outputs], 1)).tolist() == [[0, 1], [1, 0], [0, 1], [1, 0]]


def write_conll(path, n, seed=0):
    """Sentences in which 'generator' and 'discriminator' are entities, with a word that precedes them."""
    lines = []
    for text in sentences(n, seed):
        words = text.split()
        ends = [i for i, word in enumerate(words) if word in ("generator", "discriminator")]
        tags = ["B-NET" if i in ends or i + 1 in ends else "O" for i in range(len(words))]
        tags = ["I-NET" if i in ends and i else tag for i, tag in enumerate(tags)]
        lines += [*(f"{word} {len(word)} {tag}" for word, tag in zip(words, tags)), ""]
    Path(path).write_text("-DOCSTART- 0 O\n\n" + "\n".join(lines))


def test_tagging_from_conll_to_a_pipeline(start, capsys):
    """Every word of the test file gets a tag; a test file with tags is scored too."""
    write_conll("train.txt", 200)
    write_conll("test.txt", 20, seed=1)
    results = start({"name": "nets", "train": "train.txt", "test": "test.txt"}, epochs=8)
    assert list(results.scores.index) == ["nets", "nets (test)"]
    assert list(Runs()[0]["scores"]["test"]) == ["entity_f1", "accuracy"]
    assert results.scores.loc["nets (test)", "mean"] > 30
    given = [line.split() for line in Path("test.txt").read_text().split("\n")[2:]]
    predicted = [line.split("\t") for line in Path("test_outputs/g/nets.conll").read_text().split("\n")]
    words, tags = zip(*filter(all, predicted))
    assert words == tuple(line[0] for line in given if line)
    text, tags = " ".join(words[:given.index([])]), list(tags)  # the first sentence
    of_text = tags[:len(text.split())]
    assert finetune.load(run_path("g", "nets", 0)).predict([text, text.split()]).labels == [of_text] * 2
    exported = exported_pipeline("token-classification", "nets", aggregation_strategy="first")
    assert type(exported.model) is ElectraForTokenClassification
    found = [(entity["entity_group"], entity["word"]) for entity in exported(text)]
    assert [kind for kind, _ in found if kind != "O"] == [tag[2:] for tag in of_text if tag.startswith("B-")]

    Path("x.txt").write_text(text + "\nthe network .\n")
    capsys.readouterr()
    predict(str(run_path("g", "nets", 0)), "x.txt")
    lines = [line.split("\t") for line in capsys.readouterr().out.split("\n")]
    assert [line[0] for line in lines] == [*text.split(), "", "the", "network", ".", "", ""]
    assert [line[1] for line in lines[:len(text.split())]] == tags[:len(text.split())]
    Path("test.txt").rename("x.conll")
    predict(str(run_path("g", "nets", 0)), "x.conll")
    lines = [line.split("\t")[:2] for line in capsys.readouterr().out.split("\n") if line]
    assert lines == [[word, tag] for word, tag in zip(words, tags, strict=True)]


def test_a_task_on_character_spans_predicts_spans_of_new_texts(start, capsys):
    """Words and punctuation are the same in training and for every way to predict."""
    rows = [{"text": f"({text})", "label": [[1, 1 + len(text.split()[0]), "FIRST"]]} for text in sentences(60)]
    Path("train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    start(OWN | {"train": "train.jsonl"}, "task_overrides={'mine': {'epochs': 6, 'lr': 3e-3, 'bs': 8}}")
    texts = ["(network makes guesses)", "(a, b)"]
    predicted = finetune.load("g_mine_0.pth").predict(texts).labels
    assert predicted == [[[1, 8, "FIRST"]], [[1, 2, "FIRST"]]]
    Path("x.txt").write_text("\n".join(texts))
    capsys.readouterr()
    predict("g_mine_0.pth", "x.txt")
    assert [line.split("\t")[0] for line in capsys.readouterr().out.split("\n")[6:11]] == ["(", "a", ",", "b", ")"]
    find = exported_pipeline("token-classification", "mine", aggregation_strategy="first")
    [entity] = [found for found in find(texts[0]) if found["entity_group"] == "FIRST"]
    assert (entity["start"], entity["end"]) == (1, 8)
    with pytest.raises(UserError, match="not a text"):
        finetune.load("g_mine_0.pth").predict([["a", "b"]])


def test_own_tasks_beside_glue_are_neither_in_its_mean_nor_in_the_submission(start, glue):
    write_csv("new.tsv", ("text",), [(text,) for text in sentences(5)])
    small = {name: {"epochs": 1, "rows": 32} for name in ("rte", "mine")}
    start(OWN, f"tasks={['rte', OWN | {'test': 'new.tsv'}]}", f"glue_dir={glue}", f"task_overrides={small}")
    folder = Path("test_outputs/g")
    assert {path.name for path in folder.iterdir()} == {"RTE.tsv", "mine.tsv"}
    rows = rows_of(glue)
    write_majorities(folder, rows)
    assert make_zip(folder, rows) == Path("test_outputs/g.zip")
    assert len(check_submission("test_outputs/g.zip", rows)) == 11
    assert "mean of 1" in report(Runs())


def test_a_finished_run_is_kept_until_the_task_changes(start, capsys, monkeypatch):
    own = OWN | {"dev": .5}
    start(own)
    start(own)
    assert "(already finished)" in capsys.readouterr().out and len(Runs()) == 1
    monkeypatch.setattr(group, "code_key", lambda _: "edited")
    start(own)
    assert "(already finished, with code that changed since)" in capsys.readouterr().out and len(Runs()) == 1
    write_csv("dev.csv", ("text", "label"), [("the text", "a")])
    for changed, overrides, named in ((own, ["weight_decay=.01", "start=1", "end=2"], "weight_decay=0.0, not 0.01"),
                                      (own | {"metrics": "matthews"}, [], "own_task: metrics="),
                                      (own | {"dev": "dev.csv"}, [], ".*other dev rows.*'dev'.*group_name"),
                                      (own | {"dev": .2}, [], "other training rows.*'dev'.*group_name")):
        with pytest.raises(UserError, match=f"was trained with {named}"):
            start(changed, *overrides)
    [row] = Runs()
    settings = row["settings"] | {"own_task": {**row["settings"]["own_task"]}}
    row["settings"]["own_task"]["positive"] = "a"  # which the task does not have any more
    with pytest.raises(UserError, match="own_task: positive='a', not None"):
        Runs([row]).finished("g", "mine", 0, row["seed"], settings)
    write_classes("abc")
    with pytest.raises(UserError, match="was trained for another task than 'mine' is now"):
        start(own | {"test": "train.csv"}, "do_finetune=False")


def test_a_checkpoint_of_another_group_is_not_overwritten(start):
    """The names of groups and own tasks may contain the character that separates them in the names of checkpoints."""
    start(OWN | {"name": "b_c"}, "group_name=a")
    with pytest.raises(UserError, match="group='a', not 'a_b', task='b_c', not 'c'.*Set another group_name"):
        start(OWN | {"name": "c"}, "group_name=a_b")


def test_labels_of_the_test_file_may_come_later_and_change(start):
    """Finished runs are scored on the labels that the test file has now."""
    own, texts = OWN | {"test": "new.csv"}, sentences(20, seed=1)

    def start_with(labels, *overrides):
        write_csv("new.csv", ("text", "label")[:1 + bool(labels)],
                  zip(texts, labels) if labels else [(text,) for text in texts])
        return start(own, *overrides).scores
    _, all_a, all_b, unlabelled = (start_with(labels, "end=2") for labels in ("", "a" * 20, "b" * 20, ""))
    assert all_a.loc["mine (test)", "mean"] + all_b.loc["mine (test)", "mean"] == pytest.approx(100)
    assert len(Runs()) == 2 and list(unlabelled.index) == ["mine"]
    best = int(all_a.loc["mine (test)", "best run"])
    start_with(list(predictions_of("mine.tsv")["prediction"]), "do_finetune=False")
    assert Runs()[best]["scores"]["test"]["accuracy"] == 1.
    run_path("g", "mine", 1 - best).unlink()
    start_with("a" * 9, "do_finetune=False")
    # Without its checkpoint, a run is not scored on a new file.
    assert [row["run"] for row in Runs() if "test" in row["scores"]] == [best]


def test_a_frozen_encoder_keeps_its_weights_and_has_no_dropout(start, fresh_checkpoint):
    start(OWN, "freeze=True")
    model, _, row = load_finetuned(run_path("g", "mine", 0))
    pretrained = load_pretrained(str(fresh_checkpoint), "tiny")
    encoder = model.base_model.state_dict()
    assert all(torch.equal(encoder[name], weight) for name, weight in pretrained.encoder().state_dict().items())
    assert not torch.equal(model.classifier.bias, torch.zeros(2))
    frozen = task_of(row).network(pretrained, {"freeze": True}).train()
    assert not any(module.training for module in frozen.base_model.modules()) and frozen.dropout.training


def test_mean_pooling_reads_all_tokens_but_no_padding_also_from_the_checkpoint(start):
    start(OWN, "pooling=mean")
    model, _, row = load_finetuned(run_path("g", "mine", 0))
    ids = torch.randint(5, 99, (2, 6))
    is_token, types = torch.ones_like(ids), torch.zeros_like(ids)
    is_token[1, 4:] = 0
    states = [model.base_model(ids[i:i + 1, :n]).last_hidden_state[0] for i, n in enumerate((6, 4))]
    expected = torch.stack([model.classifier(of_tokens.mean(0)) for of_tokens in states])
    torch.testing.assert_close(model(ids, is_token, types), expected)
    with pytest.raises(UserError, match="pooling='mean'"):
        start(OWN, "pooling=first")
    with pytest.raises(UserError, match="pooling=mean"):
        export_hf("g_mine_0.pth", "exported")


TAGS = Tagging("t", "t", ("text",), ("O", "B-X", "I-X", "B-Y"), metrics=("entity_f1", "accuracy"), is_own=True)


@pytest.mark.parametrize("labels, targets, predicted, lengths, f1", [
    # Of three entities, two are predicted, one with the right end.
    ("O B-X I-X B-Y", [1, 2, 0, 3, 1], [1, 2, 0, 0, 3], [2, 3], .4),
    ("O B-X I-X B-Y", [1, 2, 2], [1, 2, 2], [2, 1], 1.),  # an entity does not reach into the next sentence
    *((f"O B-X I-X {end}-X {single}-X", *case) for end, single in ("ES", "LU") for case in (
        ([1, 3, 1, 3], [0, 0, 1, 3], [4], 2 / 3), ([4, 4], [1, 3], [2], 0.), ([1, 2, 3], [1, 2, 3], [3], 1.))),
])
def test_entity_f1_counts_whole_entities_within_sentences(labels, targets, predicted, lengths, f1):
    task = Tagging("t", "t", ("text",), tuple(labels.split()), metrics=("entity_f1",))
    words = iter(targets)
    sentences = [[next(words) for _ in range(length)] for length in lengths]
    assert task.score(torch.eye(5)[predicted], sentences)["entity_f1"] == pytest.approx(f1)


def test_words_are_labelled_at_their_first_wordpiece(small_tokenizer):
    """[MASK] is plain text, and a zero-width space, which the tokenizer drops, becomes [UNK]."""
    words, labels, expected = ["The", "discriminators", "\u200b", "[MASK]"], [IGNORED], ["[CLS]"]
    ids, _, types, found = WordRows([words], [range(4)], small_tokenizer, 64).batch([0])
    for i, word in enumerate(words):
        pieces = text_tokenizer(small_tokenizer).encode(word, add_special_tokens=False).tokens or ["[UNK]"]
        labels += [i] + [IGNORED] * (len(pieces) - 1)
        expected += pieces
    assert small_tokenizer.convert_ids_to_tokens(ids[0]) == [*expected, "[SEP]"] and len(expected) > 5
    assert types.sum() == 0
    assert found.tolist() == [[*labels, IGNORED]]


def test_long_sentences_are_divided_and_every_word_is_predicted(small_tokenizer):
    words = [*WORDS * 3, "discriminator" * 9, *WORDS]
    rows = WordRows([words, words[:2]], [list(range(len(words))), [0, 1]], small_tokenizer, 16)
    assert rows.lengths.max() == 16 and len(rows) > 2 and rows.n_examples == 2
    dls = finetuning_dataloaders(rows, [rows], bs=3, num_workers=0, device="cpu")
    logits = iter([torch.nn.functional.one_hot(labels.clamp(min=0), len(words)) for *_, labels in dls.loaders[1]])
    model = torch.nn.Module()
    model.forward = lambda *_: next(logits)
    predicted = finetune.predict_logits(model, dls.loaders[1], "fp32")
    assert predicted.argmax(-1).tolist() == rows.labels.tolist()


def test_words_of_tokenizers_that_mark_the_space_before_a_word():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([" ".join(WORDS)] * 3,
                                  trainers.BpeTrainer(vocab_size=400, special_tokens=["<pad>", "<unk>"]))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>")
    ids, *_ = WordRows([["small", "network"]], [[0, 0]], fast, 64).batch([0])
    assert fast.decode(ids[0]) == " small network"


def test_the_loss_sums_over_the_words_of_a_sentence_and_is_the_mean_over_sentences():
    logits, labels = torch.randn(2, 3, 4), torch.tensor([[IGNORED, 1, 2], [3, IGNORED, IGNORED]])
    logprobs = logits.log_softmax(-1)
    expected = -(logprobs[0, 1, 1] + logprobs[0, 2, 2] + logprobs[1, 0, 3]) / 2
    torch.testing.assert_close(TAGS.loss()(logits, labels), expected)


def test_a_record_of_a_stranger_is_checked():
    row = {"task": "t", "settings": {"own_task": TAGS.as_data()}}
    assert task_of(row) == TAGS
    for change in ({"name": "other"}, {"kind": "x"}, {"surprise": 1}):
        with pytest.raises(ValueError):
            task_of({**row, "settings": {"own_task": TAGS.as_data() | change}})
