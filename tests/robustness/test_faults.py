"""Processes that are killed, disks that are full, damaged files: the next start goes on, or says in one sentence what to do.

The quick suite holds a few of each; the campaign, `python -m pytest -m slow -k faults -s`, a hundred, and prints how many were survived.
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

from _utils.run_files.checkpoints import load_checkpoint

PRETRAIN = ["size=tiny", "datas=text.txt", "vocab=300", "seed=5", "base_run_name=run", "steps=24", "bs=8", "max_length=32", "device=cpu",
            "save_minutes=0", "logger=tensorboard"]
FINETUNE = ["size=tiny", "pretrained_checkpoint=model.pth", "glue_dir=glue", "tasks=cola,rte", "end=2", "max_length=32", "device=cpu",
            "logger=None", "group_name=g", "num_workers=0",
            "task_overrides={'cola': {'epochs': 1, 'rows': 400}, 'rte': {'epochs': 1, 'rows': 400}}"]
WORDS = "patience network sentence generator discriminator evening river mountain teacher letter winter garden window music".split()


@pytest.fixture(scope="module")
def workplace(tmp_path_factory, fresh_checkpoint, glue):
    """A folder with text, tables and a pretrained checkpoint."""
    folder, rng = tmp_path_factory.mktemp("faults"), random.Random(0)
    lines = lambda: "\n".join(" ".join(rng.choices(WORDS, k=rng.randint(8, 30))) for _ in range(10))
    (folder / "text.txt").write_text(ENGLISH + "\n\n".join(lines() for _ in range(3000)))
    shutil.copy(fresh_checkpoint, folder / "model.pth")
    (folder / "glue").symlink_to(glue)
    return folder


class Commands:
    """A command that is given again and again, in copies of one folder, and what it makes when nothing happens to it."""

    def __init__(self, scripts, workplace, folder, script, arguments, made):
        self.scripts, self.workplace, self.script, self.arguments, self.made = scripts, workplace, script, arguments, made
        self.folder, self.n, self.survived, self.went_on = folder, 0, Counter(), 0
        self.begin_anew()
        done = self.start()
        assert done.returncode == 0, done.stderr[-2000:]
        self.whole, self.seconds = self.made(self.place), done.seconds

    def begin_anew(self):
        """Take an empty folder."""
        self.n += 1
        self.place = self.folder / str(self.n)
        self.place.mkdir()
        for name in ("text.txt", "model.pth", "glue"):
            (self.place / name).symlink_to(self.workplace / name)

    def start(self, **fault):
        return self.scripts.run(self.script, self.arguments, self.place, **fault)

    def finish(self):
        """Start until it ends by itself, doing what its sentence says, and compare with what should be made."""
        anew = []
        for _ in range(4):
            done = self.scripts.run(self.script, [*self.arguments, *anew], self.place)
            assert "Traceback" not in done.stderr, done.stderr[-3000:]
            if done.returncode == 0:
                break
            told = re.findall(r"[Dd]elete (?:it|\S+) and (\S+\.xxh3)", done.stderr)
            anew = ["resume=False"] if "resume=False begins the run anew" in done.stderr else []
            assert (told or anew) and done.stderr.strip().splitlines()[-1].startswith("error: "), done.stderr[-2000:]
            for seal in told:
                (self.place / "datasets" / seal).unlink(missing_ok=True)
                (self.place / "datasets" / seal.removesuffix(".xxh3")).unlink(missing_ok=True)
        assert self.made(self.place) == self.whole
        assert not list(self.place.rglob("*.unfinished"))

    def kill_at_random_moments(self, n, rng):
        """n kills; whenever the command comes to its end before, the next ones happen to a new one."""
        kills = 0
        while kills < n:
            step = self.last_step()
            done = self.start(kill_after=rng.uniform(0, self.seconds * 1.05))
            assert "Traceback" not in done.stderr, done.stderr[-3000:]
            if step and (gone_on := re.search(r"after step (\d+)", done.stdout)):
                assert int(gone_on[1]) == step  # of what was saved nothing is lost
                self.went_on += 1
            if done.returncode == 0:
                assert self.made(self.place) == self.whole
                self.begin_anew()
                continue
            assert done.returncode == -9, done.stderr[-2000:]
            kills += 1
        self.finish()
        self.survived["kills"] += n

    def last_step(self):
        """The step of the newest state, or None."""
        paths = [path for path in self.place.glob("checkpoints/pretrain/*/resume*.pth")]
        return load_checkpoint(max(paths, key=lambda path: path.stat().st_mtime_ns))["step"] if paths else None

    def write_until_full(self, largest_file):
        """No file may grow beyond so many bytes; the next start has room again."""
        done = self.start(largest_file=largest_file)
        assert "Traceback" not in done.stderr, done.stderr[-3000:]
        assert done.returncode == 0 or done.stderr.strip().splitlines()[-1].startswith("error: "), done.stderr[-2000:]
        self.finish()
        self.survived["full disks"] += done.returncode != 0
        return done

    def damage(self, path, rng):
        """Cut a file, or change a bit of it."""
        content = bytearray(path.read_bytes())
        place = rng.randrange(len(content))
        if rng.random() < .5:
            content = content[:place]
        else:
            content[place] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        self.survived[f"damaged {path.suffix}"] += 1


def pretrained(place):
    """Measures and weights of a finished pretraining."""
    folder = place / FOLDER
    assert len(list(folder.glob("run_5_*%.pth"))) == 5
    return rows("run_5", folder), {name: value.double().sum().item() for name, value in weights("run_5", folder=folder).items()}


def finetuned(place):
    """Scores of finished runs, and that each has its checkpoint."""
    rows = [json.loads(line) for line in (place / "checkpoints/glue/scores.jsonl").read_text().splitlines() if line.endswith("}")]
    assert all(load_checkpoint(place / f"checkpoints/glue/g_{row['task']}_{row['run']}.pth") for row in rows)
    return sorted((row["task"], row["run"], json.dumps(row["scores"])) for row in rows)


@pytest.fixture
def pretraining(scripts, workplace, tmp_path):
    return lambda *more: Commands(scripts, workplace, Path(tempfile.mkdtemp(dir=tmp_path)), "pretrain.py", [*PRETRAIN, *more], pretrained)


@pytest.fixture
def finetuning(scripts, workplace, tmp_path):
    return lambda: Commands(scripts, workplace, Path(tempfile.mkdtemp(dir=tmp_path)), "finetune.py", FINETUNE, finetuned)


def test_three_kills_a_full_disk_and_a_damaged_file_are_survived(pretraining):
    commands, rng = pretraining("num_workers=0"), random.Random(0)
    commands.begin_anew()
    commands.kill_at_random_moments(3, rng)
    commands.begin_anew()
    assert commands.write_until_full(1_000_000).returncode == 1
    for path in (commands.place / "checkpoints/pretrain/run_5/resume.pth", next(commands.place.glob("datasets/examples_*.arrow"))):
        commands.damage(path, rng)
        commands.finish()
    assert commands.survived == {"kills": 3, "full disks": 1, "damaged .pth": 1, "damaged .arrow": 1}


@pytest.mark.slow
def test_a_campaign_of_faults_is_survived(pretraining, finetuning, capsys):
    rng, survived = random.Random(1), Counter()
    for commands, kills in ((pretraining("num_workers=0"), 25), (pretraining("num_workers=2"), 20), (finetuning(), 15)):
        commands.begin_anew()
        commands.kill_at_random_moments(kills, rng)
        survived += commands.survived
        assert commands.went_on or commands.script == "finetune.py"
    commands = pretraining("num_workers=0")
    for largest in (1_000, 30_000, 200_000, 1_000_000, 2_500_000, 5_000_000):
        commands.begin_anew()
        commands.write_until_full(largest)
    for _ in range(20):
        commands.begin_anew()
        commands.start(kill_after=commands.seconds * rng.uniform(.5, .95))
        paths = [path for kind in ("checkpoints/pretrain/run_5/*.pth", "datasets/*.arrow") for path in commands.place.glob(kind)]
        if paths:
            commands.damage(rng.choice(paths), rng)
        commands.finish()
    survived += commands.survived
    commands = pretraining("num_workers=2")
    for _ in range(6):
        commands.begin_anew()
        done = commands.start(kill_after=commands.seconds * rng.uniform(.2, .9), victim="worker")
        assert "Traceback" not in done.stderr.split("error: ")[-1]
        commands.finish()
        survived["dead workers"] += done.returncode != 0
    commands = finetuning()
    for largest in (1_000, 100_000, 1_000_000):
        commands.begin_anew()
        commands.write_until_full(largest)
    survived += commands.survived
    with capsys.disabled():
        print(f"\n{sum(survived.values())} faults survived: " + ", ".join(f"{n} {fault}" for fault, n in survived.items()))
    assert survived["kills"] == 60 and survived["full disks"] >= 7 and survived["dead workers"] >= 3
    assert survived["damaged .pth"] + survived["damaged .arrow"] >= 18
