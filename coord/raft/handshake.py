"""Who may talk to whom: addresses, TLS, and the hello that begins every connection."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import warnings

import msgspec

from coord.raft.guard_append import Message
from coord.raft.wire import FRAME_LIMIT_BYTES, FrameStream

PROTOCOL = 1
HANDSHAKE_S = 5.0


class Introduction(msgspec.Struct, frozen=True):
    """What a server says of itself, and what it wants (`raft` or `snapshot`). `version` is of the
    configuration that it knows."""

    cluster: str
    node: int
    peer_address: str
    purpose: str
    version: tuple[int, int] = (0, 0)


class PeerRefused(Exception):
    """The other side, or we, will not talk; the message says who and why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class NotLoopback(OSError):
    """Plaintext is spoken on loopback only."""


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port`. Raises ValueError."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit():
        raise ValueError(f"{address!r} is no host:port")
    return host.strip("[]"), int(port)


def check_plaintext(address: str) -> None:
    """Raises NotLoopback unless the address is on loopback."""
    host, _ = split_address(address)
    if host == "localhost":
        return
    try:
        if ipaddress.ip_address(host).is_loopback:
            return
    except ValueError:
        pass_on = f"{host} is a name"
    else:
        pass_on = f"{host} can be reached by others"
    raise NotLoopback(
        f"{address}: {pass_on}, and without TLS servers talk on loopback only; give certificates "
        "(coord.raft.handshake.peer_context), or use 127.0.0.1"
    )


def peer_context(certificate: str, key: str, authority: str) -> ssl.SSLContext:
    """Mutual TLS 1.3 between servers, whose certificates `authority` signed: paths of PEM files.

    One context serves both directions, as each server both dials and is dialled.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the only kind that does both
        context = ssl.SSLContext(ssl.PROTOCOL_TLS)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # members are told by cluster and node id, addresses change
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority)
    return context


def hello(own: Introduction) -> Message:
    return {
        "type": "hello",
        "protocol": PROTOCOL,
        "cluster": own.cluster,
        "node": own.node,
        "purpose": own.purpose,
        "peer_address": own.peer_address,
        "configuration_term": own.version[0],
        "configuration_index": own.version[1],
    }


def refusal(error: PeerRefused) -> Message:
    return {"type": "refused", "code": error.code, "message": str(error)}


async def introduce(stream: FrameStream, own: Introduction, expected: int) -> Introduction:
    """As the one who dialled. Raises PeerRefused when either side will not, TimeoutError."""
    async with asyncio.timeout(HANDSHAKE_S):
        stream.send(hello(own))
        answer = await stream.receive()
    other = _read_hello(answer, own)
    if other.node != expected:
        raise PeerRefused(
            "node",
            f"{stream.remote} is node {other.node} of cluster {other.cluster!r}, not {expected}; "
            "check the members' addresses",
        )
    stream.limit_bytes = FRAME_LIMIT_BYTES
    return other


async def welcome(stream: FrameStream, own: Introduction) -> Introduction:
    """As the one who was dialled: read who it is. The caller answers `hello` or refuses."""
    async with asyncio.timeout(HANDSHAKE_S):
        return _read_hello(await stream.receive(), own)


def _read_hello(message: Message, own: Introduction) -> Introduction:
    if message["type"] == "refused":
        raise PeerRefused(message["code"], message["message"])
    if message["type"] != "hello":
        raise PeerRefused("malformed", f"{message['type']} before any hello")
    if message["protocol"] != PROTOCOL:
        raise PeerRefused(
            "protocol",
            f"node {message['node']} speaks protocol {message['protocol']}, this release "
            f"{PROTOCOL}; upgrade the older server",
        )
    if message["cluster"] != own.cluster:
        raise PeerRefused(
            "cluster",
            f"node {message['node']} is of cluster {message['cluster']!r}, node {own.node} of "
            f"{own.cluster!r}; check the members' addresses",
        )
    if message["node"] == own.node:
        raise PeerRefused("node", f"two servers call themselves node {own.node}")
    return Introduction(
        message["cluster"],
        message["node"],
        message["peer_address"],
        message["purpose"],
        (message["configuration_term"], message["configuration_index"]),
    )
