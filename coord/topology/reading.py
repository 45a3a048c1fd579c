"""From a file to a `Topology`: whatever its format, which its content tells."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable

from msgspec.structs import replace

from coord.topology import infiniband, kubernetes, nccl, netq, nvidia_smi, slurm, topograph
from coord.topology.names import BadNames, host_name, short
from coord.topology.topology import Topology, TopologyError

SIZE_LIMIT_BYTES = 64 << 20
"""Of the text, unpacked. The fabric of 10,000 hosts takes a tenth of it."""

FORMATS: dict[str, Callable[[str, str], Topology]] = {
    module.FORMAT: module.parse
    for module in (slurm, infiniband, nccl, nvidia_smi, kubernetes, netq, topograph)
}

_GZIP = b"\x1f\x8b"
_LOOKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (nccl.FORMAT, re.compile(r"\A\s*<")),
    (slurm.FORMAT, re.compile(r"^\s*(SwitchName|BlockName|BlockSizes)\s*=", re.I | re.M)),
    (
        infiniband.FORMAT,
        re.compile(r'^\s*((switch|ca|sysim)guid=|(Switch|Ca)\s+\d+\s+"|# Topology file:)', re.M),
    ),
    (nvidia_smi.FORMAT, re.compile(r"^\s*(\x1b\[\d+m)?\s*GPU0\s", re.M)),
    (netq.FORMAT, re.compile(r'\A\s*[\[{].*"(compounded_\w+|DomainUUID|links)"\s*:', re.S)),
    (topograph.FORMAT, re.compile(r"^(switches|blocks)\s*:", re.M)),
    (topograph.FORMAT, re.compile(r'\A\s*\{\s*"(switches|blocks)"\s*:')),
    (kubernetes.FORMAT, re.compile(r"^[\s\-]*\"?(kind|apiVersion)\"?\s*:", re.M)),
    (kubernetes.FORMAT, re.compile(r'\A\s*[\[{].*"(kind|apiVersion|items)"\s*:', re.S)),
)


def read(content: bytes, name: str, format_name: str = "", host: str = "") -> Topology:
    """The topology in a file's bytes, packed by gzip or not. `host` is whom it describes, for a
    format that describes one host without naming it, and empty for the others.

    Raises TopologyError. `name` is what errors call the file.
    """
    text = _text(content, name)
    kind = format_name or detected(text)
    if kind not in FORMATS:
        if format_name:
            what, remedy = f"no format `{short(kind)}`", f"there is {', '.join(FORMATS)}"
        else:
            what = "its format cannot be told from its content"
            remedy = f"name it with --format: {', '.join(FORMATS)}"
        raise TopologyError(name, 0, what, remedy)
    return _of_host(FORMATS[kind](text, name), name, host)


def detected(text: str) -> str:
    """The format's name; empty when none is like it."""
    return next((kind for kind, looks in _LOOKS if looks.search(text)), "")


def _of_host(topology: Topology, name: str, host: str) -> Topology:
    if topology.local and not host:
        what = f"it describes one host ({topology.format}) and does not name it"
        raise TopologyError(name, 0, what, "name it with --host")
    if host and not topology.local:
        what = f"it names its hosts itself ({topology.format})"
        raise TopologyError(name, 0, what, "leave --host away")
    if not topology.local:
        return topology
    try:
        host_name(host)
    except BadNames as error:
        raise TopologyError(name, 0, f"--host: {error}", "give the host's name") from error
    (located,) = topology.hosts
    if not located.rails and not located.islands:
        what = "it tells of no adapter and no link between devices"
        raise TopologyError(name, 0, what, "dump the topology of the running host")
    return replace(topology, hosts=(replace(located, host=host),))


def _text(content: bytes, name: str) -> str:
    if content[:2] == _GZIP:
        content = _unpacked(content, name)
    if len(content) > SIZE_LIMIT_BYTES:
        what = f"it is larger than {SIZE_LIMIT_BYTES >> 20} MiB"
        raise TopologyError(name, 0, what, "give the topology alone")
    if not content.strip():
        raise TopologyError(name, 0, "it is empty", "give the whole file")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TopologyError(name, line, "it is no text (UTF-8)", "give the file itself") from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise TopologyError(name, line, "it is no text: a zero byte", "give the file itself")
    return text.replace("\r\n", "\n")


def _unpacked(content: bytes, name: str) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(content, SIZE_LIMIT_BYTES + 1)
    except zlib.error as error:
        raise TopologyError(name, 0, f"it is damaged: {error}", "pack it anew") from error
    if len(text) <= SIZE_LIMIT_BYTES and not unpacker.eof:
        raise TopologyError(name, 0, "it is cut off (gzip)", "copy the whole file")
    return text
