"""Places in the code where it hurts most to die, to stall, or to be overtaken.

`reach` does nothing by itself. A simulator observes which site is reached, in which of its
processes, and may end the process right there: what was done before the call is done, what stands
after it is not.
"""

from __future__ import annotations

from collections.abc import Callable

SITES: dict[str, str] = {
    "raft.proposal.placed": "A proposal stands in the leader's log, and nowhere else yet.",
    "raft.turn.sent_early": "Entries have left for followers, before the leader's own fsync.",
    "raft.turn.committed": "What a turn wrote is durable; nothing that waited for it has left.",
    "raft.snapshot.written": "A snapshot has its final name, and no record names it.",
    "raft.snapshot.placed": "A fetched snapshot has its final name; log and state are the old.",
    "store.state.replaced": "A snapshot's state is durable; memory still holds the old one.",
    "store.retain.staged": "Old entries are given up in memory, and not yet on disk.",
    "node.entries.applied": "Entries have taken effect here; nobody who waits for them knows.",
    "node.command.decided": "A command has its outcome; readers and the queue do not know it.",
    "node.retain.replayed": "The state that old entries lead to is known; they are still there.",
    "api.answers.taken": "Answers and plans left the session, and have not been sent.",
    "client.write.numbered": "Writes have their numbers, and have not been sent.",
    "client.answer.received": "A write's outcome is here; its caller has not heard it.",
    "client.registration.decided": "A host is registered; its agent has not heard it.",
    "agent.plan.taken": "A plan is here; neither its version is kept nor anything of it done.",
    "agent.plan.noted": "A plan's version is kept; nothing of the plan is done.",
    "agent.launch.recorded": "A launch is on record; there is no process.",
    "agent.launch.started": "A process was started; its record does not name it.",
    "agent.exit.seen": "A process has exited; its record says that it runs.",
    "agent.task.released": "A task is gone; its record says that it is ending.",
}
"""Name to what is true when it is reached."""

Observer = Callable[[str], None]
"""Told the name of each site reached. What it raises goes through the code that reached it."""

_observer: Observer | None = None


def reach(site: str) -> None:
    """Execution is at this site of `SITES`."""
    if _observer is not None:
        _observer(site)


def observe(observer: Observer | None) -> None:
    """Have every site of this interpreter told to the observer; None ends it."""
    global _observer
    _observer = observer
