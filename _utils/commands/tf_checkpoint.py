"""Read TensorFlow checkpoints without TensorFlow.

A checkpoint PREFIX consists of PREFIX.index, a LevelDB table from the names of variables to the locations of their values, and one or
more files PREFIX.data-*-of-* with the values (tensorflow/core/util/tensor_bundle, leveldb/doc/table_format.md). Only the features that
Google's checkpoints use are supported: unsliced little-endian variables and an uncompressed index. Checksums of the values are verified.
"""
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

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
        index = _existing(f"{self.prefix}.index")
        with as_plain_error(f"Cannot read {index} as the index of a TensorFlow checkpoint ({{error}}). Download it again."):
            table = _read_table(index.read_bytes())
            self.n_shards = dict(_fields(table.pop(b"")))[1]
            self.entries = {name.decode(): _entry(value) for name, value in sorted(table.items())}

    def read(self, name):
        """The values of a variable, as a numpy array."""
        entry = self.entries[name]
        path = _existing(f"{self.prefix}.data-{entry.shard:05d}-of-{self.n_shards:05d}")
        with path.open("rb") as file:
            file.seek(entry.offset)
            content = file.read(entry.size)
        if masked_crc32c(content) != entry.checksum:
            raise PlainError(f"{path} is truncated or damaged: the checksum of the variable {name} is wrong. Download it again.")
        with as_plain_error(f"Cannot read the variable {name} in {path} ({{error}}). Convert the checkpoint to float32."):
            return np.frombuffer(content, _DTYPES[entry.dtype]).reshape(entry.shape)


def _existing(name):
    if not Path(name).is_file():
        raise PlainError(f"File not found: {name!r}. Pass the name of the checkpoint without its extension, such as "
                         "electra_small/electra_small.")
    return Path(name)


def _fields(message):
    """[(field number, value)] of a protocol buffer message, whose definition need not be known. Nested messages stay bytes."""
    parsed = Empty()
    parsed.ParseFromString(message)
    return [(field.field_number, field.data) for field in UnknownFieldSet(parsed)]


def _entry(value):
    """The Entry in a BundleEntryProto: 1 dtype, 2 shape, 3 shard, 4 offset, 5 size, 6 checksum. Zeros are left out."""
    fields = dict(_fields(value))
    shape = tuple(dict(_fields(dimension)).get(1, 0) for number, dimension in _fields(fields.get(2, b"")) if number == 2)
    return Entry(fields[1], shape, *(fields.get(number, 0) for number in (3, 4, 5, 6)))


def masked_crc32c(data):
    """TensorFlow's checksum: CRC-32C, rotated by 15 bits, plus a constant (tensorflow/core/lib/hash/crc32c.h).

    numpy processes 4096 parts of the data in parallel. To combine them, the 32 bits of a checksum are processed too, each followed by a
    part of zeros: a checksum is linear in its bits. Zeros before the data do not change it.
    """
    length = (len(data) + 3) // 4096 + 1  # bytes of a part
    parts = np.frombuffer((_START + data).rjust(4096 * length, b"\0"), np.uint8).reshape(-1, length)
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    crcs = np.concatenate([np.zeros(len(parts), np.uint32), bits])
    for column in np.pad(parts, ((0, 32), (0, 0))).T:
        crcs = _CRC_TABLE[(crcs ^ column) & 255] ^ (crcs >> 8)
    crc = np.uint32(0)
    for of_part in crcs[:-32]:
        crc = np.bitwise_xor.reduce(crcs[-32:][(crc & bits) != 0]) ^ of_part
    crc = int(crc) ^ 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc_table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0x82F63B78), table >> 1)
    return table


_CRC_TABLE = _crc_table()
_START = b"Td\x1fd"  # after these bytes, a checksum that starts with 0 is 0xFFFFFFFF, with which CRC-32C starts


def _read_table(data):
    """{key: value} of a LevelDB table. Its last 48 bytes point to the index block, which points to the data blocks."""
    if data[-8:] != _TABLE_MAGIC:
        raise ValueError("not a LevelDB table")
    _, _, offset, size, _ = _varints(data, len(data) - 48, 4)  # of the metaindex block, which is empty, and of the index block
    entries = {}
    for handle in _read_block(data, offset, size).values():
        entries |= _read_block(data, *_varints(handle, 0, 2)[:2])
    return entries


def _read_block(data, offset, size):
    """{key: value} of a block. A key omits the prefix that it shares with the one before."""
    block = data[offset:offset + size]
    end = size - 4 * (int.from_bytes(block[-4:], "little") + 1)  # the restart points of a binary search follow
    entries, key, at = {}, b"", 0
    while at < end:
        shared, unshared, length, at = _varints(block, at, 3)
        key = key[:shared] + block[at:at + unshared]
        entries[key] = block[at + unshared:at + unshared + length]
        at += unshared + length
    return entries


def _varints(data, at, n):
    """n variable-length integers, seven bits per byte with the lowest first, and the position after them."""
    numbers = []
    for _ in range(n):
        end = next(i for i in range(at, len(data)) if data[i] < 128) + 1
        numbers.append(sum((byte & 127) << 7 * i for i, byte in enumerate(data[at:end])))
        at = end
    return *numbers, at
