"""Files that a run writes: checkpoints, the checkpoint to resume from, logs, uploads."""
from _utils.run_files.checkpoints import (
    check_writable,
    find_checkpoint,
    load_checkpoint,
    load_pretraining_checkpoint,
    milestone_steps,
    save_checkpoint,
    save_pretrained,
    versions,
    write_atomically,
)
from _utils.run_files.resume import check_same_data, config_files, resume
from _utils.run_files.run import Run
from _utils.run_files.run_log import NoLog, RunLog, locked, open_log, read_metrics
from _utils.run_files.uploads import Uploads

__all__ = ["NoLog", "Run", "RunLog", "Uploads", "check_same_data", "check_writable", "config_files", "find_checkpoint", "load_checkpoint",
           "load_pretraining_checkpoint", "locked", "milestone_steps", "open_log", "read_metrics", "resume", "save_checkpoint",
           "save_pretrained", "versions", "write_atomically"]
