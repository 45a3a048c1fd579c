"""The `coordctl` command: names, one line each, and where each is found once it is called."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, NamedTuple

import click

from coord import __version__
from coord.cli.exits import EXIT_CODES, Exit, failure_from


class Lazy(NamedTuple):
    """Where a command lives, and what `coordctl --help` says of it without loading it."""

    where: str
    short_help: str


COMMANDS: dict[str, Lazy] = {
    "up": Lazy("coord.cli.up:up", "Run a whole cluster with local agents in this terminal."),
    "demo": Lazy("coord.cli.demo:demo", "Watch a training job survive three failures."),
    "server": Lazy("coord.cli.server:server", "Run one server of the cluster."),
    "agent": Lazy("coord.cli.agent:agent", "Run the agent of this host."),
    "job": Lazy("coord.cli.jobs:job", "Submit, look at, resize and cancel jobs; read their logs."),
    "host": Lazy("coord.cli.hosts:host", "Look at hosts; drain, undrain and remove them."),
    "events": Lazy("coord.cli.events:events", "What happened, and what was decided."),
    "note": Lazy("coord.cli.events:note", "Write something down in the log."),
    "cluster": Lazy("coord.cli.cluster:cluster", "Look at the servers; add, remove, hand over."),
    "incident": Lazy("coord.cli.incident:incident", "List incidents; export the log for replay."),
    "replay": Lazy("coord.cli.replay:replay", "Replay an incident file; no server needed."),
    "completion": Lazy("coord.cli.completion:completion", "Print a shell's completion script."),
}


class ReaderGone(Exception):
    """Whoever read our output has gone, as `head` does; there is nobody left to tell."""


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        module, _, name = lazy.where.partition(":")
        command = getattr(importlib.import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{lazy.where} is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.short_help) for name, lazy in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            near = _did_you_mean(args[0], list(COMMANDS))
            raise click.UsageError(f"There is no command {args[0]!r}.{near}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError as error:
            raise ReaderGone from error  # which click would make a failure of ours
        except Exception as error:
            failure = None if ctx.params.get("debug") else failure_from(error)
            if failure is None:
                raise
            raise failure from error


def _did_you_mean(word: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


@click.group(
    cls=LazyGroup,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", message="coord %(version)s")
@click.option("--debug", is_flag=True, envvar="COORD_DEBUG", help="Show tracebacks of errors.")
def cli(debug: bool) -> None:
    """Keep a fleet that trains models running, and explain afterwards what happened.

    The servers to talk to are given by --server or COORD_SERVER, several of them separated by
    commas; without either, those of `coordctl up`, http://127.0.0.1:7101 to 7103.
    Start with `coordctl demo`.
    """


def main() -> None:
    """Run coordctl and end the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; all that went wrong is on stderr by then."""
    try:
        result = cli.main(arguments, prog_name="coordctl", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return Exit.INTERRUPTED  # click has ended the line
    except KeyboardInterrupt:
        click.echo(err=True)
        return Exit.INTERRUPTED
    except (ReaderGone, BrokenPipeError):
        # What is still in the buffer must not fail when the interpreter flushes it at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as error:
        if "--debug" in arguments or os.environ.get("COORD_DEBUG"):
            raise
        click.echo(
            f"coordctl: a defect in coord: {type(error).__name__}: {error}\n"
            "What was asked may or may not have happened. "
            "Run it again as `coordctl --debug ...` and report what it prints.",
            err=True,
        )
        return Exit.UNKNOWN
    return result if isinstance(result, int) else Exit.OK


if __name__ == "__main__":
    main()
