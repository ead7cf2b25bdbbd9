"""Read TensorFlow checkpoints without TensorFlow.

A checkpoint PREFIX consists of PREFIX.index, a LevelDB table from the names of variables to the locations of their values, and one or
more files PREFIX.data-*-of-* with the values (tensorflow/core/util/tensor_bundle, leveldb/doc/table_format.md). Only the features that
Google's checkpoints use are supported: unsliced variables and an uncompressed index. Checksums of the values are verified.
"""
import math
import os
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from _utils.errors import PlainError, as_plain_error

_TABLE_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_DTYPES = {1: np.float32, 2: np.float64, 3: np.int32, 9: np.int64, 19: np.float16}  # of tensorflow.DataType


class Entry(NamedTuple):
    """The type, shape and location of a variable."""
    dtype: int
    shape: tuple
    shard: int
    offset: int
    size: int  # in bytes
    checksum: int


class TFCheckpoint:
    """The variables of the checkpoint `prefix`: `entries` {name: Entry}, and `read(name)` for the values.

    Raises PlainError for files that are missing, truncated, damaged or in another format.
    """

    def __init__(self, prefix):
        self.prefix = re.sub(r"\.(index|data-\d+-of-\d+)$", "", str(prefix))
        with as_plain_error(f"Cannot read {self.prefix}.index as the index of a TensorFlow checkpoint ({{error}}). Download it again."):
            table = _read_table(_existing(self.prefix + ".index").read_bytes())
            header = _message(table.pop(b""))
            self.n_shards = header[1][0]
            if header.get(2, [0])[0]:
                raise ValueError("big-endian numbers are not supported")
            self.entries = {name.decode(): _entry(value) for name, value in sorted(table.items())}

    def read(self, name):
        """The values of a variable, as a numpy array."""
        entry = self.entries[name]
        path = _existing(f"{self.prefix}.data-{entry.shard:05d}-of-{self.n_shards:05d}")
        dtype = _DTYPES.get(entry.dtype)
        if dtype is None or math.prod(entry.shape) * np.dtype(dtype).itemsize != entry.size:
            raise PlainError(f"Unsupported variable {name} in {self.prefix!r} (type {entry.dtype}, shape {entry.shape}, {entry.size} "
                             "bytes). Convert the checkpoint to float32.")
        if path.stat().st_size < entry.offset + entry.size:
            raise PlainError(f"{path} is truncated: it ends before the variable {name}. Download it again.")
        with path.open("rb") as file:
            file.seek(entry.offset)
            content = file.read(entry.size)
        if masked_crc32c(content) != entry.checksum:
            raise PlainError(f"The variable {name} in {path} is damaged: its checksum is wrong. Download the file again.")
        return np.frombuffer(content, dtype).reshape(entry.shape)


def _existing(path):
    if not os.path.isfile(path):
        raise PlainError(f"File not found: {path!r}. Pass the name of the checkpoint without its extension, such as "
                         "electra_small/electra_small.")
    return Path(path)


def _entry(value):
    """The Entry in a BundleEntryProto: 1 dtype, 2 shape, 3 shard, 4 offset, 5 size, 6 checksum, 7 slices."""
    fields = _message(value)
    if 7 in fields:
        raise ValueError("sliced variables are not supported")
    dimensions = _message(fields[2][0]).get(2, []) if 2 in fields else []
    shape = tuple(_message(dimension).get(1, [0])[0] for dimension in dimensions)
    return Entry(fields[1][0], shape, *(fields.get(number, [0])[0] for number in (3, 4, 5, 6)))


def masked_crc32c(data):
    """TensorFlow's checksum: CRC-32C, rotated by 15 bits, plus a constant (tensorflow/core/lib/hash/crc32c.h).

    numpy processes about 4096 parts of the data in parallel. To combine them, the 32 bits of a checksum are processed too, each
    followed by a part of zeros: a checksum is linear in its bits.
    """
    length = max(1, len(data) // 4096)  # bytes of a part
    parts = np.frombuffer(data, np.uint8, len(data) // length * length).reshape(-1, length)
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    crcs = np.concatenate([np.zeros(len(parts), np.uint32), bits])
    for column in np.pad(parts, ((0, 32), (0, 0))).T:
        crcs = _CRC_TABLE[(crcs ^ column) & 255] ^ (crcs >> 8)
    crc, of_parts, of_bits = np.uint32(0xFFFFFFFF), crcs[:-32], crcs[-32:]
    for of_part in of_parts:
        crc = np.bitwise_xor.reduce(of_bits[(crc & bits) != 0]) ^ of_part
    for byte in data[parts.size:]:
        crc = _CRC_TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    crc = int(crc) ^ 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc_table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0x82F63B78), table >> 1)
    return table


_CRC_TABLE = _crc_table()


def _message(data):
    """{field number: [values]} of a protocol buffer message. Nested messages stay bytes."""
    fields, at = {}, 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
            value, at = int.from_bytes(data[at:at + length], "little"), at + length
        elif kind == 2:
            length, at = _varint(data, at)
            value, at = data[at:at + length], at + length
        else:
            raise ValueError(f"unknown wire type {kind}")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _read_table(data):
    """{key: value} of a LevelDB table. Its last 48 bytes point to the index block, which points to the data blocks."""
    if data[-8:] != _TABLE_MAGIC:
        raise ValueError("not a LevelDB table")
    footer = data[-48:]
    _, at = _varint(footer, 0)  # offset
    _, at = _varint(footer, at)  # and size of the metaindex block, which is empty
    entries = {}
    for handle in _read_block(data, footer[at:]).values():
        entries.update(_read_block(data, handle))
    return entries


def _read_block(data, handle):
    """{key: value} of the block at a handle (offset, size). A key omits the prefix that it shares with the one before."""
    offset, at = _varint(handle, 0)
    size, _ = _varint(handle, at)
    block, compression = data[offset:offset + size], data[offset + size]
    if compression:
        raise ValueError("compressed tables are not supported")
    end = size - 4 * (int.from_bytes(block[-4:], "little") + 1)  # the restart points of a binary search follow
    entries, key, at = {}, b"", 0
    while at < end:
        shared, at = _varint(block, at)
        unshared, at = _varint(block, at)
        length, at = _varint(block, at)
        key = key[:shared] + block[at:at + unshared]
        entries[key] = block[at + unshared:at + unshared + length]
        at += unshared + length
    return entries


def _varint(data, at):
    """(number, position after it) of a variable-length integer: seven bits per byte, the lowest first."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
