"""Checkpoints: who saved what, and what became of it."""

from __future__ import annotations

from coord.core.state import State
from coord.model import decisions, events
from coord.model.entry import Recorded

from .violation import CoreViolation


class Saves:
    """Shards that were accepted, counted again."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.shards: dict[tuple[str, int, int], dict[int, None]] = {}
        """(gang, generation, step) -> indexes whose shard was accepted."""

    def look_at(self, record: Recorded) -> None:
        event = record.entry.event
        commits = [
            one for one in record.decisions if isinstance(one, decisions.CheckpointCommitted)
        ]
        for commit in commits:
            self._look_at_commit(commit)
        if isinstance(event, events.ShardSaved) and record.accepted and not record.duplicate_of:
            self._look_at_shard(event, commits)

    def _look_at_commit(self, decision: decisions.CheckpointCommitted) -> None:
        gang = self.state.gangs[decision.gang]
        if gang.generation != decision.generation:
            raise CoreViolation("an old generation commits nothing", f"{decision}")
        if gang.rolled_back == gang.generation:
            return  # Somebody took it back: what it still saves is set aside.
        saved = self.state.newest_checkpoint(decision.gang)
        if saved is None or saved.step != decision.step:
            raise CoreViolation("the newest commit is where a restart begins", f"{decision}")
        for shard in saved.shards:
            if not shard.startswith(f"{decision.generation}/{decision.step}/"):
                raise CoreViolation("one checkpoint, one generation", f"{shard} in {decision}")

    def _look_at_shard(
        self, event: events.ShardSaved, commits: list[decisions.CheckpointCommitted]
    ) -> None:
        task = self.state.tasks[event.task]
        gang = self.state.gangs[task.gang]
        if task.generation != gang.generation:
            raise CoreViolation("an old generation commits nothing", f"{event}")
        shards = self.shards.setdefault((gang.key, gang.generation, event.step), {})
        shards[task.index if gang.index < 0 else 0] = None
        if len(shards) == gang.size and not commits:
            raise CoreViolation("a save with every shard is committed", f"{event}")
