"""The matrix of `nvidia-smi topo -m`: how the devices and adapters of one host are linked."""

from __future__ import annotations

import re

from coord.model.place import Located, Rail
from coord.topology.local import islands_of, notes_of
from coord.topology.names import BadNames, short, switch_name
from coord.topology.topology import Distance, Topology, TopologyError

FORMAT = "nvidia-smi"

PATHS = ("PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "PSB")
_LINKED = re.compile(r"NV\d{1,3}|NVB\d{1,3}")
_DEVICE = re.compile(r"GPU(\d{1,4})")
_LEGEND = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)\s*")
_PEER = ("OK", "CNS", "GNS", "TNS", "NS", "U", "DR")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def parse(text: str, name: str) -> Topology:
    """Raises TopologyError. `name` is what errors call the file."""
    lines = _COLOUR.sub("", text).split("\n")
    head = next((at for at, line in enumerate(lines) if line.split()[:1] == ["GPU0"]), None)
    if head is None or "GPU0" not in lines[head]:
        what = "no line names the columns GPU0, GPU1, ..."
        raise TopologyError(name, 0, what, "give the output of `nvidia-smi topo -m`")
    columns = _columns(lines[head], name, head + 1)
    cells = _cells(lines, head, columns, name)
    devices = [column for column in columns if _DEVICE.fullmatch(column)]
    numbers = [int(column[3:]) for column in devices]
    if numbers != list(range(len(devices))):
        what = f"devices are numbered {numbers[:16]}"
        raise TopologyError(name, head + 1, what, "number them from 0 on, without gaps")
    adapters = [column for column in columns if column not in devices]
    called = _adapter_names(lines[head + 1 :], adapters, name, head + 1)
    links = [
        (at, [other for other in devices if _LINKED.fullmatch(cells.get((one, other), ""))])
        for at, one in enumerate(devices)
    ]
    islands = islands_of(links, devices)
    distances = tuple(
        Distance(at, called[nic], cells[one, nic])
        for at, one in enumerate(devices)
        for nic in adapters
        if (one, nic) in cells
    )
    notes = []
    absent = [one for one in columns if (one, one) not in cells]
    if absent:
        notes.append(f"no row of {', '.join(absent)}: taken from the columns")
    if any(line.split()[:1] == [devices[0]] and "-" in line for line in lines[head + 1 :]):
        notes.append("CPU and NUMA affinity are not used")
    rails = tuple(Rail(called[nic]) for nic in adapters)
    return Topology(
        FORMAT,
        (Located("", rails=rails, islands=islands),),
        (),
        (*notes, *notes_of(len(devices), islands, distances)),
        local=True,
        devices=len(devices),
        nics=tuple(called[nic] for nic in adapters),
        distances=distances,
    )


def _columns(line: str, name: str, number: int) -> list[str]:
    before = re.split(r"\s(?:CPU|NUMA|GPU NUMA)\s", line)[0]
    columns = before.split()
    for at, column in enumerate(columns):
        if column in columns[:at]:
            what = f"column {short(column)} stands there twice"
            raise TopologyError(name, number, what, "give the output as it was printed")
    return columns


def _cells(
    lines: list[str], head: int, columns: list[str], name: str
) -> dict[tuple[str, str], str]:
    """(row, column) -> cell, filled in from the other half where a row is missing."""
    cells: dict[tuple[str, str], str] = {}
    told: dict[tuple[str, str], int] = {}
    for number, line in enumerate(lines[head + 1 :], start=head + 2):
        row, *found = line.split()[: len(columns) + 1] or [""]
        if _DEVICE.fullmatch(row) and row not in columns:
            what = f"row {row} has no column"
            raise TopologyError(name, number, what, "give the output as it was printed")
        if row not in columns or (found and found[0] in (":", "=")):
            continue
        if (row, row) in cells:
            raise TopologyError(name, number, f"row {row} a second time", "keep one")
        if len(found) < len(columns):
            what = f"row {row} has {len(found)} of {len(columns)} cells"
            raise TopologyError(name, number, what, "give the output as it was printed")
        for column, cell in zip(columns, found, strict=True):
            _allowed(row, column, cell, name, number)
            cells[row, column], told[row, column] = cell, number
    if not cells:
        raise TopologyError(name, head + 1, "no row below the columns", "give all of the output")
    for (row, column), cell in list(cells.items()):
        if cells.setdefault((column, row), cell) != cell:
            what = f"{row}-{column} is {cell}, and {column}-{row} is {cells[column, row]}"
            raise TopologyError(name, told[row, column], what, "give the output as it was printed")
    return cells


def _allowed(row: str, column: str, cell: str, name: str, number: int) -> None:
    if cell in _PEER:
        what = "this is `nvidia-smi topo -p2p`, which tells no links"
        raise TopologyError(name, number, what, "give the output of `nvidia-smi topo -m`")
    right = cell == "X" if row == column else cell in PATHS or _LINKED.fullmatch(cell) is not None
    if not right:
        what = f"{row}-{column} is `{short(cell)}`"
        wanted = "X" if row == column else f"NV1, NV2, ... or one of {', '.join(PATHS)}"
        raise TopologyError(name, number, what, f"it must be {wanted}")


def _adapter_names(lines: list[str], adapters: list[str], name: str, head: int) -> dict[str, str]:
    """NIC0 -> mlx5_0 where a legend says so."""
    called = {nic: nic for nic in adapters}
    for line in lines:
        match = _LEGEND.fullmatch(line)
        if match is not None and match[1] in called:
            called[match[1]] = match[2]
    if len(dict.fromkeys(called.values())) < len(called):
        raise TopologyError(name, head, "two adapters have one name", "name each once")
    for nic, own in called.items():
        try:
            switch_name(own)
        except BadNames as error:
            raise TopologyError(name, head, f"{nic}: {error}", "correct the legend") from error
    return called
