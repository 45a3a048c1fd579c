"""From an order to a process: checks, environment, directories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from coord.agent import host, logs
from coord.agent.ports import LaunchError, LaunchSpec
from coord.agent.proctable import AGENT_MARK
from coord.model.plans import TaskOrder

FROM_A_LAUNCHER = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_RANK",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
"""What would make a task believe it belongs to whoever started the agent."""


def inheritable(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of the agent's own environment that tasks get."""
    return {
        name: value
        for name, value in environment.items()
        if name not in FROM_A_LAUNCHER and not name.startswith(("COORD_", "TORCHELASTIC_"))
    }


class Workshop:
    """Prepares launches on this host. `environment` is what every task inherits."""

    def __init__(
        self,
        host_id: str,
        agent: str,
        log_root: Path,
        socket: Path,
        environment: Mapping[str, str],
        limits: logs.LogLimits,
    ) -> None:
        self._host_id = host_id
        self._agent = agent
        self._log_root = log_root
        self._socket = socket
        self._environment = dict(environment)
        self._limits = limits

    def directory(self, task: str) -> Path | None:
        """Where a run's output is; None for what is no task key."""
        return logs.run_directory(self._log_root, task)

    def prepare(self, order: TaskOrder, live: frozenset[str]) -> LaunchSpec:
        """Make the run's directory and say what to start. Raises LaunchError.

        `live` names the tasks whose output must not be deleted to make room.
        """
        directory = logs.run_directory(self._log_root, order.task)
        if directory is None:
            raise LaunchError(
                f"{order.task!r} is no task key: job/role/index#generation", user_error=True
            )
        if not order.command:
            raise LaunchError(f"{order.task} has no command", user_error=True)
        for port in order.ports:
            if not host.is_free(port):
                raise LaunchError(
                    f"port {port}, meant for {order.task}, is in use on host {self._host_id} "
                    f"(`ss -ltnp 'sport = :{port}'` tells by whom)",
                    user_error=False,
                )
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "error.json").unlink(missing_ok=True)
            logs.prune(directory.parent, self._limits.generations, self._directories(live))
        except OSError as error:
            raise LaunchError(
                f"cannot make {directory} for the output of {order.task}: {error.strerror}",
                user_error=False,
            ) from error
        return LaunchSpec(
            task=order.task,
            command=order.command,
            env=self._env(order, directory),
            workdir=order.workdir,
            stdout=directory / "stdout.log",
            stderr=directory / "stderr.log",
        )

    def _directories(self, live: frozenset[str]) -> frozenset[Path]:
        found = (logs.run_directory(self._log_root, task) for task in sorted(live))
        return frozenset(directory for directory in found if directory is not None)

    def _env(self, order: TaskOrder, directory: Path) -> dict[str, str]:
        return {
            **self._environment,
            # Output goes to files. Without this Python keeps the last lines to itself, and a
            # SIGKILL takes them along.
            "PYTHONUNBUFFERED": "1",
            **order.env,
            "COORD_TASK": order.task,
            "COORD_HOST": self._host_id,
            "COORD_SOCKET": str(self._socket),
            AGENT_MARK: self._agent,
            "TORCHELASTIC_ERROR_FILE": str(directory / "error.json"),
        }
