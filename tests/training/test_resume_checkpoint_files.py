"""Files to resume from: an undamaged one survives every interrupted write, and unreadable ones are not skipped
silently.
"""
import errno
from unittest import mock

import pytest
from tiny_pretraining import flip_bit

from _utils.errors import UserError
from _utils.runs.checkpoints import find_resume_checkpoint, save_resume_checkpoint


def test_damaged_checkpoint_is_renamed_by_the_first_process_and_does_not_replace_the_undamaged_one(
    tmp_path, monkeypatch
):
    save_resume_checkpoint(tmp_path, {"step": 1})
    save_resume_checkpoint(tmp_path, {"step": 2})
    flip_bit(tmp_path / "resume.pth")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, is_kept in (("1", True), ("0", False)):
        for name in ("RANK", "LOCAL_RANK"):
            monkeypatch.setenv(name, rank)
        assert find_resume_checkpoint(tmp_path) == {"step": 1} and (tmp_path / "resume.pth").exists() == is_kept
    assert {path.name for path in tmp_path.iterdir()} == {"resume.pth.damaged", "resume_before.pth"}
    save_resume_checkpoint(tmp_path, {"step": 3})
    assert find_resume_checkpoint(tmp_path) == {"step": 3}


@pytest.mark.parametrize("function, error", [
    ("zipfile.ZipFile.testzip", OSError(errno.EIO, "Input/output error")), ("torch.load", MemoryError())])
def test_temporarily_unreadable_checkpoint_is_reported_and_kept(tmp_path, monkeypatch, function, error):
    for step in (1, 2):
        save_resume_checkpoint(tmp_path, {"step": step})
    with monkeypatch.context() as patch, pytest.raises(UserError, match="resume.pth"):
        patch.setattr(function, mock.Mock(side_effect=error))
        find_resume_checkpoint(tmp_path)
    assert find_resume_checkpoint(tmp_path) == {"step": 2}


@pytest.mark.parametrize("function, error", [("os.replace", KeyboardInterrupt), ("os.fsync", OSError)])
def test_a_failure_while_the_next_checkpoint_is_written_keeps_the_previous_one(tmp_path, monkeypatch, function, error):
    save_resume_checkpoint(tmp_path, {"step": 1})
    with monkeypatch.context() as patch, pytest.raises((error, UserError)):
        patch.setattr(function, mock.Mock(side_effect=error))
        save_resume_checkpoint(tmp_path, {"step": 2})
    assert find_resume_checkpoint(tmp_path) == {"step": 1}
    save_resume_checkpoint(tmp_path, {"step": 3})
    assert find_resume_checkpoint(tmp_path) == {"step": 3}
    flip_bit(tmp_path / "resume.pth")
    assert find_resume_checkpoint(tmp_path) == {"step": 1}
