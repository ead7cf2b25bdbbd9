"""Corpora, GLUE and models, which the unchanged libraries load from a server that speaks the hub's interface."""
import shutil
import zipfile

import hub_repositories
import pytest
import torch
from hub_machine import assert_one_line, assert_succeeds, load
from hub_repositories import (
    BOOKCORPUS,
    DISCRIMINATOR,
    OPENWEBTEXT,
    PARQUET_BRANCH,
    WIKIPEDIA,
    card,
    documents,
    lines,
    parquet,
)

from _utils.runs.checkpoints import load_checkpoint
from _utils.tasks.task_names import GLUE_TEST_FILES

COMMON = ["num_workers=0", "device=cpu", "logger=None"]
CORPUS = [*COMMON, *"size=tiny vocab=200 steps=1 warmup_steps=0 bs=8 base_run_name=run".split()]
CONTINUED = [*COMMON, "datas=text.txt", f"initial_weights={DISCRIMINATOR}", "steps=1", "warmup_steps=0", "bs=8",
             "max_length=32"]
FINETUNE = [*COMMON, "pretrained_checkpoint=None", "end=1", "max_length=32", "group_name=hub"]


@pytest.fixture
def corpora(machine):
    """The Machine, and the three corpora on the hub."""
    machine.hub.commit(f"datasets/{OPENWEBTEXT}", hub_repositories.openwebtext())
    machine.hub.commit(f"datasets/{WIKIPEDIA}", hub_repositories.wikipedia())
    machine.hub.commit(f"datasets/{BOOKCORPUS}", hub_repositories.bookcorpus(), PARQUET_BRANCH)
    return machine


# Corpora

def test_pretraining_on_the_three_corpora(corpora):
    run = lambda: assert_succeeds(corpora.run("pretrain.py", *CORPUS, "datas=openwebtext,wikipedia,bookcorpus"))
    run()
    names = [f"train-0000{i}-of-0000{n}.parquet" for n in (3, 2) for i in range(n)]
    # The beginnings of files that do not describe their columns were read before. None of the German Wikipedia.
    whole_files = [request for request in corpora.downloads() if "bytes" not in request]
    assert whole_files == [*names, "0000.parquet", "0001.parquet"]
    run()
    assert not [request for request in corpora.hub.requests if "datasets" in request]  # everything is prepared


@pytest.mark.parametrize("name, repository, branch, first_texts", [
    ("wikipedia", WIKIPEDIA, "main", documents(20, "20231101.en 0")),
    ("bookcorpus", BOOKCORPUS, PARQUET_BRANCH, lines(500, 0))])
def test_a_corpus_stays_at_the_commit_of_its_first_use(corpora, name, repository, branch, first_texts):
    key, found = load(corpora, name)
    assert found["text"][:len(first_texts)] == first_texts
    files = {"README.md": card({"20231101.en": {"train": "train*"}}), "train.parquet": parquet({"text": ["Another."]})}
    newest = corpora.hub.commit(f"datasets/{repository}", files, branch)
    assert load(corpora, name) == [key, found]
    assert load(corpora, name, newest)[1] == {"text": ["Another."]}


def test_another_configuration_of_a_corpus(corpora):
    german = load(corpora, "wikipedia:20231101.de:train[1:3]")[1]["text"]
    assert german == documents(20, "20231101.de 0")[1:3]


def test_revisions_choose_a_commit_or_tag_and_without_the_hub_no_other_one_is_used(machine):
    def commit(text, *names):
        return machine.hub.commit(f"datasets/{OPENWEBTEXT}", {"train.parquet": parquet({"text": [text]})}, *names)
    first, second = commit("first", "old-tag"), commit("second")
    assert load(machine, "openwebtext", "old-tag") == load(machine, "openwebtext", first)
    assert load(machine, "openwebtext", second)[1] == {"text": ["second"]}
    machine.hub.fail("", 429, times=1000)
    assert load(machine, "openwebtext", second)[1] == {"text": ["second"]}
    done = machine.run("pretrain.py", *CORPUS, "datas=openwebtext", f"revisions={{'openwebtext': '{'3' * 40}'}}")
    assert_one_line(done, second, "333")


