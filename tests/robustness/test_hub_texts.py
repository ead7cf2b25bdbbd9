"""Text datasets of the hub by id, downloaded and streamed, from a server that speaks the hub's interface."""
import gzip
import json
import shutil

import pytest
from hub_machine import assert_one_line, assert_succeeds, load
from hub_repositories import card, lines, parquet

from _utils.runs.checkpoints import load_checkpoint

WEB = "someone/web"
SHARDS = [[line[:80] for line in lines(750, i)] for i in range(4)]  # short documents
LINES = "someone/lines"
TRAIN = ("size=tiny vocab=prose steps=2 warmup_steps=0 bs=4 num_workers=0 device=cpu logger=None "
         "base_run_name=run").split()


def web():
    """A dataset with two configurations, which has its texts in the column `content`."""
    splits = {"train": "crawl/train-*", "test": "crawl/test-*"}
    return {"README.md": card({"crawl": splits, "books": {"train": "books/*"}}),
            **{f"crawl/train-{i}.parquet": parquet({"id": range(750), "content": SHARDS[i]}) for i in range(4)},
            "crawl/test-0.parquet": parquet({"id": range(2), "content": ["First.", "Second."]}),
            "books/0.parquet": parquet({"text": ["A book."]})}


def json_lines(texts):
    """A dataset of compressed JSON lines without a description."""
    return {"data.jsonl.gz": gzip.compress("".join(json.dumps({"text": text}) + "\n" for text in texts).encode())}


@pytest.fixture
def hub(machine):
    """The Machine, with the dataset on the hub."""
    machine.hub.commit(f"datasets/{WEB}", web())
    machine.hub.commit(f"datasets/{LINES}", json_lines(SHARDS[0]))
    return machine


def test_configuration_split_and_column(hub):
    texts = lambda source: load(hub, source)[1]["text"]
    assert texts(f"{WEB}:crawl:train[1:3]:content") == SHARDS[0][1:3]
    assert texts(f"{WEB}:crawl:test+train[750:751]:content") == ["First.", "Second.", SHARDS[1][0]]
    assert texts(LINES) == SHARDS[0]


def test_an_existing_path_is_no_id(machine):
    (machine.folder / "someone").mkdir()
    (machine.folder / WEB).mkdir()
    (machine.folder / WEB / "a.txt").write_text("A text.")
    assert load(machine, WEB)[1]["text"] == ["A text."]
    assert not machine.hub.requests


def test_a_run_on_a_path_and_an_id_keeps_its_commit(hub):
    """Also where the prepared text is gone and the hub has another commit."""
    (hub.folder / "own.txt").write_text("\n\n".join(SHARDS[0][:20]))
    text = f"datas=own.txt,{LINES}"
    commit = hub.hub.repositories[f"datasets/{LINES}"]["main"][0]
    assert_succeeds(hub.run("pretrain.py", *TRAIN, text, "stop_at=1"))
    folder = hub.folder / "checkpoints/pretrain"
    assert json.loads((folder / "run_11081/config.json").read_text())["config"]["revisions"] == {LINES: commit}
    shutil.rmtree(hub.folder / "datasets")
    hub.hub.commit(f"datasets/{LINES}", json_lines(["Another text."]))
    assert_succeeds(hub.run("pretrain.py", *TRAIN, text))
    assert load_checkpoint(folder / "run_11081_100.0%.pth")["config"]["revisions"] == {LINES: commit}


@pytest.mark.parametrize("source, patterns", [
    ("someone/wep", ["not an existing path", "someone/wep could not be loaded", "hf auth login"]),
    (WEB, [r"\['crawl', 'books'\]", "owner/name:configuration"]),
    (f"{WEB}:other", ["'other' not found", r"\['crawl', 'books'\]"]),
    (f"{WEB}:crawl:dev", ["dev", r"\['train', 'test'\]"]),
    (f"{WEB}:crawl:train[:x]:content", [r"train\[:x\]"]),
    (f"{WEB}:crawl", ["no column 'text'", "'content'"]),
    (f"{WEB}:crawl::id", ["no column 'id' of texts", "'content'"]),
    ("someone/code", ["scripts are no longer supported"])])
