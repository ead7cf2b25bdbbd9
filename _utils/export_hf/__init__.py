"""Export checkpoints to transformers folders: `python -m _utils.export_hf`."""
from _utils.export_hf.exporter import export, main
from _utils.export_hf.model_folder import TRAINING, new_folder, read_vocab, save_network

__all__ = ["TRAINING", "export", "main", "new_folder", "read_vocab", "save_network"]
