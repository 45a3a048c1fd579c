"""As much of RFC 6455 as a client needs that measures servers, cheaply."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

BINARY, CLOSE, PING, PONG = 2, 8, 9, 10
_FINAL, _MASKED = 0x80, 0x80
_NO_MASK = bytes(4)
"""A key of zeros changes nothing: masking costs the server what it always does, and us nothing."""
_UPGRADE = (
    b"GET /v1/channel HTTP/1.1\r\nHost: coord\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class NotUpgraded(Exception):
    """The server answered something else than the channel."""


def address_of(url: str) -> tuple[str, int]:
    """Where to connect for `http://HOST:PORT`."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 80


def upgrade_request() -> bytes:
    """What opens a connection; the answer is the beginning of what `Frames` reads."""
    return _UPGRADE


def masked(opcode: int, payload: bytes) -> bytes:
    """One whole frame of a client."""
    size = len(payload)
    first = _FINAL | opcode
    if size < 126:
        return bytes((first, _MASKED | size)) + _NO_MASK + payload
    if size < 1 << 16:
        return bytes((first, _MASKED | 126)) + size.to_bytes(2, "big") + _NO_MASK + payload
    return bytes((first, _MASKED | 127)) + size.to_bytes(8, "big") + _NO_MASK + payload


class Frames:
    """Bytes of one connection to its frames, unmasked and unfragmented as our servers send them."""

    def __init__(self) -> None:
        self.just_upgraded = False
        self._upgraded = False
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """(opcode, payload) of each frame that is complete now. Raises NotUpgraded."""
        data = self._rest + data if self._rest else data
        at = 0
        if not self._upgraded:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._rest = data
                return
            if b" 101 " not in data[: data.index(b"\r\n")]:
                raise NotUpgraded(data[:200].decode(errors="replace"))
            self._upgraded = self.just_upgraded = True
            at = end + 4
        self._rest = b""
        while len(data) - at >= 2:
            body, size = at + 2, data[at + 1]
            if size >= 126:
                length = 2 if size == 126 else 8
                body += length
                size = int.from_bytes(data[at + 2 : body], "big") if len(data) >= body else 1 << 62
            if len(data) < body + size:
                break
            yield data[at] & 15, data[body : body + size]
            at = body + size
        self._rest = data[at:]
