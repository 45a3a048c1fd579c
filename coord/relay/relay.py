"""One relay between its agents and its one connection upwards, whatever carries either.

`downstream.py` brings what comes from below, `upstream.py` what comes from above; both take what
is to be sent. Runs on one loop and reads only that loop's clock, which never jumps: how the
machine's clock stands is of no matter, but for the number of this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from coord.codec import MalformedMessage, decode_to_server, encode_to_client
from coord.listening.talk import Ended
from coord.model.channel import (
    Beat,
    LeaderChanged,
    LogChunk,
    Refused,
    RelayAttach,
    RelayBeatsSeen,
    RelayDown,
    Relayed,
    RelayUp,
    Results,
    Submit,
    ToServer,
    Welcome,
)
from coord.model.entry import HOST_ACTOR, RELAY_ACTOR
from coord.relay.beating import Beating
from coord.relay.config import RelayConfig
from coord.relay.conversations import Conversation
from coord.relay.limits import Complaints, TokenBucket
from coord.relay.metrics import Metrics
from coord.relay.owed import Owed, results_of
from coord.relay.queues import Priority, Upward, Urgent, message_of, priority_of
from coord.relay.table import Table

BUSY_MS = 500
"""After which a report that was refused may come again."""

log = structlog.get_logger()


class Relay:
    """`incarnation` must exceed that of earlier processes of this name: the wall clock's ms."""

    def __init__(
        self, config: RelayConfig, incarnation: int, now_s: Callable[[], float], metrics: Metrics
    ) -> None:
        self.config = config
        self.metrics = metrics
        self.complaints = Complaints()
        self.upward = Upward(config.limits.queue_bytes, config.limits.upward_bytes)
        self.up_ready = asyncio.Event()
        """Set when `take_up` has something."""
        self.sooner = asyncio.Event()
        """Set when `next_window_s` may have become earlier."""
        self.table = Table()
        self.welcome: Welcome | None = None
        """The server's last one; None before the first."""
        self.connected = False
        self.beating = Beating(config.name, incarnation, metrics)
        self._now_s = now_s
        self._owed = Owed()

    # From below

    def refusal(self) -> Refused | None:
        """Why a conversation cannot begin now."""
        if self.welcome is None:
            return Refused("stopping", "this relay has not reached a server; connect to another")
        if len(self.table.connections) >= self.config.limits.agents:
            return Refused(
                "stopping",
                f"this relay has {self.config.limits.agents} conversations, which is its limit; "
                "connect to another",
            )
        return None

    def attach(self, actor: str) -> Conversation:
        """A conversation begins."""
        limits = self.config.limits
        bucket = TokenBucket(limits.rate_per_s, limits.burst, self._now_s())
        number = 0 if actor.startswith(RELAY_ACTOR) else self.table.new_number()
        conversation = Conversation(actor, number, bucket, limits.unread_bytes)
        self.table.connections[conversation] = None
        if number:
            self.table.add(number, conversation, 0, actor)
            self._say_up(RelayAttach(number, actor))
        return conversation

    def detach(self, conversation: Conversation) -> None:
        """The connection from below is gone. Idempotent."""
        self.table.connections.pop(conversation, None)
        self.table.forget_routes(conversation)
        for number in (conversation.number, *list(conversation.numbers.values())):
            self._end(number)

    def receive(self, conversation: Conversation, message: ToServer, frame: bytes) -> float:
        """A message, and the bytes that it came in. Returns for how long the sender is to be left
        unread: it sends more than it may. Raises Ended."""
        if conversation.over:
            return 0.0
        if conversation.is_relay and self.upward.overflows:
            raise Ended(Refused("too_slow", "too much waits here for the server; attach anew"))
        if conversation.is_relay:
            if not isinstance(message, RelayUp):
                raise Ended(Refused("malformed", f"{type(message).__name__} from a relay"))
            self._from_relay(conversation, message)
            return 0.0
        if len(frame) > self.config.limits.agent_bytes:
            raise Ended(Refused("malformed", self._too_large(frame)))
        if isinstance(message, Beat):
            return self._beat(conversation, message, frame)
        if isinstance(message, Submit | LogChunk):
            return self._report(conversation, message, frame)
        raise Ended(
            Refused("malformed", f"{type(message).__name__} from {conversation.actor}, after Hello")
        )

    def _beat(self, conversation: Conversation, beat: Beat, frame: bytes) -> float:
        now_s = self._now_s()
        self.metrics.beats.inc()
        if not conversation.bucket.take(1, now_s):
            self._refuse("flood", conversation, now_s)
            return conversation.bucket.wait_s(1)
        self._close_windows(now_s)
        place_of = self.table.find
        if self.beating.beat(conversation.number, conversation.actor, beat, now_s, place_of):
            conversation.shown = frame
            self._say_up(Relayed(conversation.number, frame))
            self.sooner.set()
        return 0.0

    def _report(
        self, conversation: Conversation, message: Submit | LogChunk, frame: bytes
    ) -> float:
        now_s = self._now_s()
        count = len(message.submissions) if isinstance(message, Submit) else 1
        if not conversation.bucket.take(count, now_s):
            wait_s = conversation.bucket.wait_s(count)
            self._busy(conversation.number, message, "flood", max(BUSY_MS, round(wait_s * 1000)))
            return wait_s
        self._report_up(conversation.number, priority_of(message), message, frame)
        return 0.0

    def _report_up(
        self, number: int, priority: Priority, message: Submit | LogChunk, frame: bytes
    ) -> None:
        if not self.upward.add(number, priority, frame):
            self._busy(number, message, "queue_full", BUSY_MS)
            return
        if isinstance(message, Submit):
            self._owed.sent(number, message, self._now_s())
        self._up()

    def _busy(self, number: int, message: Submit | LogChunk, cause: str, again_ms: int) -> None:
        place = self.table.find(number)
        assert place is not None, f"conversation {number} reports, but is not in the table"
        self._refuse(cause, place.conversation, self._now_s())
        if isinstance(message, Submit):
            results = results_of(message, "not_committed", "busy", again_ms)
            self._deliver(number, encode_to_client(Results(results, self._applied_index())))

    def _refuse(self, cause: str, conversation: Conversation, now_s: float) -> None:
        self.metrics.refused.labels(cause).inc()
        self.complaints.tell(f"relay_refuses_{cause}", now_s, actor=conversation.actor)

    def _from_relay(self, conversation: Conversation, up: RelayUp) -> None:
        for attach in up.attached:
            if not attach.actor.startswith(HOST_ACTOR) or attach.session in conversation.numbers:
                raise Ended(Refused("malformed", f"{attach} is no new conversation of an agent"))
            number = self.table.new_number()
            self.table.add(number, conversation, attach.session, attach.actor)
            self._say_up(RelayAttach(number, attach.actor))
        for relayed in up.frames:
            self._relayed_up(conversation, relayed)
        for beats in up.beats:
            if beats.relay == self.config.name:
                raise Ended(Refused("malformed", f"relay {beats.relay!r} is above itself"))
            self.table.route(beats.relay, conversation)
            self._say_up(beats)
        for session in up.detached:
            self._end(conversation.numbers.get(session, 0))

    def _relayed_up(self, conversation: Conversation, relayed: Relayed) -> None:
        number = conversation.numbers.get(relayed.session)
        if number is None:
            # The server ended it while this was under way.
            self.metrics.refused.labels("no_conversation").inc()
            return
        if len(relayed.frame) > self.config.limits.agent_bytes:
            said = self._too_large(relayed.frame)
            self._end_malformed(number, conversation, relayed.session, said)
            return
        try:
            message = decode_to_server(relayed.frame)
        except MalformedMessage as error:
            self._end_malformed(number, conversation, relayed.session, str(error))
            return
        if isinstance(message, Beat):
            self._say_up(Relayed(number, relayed.frame))
        elif isinstance(message, Submit | LogChunk):
            self._report_up(number, priority_of(message), message, relayed.frame)
        else:
            said = f"a {type(message).__name__} in it"
            self._end_malformed(number, conversation, relayed.session, said)

    def _end_malformed(
        self, number: int, conversation: Conversation, session: int, said: str
    ) -> None:
        """That conversation alone."""
        self._refuse("malformed", conversation, self._now_s())
        frame = encode_to_client(Refused("malformed", f"{said}; nothing of it was done"))
        conversation.deliver(frame, session, ends=True)
        self._end(number)

    def _end(self, number: int) -> None:
        if self.table.find(number) is not None:
            self.table.remove(number)
            self.upward.forget(number)
            self.beating.leave(number)
            self._say_up(number)

    def _too_large(self, frame: bytes) -> str:
        limit_bytes = self.config.limits.agent_bytes
        return f"a message of {len(frame)} bytes; through a relay the limit is {limit_bytes}"

    # From above

    def upstream_connected(self, welcome: Welcome) -> None:
        """A connection is there: everybody behind us begins anew on it."""
        self.metrics.upstreams.inc()
        self.connected = True
        self._welcomed(welcome)
        self.upward.forget_urgent()
        for number, place in self.table.places():
            self.upward.put(RelayAttach(number, place.actor))
            if place.conversation.shown:
                self.upward.put(Relayed(number, place.conversation.shown))
        self.beating.begin(welcome.settings, self._now_s())
        self._up()
        self.sooner.set()

    def upstream_lost(self) -> None:
        """What went up is not answered any more. Agents stay; relays below attach anew."""
        self.connected = False
        self.beating.lost()
        for number, results in self._owed.lost(self._now_s()):
            if self.table.find(number) is not None:
                self._deliver(number, encode_to_client(Results(results, self._applied_index())))
        for conversation in list(self.table.connections):
            if conversation.is_relay:
                conversation.refuse("stopping", "this relay lost its server; attach anew")

    def refuse_all(self, code: str, message: str) -> None:
        """Everybody below is to go elsewhere."""
        for conversation in list(self.table.connections):
            conversation.refuse(code, message)

    def hear(self, down: RelayDown) -> None:
        """A message from above."""
        for relayed in down.frames:
            self._deliver(relayed.session, relayed.frame, relayed.ends)
            if relayed.ends and self.table.find(relayed.session) is not None:
                self.table.remove(relayed.session)
                self.upward.forget(relayed.session)
                self.beating.leave(relayed.session)
        for seen in down.seen:
            self._seen(seen)

    def hear_leader(self, changed: LeaderChanged) -> None:
        """Passed on to everybody."""
        self._welcomed(changed)
        frame = encode_to_client(changed)
        for conversation in self.table.connections:
            conversation.leader_changed(frame)

    def _welcomed(self, welcome: Welcome) -> None:
        self.welcome = welcome
        self.beating.learn(welcome.settings, self._now_s())

    def _seen(self, seen: RelayBeatsSeen) -> None:
        if seen.relay != self.config.name:
            way = self.table.way_to(seen.relay)
            if way is not None:
                way.beats_seen(seen)
            return
        self.sooner.set()
        for number, sequence in self.beating.seen(seen):
            place = self.table.find(number)
            if place is not None:
                self.metrics.beats_told.inc()
                place.conversation.beat_seen(sequence, seen.applied_index)

    def _deliver(self, number: int, frame: bytes, ends: bool = False) -> None:
        place = self.table.find(number)
        if place is not None:
            place.conversation.deliver(frame, place.below, ends)

    def _applied_index(self) -> int:
        return self.welcome.applied_index if self.welcome is not None else 0

    # To above

    def take_up(self) -> RelayUp | None:
        """All that is to be sent now; None when there is nothing. Only while connected."""
        self.up_ready.clear()
        now_s = self._now_s()
        urgent, reports = self.upward.take()
        if self.upward:
            self.up_ready.set()
        urgent = [one for one in urgent if self.beating.may_go(one, now_s)]
        if not urgent and not reports:
            return None
        return message_of(urgent, reports, round(now_s * 1000))

    def _up(self) -> None:
        if self.connected:
            self.up_ready.set()

    def _say_up(self, item: Urgent) -> None:
        """What concerns leases. Without a connection it is not kept: all is said on the next."""
        if self.connected:
            self.upward.put(item)
            self.up_ready.set()

    # Time

    def next_window_s(self) -> float:
        """When `tick` has something to do."""
        return self.beating.due_s(self._now_s())

    async def tick(self) -> None:
        """Windows that are over are spoken of."""
        self._close_windows(self._now_s())
        if self.beating.deaf:
            # What was in the sockets is read in the next turn and handled in the one after.
            for _ in range(4):
                await asyncio.sleep(0)
            self.beating.listen()

    def _close_windows(self, now_s: float) -> None:
        vouched = self.beating.close(now_s, self.connected)
        if vouched is not None:
            self._say_up(vouched)
