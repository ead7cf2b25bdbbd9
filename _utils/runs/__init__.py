"""Files that a run writes: checkpoints, the checkpoint to resume from, logs, uploads."""
from _utils.runs.checkpoints import (
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
from _utils.runs.log import Run, RunLog, locked, open_log, read_metrics, upload
from _utils.runs.resume import check_same_data, resume
