"""Convert Google's TensorFlow checkpoints to transformers folders: `python -m _utils.convert_tf`."""
from _utils.convert_tf.converter import convert

__all__ = ["convert"]
