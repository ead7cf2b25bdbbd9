"""Files that a run writes: checkpoints, logs, uploads."""
from _utils.runs.checkpoints import (
    check_same_vocabulary,
    check_writable,
    is_finished,
    load_checkpoint,
    resume,
    save_checkpoint,
    save_pretrained,
    saved_networks,
    tokenizer_record,
    versions,
)
from _utils.runs.files import code_key
from _utils.runs.log import RunFolder, RunLog, locked, read_metrics, upload