def test_what_the_hub_does_not_have(hub, source, patterns):
    hub.hub.commit("datasets/someone/code", {"code.py": b"open('ran', 'w')"})
    assert_one_line(hub.run("pretrain.py", *TRAIN, f"datas={LINES},{source}"), *patterns)
    assert not list(hub.folder.rglob("*.arrow")) and not list(hub.folder.rglob("ran"))
    assert not [name for name in hub.downloads() if "bytes" not in name]  # only the beginnings of files


@pytest.mark.parametrize("request_, how, patterns", [
    ("HEAD .*README.md", 401, ["gated", "hf auth login"]),
    ("GET /large/.*train-2", "short", [WEB, "could not be loaded", "rerun the same command"]),
    ("/revision/", 500, [WEB, "500"])])
def test_a_failed_download_is_one_line_and_the_same_command_resumes(hub, request_, how, patterns):
    run = lambda: hub.run("pretrain.py", *TRAIN, f"datas={WEB}:crawl::content")
    hub.hub.fail(request_, how, times=30)
    assert_one_line(run(), *patterns)
    assert not list(hub.folder.rglob("*.arrow")) and not list(hub.folder.rglob("*.pth"))
    hub.hub.faults.clear()
    complete = {name for name in hub.downloads() if "bytes" not in name} - {"train-2.parquet"}
    assert_succeeds(run())
    assert not complete & set(hub.downloads())


EXAMPLES = """
import json, sys
from _utils.text import load_documents, load_tokenizer, prepare_examples
from _utils.errors import print_user_errors
print_user_errors()
source, n_streamed = sys.argv[1:]
corpus = load_documents(source, "datasets", n_streamed=int(n_streamed))
examples = prepare_examples(corpus, load_tokenizer("prose"), 64, 1, "datasets", num_proc=1)
print(json.dumps(examples[:]["input_ids"]))
"""


def read_examples(machine, source, n_streamed=0):
    """A Done of a process that prints the examples of a text."""
    (machine.folder / "examples.py").write_text(EXAMPLES)
    return machine.run(str(machine.folder / "examples.py"), source, str(n_streamed))


def examples(machine, source, n_streamed=0):
    return json.loads(assert_succeeds(read_examples(machine, source, n_streamed)).stdout)


def test_a_stream_gives_the_examples_of_a_download(hub):
    source = f"{WEB}:crawl::content"
    streamed = examples(hub, source, 800)
    assert not [name for name in hub.downloads() if name.startswith(("train-2", "train-3")) and "bytes=" in name]
    assert examples(hub, source, 800) == streamed and not hub.downloads()
    assert streamed == examples(hub, f"{WEB}:crawl:train[:800]:content")
    assert len(examples(hub, source, 5000)) == len(examples(hub, source))  # more than there are


def test_a_failed_stream_is_one_line_and_leaves_nothing(hub):
    hub.hub.fail("GET /large/.*train-3", 404)
    done = read_examples(hub, f"{WEB}:crawl::content", 3000)
    assert_one_line(done, WEB, "could not be loaded", "rerun the same command")
    assert not list(hub.folder.rglob("*.arrow"))


def test_a_slice_is_not_streamed(hub):
    done = hub.run("pretrain.py", *TRAIN, f"datas={WEB}:crawl:train[:10]:content", "stream=10")
    assert_one_line(done, r"train\[:10\]", "train")


def test_training_a_vocabulary_and_a_model_on_a_stream(hub):
    """Two processes train, of which one reads the stream. The column has an empty and a missing text."""
    texts = ["", None, *SHARDS[0][:300]]
    hub.hub.commit("datasets/someone/holes", {"train.parquet": parquet({"text": texts})})
    settings = [*TRAIN, "datas=someone/holes", "vocab=300"]
    assert_succeeds(hub.scripts.run("pretrain.py", [*settings, "stream=200"], hub.folder, processes=2))
    ranges = hub.downloads()
    assert_succeeds(hub.run("pretrain.py", *settings, "stream=200", "resume=False"))
    assert ranges and not hub.downloads()
    shutil.rmtree(hub.folder / "datasets")
    assert_succeeds(hub.run("pretrain.py", *settings, "stream=200", "resume=False"))
    assert hub.downloads() == ranges
    assert_one_line(hub.run("pretrain.py", *settings, "stream=201"), "stream=200", "stream=201")
