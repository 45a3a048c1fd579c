"""Copying what a task printed to stdout, run after run."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from coord.cli.exits import BadInput, Failure
from coord.cli.output import print_json_line

if TYPE_CHECKING:
    from coord.client import Client
    from coord.client.views import GangView, JobView, LogPage

WAIT_MS = 5_000
"""How long a server may hold a question about output that does not exist yet."""
LIMIT_BYTES = 256 * 1024
POLL_S = 0.5


class TaskOutput:
    """One stream of one task of a job. `role` may be empty for the first role.

    `json`: a line of it as a document a line, {"task", "stream", "text"}, instead of as it is.
    """

    def __init__(
        self, client: Client, name: str, role: str, index: int, stream: str, json: bool = False
    ) -> None:
        self._client = client
        self._name = name
        self._role = role
        self._index = index
        self._stream = stream
        self._json = json
        self._any_size = False
        self._begun = b""
        """A line without its end so far."""

    async def copy(self, generation: int, offset: int, follow: bool) -> None:
        """Copy from `offset` on; `generation` 0 is the newest. Following goes on into later runs
        and ends with the job."""
        view = await self._client.job(self._name)
        # An earlier run may have had more tasks than there are now.
        self._any_size = bool(generation)
        gang = self._gang(view)
        run = generation or gang.generation
        if not run and not follow:
            raise Failure(f"{self._task(0)} has not run yet, so it has printed nothing")
        while True:
            if run:
                await self._copy_run(run, offset, follow)
            if not follow:
                return
            run, offset = await self._later_run(run), 0
            if not run:
                return
            click.echo(f"--- {self._task(run)} ---", err=True)

    def _gang(self, view: JobView) -> GangView:
        """The gang that the task belongs to; settles which role is meant."""
        role = view.spec.role(self._role) if self._role else view.spec.roles[0]
        if role is None:
            known = ", ".join(role.name for role in view.spec.roles)
            raise BadInput(f"job {self._name} has no role {self._role!r}; it has {known}")
        self._role = role.name
        for gang in view.gangs:
            if gang.role == role.name and gang.index in (-1, self._index):
                outside = not 0 <= self._index < max(gang.desired, gang.size)
                if outside and gang.index < 0 and not self._any_size:
                    break
                return gang
        raise BadInput(f"{self._name}/{role.name} has no task {self._index}; --index counts from 0")

    def _task(self, generation: int) -> str:
        run = f"#{generation}" if generation else ""
        return f"{self._name}/{self._role}/{self._index}{run}"

    async def _copy_run(self, generation: int, offset: int, follow: bool) -> None:
        """All output of one run; while following, until that run has ended."""
        while True:
            page = await self._page(generation, offset, follow)
            if page is None:
                self._end_line(generation)
                return
            if not page.exists and not follow:
                raise Failure(
                    f"there is no {self._stream} of {self._task(generation)}: "
                    "it was never started, or its host removed it"
                )
            if page.offset > offset:
                click.echo(f"--- bytes {offset} to {page.offset} were rotated away ---", err=True)
            offset = page.next_offset
            self._write(page.data, generation)
            if page.ended or (not page.data and not follow):
                self._end_line(generation)
                return
            if follow and not page.data and await self._later_run(generation, wait=False):
                self._end_line(generation)
                return
            if not page.exists:
                await asyncio.sleep(POLL_S)

    async def _page(self, generation: int, offset: int, follow: bool) -> LogPage | None:
        """The next piece; None when its host is away and the task has moved on without it."""
        from coord.client import Unavailable

        told = False
        while True:
            try:
                return await self._client.read_log(
                    self._name,
                    role=self._role,
                    index=self._index,
                    generation=generation,
                    stream=self._stream,
                    offset=offset,
                    limit=LIMIT_BYTES,
                    wait_ms=WAIT_MS if follow else 0,
                )
            except Unavailable as error:
                if not follow or error.reason != "agent_away":
                    raise
                if await self._later_run(generation, wait=False):
                    run = self._task(generation)
                    click.echo(f"--- the host of {run} is away, with the rest of it ---", err=True)
                    return None
                if (await self._client.job(self._name)).finished:
                    raise
                if not told:
                    click.echo(f"coordctl: {error}; trying on, Ctrl-C ends it", err=True)
                    told = True

    def _write(self, printed: bytes, generation: int) -> None:
        if not self._json:
            sys.stdout.buffer.write(printed)
            sys.stdout.buffer.flush()
            return
        *lines, self._begun = (self._begun + printed).split(b"\n")
        for line in lines:
            self._write_document(line, generation)

    def _end_line(self, generation: int) -> None:
        """The run is over, with or without an end of its last line."""
        if self._begun:
            self._write_document(self._begun, generation)
            self._begun = b""

    def _write_document(self, line: bytes, generation: int) -> None:
        text = line.decode(errors="replace")
        document = {"task": self._task(generation), "stream": self._stream, "text": text}
        print_json_line(document)

    async def _later_run(self, generation: int, wait: bool = True) -> int:
        """The newest run of this task after `generation`; 0 once there will be none."""
        while True:
            view = await self._client.job(self._name)
            newest = self._gang(view).generation
            if newest > generation:
                return newest
            if view.finished or not wait:
                return 0
            await asyncio.sleep(POLL_S)
