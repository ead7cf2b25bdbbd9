"""What a run writes: checkpoints, the checkpoint to resume from, logs and uploads."""
from _utils.run_files.checkpoints import (
    MILESTONES,
    check_writable,
    checkpoint_path,
    find_checkpoint,
    load_checkpoint,
    load_pretraining_checkpoint,
    save_checkpoint,
    save_pretrained,
    versions,
    write_atomically,
)
from _utils.run_files.run_log import NoLog, RunLog, archive_run, locked, read_metrics
from _utils.run_files.uploads import Uploads

__all__ = ["MILESTONES", "NoLog", "RunLog", "Uploads", "check_writable", "checkpoint_path", "find_checkpoint", "load_checkpoint",
           "load_pretraining_checkpoint", "locked", "read_metrics", "save_checkpoint", "save_pretrained", "archive_run", "versions",
           "write_atomically"]
