"""Slow tests, minutes each: the quickstart from start to end, compiled runs, and memory of preprocessing."""
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
from hub_repositories import parquet
from hub_server import HubServer

from _utils.finetuning.runs import Runs
from _utils.names import PROSE
from _utils.runs.log import read_metrics

pytestmark = pytest.mark.slow
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads memory usage from /proc, which only Linux has"
)


def test_quickstart_trains_and_can_be_finetuned(repo, tmp_path):
    for script in ("pretrain.py", "finetune.py"):
        command = [sys.executable, repo / script, "quickstart=True"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
    run = tmp_path / "checkpoints/pretrain/quickstart_11081"
    *_, last = read_metrics(run / "metrics.jsonl", "held_out")
    facts, damaged = (json.loads((run / name).read_text()) for name in ("config.json", "damaged_text.json"))
    assert last["gen_loss_hidden"] < facts["facts"]["unigram_entropy"] - 1.5
    assert damaged["auc"] >= .8 and damaged["swapped"] > .75 and damaged["foreign"] > .6
    assert (tmp_path / "test_outputs/quickstart.zip").exists()
    rows = Runs(path=tmp_path / "checkpoints/glue/scores.jsonl")
    scores = pd.DataFrame({group: {row.task: row.score for row in rows if row.group == f"quickstart_{group}"}
                           for group in ("random_weights", "quickstart", "mini")})
    gains = scores.sub(scores["random_weights"], axis=0)
    assert (gains["mini"] > 5).all() and (gains["quickstart"] > 5).any(), scores


def test_second_compiled_run_compiles_nothing(repo, tmp_path):
    settings = "size=tiny datas=prose vocab=prose steps=3 warmup_steps=1 compile=True device=cpu logger=None".split()
    environment = {key: value for key, value in os.environ.items() if key != "TORCHINDUCTOR_CACHE_DIR"}
    kept, losses = [], []
    for name in ("first", "second"):
        command = [sys.executable, repo / "pretrain.py", *settings, f"base_run_name={name}"]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)
        kept.append({path.name for path in (tmp_path / "datasets/compiled").rglob("*") if path.is_file()})
        rows = read_metrics(tmp_path / f"checkpoints/pretrain/{name}_11081/metrics.jsonl", "train")
        losses.append([row["loss"] for row in rows])
    assert kept[0] == kept[1] and kept[0]
    assert losses[0] == losses[1]


PREPARE = """
import sys
from _utils.text.examples import prepare_examples
from _utils.text.sources import load_documents
from _utils.text.vocabulary import load_tokenizer
source, cache = sys.argv[1:]
corpus = load_documents(source, cache)
print(len(prepare_examples(corpus, load_tokenizer(8192, [corpus], cache), 128, 0, cache, num_proc=2)))
"""


def anonymous_memory(process):
    """Memory of a process in bytes, without mapped files, which the system can reclaim."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) * 1024


def peak_memory(command, cwd, environment=None):
    """Run a command. Returns the largest anonymous memory of any of its processes, in bytes."""
    process, peak = psutil.Popen(command, cwd=cwd, env=environment, stderr=subprocess.DEVNULL), 0

    def watch():
        nonlocal peak
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            with contextlib.suppress(psutil.Error, OSError, TypeError):  # the process has just ended
                for member in [process, *process.children(recursive=True)]:
                    peak = max(peak, anonymous_memory(member))
            time.sleep(.05)
    watcher = threading.Thread(target=watch)
    watcher.start()
    assert process.wait() == 0
    watcher.join()
    return peak


STREAM = """
import time
from _utils.text.examples import prepare_examples
from _utils.text.sources import load_documents
from _utils.text.vocabulary import load_tokenizer
started = time.time()
examples = prepare_examples(load_documents("someone/large", "datasets", stream=True), load_tokenizer("prose"), 128, 0,
                            "datasets", num_proc=1)
print(f"{time.time() - started:.0f} seconds, {len(examples):,} examples")
"""


@needs_proc
def test_memory_and_disk_of_a_stream_do_not_grow_with_the_text(repo, tmp_path):
    """0.1 and 1 GB of text, in files of 50 MB. Prints what a process needs."""
    rng = random.Random(0)
    words = [word for word in (PROSE / "vocab.txt").read_text().split() if word.isalpha()]
    texts = ["\n".join(" ".join(rng.choices(words, k=20)) for _ in range(20)) for _ in range(25_000)]
    size, shard, hub, peaks = sum(map(len, texts)), parquet({"text": texts}), HubServer(), []
    for n in (2, 20):
        folder = tmp_path / str(n)
        folder.mkdir()
        hub.commit("datasets/someone/large", {f"train-{i:02}.parquet": shard for i in range(n)})
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hub"), "PYTHONPATH": str(repo),
                        "NO_PROXY": "localhost,127.0.0.1"}
        peaks.append(peak_memory([sys.executable, "-c", STREAM], folder, environment))
        kept = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"{n * size / 1e6:,.0f} MB of text: {peaks[-1] / 1e6:,.0f} MB of memory, {kept / 1e6:,.0f} MB kept")
        assert kept < .5 * n * size
    assert peaks[1] < peaks[0] + 1e8


@needs_proc
@pytest.mark.parametrize("n, size", [(1, 300_000_000), (1000, 400_000)])
def test_preprocessing_memory_does_not_grow_with_document_size(repo, shared, tmp_path, n, size):
    """Including vocabulary training."""
    chapters = pd.concat(map(pd.read_parquet, (shared / "data/novels").glob("*.parquet")))["text"]
    text = "\n".join(line for line in "\n".join(chapters).split("\n") if line.strip())
    document = (text * (size // len(text) + 1))[:size]
    (tmp_path / "text.txt").write_text("\n\n".join([document] * n))
    command = [sys.executable, "-c", PREPARE, str(tmp_path / "text.txt"), str(tmp_path / "cache")]
    assert peak_memory(command, repo) < 1.5e9
