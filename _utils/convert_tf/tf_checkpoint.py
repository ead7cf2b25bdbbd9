"""TensorFlow's checkpoint files, read without TensorFlow.

A checkpoint PREFIX is PREFIX.index, which is a LevelDB table of variable names and where their values lie, and one or more
PREFIX.data-*-of-*, which hold nothing but the values (tensorflow/core/util/tensor_bundle, leveldb/doc/table_format.md).
Only what Google's checkpoints use is read: whole variables, an index that is not compressed. Check sums of the values are verified.
"""
import math
import os
import re
from typing import NamedTuple

import numpy as np

from _utils.errors import PlainError

_TABLE_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_DTYPES = {1: np.float32, 2: np.float64, 3: np.int32, 9: np.int64, 19: np.float16}  # of tensorflow.DataType


class Entry(NamedTuple):
    """One variable: where its values lie."""
    dtype: int
    shape: tuple
    shard: int
    offset: int
    size: int  # in bytes
    checksum: int


class TFCheckpoint:
    """The variables of the checkpoint `prefix`: `entries` {name: Entry}, and `read(name)` for the values.

    Raises PlainError for files that are missing, cut short or of another kind.
    """

    def __init__(self, prefix):
        self.prefix = re.sub(r"\.(index|data-\d+-of-\d+)$", "", str(prefix))
        try:
            table = _read_table(_bytes_of(self.prefix + ".index"))
            header = _message(table.pop(b""))
            self.n_shards = header[1][0]
            if header.get(2, [0])[0]:
                raise ValueError("its numbers are big-endian")
            self.entries = {name.decode(): _entry(value) for name, value in sorted(table.items())}
        except (ValueError, KeyError, IndexError, TypeError, OverflowError) as error:  # what damaged bytes lead to
            raise PlainError(f"{self.prefix}.index is no index of a TensorFlow checkpoint that can be read here ({error}): "
                             "fetch it again.") from error

    def read(self, name):
        """The values of a variable, as a numpy array."""
        entry = self.entries[name]
        path = _existing(f"{self.prefix}.data-{entry.shard:05d}-of-{self.n_shards:05d}")
        dtype = _DTYPES.get(entry.dtype)
        if dtype is None or math.prod(entry.shape) * np.dtype(dtype).itemsize != entry.size:
            raise PlainError(f"the variable {name} of {self.prefix!r} is of a kind that is not read here (type {entry.dtype}, shape "
                             f"{entry.shape}, {entry.size} bytes): convert the checkpoint to float32 first.")
        if os.path.getsize(path) < entry.offset + entry.size:
            raise PlainError(f"{path} ends before the variable {name}: fetch it again.")
        with open(path, "rb") as file:
            file.seek(entry.offset)
            content = file.read(entry.size)
        if masked_crc32c(content) != entry.checksum:
            raise PlainError(f"the variable {name} in {path} is damaged, its check sum is another: fetch the file again.")
        return np.frombuffer(content, dtype).reshape(entry.shape)


def _existing(path):
    if not os.path.isfile(path):
        raise PlainError(f"there is no file {path!r}: give the checkpoint's name without its ending, such as "
                         "electra_small/model.ckpt-4000000, beside which .index and .data-* lie.")
    return path


def _bytes_of(path):
    with open(_existing(path), "rb") as file:
        return file.read()


def _entry(value):
    """Entry of a BundleEntryProto: 1 dtype, 2 shape, 3 shard, 4 offset, 5 size, 6 check sum, 7 slices."""
    fields = _message(value)
    if 7 in fields:
        raise ValueError("it has variables in slices")
    dimensions = _message(fields[2][0]).get(2, []) if 2 in fields else []
    shape = tuple(_message(dimension).get(1, [0])[0] for dimension in dimensions)
    return Entry(fields[1][0], shape, *(fields.get(number, [0])[0] for number in (3, 4, 5, 6)))


def masked_crc32c(data):
    """The check sum of TensorFlow's files: CRC-32C, rotated by 15 bits, plus a constant (tensorflow/core/lib/hash/crc32c.h).

    The bytes stand in lanes that numpy goes through side by side; the check sums of the lanes are then joined.
    """
    lane = max(1, len(data) // 4096)  # bytes of a lane
    lanes = np.frombuffer(data, np.uint8, len(data) // lane * lane).reshape(-1, lane)
    crcs = np.zeros(len(lanes), np.uint32)
    for column in lanes.T:
        crcs = _TABLE[(crcs ^ column) & 255] ^ (crcs >> 8)
    crc, over_a_lane = 0xFFFFFFFF, _zeros(lane)
    for of_lane in crcs.tolist():
        crc = _times(over_a_lane, crc) ^ of_lane
    for byte in data[lanes.size:]:
        crc = int(_TABLE[(crc ^ byte) & 255]) ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc_table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0x82F63B78), table >> 1)
    return table


_TABLE = _crc_table()


def _zeros(n_bytes):
    """What n zero bytes do to a check sum: a linear map, as the 32 images of its bits."""
    result, step = [1 << bit for bit in range(32)], [int(_TABLE[1 << bit]) if bit < 8 else 1 << bit - 8 for bit in range(32)]
    while n_bytes:
        if n_bytes & 1:
            result = [_times(step, image) for image in result]
        step, n_bytes = [_times(step, image) for image in step], n_bytes >> 1
    return result


def _times(images, crc):
    found = 0
    while crc:
        lowest = crc & -crc
        found ^= images[lowest.bit_length() - 1]
        crc ^= lowest
    return found


def _message(data):
    """{field number: [values]} of a protocol buffer; nested messages stay bytes."""
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
            raise ValueError("it has fields of an unknown kind")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _read_table(data):
    """{key: value} of a LevelDB table: the last 48 bytes point to the index block, and that to the data blocks."""
    if data[-8:] != _TABLE_MAGIC:
        raise ValueError("its last bytes are others")
    footer = data[-48:]
    _, at = _varint(footer, 0)  # of the metaindex block, which is empty:
    _, at = _varint(footer, at)  # offset and size
    entries = {}
    for handle in _read_block(data, footer[at:]).values():
        entries.update(_read_block(data, handle))
    return entries


def _read_block(data, handle):
    """{key: value} of the block that a handle (offset, size) points to. A key shares its beginning with the one before."""
    offset, at = _varint(handle, 0)
    size, _ = _varint(handle, at)
    block, compression = data[offset:offset + size], data[offset + size]
    if compression:
        raise ValueError("it is compressed")
    end = size - 4 * (int.from_bytes(block[-4:], "little") + 1)  # the rest are restart points, to search faster
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
    """(number, position behind it) of a variable-length integer: seven bits a byte, the lowest first."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at
