"""How coordctl ends: its exit codes, and errors as one paragraph on stderr."""

from __future__ import annotations

import enum
import sys
from typing import IO, Any

import click


class Exit(enum.IntEnum):
    """The numbers are part of the interface: scripts branch on them."""

    OK = 0
    FAILED = 1
    """Refused for certain, or the thing asked about did not hold."""
    USAGE = 2
    UNAVAILABLE = 3
    """No server could be reached in time. Nothing was changed."""
    UNKNOWN = 4
    """The request may or may not have happened."""
    INCOMPLETE = 5
    """Replay only: all that is in the file reproduced the record, but its end is missing."""
    FOUND = 6
    """Taking an incident apart only: something breaks in another order."""
    INTERRUPTED = 130


EXIT_CODES = """\b
Exit codes:
  0  done
  1  failed, or refused for certain
  2  usage: a flag, an argument or a file that cannot be understood
  3  no server could be reached in time; nothing was changed
  4  outcome unknown: the request may have happened, as the message says
  5  replay only: the file is cut off; what is there reproduced the record
  6  sim explore only: something was found
  130  interrupted with Ctrl-C
"""


class Failure(click.ClickException):
    """An end with a reason. The message names the value, the limit and the next step."""

    exit_code = int(Exit.FAILED)

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"coordctl: {self.format_message()}", file=file or sys.stderr)


class BadInput(Failure):
    """What was given cannot be understood; nothing was done."""

    exit_code = int(Exit.USAGE)


class NoServer(Failure):
    """Nobody answered in time; nothing was changed."""

    exit_code = int(Exit.UNAVAILABLE)


class NotKnown(Failure):
    """The request may have happened."""

    exit_code = int(Exit.UNKNOWN)


def failure_from(error: BaseException) -> Failure | None:
    """An error of the client library or of the operating system in the words of the command line.

    None when it is neither, and so a defect of coord itself.
    """
    client = _client_failure(error)
    if client is not None:
        return client
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return Failure(f"{error.strerror or error}{where}")
    return None


def _client_failure(error: BaseException) -> Failure | None:
    # Only a process that already loaded the client library can hold one of its errors.
    errors = sys.modules.get("coord.client.errors")
    if errors is None or not isinstance(error, errors.CoordError):
        return None
    if isinstance(error, errors.OutcomeUnknown):
        return NotKnown(f"{error}\nIt may have happened: look at the state before asking again.")
    if isinstance(error, errors.DoneButUnread):
        return NotKnown(f"{error}\nIt has happened: do not ask again.")
    if isinstance(error, errors.Unavailable):
        nobody = error.reason in ("", "unavailable")
        hint = " Check --server or COORD_SERVER, or start a cluster with `coordctl up`."
        return NoServer(f"{error}\nNothing was changed.{hint if nobody else ''}")
    return Failure(str(error))
