"""How one agent is set up."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from coord.agent.host import PORT_RANGE
from coord.agent.logs import LogLimits
from coord.client.servers import base_url
from coord.model.place import NOWHERE, Place, Rail, is_name


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`cpu_millis` and `memory_mib` of 0 mean all that is detected. `environment` of None means the
    agent's own. `owns_process`: the agent is all that this Python process does, so that it may
    take in orphans; false for an agent inside another program."""

    servers: tuple[str, ...]
    relays: tuple[str, ...] = ()
    """Tried before the servers."""
    data_dir: Path
    host: str = msgspec.field(default_factory=socket.gethostname)
    address: str = "127.0.0.1"
    cluster: str = ""
    devices: int = 0
    cpu_millis: int = 0
    memory_mib: int = 0
    device_type: str = ""
    labels: dict[str, str] = {}
    place: Place = NOWHERE
    """Where the host stands, as far as nobody imports it."""
    rails: tuple[Rail, ...] = ()
    port_range: tuple[int, int] = PORT_RANGE
    log_limits: LogLimits = LogLimits()
    unkillable_s: float = 5.0
    """From SIGKILL to calling a process unkillable."""
    stop_tasks: bool = False
    """Whether tasks end with the agent."""
    owns_process: bool = True
    keeper: bool = True
    """Whether a keeper watches over the tasks while the agent may be dead (see `keeper`)."""
    environment: dict[str, str] | None = None
    health_check: str = ""
    """A command that tells whether this host is fit for work (see `health`); empty: nobody
    checks."""
    health_check_timeout_s: float = 60.0
    health_check_every_s: float = 0.0
    """How long after a check ended the next one begins by itself, beside whatever runs; 0: only
    before launches and when a server asks."""
    kernel_log: str = ""
    """Where faults of devices are told (see `kernel_log`); empty: nobody looks."""

    def base_environment(self) -> Mapping[str, str]:
        return os.environ if self.environment is None else self.environment

    def problems(self) -> list[str]:
        """What is wrong with it, as sentences; empty when it may be used."""
        found = []
        if not self.servers:
            found.append("no server is named; give --server")
        for server in (*self.servers, *self.relays):
            try:
                base_url(server)
            except ValueError as error:
                found.append(str(error))
        if not self.host or "/" in self.host:
            found.append(f"host id {self.host!r} is empty or has a '/' in it; give --host-id")
        for name in ("devices", "cpu_millis", "memory_mib"):
            if getattr(self, name) < 0:
                found.append(f"{name} is {getattr(self, name)}; it must not be negative")
        found += self._problems_of_place()
        found += self._problems_of_health()
        limits = self.log_limits
        if limits.segment_bytes < 4_096 or limits.segment_bytes % 4_096 or limits.segments < 2:
            found.append(
                f"logs of {limits.segments} segments of {limits.segment_bytes} bytes: there must "
                "be at least 2, of a multiple of 4,096 bytes"
            )
        return found

    def _problems_of_place(self) -> list[str]:
        found = []
        for level in ("zone", "pod", "rack", "nvlink"):
            name = getattr(self.place, level)
            if name and ("/" in name or not is_name(name)):
                found.append(f"{level} {name!r} cannot be a name: no '/', no space at its ends")
        rails = [rail.rail for rail in self.rails]
        for at, rail in enumerate(self.rails):
            if not is_name(rail.rail) or (rail.switch and not is_name(rail.switch)):
                found.append(f"rail {rail.rail!r} with switch {rail.switch!r} cannot be named so")
            elif rail.rail in rails[:at]:
                found.append(f"rail {rail.rail!r} is named twice")
        return found

    def _problems_of_health(self) -> list[str]:
        found = []
        if self.health_check:
            try:
                if not shlex.split(self.health_check):
                    found.append("the health check is blank; give a command, or none")
            except ValueError as error:
                found.append(f"health check {self.health_check!r} cannot be split: {error}")
        if not 0 < self.health_check_timeout_s <= 3_600:
            found.append(
                f"health checks may take {self.health_check_timeout_s} s; it must be more than 0 "
                "and at most 3,600"
            )
        every_s = self.health_check_every_s
        if every_s and not 1 <= every_s <= 604_800:
            found.append(
                f"health checks every {every_s} s; it must be 0 for never, or 1 to 604,800"
            )
        return found
