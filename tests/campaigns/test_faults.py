"""Killed processes, full disks and damaged files: rerunning the same command completes the run, or an error message
explains what to do.

The quick suite has a few faults of each kind. The campaign, `python -m pytest -m slow -k faults -s`, has about a
hundred and prints how many were survived.
"""
import json
import random
import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from bad_inputs import ENGLISH
from tiny_pretraining import FOLDER, rows, weights

from _utils.runs.checkpoints import load_checkpoint

PRETRAIN = ("size=tiny datas=text.txt vocab=300 seed=5 base_run_name=run steps=24 bs=8 max_length=32 device=cpu "
            "save_minutes=0 logger=tensorboard").split()
FINETUNE = ("size=tiny pretrained_checkpoint=model.pth glue_dir=glue tasks=cola,rte end=2 max_length=32 device=cpu "
            "logger=None group_name=g num_workers=0 "
            "task_overrides={'cola':{'epochs':1,'rows':400},'rte':{'epochs':1,'rows':400}}").split()
VOCABULARY = ("patience network sentence generator discriminator evening river mountain teacher letter winter garden "
              "window music").split()


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, fresh_checkpoint, glue):
    """A folder with text, GLUE tables and a pretrained checkpoint."""
    folder, rng = tmp_path_factory.mktemp("faults"), random.Random(0)

    def document():
        return "\n".join(" ".join(rng.choices(VOCABULARY, k=rng.randint(8, 30))) for _ in range(10))
    (folder / "text.txt").write_text(ENGLISH + "\n\n".join(document() for _ in range(3000)))
    shutil.copy(fresh_checkpoint, folder / "model.pth")
    (folder / "glue").symlink_to(glue)
    return folder


class FaultyRun:
    """Runs a command repeatedly under faults, and compares its results with those of an undisturbed run.

    survived: number of survived faults of each kind.   n_resumed: how often a pretraining run resumed after a kill.
    """

    def __init__(self, scripts, workplace, folder, script, arguments):
        self.scripts, self.workplace, self.script, self.arguments = scripts, workplace, script, arguments
        self.read_results, self.root = read_pretrained if script == "pretrain.py" else read_finetuned, folder
        self.n_folders, self.survived, self.n_resumed = 0, Counter(), 0
        self.use_new_folder()
        done = self.start()
        assert done.returncode == 0, done.stderr[-2000:]
        self.expected, self.seconds = self.read_results(self.folder), done.seconds

    def use_new_folder(self):
        """Let the following commands run in a new folder without results."""
        self.n_folders += 1
        self.folder = self.root / str(self.n_folders)
        self.folder.mkdir()
        for name in ("text.txt", "model.pth", "glue"):
            (self.folder / name).symlink_to(self.workplace / name)

    def start(self, *more, **fault):
        """Run the command. fault: as in `Scripts.run`."""
        done = self.scripts.run(self.script, [*self.arguments, *more], self.folder, **fault)
        if fault.get("victim") != "worker":
            assert "Traceback" not in done.stderr, done.stderr[-3000:]
        return done

    def finish(self):
        """Rerun the command until it succeeds, following the instructions in its error messages, and check the results.
        """
        more = []
        for _ in range(4):
            done = self.start(*more)
            if done.returncode == 0:
                break
            assert ends_with_error_message(done), done.stderr[-2000:]
            truncated = re.findall(r"\S+\.arrow", done.stderr.splitlines()[-1])  # which the message asks to delete
            more = ["resume=False"] if "Set resume=False" in done.stderr else []
            assert truncated or more, done.stderr[-2000:]
            for name in truncated:
                (self.folder / name).unlink()
        assert self.read_results(self.folder) == self.expected
        assert not list(self.folder.rglob("*.unfinished"))

    def kill_at_random_moments(self, n, rng):
        """Kill the command n times and then let it finish.

        Whenever it succeeds before the kill, start again in a new folder.
        """
        n_killed = 0
        while n_killed < n:
            step = self.saved_step()
            done = self.start(kill_after=rng.uniform(0, self.seconds * 1.05))
            if step and (resumed := re.search(r"after step (\d+)", done.stdout)):
                assert int(resumed[1]) == step  # nothing that was saved is lost
                self.n_resumed += 1
            if done.returncode == 0:
                assert self.read_results(self.folder) == self.expected
                self.use_new_folder()
                continue
            assert done.returncode == -9, done.stderr[-2000:]
            n_killed += 1
        self.finish()
        self.survived["kills"] += n

    def saved_step(self):
        """The step of the newest checkpoint to resume from, or None."""
        paths = list(self.folder.glob("checkpoints/pretrain/*/resume*.pth"))
        return load_checkpoint(max(paths, key=lambda path: path.stat().st_mtime_ns))["step"] if paths else None

    def fill_disk(self, largest_file):
        """Run the command with files limited to this size in bytes, then finish without the limit.

        Returns the first Done.
        """
        done = self.start(largest_file=largest_file)
        assert done.returncode == 0 or ends_with_error_message(done), done.stderr[-2000:]
        self.finish()
        self.survived["full disks"] += done.returncode != 0
        return done

    def damage(self, path, rng):
        """Truncate a file, or flip one of the bits of a checkpoint."""
        content = bytearray(path.read_bytes())
        position = rng.randrange(len(content))
        if path.suffix == ".arrow" or rng.random() < .5:
            content = content[:position]
        else:
            content[position] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        self.survived[f"damaged {path.suffix}"] += 1


