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


def index_of(where: str, key: bytes) -> int:
    """The inverse; StorageCorrupt names `where` for a key that is none of an entry."""
    if len(key) != _INDEX.size:
        raise damaged(where, f"events has an entry under the key {key.hex()}, which is no index")
    return int(_INDEX.unpack(key)[0])


def number_in(where: str, name: bytes, stored: bytes | None) -> int:
    """A number of `store_meta`, 0 where there is none."""
    if stored is None:
        return 0
    if len(stored) != _INDEX.size:
        raise damaged(where, f"store_meta {name.decode()} is {stored.hex()}, which is no number")
    return int(_INDEX.unpack(stored)[0])


def damaged(where: str, why: str) -> StorageCorrupt:
    """What to raise about stored bytes that are not what was written."""
    return StorageCorrupt(f"{where}: {why}; stop this server and {REJOIN}")


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
    index_of(where, key)
    if value[: _CRC.size] != _CRC.pack(zlib.crc32(memoryview(value)[_CRC.size :])):
        raise _corrupt(where, key, "its checksum does not match")


def _corrupt(where: str, key: bytes, why: str) -> StorageCorrupt:
    return damaged(f"{where}, entry {index_of(where, key)}", why)


def row_key(table: str, name: str) -> tuple[bytes, bytes]:
    """The key of a row, and what its value must begin with. A name too long for a key is hashed,
    and stands in the value instead."""
    head, tail = table.encode() + b"\0", name.encode()
    if len(head) + len(tail) <= KEY_LENGTH_LIMIT:
        return head + tail, b""
    return head + _hashed(tail), _CRC.pack(len(tail)) + tail


def _hashed(name: bytes) -> bytes:
    return _HASHED + hashlib.sha256(name).digest()


def split_row(where: str, key: bytes, value: bytes) -> tuple[str, str, bytes]:
    """Table, name and row; StorageCorrupt names `where` and the key."""
    head, _, tail = key.partition(b"\0")
    row = value
    if tail.startswith(_HASHED):
        start = _CRC.size + int.from_bytes(value[: _CRC.size], "big")
        tail, row = value[_CRC.size : start], value[start:]
        if row_key(head.decode(errors="replace"), "")[0] + _hashed(tail) != key:
            raise damaged(where, f"state has a row under {key.hex()} that is of another name")
    try:
        return head.decode(), tail.decode(), row
    except UnicodeDecodeError as error:
        raise damaged(where, f"state has a row under {key.hex()}, which is no name") from error
