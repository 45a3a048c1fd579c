"""Snapshot files from server to server, which arrive whole, late, or not."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from coord.raft.network import FetchFailed, SnapshotSource

if TYPE_CHECKING:
    from coord_sim.world.peers import SimPeerNetwork, SimPeers

Room = Callable[[], bool]


async def fetch(
    hub: SimPeers, here: SimPeerNetwork, node: int, index: int, directory: str, room: Room
) -> SnapshotSource:
    """As `PeerNetwork.fetch_snapshot`: verified against the digest that was announced."""
    rng, climate = hub.rng, hub.climate
    await asyncio.sleep(rng.uniform(*climate.delay_s))
    source = _source(hub, here, node, index)
    if not room():
        raise FetchFailed(f"no room for snapshot {index}")
    path = os.path.join(directory, f"fetch-{index:020d}")
    contents = _read(source.path)
    await asyncio.sleep(len(contents) / climate.bytes_per_s * rng.uniform(1, 20))
    _source(hub, here, node, index)
    if hashlib.sha256(contents).hexdigest() != source.digest:
        raise FetchFailed(f"snapshot {index} is not what node {node} announced")
    _write(path, contents)
    return msgspec.structs.replace(source, path=path)


def _source(hub: SimPeers, here: SimPeerNetwork, node: int, index: int) -> SnapshotSource:
    other = hub.networks.get(node)
    cut = (node, here.node) in hub.cut or (here.node, node) in hub.cut
    if other is None or other.process.blocked or cut:
        raise FetchFailed(f"node {node} is not reached")
    source = other.source(index)
    if source is None or not os.path.exists(source.path):
        raise FetchFailed(f"snapshot {index} is gone")
    return source


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write(path: str, contents: bytes) -> None:
    with open(path, "wb") as file:
        file.write(contents)
