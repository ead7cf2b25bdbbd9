"""Custom tasks on datasets of the hub, which the unchanged libraries load from a server that speaks its interface."""
import json

import datasets
import pytest
from hub_machine import assert_one_line, assert_succeeds
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
LOAD = """
import json, sys
from _utils.custom.definition import complete_custom_task
from _utils.custom.task_kinds import load_custom_task
for given in json.loads(sys.argv[1]):
    data = load_custom_task(complete_custom_task(given))
    print(data.task.name, data.task.kind, *(f"{split}={len(rows)}" for split, rows in data.splits.items()),
          data.test_task is not None, *data.task.labels)
"""


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


def test_tables_of_each_kind_have_names_of_classes_and_their_splits(sets):
    """A split "validation" is the dev set, and "test" the test set, also without labels."""
    tasks = {
        "imdb classification train=36 validation=4 test=10 True neg pos": {"train": "some/imdb"},
        "imdb classification train=20 validation=5 test=5 True neg pos": {
            "train": "some/imdb::train[:50%]", "dev": "test[:5]", "test": "some/imdb:plain:test[5:]"},
        "imdb classification train=40 validation=10 False neg pos": {"train": "some/imdb", "dev": "test"},
        "conll tagging train=20 validation=2 test=2 True B-PER I-PER O": {
            "train": "some/conll", "kind": "tagging", "text": "tokens", "label": "ner_tags"},
        "conll tagging train=1 validation=1 test=2 True B-PER I-PER O": {
            "train": "some/conll::validation", "kind": "tagging", "text": "tokens", "label": "ner_tags"},
        "boolq classification train=20 validation=2 test=4 False False True": {
            "train": "some/boolq", "text": ["question", "passage"]},
        "swag choices train=20 validation=2 False 0 1": {
            "train": "some/swag", "kind": "choices", "text": ["sent1", "sent2"], "choices": ["ending0", "ending1"],
            "first_choice": 0},
        "squad questions train=10 validation=1 False": {"train": "some/squad", "kind": "questions"}}
    (sets.folder / "load.py").write_text(LOAD)
    done = assert_succeeds(sets.run(str(sets.folder / "load.py"), json.dumps([*tasks.values()])))
    assert [line for line in done.stdout.splitlines() if "=" in line] == [*tasks]


def test_a_run_on_an_id_is_scored_and_writes_predictions(sets, fresh_checkpoint):
    arguments = ["tasks={'train': 'some/imdb'}", f"pretrained_checkpoint={fresh_checkpoint}", "size=tiny", "end=1",
                 "group_name=g", "logger=None", "device=cpu", "task_overrides={'imdb': {'epochs': 1}}"]
    assert "imdb (test)" in assert_succeeds(sets.run("finetune.py", *arguments)).stdout
    written = (sets.folder / "test_outputs/g/imdb.tsv").read_text().splitlines()
    assert len(written) == 11 and {line.split("\t")[1] for line in written[1:]} <= {"neg", "pos"}


@pytest.mark.parametrize("task, patterns", [
    ("{'train': 'some/nothing'}", ["'some/nothing'"]),
    ("{'train': 'some/imdb:other'}", ["'some/imdb:other'", "plain"]),
    ("{'train': 'some/imdb', 'dev': 'dev'}", ["some/imdb::dev", "train.*test"]),
    ("{'train': 'some/boolq'}", ["question, passage", "'text'"]),
    ("{'train': 'a.csv', 'dev': 'validation'}", ["'validation'", "'a.csv'"])])
def test_what_the_hub_does_not_have_is_one_line(sets, fresh_checkpoint, task, patterns):
    arguments = [f"tasks={task}", f"pretrained_checkpoint={fresh_checkpoint}", "size=tiny", "device=cpu"]
    done = sets.run("finetune.py", *arguments)
    assert_one_line(done, *patterns)
    assert not (sets.folder / "checkpoints/glue").exists()
