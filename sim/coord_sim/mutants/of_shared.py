"""Guards of the core that concern a shared fleet: quarantine, failure domains, queues, spares,
weights, and gangs that shrink or restart together."""

from __future__ import annotations

from coord_sim.mutants.mutant import Edit, Mutant, Reach

_SHARED = (Reach.SHARED,)
_QUARANTINE = "coord.core.care.quarantine:"
_SEARCH = "coord.core.queueing.preemption:_Search."

CARE = (
    Mutant(
        name="quarantine-share",
        guard="evidence alone takes no more of the fleet out than its share",
        breaks="a check that is wrong everywhere empties the fleet",
        races=(9, 20),
        reach=_SHARED,
        edits=(
            Edit(
                f"{_QUARANTINE}used_up",
                "if fleet.quarantined >= fleet.allowed:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="quarantine-share-of-domain",
        guard="evidence alone takes no more of a failure domain out than its share",
        breaks="a rack that runs hot is taken out as if its hosts were broken one by one",
        races=(9, 20),
        reach=_SHARED,
        edits=(
            Edit(
                f"{_QUARANTINE}used_up",
                "if limit.quarantined >= limit.allowed:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="quarantine-answer",
        guard="an answer counts for the proposal it was given to",
        breaks="a host is taken out by a word about things as they were before",
        races=(36,),
        reach=_SHARED,
        edits=(
            Edit(
                "coord.core.care.quarantine_course:_answered",
                "if event.version != row.version:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="probation-is-limited",
        guard="a host on probation gets few tasks",
        breaks="a host that was doubted gets a whole gang at once",
        races=(9,),
        reach=_SHARED,
        edits=(
            Edit(
                "coord.core.placement.room:Room._tasks_left",
                "if not self.host.probation:",
                "if True:",
            ),
        ),
    ),
    Mutant(
        name="domain-held-together",
        guard="a host of a silent domain is not judged alone",
        breaks="a dead switch is taken for the death of one host after the other",
        races=(20,),
        reach=_SHARED,
        edits=(Edit("coord.core.care.breaker:judge", "if name not in kept:", "if name:"),),
    ),
    Mutant(
        name="domain-grace",
        guard="a silent domain gets its time before it is lost",
        breaks="a switch that starts anew costs its rack all work",
        races=(20,),
        reach=_SHARED,
        edits=(
            Edit(
                "coord.core.care.silence:take_due",
                "if step.now_ms < known.due_ms and not allowed:",
                "if False:",
            ),
        ),
    ),
)

QUEUES = (
    Mutant(
        name="quota",
        guard="a queue uses no more than its quota and what it may borrow",
        breaks="one team takes what was promised to another",
        races=(29,),
        reach=_SHARED,
        edits=(
            Edit(
                "coord.core.queueing.shares:Shares._left",
                "if spec.borrowing_limit >= 0:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="preemption-of-the-protected",
        guard="who may not be preempted is not",
        breaks="a job that cannot save its work loses it to another",
        races=(29, 35),
        reach=_SHARED,
        edits=(
            Edit(
                "coord.core.queueing.preemption:is_preemptible",
                "and job.spec.preemptible",
                "and gang.key",
            ),
        ),
    ),
    Mutant(
        name="preemption-in-vain",
        guard="nobody is stopped for a gang that then still has no place",
        breaks="work is thrown away and nothing starts",
        races=(29, 35),
        reach=_SHARED,
        edits=(
            Edit(f"{_SEARCH}_counts_fit", "return False", "return True"),
            Edit(
                f"{_SEARCH}plan",
                "rooms = self._soon.copy()",
                "rooms = self._soon.copy()\n"
                "    for key in sorted(self._state.tasks):\n"
                "        rooms.free_task(self._state.tasks[key])",
            ),
        ),
    ),
    Mutant(
        name="reservation",
        guard="what the first that lacks room could use of its hosts is given to nobody behind it",
        breaks="a wide gang waits for ever behind small ones that come later",
        races=(29, 32),
        reach=_SHARED,
        edits=(
            Edit(
                "coord.core.queueing.backfill:keep_from_others",
                "left.put(_without(room, gang, role, count))",
                "left.put(room)",
            ),
        ),
    ),
)

GANGS = (
    Mutant(
        name="spare-serves-one",
        guard="a place that is kept for one gang is kept for no other",
        breaks="two gangs count on the same spare",
        races=(30, 33),
        reach=_SHARED,
        edits=(
            Edit(
                "coord.core.placement.beside:keep_beside",
                "for room in choice.changed.values():",
                "for room in ():",
            ),
        ),
    ),
    Mutant(
        name="spares-as-many-as-wanted",
        guard="a gang that has its spares gets no more",
        breaks="spares of one gang fill the fleet",
        races=(30, 31),
        reach=_SHARED,
        edits=(
            Edit(
                "coord.core.recovery.spares:_missing",
                "gang.spares - sum(hold.spare for hold in gang.holds)",
                "gang.spares",
            ),
        ),
    ),
    Mutant(
        name="shrink-waits",
        guard="a gang that may start smaller waits for room for all of it first",
        breaks="a gang runs small for hours for want of a moment's patience",
        races=(29,),
        reach=_SHARED,
        edits=(
            Edit(
                "coord.core.queueing.waiting:smallest_now",
                "if now_ms >= shrinks_at_ms(state, gang):",
                "if True:",
            ),
        ),
    ),
    Mutant(
        name="together-after-all",
        guard="of gangs that restart together none starts before all have stopped",
        breaks="a new generation of one role meets the old one of another",
        races=(1, 10),
        reach=_SHARED,
        edits=(
            Edit(
                "coord.core.queueing.scheduling:_backs_off",
                "if awaits_others(step.state, gang):",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="weights-of-the-fenced",
        guard="a generation that was given up publishes no weights",
        breaks="what a fenced trainer left behind reaches everybody who works with its weights",
        races=(1, 21),
        reach=_SHARED,
        edits=(
            Edit(
                "coord.core.recovery.weights:_published",
                "if isinstance(found, Rejection):",
                "task = step.state.tasks.get(event.task)\n"
                "    if found == Rejection.STALE_GENERATION and task is not None "
                "and task.gang in step.state.gangs:\n"
                "        found = (task, step.state.gangs[task.gang])\n"
                "    if isinstance(found, Rejection):",
            ),
            Edit(
                "coord.core.recovery.weights:_published",
                "if task.status not in WORKING:",
                "if False:",
            ),
        ),
    ),
    Mutant(
        name="weights-go-forward",
        guard="versions of weights only grow",
        breaks="whoever works with the newest weights is sent back to older ones",
        races=(23,),
        reach=_SHARED,
        edits=(
            Edit(
                "coord.core.recovery.weights:_published",
                "if known is not None and event.version <= known.version:",
                "if False:",
            ),
        ),
    ),
)

SHARED_MUTANTS = CARE + QUEUES + GANGS
