"""Groups of commands whose modules are imported only when they are called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from coord.cli.exits import failure_from


class Lazy(NamedTuple):
    """Where a command lives, and what its group's `--help` says of it without loading it."""

    where: str
    short_help: str


class ReaderGone(Exception):
    """Whoever read our output has gone, as `head` does; there is nobody left to tell."""


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is called."""

    def __init__(self, *arguments: Any, lazy: Mapping[str, Lazy], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self._lazy.get(cmd_name)
        if lazy is None:
            return None
        module, _, name = lazy.where.partition(":")
        command = getattr(importlib.import_module(module), name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{lazy.where} is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.short_help) for name, lazy in self._lazy.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._lazy and not args[0].startswith("-"):
            near = _did_you_mean(args[0], list(self._lazy))
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
            debug = ctx.find_root().params.get("debug")
            failure = None if debug else failure_from(error)
            if failure is None:
                raise
            raise failure from error


def _did_you_mean(word: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
