"""Starts members as processes, talks to them, kills them."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.free_ports import free_ports

ROOT = Path(__file__).resolve().parent.parent.parent
STARTED_S = 20.0


class ServerProcess:
    """One member. `acks` are the payloads it reported as acknowledged."""

    def __init__(self, config: dict[str, Any], log_path: Path) -> None:
        self.config = config
        self.log_path = log_path
        self.acks: list[str] = []
        self.halted = ""
        self._process: asyncio.subprocess.Process | None = None

    @property
    def node(self) -> int:
        return int(self.config["node"])

    @property
    def running(self) -> bool:
        return self._process is not None

    async def start(self) -> None:
        with self.log_path.open("ab") as stderr:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.raft.server_process",
                json.dumps(self.config),
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                limit=1 << 26,  # an answer that names every payload is one long line
            )
        await self._answer("ready")

    async def ask(self, answer: str, **command: Any) -> Any:
        """Send a command and return the field `answer` of what comes back."""
        return (await self.ask_all(answer, **command))[answer]

    async def ask_all(self, answer: str, **command: Any) -> dict[str, Any]:
        self.send(**command)
        return await self._answer(answer)

    def send(self, **command: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")

    def kill(self) -> None:
        """SIGKILL, without waiting for what it still has to say."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)

    async def reap(self) -> None:
        """Read what it said to the end."""
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            if line.endswith(b"\n"):
                self._note(json.loads(line))
        await self._process.wait()
        self._close()

    async def stop(self) -> None:
        if self._process is None:
            return
        if self._process.returncode is None and not self.halted:
            self.send(do="stop")
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                async with asyncio.timeout(STARTED_S):
                    await self.reap()
                    return
            except TimeoutError:
                self._process.kill()
        await self._process.wait()
        self._close()

    def _close(self) -> None:
        assert self._process is not None
        self._process._transport.close()  # type: ignore[attr-defined]
        self._process = None

    def _note(self, said: dict[str, Any]) -> None:
        if "ack" in said:
            self.acks.append(said["ack"])
        self.halted = said.get("halted", self.halted)

    async def _answer(self, field: str) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(STARTED_S):
            while line := await self._process.stdout.readline():
                said: dict[str, Any] = json.loads(line)
                self._note(said)
                if field in said:
                    return said
        raise AssertionError(
            f"node {self.node} ended; it said: {self.log_path.read_text()[-3000:]}"
        )


class ProcessCluster:
    """Members 1 to `size`, each a process, with data in `directory`."""

    def __init__(self, size: int, directory: Path, **config: Any) -> None:
        self.members = [
            [node + 1, f"127.0.0.1:{port}", f"127.0.0.1:{port}"]
            for node, port in enumerate(free_ports(size))
        ]
        self.directory = directory
        self.config = config
        self.servers = {int(member[0]): self.server(member[0]) for member in self.members}

    def server(self, node: Any, **more: Any) -> ServerProcess:
        config = {
            "node": node,
            "members": self.members,
            "directory": str(self.directory / f"node-{node}"),
            **self.config,
            **more,
        }
        return ServerProcess(config, self.directory / f"node-{node}.log")

    async def start(self) -> None:
        for server in self.servers.values():
            if not server.running:
                await server.start()

    async def stop(self) -> None:
        for server in self.servers.values():
            await server.stop()

    async def statuses(self) -> dict[int, dict[str, Any]]:
        return {
            server.node: await server.ask_all("status", do="status")
            for server in self.servers.values()
            if server.running
        }

    async def leader(self, limit_s: float = 20.0) -> ServerProcess:
        """The leader that a majority of the running ones agree on."""

        def agreed(found: dict[int, dict[str, Any]]) -> int:
            leaders = [one["status"]["leader"] for one in found.values()]
            best = max(leaders, key=leaders.count)
            leads = best in found and found[best]["status"]["role"] == "leader"
            return best if leads and 2 * leaders.count(best) > len(leaders) else 0

        return self.servers[await self.wait("a leader", agreed, limit_s)]

    async def wait(
        self, what: str, holds: Callable[[dict[int, dict[str, Any]]], Any], limit_s: float = 20.0
    ) -> Any:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + limit_s
        while True:
            found = await self.statuses()
            if held := holds(found):
                return held
            assert loop.time() < until_s, f"not within {limit_s} s: {what}; {found}"
            await asyncio.sleep(0.02)