def ends_with_error_message(done):
    return done.stderr.strip().splitlines()[-1].startswith("error: ")


def read_pretrained(folder):
    """Metrics and sums of the weights of a finished pretraining run."""
    folder = folder / FOLDER
    assert len(list(folder.glob("run_5_*%.pth"))) == 5
    return rows("run_5", folder), {
        name: value.double().sum().item() for name, value in weights("run_5", folder=folder).items()
    }


def read_finetuned(folder):
    """Scores of the finished finetuning runs. Also asserts that each has a checkpoint."""
    lines = (folder / "checkpoints/glue/scores.jsonl").read_text().splitlines()
    finished = [json.loads(line) for line in lines if line.endswith("}")]
    assert all(load_checkpoint(folder / f"checkpoints/glue/g_{row['task']}_{row['run']}.pth") for row in finished)
    return sorted((row["task"], row["run"], json.dumps(row["scores"])) for row in finished)


@pytest.fixture
def start(scripts, workplace, tmp_path):
    """start(script, *settings): a FaultyRun."""
    settings_of = {"pretrain.py": PRETRAIN, "finetune.py": FINETUNE}
    return lambda script, *settings: FaultyRun(scripts, workplace, Path(tempfile.mkdtemp(dir=tmp_path)), script,
                                               [*settings_of[script], *settings])


def test_pretraining_survives_kills_a_full_disk_and_damaged_files(start):
    run, rng = start("pretrain.py", "num_workers=0"), random.Random(0)
    run.use_new_folder()
    run.kill_at_random_moments(3, rng)
    run.use_new_folder()
    assert run.fill_disk(1_000_000).returncode == 1
    for pattern in ("checkpoints/pretrain/run_5/resume.pth", "datasets/examples_*.arrow"):
        run.damage(next(run.folder.glob(pattern)), rng)
        run.finish()


@pytest.mark.slow
def test_campaign_of_faults_is_survived(start, capsys):
    rng, survived = random.Random(1), Counter()
    for n_kills, *command in ((25, "pretrain.py", "num_workers=0"), (20, "pretrain.py", "num_workers=2"),
                              (15, "finetune.py")):
        run = start(*command)
        run.use_new_folder()
        run.kill_at_random_moments(n_kills, rng)
        survived += run.survived
        assert run.n_resumed or run.script == "finetune.py"

    for script, sizes in {"pretrain.py": (1_000, 30_000, 200_000, 1_000_000, 2_500_000, 5_000_000),
                          "finetune.py": (1_000, 100_000, 1_000_000)}.items():
        run = start(script, "num_workers=0")
        for largest_file in sizes:
            run.use_new_folder()
            run.fill_disk(largest_file)
        survived += run.survived

    run = start("pretrain.py", "num_workers=0")
    for _ in range(20):
        run.use_new_folder()
        run.start(kill_after=run.seconds * rng.uniform(.5, .95))
        paths = [*run.folder.glob("checkpoints/pretrain/run_5/*.pth"), *run.folder.glob("datasets/*.arrow")]
        if paths:
            run.damage(rng.choice(paths), rng)
        run.finish()
    survived += run.survived

    run = start("pretrain.py", "num_workers=2")
    for _ in range(20):
        if survived["dead workers"] == 3:  # a kill may come when there are no workers
            break
        run.use_new_folder()
        done = run.start(kill_after=run.seconds * rng.uniform(.2, .9), victim="worker")
        assert "Traceback" not in done.stderr.split("error: ")[-1]
        run.finish()
        survived["dead workers"] += done.returncode != 0
    with capsys.disabled():
        print(f"\n{survived.total()} faults survived: {dict(survived)}")
    assert survived["kills"] == 60 and survived["full disks"] >= 7 and survived["dead workers"] == 3
    assert survived["damaged .pth"] + survived["damaged .arrow"] >= 18
