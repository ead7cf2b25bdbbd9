"""Files that a run writes: checkpoints, logs, uploads."""
from _utils.runs.checkpoints import load_checkpoint, save_checkpoint, save_pretrained, tokenizer_record, versions
from _utils.runs.log import RunFolder, RunLog, locked, read_metrics
