"""Three etcd nodes on loopback, and the load generator run against them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from coord.cli.ports import KeptPorts
from tests.bench.etcd.install import load_generator

NODES = 3
LOAD_S = 300.0
STOP_S = 8.0
QUOTA_BYTES = 6 << 30

Record = dict[str, Any]


class LoadFailed(Exception):
    """The load generator failed or hung."""


class EtcdNodes:
    """A context manager; leaving it ends the nodes and forgets their data."""

    def __init__(self) -> None:
        self._kept = KeptPorts()
        ports = self._kept.choose(2 * NODES)
        self._client_ports, self._peer_ports = ports[:NODES], ports[NODES:]
        self._directory = Path(tempfile.mkdtemp(prefix="etcd-bench-"))
        self._nodes: list[subprocess.Popen[bytes] | None] = [None] * NODES

    def __enter__(self) -> Self:
        self._kept.close()  # etcd listens without SO_REUSEADDR's leave to share.
        for number in range(NODES):
            self.start(number, new=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        running = [node for node in self._nodes if node is not None]
        for node in running:
            node.terminate()
        deadline_s = time.monotonic() + STOP_S
        for node in running:
            try:
                node.wait(max(0.01, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def start(self, number: int, *, new: bool) -> int:
        """Start a node, again when it has data; returns its pid."""
        peers = [f"http://127.0.0.1:{port}" for port in self._peer_ports]
        client = f"http://127.0.0.1:{self._client_ports[number]}"
        options = {
            "name": f"n{number}",
            "data-dir": f"{self._directory}/n{number}",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peers[number],
            "initial-advertise-peer-urls": peers[number],
            "initial-cluster": ",".join(f"n{at}={peer}" for at, peer in enumerate(peers)),
            "initial-cluster-token": "bench",
            "initial-cluster-state": "new" if new else "existing",
            "logger": "zap",
            "log-outputs": f"{self._directory}/n{number}.log",
            "quota-backend-bytes": str(QUOTA_BYTES),
        }
        env = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
        node = subprocess.Popen(
            ["etcd", *(f"--{name}={value}" for name, value in options.items())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
            cwd=self._directory,
        )
        self._nodes[number] = node
        return node.pid

    def load(self, work: str, **options: object) -> list[Record]:
        """Run one kind of work; what the generator printed. Raises LoadFailed."""
        try:
            done = subprocess.run(
                self._command(work, options), stdout=subprocess.PIPE, timeout=LOAD_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise LoadFailed(f"etcdload {work} took longer than {LOAD_S:.0f} s") from error
        if done.returncode:
            raise LoadFailed(f"etcdload {work} ended with code {done.returncode}")
        return _records(done.stdout.splitlines())

    def failover(self, kills: int, held: int) -> list[Record]:
        """Kill leaders; the generator says when, and is told what was started in their place."""
        command = self._command("failover", {"kills": kills, "n": held, "dead": 0})
        records: list[Record] = []
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe) as generator:
            assert generator.stdin is not None
            assert generator.stdout is not None
            try:
                for record in _each(generator.stdout):
                    if record["kind"] == "killed":
                        node = self._nodes[record["idx"]]
                        assert node is not None
                        node.wait(STOP_S)
                    elif record["kind"] == "restart":
                        pid = self.start(record["idx"], new=False)
                        generator.stdin.write(b"%d\n" % pid)
                        generator.stdin.flush()
                    else:
                        records.append(record)
            finally:
                generator.kill()
        return records

    def _command(self, work: str, options: dict[str, Any]) -> list[str]:
        endpoints = ",".join(f"127.0.0.1:{port}" for port in self._client_ports)
        pids = ",".join(str(node.pid) for node in self._nodes if node is not None)
        command = [str(load_generator()), work, "--eps", endpoints, "--pids", pids]
        for name, value in options.items():
            command += [f"--{name}={value}"]
        return command


def _records(lines: Iterable[bytes]) -> list[Record]:
    return list(_each(lines))


def _each(lines: Iterable[bytes]) -> Iterable[Record]:
    for line in lines:
        if line.startswith(b"{"):
            record: Record = json.loads(line)
            yield record
