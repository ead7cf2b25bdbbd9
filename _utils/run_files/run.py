"""The name of a pretraining run, and where its files are."""
import itertools
import re
from dataclasses import dataclass
from pathlib import Path

from _utils.run_files.run_log import locked


@dataclass(frozen=True)
class Run:
    """A run is named <base_run_name>_<seed>. Milestones are in `root`, everything else in the folder of that name."""
    base_run_name: str
    seed: int
    root: Path = Path("checkpoints/pretrain")

    @property
    def name(self):
        return f"{self.base_run_name}_{self.seed}"

    @property
    def folder(self):
        return self.root / self.name

    def milestone(self, percent):
        """Path of a milestone, e.g. checkpoints/pretrain/vanilla_11081_100.0%.pth."""
        return self.root / f"{self.name}_{percent}%.pth"

    def milestones(self):
        """Paths of the milestones that exist."""
        return [path for path in sorted(self.root.glob("*.pth")) if re.fullmatch(re.escape(self.name) + r"_[\d.]+%", path.stem)]

    def lock(self):
        """Context in which no other process can train this run; raises PlainError if one does."""
        return locked(self.folder, "base_run_name")

    def archive(self):
        """Move the files of an earlier run of this name to aside/<name>_<number>, so that nothing is overwritten."""
        files = [*([self.folder] if self.folder.exists() else []), *self.milestones()]
        if not files:
            return
        numbered = (self.root / "aside" / f"{self.name}_{n}" for n in itertools.count(1))
        archive = next(path for path in numbered if not path.exists())
        archive.mkdir(parents=True)
        for unfinished in self.folder.glob("*.unfinished"):  # left by a process that was killed while writing
            unfinished.unlink()
        for path in files:
            path.rename(archive / path.name)
        print(f"Moved the earlier run {self.name} to {archive}")
