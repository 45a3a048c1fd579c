"""From an order to a process: checks, environment, output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from coord.agent.logs import run_path
from coord.agent.ports import LaunchError, LaunchSpec, TaskOutput
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
    """Prepares launches on this host. `environment` is what every task inherits, `is_free` tells
    whether a port can be listened on."""

    def __init__(
        self,
        host_id: str,
        agent: str,
        output: TaskOutput,
        socket: Path,
        environment: Mapping[str, str],
        is_free: Callable[[int], bool],
    ) -> None:
        self._host_id = host_id
        self._agent = agent
        self._output = output
        self._socket = socket
        self._environment = dict(environment)
        self._is_free = is_free

    def prepare(self, order: TaskOrder, live: frozenset[str]) -> LaunchSpec:
        """Make the run's directory and say what to start. Raises LaunchError.

        `live` names the tasks whose output must not be deleted to make room.
        """
        if run_path(order.task) is None:
            raise LaunchError(
                f"{order.task!r} is no task key: job/role/index#generation", user_error=True
            )
        if not order.command:
            raise LaunchError(f"{order.task} has no command", user_error=True)
        for port in order.ports:
            if not self._is_free(port):
                raise LaunchError(
                    f"port {port}, meant for {order.task}, is in use on host {self._host_id} "
                    f"(`ss -ltnp 'sport = :{port}'` tells by whom)",
                    user_error=False,
                )
        directory = self._output.make_room(order.task, live)
        return LaunchSpec(
            task=order.task,
            command=order.command,
            env=self._env(order, directory),
            workdir=order.workdir,
            stdout=directory / "stdout.log",
            stderr=directory / "stderr.log",
        )

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
