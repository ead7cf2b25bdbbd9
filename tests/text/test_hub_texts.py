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
    ("someone/wep", ["someone/wep", "hf auth login"]),
    (WEB, ["'crawl', 'books'"]),
    (f"{WEB}:other", ["'other'", "'crawl', 'books'"]),
    (f"{WEB}:crawl:dev", ["dev", "'train', 'test'"]),
    (f"{WEB}:crawl:train[:x]:content", [r"train\[:x\]"]),
    (f"{WEB}:crawl", ["'text'", "'content'"]),
    (f"{WEB}:crawl::id", ["'id'", "'content'"]),
    ("someone/code", ["refs/convert/parquet"])])
def test_what_the_hub_does_not_have(hub, source, patterns):
    hub.hub.commit("datasets/someone/code", {"code.py": b"open('ran', 'w')"})
    assert_one_line(hub.run("pretrain.py", *TRAIN, f"datas={LINES},{source}"), *patterns)
    assert not list(hub.folder.rglob("*.arrow")) and not list(hub.folder.rglob("ran"))
    assert not [name for name in hub.downloads() if "bytes" not in name]  # only the beginnings of files


@pytest.mark.parametrize("request_, how, patterns", [
    ("HEAD .*README.md", 401, [WEB, "gated"]), ("GET /.*train-2", "short", [WEB, "rerun"]),
    ("GET /.*train-2", "reset", [WEB, "reset"]), ("/revision/", 500, [WEB, "500"])])
def test_a_failed_download_is_one_line_and_the_same_command_resumes(hub, request_, how, patterns):
    run = lambda: hub.run("pretrain.py", *TRAIN, f"datas={WEB}:crawl::content")
    hub.hub.fail(request_, how, times=30)
    assert_one_line(run(), *patterns)
    assert not list(hub.folder.rglob("*.arrow")) and not list(hub.folder.rglob("*.pth"))
    hub.hub.faults.clear()
    complete = {name for name in hub.downloads() if "bytes" not in name} - {"train-2.parquet"}
    assert bool(complete) == isinstance(how, str)  # an HTTP status comes before any download
    assert_succeeds(run())
    assert not complete & set(hub.downloads())


STREAM = """
import json, os, sys
import datasets
from _utils.text import load_documents, load_tokenizer, prepare_examples, streams
datasets.config.STREAMING_READ_MAX_RETRIES = 1
datasets.config.STREAMING_READ_RETRY_INTERVAL = 0
from _utils.errors import print_user_errors
print_user_errors()
streams.CHARACTERS_PER_PART = 50_000  # three parts
source, stream, version, *killed = sys.argv[1:]
datasets.__version__ = version or datasets.__version__
if killed:  # after the documents of a part were read
    write = streams.write_text_atomically
    streams.write_text_atomically = lambda path, text: os._exit(9) if killed[0] in path.name else write(path, text)
corpus = load_documents(source, "datasets", stream=eval(stream))
examples = prepare_examples(corpus, load_tokenizer("prose"), 64, 1, "datasets", num_proc=1)
print(json.dumps(examples[:]["input_ids"]))
"""


def stream(machine, source, how_much, *killed, version=""):
    """A Done of reading examples of a text. how_much: value of the key `stream`.   killed: end of part, at which the
    process is killed.   version: of `datasets`, if another than it is.
    """
    (machine.folder / "stream.py").write_text(STREAM)
    return machine.run(str(machine.folder / "stream.py"), source, repr(how_much), version, *killed)


def examples(machine, source, how_much, version=""):
    return json.loads(assert_succeeds(stream(machine, source, how_much, version=version)).stdout)


def test_a_stream_gives_the_examples_of_a_download_and_keeps_no_documents(hub):
    source = f"{WEB}:crawl::content"
    downloaded = examples(hub, source, None)
    hub.downloads()
    streamed = examples(hub, source, True)
    assert streamed == downloaded
    assert not list(hub.folder.glob("datasets/documents_*.arrow*"))
    assert all("bytes" in name for name in hub.downloads())
    assert examples(hub, source, True) == streamed and not hub.downloads()
    first = examples(hub, source, 800)
    assert first == examples(hub, f"{WEB}:crawl:train[:800]:content", None)
    assert not [name for name in hub.downloads() if name.startswith(("train-2", "train-3")) and "bytes=" in name]
    n = sum(map(len, SHARDS[0][:100]))
    assert examples(hub, source, f"{n - 1} characters") == examples(hub, source, 100)


@pytest.mark.parametrize("is_killed", [True, False])
def test_an_interrupted_stream_resumes_where_it_was(hub, is_killed):
    """A process is killed, or the hub fails."""
    source = f"{WEB}:crawl::content"
    undisturbed = examples(hub, source, None)
    if is_killed:
        assert stream(hub, source, True, "00002.json").returncode == 9
    else:
        hub.hub.fail("GET /.*train-3", 404)
        assert_one_line(stream(hub, source, True), WEB, "rerun")
        assert not hub.hub.faults
    hub.downloads()
    assert examples(hub, source, True) == undisturbed
    assert not [name for name in hub.downloads() if name.startswith("train-0")]


def test_a_stream_continues_with_another_version_of_datasets_and_again_with_that(hub):
    """Which does not read the state of the first one, so the stream skips what was read; then it has no state."""
    source = f"{WEB}:crawl::content"
    undisturbed = examples(hub, source, None)
    assert stream(hub, source, True, "00001.json").returncode == 9
    assert stream(hub, source, True, "00002.json", version="other").returncode == 9
    assert examples(hub, source, True, version="other") == undisturbed


def test_a_slice_is_not_streamed(hub):
    done = hub.run("pretrain.py", *TRAIN, f"datas={WEB}:crawl:train[:10]:content", "stream=True")
    assert_one_line(done, r"train\[:10\]", "stream")


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
