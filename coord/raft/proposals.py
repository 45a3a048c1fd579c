"""Who waits for what became of a proposal (rule G11)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coord.raft.ports import Committed, NotCommitted, ProposeOutcome, Unknown
from coord.sites import reach


class Proposal:
    """One proposal on its way; `future` holds the outcome once it is known."""

    def __init__(self, append: Callable[[Proposal], None]) -> None:
        self.append = append
        """Hands it to the library."""
        self.future: asyncio.Future[ProposeOutcome] = asyncio.get_running_loop().create_future()
        self.index = 0
        self.term = 0

    def answer(self, outcome: ProposeOutcome) -> None:
        if not self.future.done():
            self.future.set_result(outcome)


class Proposals:
    """All proposals of a node that are not answered yet.

    Waiting ones were not handed to the library: their absence is certain. Placed ones stand in the
    leader's log.
    """

    def __init__(self) -> None:
        self._waiting: list[Proposal] = []
        self._placed: dict[int, Proposal] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting or self._placed)

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    async def wait(self, proposal: Proposal, deadline_s: float) -> ProposeOutcome:
        """The outcome, within the deadline in any case."""
        self._waiting.append(proposal)
        try:
            async with asyncio.timeout(deadline_s):
                return await proposal.future
        except TimeoutError:
            return Unknown("timeout") if proposal.index else NotCommitted("busy")
        finally:
            if proposal in self._waiting:
                self._waiting.remove(proposal)
            if self._placed.get(proposal.index) is proposal:
                del self._placed[proposal.index]

    def hand_over(self) -> None:
        """Give all waiting ones to the library, in order."""
        waiting, self._waiting = self._waiting, []
        for proposal in waiting:
            if not proposal.future.done():
                proposal.append(proposal)

    def place(self, proposal: Proposal, index: int, term: int, refusal: str) -> None:
        """The leader appended it at (index, term), or for index 0 certainly did not."""
        if index == 0:
            proposal.answer(NotCommitted(refusal))
            return
        proposal.index, proposal.term = index, term
        self._placed[index] = proposal
        reach("raft.proposal.placed")

    def applied(self, applied_index: int, term_at: Callable[[int], int | None]) -> None:
        """The entries up to this index are committed and applied here."""
        for index in [index for index in self._placed if index <= applied_index]:
            proposal = self._placed.pop(index)
            if proposal.term == term_at(index):
                proposal.answer(Committed(index))
            else:
                proposal.answer(Unknown("overwritten"))

    def refuse(self, reason: str) -> None:
        """Those that were not handed over yet certainly will not be."""
        waiting, self._waiting = self._waiting, []
        for proposal in waiting:
            proposal.answer(NotCommitted(reason))

    def abandon(self, reason: str, leading_term: int = 0) -> None:
        """Those placed in another term than the one that we lead, if any: nobody knows."""
        for index, proposal in sorted(self._placed.items()):
            if proposal.term != leading_term:
                del self._placed[index]
                proposal.answer(Unknown(reason))
