"""Guards of the servers around the log: requests, reads, beats, leadership, plans."""

from __future__ import annotations

from coord_sim.mutants.mutant import Edit, Mutant, Reach

_CLUSTER = (Reach.CLUSTER,)
_FOCUS = (Reach.FOCUS, Reach.CLUSTER)

SERVER_MUTANTS = (
    Mutant(
        name="term-is-opened",
        guard="a leader proposes nothing before its election is in the log",
        breaks="no verdict is taken in its term, so no dead host is ever lost",
        races=(13, 14),
        reach=_CLUSTER,
        edits=(
            Edit(
                "coord.node.proposer:Proposer.lead", "self._opened = False", "self._opened = True"
            ),
        ),
    ),
    Mutant(
        name="unknown-is-not-refused",
        guard="a command whose outcome nobody knows may have happened",
        breaks="a request is called not done, and was done",
        races=(37,),
        reach=_FOCUS,
        edits=(
            Edit(
                "coord.node.proposer:Proposer._commit",
                "if isinstance(outcome, NotCommitted):",
                "if True:",
            ),
        ),
    ),
    Mutant(
        name="expired-is-not-refused",
        guard="a request of which a copy may be in a log ends as unknown",
        breaks="a request is called not done when its time is over, and is done later",
        races=(37,),
        reach=_FOCUS,
        edits=(
            Edit(
                "coord.node.requests:RequestTable._expire",
                'outcome = "unknown" if first.attempts else "not_committed"',
                'outcome = "not_committed"',
            ),
        ),
    ),
    Mutant(
        name="beats-are-recorded-first",
        guard="a beat is acknowledged when it stands in the log",
        breaks="an agent believes in a lease that the log does not know",
        races=(10, 39),
        reach=_FOCUS,
        edits=(
            Edit(
                "coord.node.heartbeats:Heartbeats.beat",
                "self._heard[beat.slot] =",
                "session.beat_seen(beat.sequence)\n    self._heard[beat.slot] =",
            ),
        ),
    ),
    Mutant(
        name="read-barrier",
        guard="a read waits for a barrier committed after it came",
        breaks="a server that was cut off answers with the past",
        races=(44,),
        reach=_CLUSTER,
        edits=(
            Edit(
                "coord.node.reads:Reads.barrier",
                "self._waiting.append(future)",
                "return",
            ),
        ),
    ),
    Mutant(
        name="read-after-apply",
        guard="a read is answered by who has applied its barrier",
        breaks="a follower that lags answers with the past",
        races=(44,),
        reach=_FOCUS,
        edits=(
            Edit(
                "coord.node.reads:Reads.applied",
                "if not self._ready_at or self._applied_raft_index() < self._ready_at:",
                "if not self._ready_at:",
            ),
        ),
    ),
    Mutant(
        name="old-agents-are-told",
        guard="an agent whose host was lost or has registered again is told so",
        breaks="a host that came back stays lost for ever",
        races=(11, 16),
        reach=_CLUSTER,
        edits=(
            Edit(
                "coord.node.heartbeats:Heartbeats.beat",
                "if is_outdated(state, beat.slot, beat.incarnation):",
                "if False:",
            ),
            Edit(
                "coord.node.heartbeats:Heartbeats.applied",
                "if is_outdated(state, heard.slot, heard.incarnation):",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="plans-after-snapshot",
        guard="a snapshot that is installed makes every plan due again",
        breaks="an agent misses the plan that stood between its server's log and the snapshot",
        races=(38,),
        reach=_FOCUS,
        edits=(
            Edit(
                "coord.node.node:Node._installed",
                "self.sessions.offer_all_plans(self.state)",
                "self.sessions.agents()",
            ),
            Edit(
                "coord.node.node:Node._do",
                "self.sessions.mend_plans(self.state)",
                "self.sessions.agents()",
            ),
        ),
        survives="the next entry that may change any plan has all plans offered again, at the "
        "latest when the launch that was missed runs out of time: it costs time and an attempt",
    ),
    Mutant(
        name="plans-are-offered",
        guard="each change of a host's plan is offered to its agent",
        breaks="an agent goes on with the plan it had",
        races=(38, 41),
        reach=_CLUSTER,
        edits=(
            Edit(
                "coord.node.sessions:Sessions._offer_plan",
                "if session.plan_sent != newest:",
                "if session.plan_sent[0] != newest[0]:",
            ),
        ),
    ),
    Mutant(
        name="snapshot-is-whole",
        guard="a restart replays exactly what the stored state lacks",
        breaks="entries are applied twice to the state after a restart",
        races=(36, 39),
        reach=_FOCUS,
        edits=(
            Edit(
                "coord.raft.guarded_raft:GuardedRaft._prepare_start",
                'if last is None or before_last is None or "G13" not in self.rules:',
                "if True:",
            ),
            Edit(
                "coord.raft.guarded_raft:GuardedRaft.committed",
                "if self.failure is not None or index <= self._state_index:",
                "if self.failure is not None:",
            ),
        ),
    ),
    Mutant(
        name="one-change-of-members",
        guard="members change one by one: the next only when the last is committed",
        breaks="two changes under way make two majorities",
        races=(43,),
        reach=_FOCUS,
        edits=(
            Edit(
                "coord.raft.guarded_raft:GuardedRaft.propose_change",
                "if queued or self.journal.has_change_after(self.commit_index):",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="members-stand",
        guard="who is no member does not stand for election",
        breaks="a server that was removed makes a majority of itself",
        races=(43,),
        reach=_FOCUS,
        edits=(
            Edit(
                "coord.raft.guarded_raft:GuardedRaft._let_stand",
                "timings.election_min_ms / 1000 if self.votes else _NEVER_S",
                "timings.election_min_ms / 1000",
            ),
            Edit(
                "coord.raft.guarded_raft:GuardedRaft._let_stand",
                "timings.election_max_ms / 1000 if self.votes else 2 * _NEVER_S",
                "timings.election_max_ms / 1000",
            ),
            Edit("coord.raft.guarded_raft:GuardedRaft._conf", "votes = self.votes", "votes = True"),
        ),
    ),
)
