"""What a run is made of."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from jepsen_lite.cluster.attached import Attached
from jepsen_lite.cluster.cluster import COORDCTL
from jepsen_lite.cluster.hooks import HooksError
from jepsen_lite.nemeses.catalogue import NONE, chosen
from jepsen_lite.workloads.catalogue import workloads_named


class RunOptions(msgspec.Struct, frozen=True):
    """The same options and seed draw the same operations and misfortunes; real processes decide
    when each of them happens."""

    workload: str = "registers"
    """Or several of them side by side, joined by +."""
    nemesis: str = NONE
    """As `workload`."""
    seed: int = 1
    seconds: float = 30.0
    """Of load under misfortunes, without start, healing and judging."""
    rate: float = 40.0
    """Operations a second, of all clients of a workload together."""
    servers: int = 3
    hosts: int = 3
    devices: int = 2
    """Of each host."""
    network: str = "auto"
    snapshot_entries: int = 300
    """So few that snapshots are taken, and the journal is cut, in every run."""
    coordctl: tuple[str, ...] = COORDCTL
    """The build under test."""
    attach: tuple[str, ...] = ()
    """URLs of servers of somebody else's cluster, to be used in place of one of our own."""
    hooks: str = ""
    """A file with the commands by which that one lets itself be broken."""

    @property
    def attached(self) -> bool:
        """Whether the cluster is somebody else's: what says how ours is to be does not count."""
        return bool(self.attach or self.hooks)

    @property
    def cluster(self) -> str:
        """In a few words."""
        if self.attached:
            return f"somebody else's, {', '.join(self.attach) or f'named in {self.hooks}'}"
        return f"{self.servers} servers, {self.hosts} hosts"

    def problems(self) -> list[str]:
        """What is wrong with them, each naming value and limit."""
        found = []
        for names in (lambda: chosen(self.nemesis), lambda: workloads_named(self.workload)):
            try:
                names()
            except ValueError as error:
                found.append(str(error))
        if self.attached:
            try:
                Attached(self.attach, hooks=Path(self.hooks) if self.hooks else None)
            except (HooksError, ValueError) as error:
                found.append(str(error))
        if self.servers not in (1, 3, 5):
            found.append(f"servers is {self.servers}; it must be 1, 3 or 5")
        if not 0 < self.seconds <= 86_400:
            found.append(f"seconds is {self.seconds:g}; it must be more than 0 and at most a day")
        if not 0 < self.rate <= 10_000:
            found.append(f"rate is {self.rate:g}; it must be more than 0 and at most 10,000")
        return found

    def command(self) -> str:
        """The command that draws the same again."""
        parts = [
            "coordctl faults run",
            f"--workload {self.workload}",
            f"--nemesis {self.nemesis}",
            f"--minutes {self.seconds / 60:g}",
            f"--seed {self.seed}",
        ]
        default = RunOptions()
        if self.attach:
            parts.append(f"--attach {','.join(self.attach)}")
        if self.hooks:
            parts.append(f"--hooks {shlex.quote(self.hooks)}")
        for name in ("rate",) if self.attached else ("servers", "hosts", "rate", "network"):
            value = getattr(self, name)
            if value != getattr(default, name):
                parts.append(f"--{name} {value}")
        return " ".join(parts)


class Stage(msgspec.Struct, frozen=True):
    """Where a run is, for whoever watches. `share` is how much of it has passed, 0 to 1."""

    what: str
    share: float = 0.0
    operations: int = 0
    faults: int = 0


def directory_of(base: Path, options: RunOptions) -> Path:
    """The folder of a run's files: one for each workload, nemesis and seed."""
    return base / f"{options.workload}-{options.nemesis}-{options.seed}"
