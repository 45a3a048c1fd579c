"""What commands that talk to a server share: their options, and one conversation each."""

from __future__ import annotations

import asyncio
import functools
import getpass
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from coord.cli.exits import BadInput
from coord.cli.output import show

if TYPE_CHECKING:
    from coord.client import Client

Answer = TypeVar("Answer")
Connect = Callable[["Session"], AbstractAsyncContextManager["Client"]]

DEFAULT_SERVERS = tuple(f"http://127.0.0.1:{port}" for port in (7101, 7102, 7103))
"""Where `coordctl up` puts its servers, of which any one may be missing."""
DEFAULT_TIMEOUT_S = 10.0


class Session:
    """The servers to ask, in whose name, for how long, and how to print what they say."""

    def __init__(
        self,
        servers: tuple[str, ...],
        actor: str,
        timeout_s: float,
        output: str,
        connect: Connect,
        stale: bool = False,
    ) -> None:
        self.servers = servers
        self.actor = actor
        self.timeout_s = timeout_s
        self.output = output
        self.stale = stale
        self._connect = connect

    @property
    def json(self) -> bool:
        return self.output == "json"

    def ask(self, question: Callable[[Client], Awaitable[Answer]]) -> Answer:
        """Connect, put one question, and return its answer. Ctrl-C cancels it cleanly."""

        async def conversation() -> Answer:
            async with self._connect(self) as client:
                return await question(client)

        return asyncio.run(conversation())

    def follow(
        self,
        source: Callable[[Client], AsyncIterator[Answer]],
        tell: Callable[[Answer], Any],
    ) -> None:
        """Give `tell` each item as it comes, until the source ends."""

        async def conversation(client: Client) -> None:
            async for item in source(client):
                tell(item)

        self.ask(conversation)

    def show(self, value: Any, table: Callable[[Any], None]) -> None:
        """Print an answer as `-o` asks."""
        show(self.output, value, table)


async def log_time_ms(client: Client) -> int:
    """Log time now, as the server that answers knows it; what ages are counted from."""
    return (await client.cluster()).now_ms


def connect(session: Session) -> AbstractAsyncContextManager[Client]:
    """The client library's own client. Raises BadInput for a malformed address."""
    from coord.client import Client

    try:
        return Client(
            list(session.servers),
            actor=session.actor,
            timeout_s=session.timeout_s,
            stale=session.stale,
        )
    except ValueError as error:
        raise BadInput(f"--server: {error}") from error


def default_actor() -> str:
    """Who is recorded as having asked: the name of the user of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run a user id that has no name
        return "unknown"


def server_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--server, several times or with commas."""
    return click.option(
        "--server",
        "servers",
        multiple=True,
        envvar="COORD_SERVER",
        metavar="URL[,URL...]",
        help="Any servers of the cluster.  [COORD_SERVER; default: those of `coordctl up`]",
    )(command)


def split_servers(servers: tuple[str, ...]) -> tuple[str, ...]:
    """Addresses given several times, with commas or with spaces, in order, each once."""
    listed = [part for given in servers for part in given.replace(",", " ").split()]
    return tuple(dict.fromkeys(listed)) or DEFAULT_SERVERS


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """-o table|json."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        envvar="COORD_OUTPUT",
        help="For people, or one document for programs.",
    )(command)


def session_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every command that asks a server; the command gets them as `session`."""

    @server_option
    @output_option
    @click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(min=0.1),
        default=DEFAULT_TIMEOUT_S,
        show_default=True,
        envvar="COORD_TIMEOUT",
        metavar="SECONDS",
        help="How long to wait for an answer.",
    )
    @click.option(
        "--actor",
        envvar="COORD_ACTOR",
        metavar="NAME",
        help="Who is recorded as having asked.  [COORD_ACTOR; default: your user name]",
    )
    @click.option(
        "--stale",
        is_flag=True,
        help="Show what a server has, though no leader confirms that it is the newest.",
    )
    @functools.wraps(command)
    def with_session(
        servers: tuple[str, ...],
        actor: str | None,
        timeout_s: float,
        output: str,
        stale: bool,
        **arguments: Any,
    ) -> Any:
        session = Session(
            split_servers(servers),
            actor or default_actor(),
            timeout_s,
            output,
            click.get_current_context().obj or connect,
            stale,
        )
        return command(session=session, **arguments)

    return with_session
