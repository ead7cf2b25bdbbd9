"""Custom tasks on datasets of the hub, which the unchanged libraries load from a server that speaks its interface."""

import datasets
import pytest
from hub_machine import assert_succeeds
from hub_repositories import card, parquet

TEXT, INT = datasets.Value("string"), datasets.Value("int64")
SENTIMENT = datasets.Features({"text": TEXT, "label": datasets.ClassLabel(names=["neg", "pos"])})
WORDS = datasets.Features({"tokens": datasets.List(TEXT), "ner_tags": datasets.List(
    datasets.ClassLabel(names=["O", "B-PER", "I-PER"]))})
PASSAGES = datasets.Features({"question": TEXT, "passage": TEXT, "label": datasets.ClassLabel(names=["False", "True"])})
ENDINGS = datasets.Features({"sent1": TEXT, "sent2": TEXT, "ending0": TEXT, "ending1": TEXT, "label":
                             datasets.ClassLabel(names=["0", "1"])})
QUESTIONS = datasets.Features({"id": TEXT, "context": TEXT, "question": TEXT, "answers": {
    "text": datasets.List(TEXT), "answer_start": datasets.List(datasets.Value("int32"))}})
REVIEWS = [("a good film", 1), ("a bad film", 0)]


def repository(features, **splits):
    """The files of a dataset with {split: rows}, each a tuple of the columns."""
    files = {"README.md": card({"plain": {split: f"plain/{split}-*" for split in splits}}, {"plain": features})}
    for split, rows in splits.items():
        columns = dict(zip(features, map(list, zip(*rows))))
        files[f"plain/{split}-00000-of-00001.parquet"] = parquet(columns, features)
    return files


@pytest.fixture
def sets(machine):
    """The Machine, and sets like IMDB, CoNLL 2003, BoolQ, SWAG and SQuAD on the hub."""
    commit = lambda name, *args, **splits: machine.hub.commit(f"datasets/{name}", repository(*args, **splits))
    commit("some/imdb", SENTIMENT, train=REVIEWS * 20, test=REVIEWS * 5, unsupervised=[("a film", -1)] * 3)
    tagged = [(["Anna", "Lee", "left"], [1, 2, 0]), (["who", "left"], [0, 0])]
    commit("some/conll", WORDS, train=tagged * 10, validation=tagged, test=tagged)
    asked = [("is it", "it is", 1), ("is he", "he is not", 0)]
    commit("some/boolq", PASSAGES, train=asked * 10, validation=asked, test=[("is she", "she is", -1)] * 4)
    endings = [("a", "b", "c", "d", 0), ("e", "f", "g", "h", 1)]
    commit("some/swag", ENDINGS, train=endings * 10, validation=endings)
    answers = [("1", "Anna left Oslo", "who left", {"text": ["Anna"], "answer_start": [0]})]
    commit("some/squad", QUESTIONS, train=answers * 10, validation=answers)
    return machine


def test_from_ids_to_predictions(sets, fresh_checkpoint):
    """Of classes, tags of words, pairs without public labels, choices and questions."""
    imdb = {"train": "some/imdb::train[:50%]", "dev": "test[:5]", "test": "some/imdb:plain:test[5:]"}
    tasks = [imdb, {"train": "some/conll", "kind": "tagging", "text": "tokens", "label": "ner_tags"},
             {"train": "some/boolq", "text": ["question", "passage"], "test": "test"},
             {"train": "some/swag", "kind": "choices", "text": ["sent1", "sent2"], "choices": ["ending0", "ending1"],
              "first_choice": 0, "test": "validation"},
             {"train": "some/squad", "kind": "questions", "test": "validation"}]
    names = ["imdb.tsv", "conll.conll", "boolq.tsv", "swag.tsv", "squad.json"]
    overrides = {name.partition(".")[0]: {"epochs": 1} for name in names}
    arguments = [f"tasks={tasks}", f"pretrained_checkpoint={fresh_checkpoint}", "size=tiny", "end=1", "group_name=g",
                 "logger=None", "device=cpu", f"task_overrides={overrides}"]
    done = assert_succeeds(sets.run("finetune.py", *arguments))
    assert "imdb (test)" in done.stdout and "conll (test)" in done.stdout and "boolq (test)" not in done.stdout
    written = {name: (sets.folder / "test_outputs/g" / name).read_text().splitlines() for name in names}
    assert {name: len(lines) for name, lines in written.items()} == {
        "imdb.tsv": 6, "conll.conll": 7, "boolq.tsv": 5, "swag.tsv": 3, "squad.json": 1}
    assert {line.split("\t")[1] for line in written["boolq.tsv"][1:]} <= {"False", "True"}
    assert {line.split("\t")[1] for line in written["imdb.tsv"][1:]} <= {"neg", "pos"}