# Models

@pytest.fixture
def models(machine, small_tokenizer):
    """{hub id: network} of Google's small pair on the hub."""
    networks, repositories = hub_repositories.electra(small_tokenizer)
    for name, files in repositories.items():
        machine.hub.commit(f"models/{name}", files)
    (machine.folder / "text.txt").write_text("\n\n".join(documents(20, 0)))
    return networks


def test_pretraining_continues_from_the_pair_on_the_hub(machine, models):
    assert_succeeds(machine.run("pretrain.py", *CONTINUED, "base_run_name=run", "lr=1e-30"))
    found = load_checkpoint(machine.folder / "checkpoints/pretrain/run_11081_100.0%.pth")["model"]
    for name, network in models.items():
        part = "discriminator" if name == DISCRIMINATOR else "generator"
        assert all(torch.allclose(found[f"{part}.{key}"], value) for key, value in network.state_dict().items())


@pytest.mark.parametrize("request_, how, word", [
    ("GET /.*model.bin", 503, "503"), ("/config.json", 401, "gated")])
def test_a_failed_download_of_a_model_ends_in_one_line(machine, models, request_, how, word):
    machine.hub.fail(request_, how)
    assert_one_line(machine.run("pretrain.py", *CONTINUED), DISCRIMINATOR, word)


# GLUE

@pytest.fixture
def few_rows(glue, tmp_path):
    """A folder in the layout of the GLUE download with 20 rows in each file."""
    shutil.copytree(glue, tmp_path / "glue")
    for path in (path for path in (tmp_path / "glue").rglob("*.*") if path.is_file()):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:21]))
    return tmp_path / "glue"


SAME = """
import sys
from _utils.tasks.glue import load_task
from _utils.tasks.wsc import load_wsc
folder, *names = sys.argv[1:]
for name in names:
    on_hub, in_files = load_task(name), load_task(name, folder)
    assert list(on_hub.splits) == list(in_files.splits) and not on_hub.missing, name
    for split, rows in in_files.splits.items():
        assert on_hub.splits[split].features == rows.features and on_hub.splits[split][:] == rows[:], (name, split)
for split in ("train", "validation"):
    assert load_wsc(split) == load_wsc(split, f"{folder}/WSC")
"""


def test_all_tasks_of_glue_from_the_hub_to_a_valid_submission(machine, models, few_rows):
    """The tables on the hub are those of the download."""
    machine.hub.commit("datasets/nyu-mll/glue", hub_repositories.glue(few_rows))
    machine.hub.commit("datasets/aps/super_glue", hub_repositories.wsc(few_rows / "WSC"))
    assert "skipped" not in assert_succeeds(machine.run("finetune.py", *FINETUNE, "wsc_trick=True")).stdout
    assert_succeeds(machine.run("_utils glue_submission", "test_outputs/hub", str(few_rows)))
    with zipfile.ZipFile(machine.folder / "test_outputs/hub.zip") as archive:
        assert len(archive.namelist()) == 11
    (machine.folder / "same.py").write_text(SAME)
    assert_succeeds(machine.run(str(machine.folder / "same.py"), str(few_rows), *GLUE_TEST_FILES))


TENTH = """
from _utils.tasks.glue import load_task
from _utils.tasks.task import Task
hub = "someone/tenth", "default"
task = Task("tenth", "Tenth", ("text",), ("no", "yes"), test_files={"test": "Tenth.tsv"}, hub=hub)
print([rows["label"][:] for rows in load_task(task).splits.values()])
"""


def test_a_task_in_the_layout_of_glue_has_a_dataset_of_its_own(machine):
    files = {f"{split}.parquet": parquet({"text": ["a text"], "label": [label]})
             for split, label in (("train", "yes"), ("validation", "no"), ("test", ""))}
    machine.hub.commit("datasets/someone/tenth", files)
    (machine.folder / "tenth.py").write_text(TENTH)
    assert assert_succeeds(machine.run(str(machine.folder / "tenth.py"))).stdout.endswith("[[1], [0], [-1]]\n")
