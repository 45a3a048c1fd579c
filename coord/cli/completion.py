"""`coordctl completion`, and the names of jobs and hosts that shells complete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from coord.cli.session import Session, connect, default_actor, split_servers

if TYPE_CHECKING:
    from coord.client import Client

TIMEOUT_S = 0.8
"""Somebody holds the tab key meanwhile."""

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that lets a shell complete commands, options, jobs and hosts.

    \b
    bash:  add to ~/.bashrc:   eval "$(coordctl completion bash)"
    zsh:   add to ~/.zshrc:    eval "$(coordctl completion zsh)"
    fish:  coordctl completion fish > ~/.config/fish/completions/coordctl.fish
    """
    from click.shell_completion import get_completion_class

    from coord.cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click knows no completion for {shell}")
    click.echo(kind(cli, {}, "coordctl", "_COORDCTL_COMPLETE").source())


def job_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of jobs that begin so; none when no server answers in time."""
    return _names(ctx, incomplete, lambda client: client.jobs(), lambda job: job.name)


def host_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of hosts that begin so; none when no server answers in time."""
    return _names(ctx, incomplete, lambda client: client.hosts(), lambda host: host.host)


def queue_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Names of queues that begin so; none when no server answers in time."""
    return _names(ctx, incomplete, lambda client: client.queues(), lambda queue: queue.name)


def _names(
    ctx: click.Context,
    incomplete: str,
    question: Callable[[Client], Awaitable[Any]],
    name_of: Callable[[Any], str],
) -> list[str]:
    servers = split_servers(tuple(ctx.params.get("servers") or ()))
    session = Session(servers, default_actor(), TIMEOUT_S, "table", ctx.obj or connect)
    try:
        answers = session.ask(question)
    except Exception:  # whatever it is, a prompt is no place to tell of it
        return []
    return [name for name in map(name_of, answers) if name and name.startswith(incomplete)]
