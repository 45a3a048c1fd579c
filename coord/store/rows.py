"""How an entry and a row of the state look as a key with a value."""

from __future__ import annotations

import hashlib
import struct
import zlib

from coord.codec import MalformedMessage, decode_recorded, encode_recorded
from coord.model.entry import Recorded
from coord.store.environment import KEY_LENGTH_LIMIT
from coord.store.ports import REJOIN, StorageCorrupt

_INDEX = struct.Struct(">Q")
_CRC = struct.Struct(">I")
_HASHED = b"\xff"
"""Begins the part of a key that stands for a name too long for LMDB; no UTF-8 text begins so."""


def index_key(index: int) -> bytes:
    """Sorts as the log index does."""
    return _INDEX.pack(index)


def encode_entry(record: Recorded) -> bytes:
    """The entry behind its CRC."""
    encoded = encode_recorded(record)
    return _CRC.pack(zlib.crc32(encoded)) + encoded


def decode_entry(where: str, key: bytes, value: bytes) -> Recorded:
    """The inverse; StorageCorrupt names `where` and the index."""
    check_entry(where, key, value)
    try:
        return decode_recorded(value[_CRC.size :])
    except MalformedMessage as error:
        raise _corrupt(where, key, str(error)) from error


def check_entry(where: str, key: bytes, value: bytes) -> None:
    """Raises StorageCorrupt, naming `where` and the index, for an entry that is not as written."""
    if value[: _CRC.size] != _CRC.pack(zlib.crc32(memoryview(value)[_CRC.size :])):
        raise _corrupt(where, key, "its checksum does not match")


def _corrupt(where: str, key: bytes, why: str) -> StorageCorrupt:
    index = _INDEX.unpack(key)[0]
    return StorageCorrupt(f"{where}, entry {index}: {why}; stop this server and {REJOIN}")


def row_key(table: str, name: str) -> tuple[bytes, bytes]:
    """The key of a row, and what its value must begin with. A name too long for a key is hashed,
    and stands in the value instead."""
    head, tail = table.encode() + b"\0", name.encode()
    if len(head) + len(tail) <= KEY_LENGTH_LIMIT:
        return head + tail, b""
    return head + _HASHED + hashlib.sha256(tail).digest(), _CRC.pack(len(tail)) + tail


def split_row(key: bytes, value: bytes) -> tuple[str, str, bytes]:
    """Table, name and row."""
    head, _, tail = key.partition(b"\0")
    if not tail.startswith(_HASHED):
        return head.decode(), tail.decode(), value
    start = _CRC.size + _CRC.unpack(value[: _CRC.size])[0]
    return head.decode(), value[_CRC.size : start].decode(), value[start:]
