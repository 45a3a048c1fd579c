"""What the library and the servers promise to whoever asks, checked on every call and read.

The log shows what became of a call: its event carries the call's tag as its actor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from coord.core.state import State
from coord.model.entry import Recorded
from coord_sim.kernel import Kernel
from coord_sim.world.clients import NOT_DONE, OK, PENDING, REJECTED, Call, Read, SimClients
from coord_sim.world.violation import Violation

ACKNOWLEDGED = "an acknowledged request stands in the log at the index that was said, in effect"
REFUSED = "a rejection that was told stands in the log at the index that was said"
ABSENT = "what was told not to be done is nowhere in the log"
ONCE = "a request takes effect once at most, however often it was sent"
AS_ASKED = "the log holds a request as it was asked"
AGREED = "whoever asks twice under one key is told the same"
AFTER = "what is asked after an answer stands after it in the log"
READS = "a read shows everything that anybody was told before it began"
DEADLINE = "every call ends by its deadline"
CONVERSATIONS = "no conversation with a server ends in an error that nobody expects"

PROPERTIES = (
    ACKNOWLEDGED, REFUSED, ABSENT, ONCE, AS_ASKED, AGREED, AFTER, READS, DEADLINE, CONVERSATIONS,
)  # fmt: skip

SLACK_S = 0.05
LOOK_S = 1.0
"""So often, overdue calls are looked for."""


class Standing(msgspec.Struct, frozen=True):
    """A tagged entry of the log, as it was recorded."""

    index: int
    rejection: str
    duplicate_of: int

    @property
    def effective(self) -> bool:
        return not self.rejection and not self.duplicate_of


class Applied(Protocol):
    """Whoever tells what is applied; `servers.SimServers` is one."""

    def on_applied(
        self, callback: Callable[[int, tuple[Recorded, ...], State], None]
    ) -> object: ...


class ClientChecks:
    """Subscribes to clients and servers; the first violation ends the run.

    `check_end` judges everything once no call is pending.
    """

    def __init__(self, kernel: Kernel, clients: SimClients, servers: Applied) -> None:
        self._kernel = kernel
        self._clients = clients
        self._applied_index = 0
        self._standing: dict[str, list[Standing]] = {}
        self._first_call: dict[str, Call] = {}
        """By tag; calls under one key share one."""
        self._calls_taken = 0
        servers.on_applied(self._applied)
        clients.on_answer.append(self._answered)
        clients.on_read.append(self._read)
        kernel.call_later(LOOK_S, self._look)

    def check_end(self) -> None:
        """Raise the first violation of what only the whole log shows."""
        self.check_overdue()
        by_tag: dict[str, list[Call]] = {}
        for call in self._clients.calls:
            by_tag.setdefault(call.tag, []).append(call)
        for tag, calls in by_tag.items():
            found = _unmet(calls, self._standing.get(tag, []))
            if found is not None:
                raise found

    def check_overdue(self) -> None:
        """Raise when a call has not ended although its client could have known."""
        now_s = self._kernel.now_s()
        for client in (*self._clients.all.values(), self._clients.operator):
            process = client.process
            if process is None or not process.alive or process.paused:
                continue
            for call in client.open_calls:
                runs_since_s = max(client.runs_since_s, process.stalled_until_s)
                due_s = max(call.deadline_s, runs_since_s) + SLACK_S
                if now_s > due_s:
                    raise Violation(DEADLINE, f"{_told(call)} is pending at {now_s:.3f} s")

    # What happens

    def _look(self) -> None:
        try:
            self.check_overdue()
            defects = self._clients.channels.defects
            if defects:
                raise Violation(CONVERSATIONS, repr(defects[0])) from defects[0]
        except Violation as found:
            self._kernel.fail(found)
            return
        self._kernel.call_later(LOOK_S, self._look)

    def _applied(self, node: int, records: tuple[Recorded, ...], state: State) -> None:
        for record in records:
            index = record.entry.index
            if index <= self._applied_index:
                continue
            self._applied_index = index
            tag = getattr(record.entry.event, "actor", "")
            if "/" not in tag:
                continue
            call = self._call(tag)
            if call is None:
                continue
            if record.entry.event != call.event:
                self._fail(AS_ASKED, f"{_told(call)}; index {index} has {record.entry.event}")
            stands = Standing(index, record.rejection, record.duplicate_of)
            earlier = self._standing.setdefault(tag, [])
            if stands.effective and any(one.effective for one in earlier):
                self._fail(ONCE, f"{_told(call)}; {_stood([*earlier, stands])}")
            earlier.append(stands)

    def _call(self, tag: str) -> Call | None:
        calls = self._clients.calls
        while self._calls_taken < len(calls):
            call = calls[self._calls_taken]
            self._first_call.setdefault(call.tag, call)
            self._calls_taken += 1
        return self._first_call.get(tag)

    def _answered(self, call: Call) -> None:
        if call.outcome in (OK, REJECTED) and call.index <= call.floor and not call.keyed:
            self._fail(AFTER, f"{_told(call)}; before it began, index {call.floor} was told")
        client = self._clients.all.get(call.client, self._clients.operator)
        stalled_s = client.process.stalled_until_s if client.process is not None else 0.0
        due_s = max(call.deadline_s, client.runs_since_s, stalled_s) + SLACK_S
        if call.completed_s > due_s and client.process is not None and client.process.alive:
            self._fail(DEADLINE, f"{_told(call)} ended at {call.completed_s:.3f} s")

    def _read(self, read: Read) -> None:
        if read.index < read.floor:
            self._fail(
                READS,
                f"{read.client} read index {read.index} from server {read.server} between "
                f"{read.began_s:.3f} and {read.completed_s:.3f} s; {read.floor} was told before",
            )

    def _fail(self, sentence: str, detail: str) -> None:
        self._kernel.fail(Violation(sentence, detail))


def _unmet(calls: list[Call], standing: list[Standing]) -> Violation | None:
    """What is wrong with the calls of one tag, given all of its entries."""
    effective = [one for one in standing if one.effective]
    told = "; ".join([*map(_told, calls), _stood(standing)])
    if len(effective) > 1:
        return Violation(ONCE, told)
    pending = [call for call in calls if call.outcome == PENDING]
    if pending:
        return Violation(DEADLINE, told)
    by_index = {one.index: one for one in standing}
    for call in calls:
        said = by_index.get(call.index)
        if call.outcome == OK and (said is None or not said.effective):
            return Violation(ACKNOWLEDGED, told)
        if call.outcome == REJECTED and (said is None or said.rejection != call.rejection):
            return Violation(REFUSED, told)
    if standing and all(call.outcome == NOT_DONE for call in calls):
        return Violation(ABSENT, told)
    answers = {(c.outcome, c.index) for c in calls if c.outcome in (OK, REJECTED)}
    return Violation(AGREED, told) if len(answers) > 1 else None


def _told(call: Call) -> str:
    ended = f"at {call.completed_s:.3f} s" if call.completed_s else "not yet"
    return (
        f"{call.tag} ({type(call.event).__name__}) asked at {call.invoked_s:.3f} s until "
        f"{call.deadline_s:.3f} s, {ended} {call.outcome} index {call.index} {call.rejection} "
        f"{call.detail}".rstrip()
    )


def _stood(standing: list[Standing]) -> str:
    entries = [
        f"index {one.index} {one.rejection or 'in effect'}"
        + (f", as {one.duplicate_of} said" if one.duplicate_of else "")
        for one in standing
    ]
    return f"in the log: {', '.join(entries) or 'nothing'}"
