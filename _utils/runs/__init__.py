"""Files that a run writes: checkpoints, the checkpoint to resume from, logs, uploads."""
from _utils.runs.checkpoints import (
    check_writable,
    load_checkpoint,
    milestone_steps,
    save_checkpoint,
    save_pretrained,
    saved_networks,
    tokenizer_record,
    versions,
)
from _utils.runs.files import code_key
from _utils.runs.log import RunFolder, RunLog, locked, open_log, read_metrics, upload
from _utils.runs.resume import check_same_data, check_same_vocabulary, is_finished, original_code, resume
