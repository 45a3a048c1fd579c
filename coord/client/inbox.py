"""The plans an agent has received and not yet read: at most the newest one."""

from __future__ import annotations

import asyncio

import msgspec

from coord.model.plans import HostPlan


class Superseded(msgspec.Struct, frozen=True):
    """This incarnation is over: stop every task, then register again.

    `reason` is `stale_incarnation`, `host_not_live`, `unknown_host` or `report_gap`.
    """

    incarnation: int
    reason: str


class PlanInbox:
    """Drops plans no newer than one that was offered before, by (incarnation, version).

    Plans that arrive before the registration they belong to is answered wait for it.
    """

    def __init__(self) -> None:
        self._incarnation = 0
        self._newest = (0, 0)
        self._plan: HostPlan | None = None
        self._superseded: Superseded | None = None
        self._ended = False
        self._error: BaseException | None = None
        self._ready = asyncio.Event()

    @property
    def newest_version(self) -> int:
        """Of the newest plan offered under the current incarnation; 0 before the first."""
        return self._newest[1] if self._newest[0] == self._incarnation else 0

    def begin(self, incarnation: int) -> None:
        """Plans of this incarnation may be read from now on."""
        self._incarnation = incarnation
        self._superseded = None
        self._ready.set()

    def offer(self, plan: HostPlan) -> None:
        """A plan came in."""
        key = (plan.incarnation, plan.version)
        if key > self._newest:
            self._newest = key
            self._plan = plan
            self._ready.set()

    def supersede(self, superseded: Superseded) -> None:
        """Tell the reader, once; unread plans of that incarnation are gone."""
        self._incarnation = 0
        if self._plan is not None and self._plan.incarnation <= superseded.incarnation:
            self._plan = None
        self._superseded = superseded
        self._ready.set()

    def end(self, error: BaseException | None) -> None:
        """Nothing more will come."""
        self._ended = True
        self._plan = None
        self._error = error
        self._ready.set()

    async def next(self) -> HostPlan | Superseded | None:
        """The next thing to act upon; None after the end. Raises the error that ended it."""
        while True:
            if self._superseded is not None:
                superseded, self._superseded = self._superseded, None
                return superseded
            if self._plan is not None and self._plan.incarnation == self._incarnation:
                plan, self._plan = self._plan, None
                return plan
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            self._ready.clear()
            await self._ready.wait()
