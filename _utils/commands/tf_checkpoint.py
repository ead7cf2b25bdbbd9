"""Read TensorFlow checkpoints without TensorFlow.

A checkpoint PREFIX consists of PREFIX.index, a LevelDB table from the names of variables to the locations of their
values, and one or more files PREFIX.data-*-of-* with the values (tensorflow/core/util/tensor_bundle,
leveldb/doc/table_format.md). Only the features that Google's checkpoints use are supported: unsliced little-endian
variables and an uncompressed index.
"""
from io import BytesIO
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

from _utils.errors import as_user_error

_TABLE_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_DTYPES = {1: np.float32, 9: np.int64}  # of tensorflow.DataType, in Google's checkpoints: weights and the step


class Variable(NamedTuple):
    """The shape of a variable and the location of its values."""
    shape: tuple
    dtype: int
    path: str
    offset: int

    def read(self):
        """The values, as a numpy array. UserError for a file that is missing or truncated."""
        with as_user_error(f"Cannot read the values in {self.path} ({{error}}). Download it again."):
            return np.fromfile(self.path, _DTYPES[self.dtype], prod(self.shape), offset=self.offset).reshape(self.shape)


def open_variables(prefix):
    """Return {name: Variable} of a checkpoint.

    Raises UserError for an index that is missing, damaged or in another format.
    """
    prefix = str(prefix).removesuffix(".index")
    index = f"{prefix}.index"
    with as_user_error(f"Cannot read {index!r} ({{error}}). Download it again, or pass the name of a TensorFlow "
                       "checkpoint, such as electra_small/electra_small."):
        table = _read_table(Path(index).read_bytes())
        n_shards = dict(_fields(table.pop(b"")))[1]
        return {name.decode(): _variable(entry, lambda shard: f"{prefix}.data-{shard:05d}-of-{n_shards:05d}")
                for name, entry in table.items()}


def _variable(entry, path_of):
    """The Variable of a BundleEntryProto: 1 dtype, 2 shape, 3 shard, 4 offset. Zeros are left out."""
    fields = dict(_fields(entry))
    shape = tuple(dict(_fields(size)).get(1, 0) for number, size in _fields(fields.get(2, b"")) if number == 2)
    return Variable(shape, fields[1], path_of(fields.get(3, 0)), fields.get(4, 0))


def _fields(message):
    """Return [(field number, value)] of a protocol buffer message, whose definition need not be known.

    Nested messages stay bytes.
    """
    parsed = Empty.FromString(message)
    return [(field.field_number, field.data) for field in UnknownFieldSet(parsed)]


def _read_table(data):
    """{key: value} of a LevelDB table. Its last 48 bytes point to the index block, which points to the data blocks."""
    if not data.endswith(_TABLE_MAGIC):
        raise ValueError("not a LevelDB table")
    footer, entries = BytesIO(data[-48:]), {}
    # of the metaindex block, which is empty, and of the index block
    _, _, offset, size = (_varint(footer) for _ in range(4))
    for handle in map(BytesIO, _read_block(data, offset, size).values()):
        entries |= _read_block(data, _varint(handle), _varint(handle))
    return entries


def _read_block(data, offset, size):
    """{key: value} of a block. A key omits the prefix that it shares with the one before."""
    data = data[offset:offset + size]
    end = size - 4 * (int.from_bytes(data[-4:], "little") + 1)  # the restart points of a binary search follow
    block, entries, key = BytesIO(data), {}, b""
    while block.tell() < end:
        shared, unshared, length = (_varint(block) for _ in range(3))
        key = key[:shared] + block.read(unshared)
        entries[key] = block.read(length)
    return entries


def _varint(file):
    """A variable-length integer: seven bits per byte, the lowest first; the last byte is below 128."""
    byte = file.read(1)[0]
    return byte if byte < 128 else byte - 128 + 128 * _varint(file)
