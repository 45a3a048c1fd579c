"""The ports of an agent on a real machine, put together."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import structlog

from coord.agent import host, keeper, logs
from coord.agent.config import AgentConfig
from coord.agent.exits import ExitNotes
from coord.agent.health import CommandHook, HealthHook
from coord.agent.kernel_log import kernel_log
from coord.agent.lease import LeaseFile
from coord.agent.ports import HostPorts, KeeperPost, LastWords, LaunchError
from coord.agent.proctable import boot_id
from coord.agent.records import Records
from coord.agent.runner import PosixRunner
from coord.agent.socket import WorkerSocket
from coord.model.channel import LogChunk, LogRead

log = structlog.get_logger()


class LogDirectories:
    """See `ports.TaskOutput`. Directories below a root."""

    def __init__(self, root: Path, limits: logs.LogLimits) -> None:
        self._root = root
        self._limits = limits
        self._untrimmable: dict[str, None] = {}

    def make_room(self, task: str, live: frozenset[str]) -> Path:
        directory = logs.run_directory(self._root, task)
        assert directory is not None, f"{task!r} is no task key"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "error.json").unlink(missing_ok=True)
            logs.prune(directory.parent, self._limits.generations, self._directories(live))
        except OSError as error:
            raise LaunchError(
                f"cannot make {directory} for the output of {task}: {error.strerror}",
                user_error=False,
            ) from error
        return directory

    def _directories(self, live: frozenset[str]) -> frozenset[Path]:
        found = (logs.run_directory(self._root, task) for task in sorted(live))
        return frozenset(directory for directory in found if directory is not None)

    def last_words(self, task: str) -> LastWords:
        directory = logs.run_directory(self._root, task)
        if directory is None:
            return LastWords("", "")
        error = logs.read_error(directory / "error.json")
        return LastWords(error.message, logs.tail(directory / "stderr.log"), error.at_ms)

    async def read(self, request: LogRead, *, live: bool) -> LogChunk:
        return await asyncio.to_thread(logs.read, self._root, request, live=live)

    async def trim(self, task: str) -> None:
        directory = logs.run_directory(self._root, task)
        if directory is None:
            return
        for stream in logs.STREAMS:
            path = directory / f"{stream}.log"
            try:
                await asyncio.to_thread(logs.trim, path, self._limits)
            except FileNotFoundError:
                continue
            except OSError as error:
                if str(path) not in self._untrimmable:
                    self._untrimmable[str(path)] = None
                    log.warning("output cannot be trimmed", path=str(path), error=str(error))


class KeeperProcess:
    """See `ports.KeeperPost`. An earlier agent's keeper serves as well."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._process: subprocess.Popen[bytes] | None = None

    def fill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        if not keeper.is_there(self._data_dir):
            self._process = keeper.start(self._data_dir)

    def leave(self) -> None:
        if self._process is not None and self._process.poll() is None:
            # It goes on without us. Popen would warn that nobody waited for it.
            self._process.returncode = 0


class NoKeeper:
    """See `ports.KeeperPost`. For an agent that is to have none."""

    def fill(self) -> None:
        return

    def leave(self) -> None:
        return


def posix_ports(config: AgentConfig, records: Records) -> HostPorts:
    """What an agent with this config has of this machine."""
    # Tasks run elsewhere, so the paths they are given must not be relative to us.
    data_dir = config.data_dir.resolve()
    notes = ExitNotes(records.files)
    keeper_post: KeeperPost = KeeperProcess(data_dir) if config.keeper else NoKeeper()
    return HostPorts(
        records=records,
        notes=notes,
        lease=LeaseFile(records.files, boot_id()),
        output=LogDirectories(data_dir / "logs", config.log_limits),
        workers=WorkerSocket(host.socket_path(data_dir)),
        keeper=keeper_post,
        runner=PosixRunner(records.identity.agent, owns_process=config.owns_process, notes=notes),
        is_free=host.is_free,
        health=_health_hook(config),
        kernel_log=kernel_log(config.kernel_log),
    )


def _health_hook(config: AgentConfig) -> HealthHook | None:
    if not config.health_check:
        return None
    return CommandHook(
        config.health_check, config.health_check_timeout_s, config.base_environment()
    )
