"""Export checkpoints to transformers folders: `python -m _utils.export_hf`."""
from _utils.export_hf.exporter import export, main
from _utils.export_hf.model_card import TRAINING, model_card
from _utils.export_hf.output import new_folder, save_network

__all__ = ["TRAINING", "export", "main", "model_card", "new_folder", "save_network"]
