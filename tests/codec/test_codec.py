"""Every struct that travels keeps its value on the wire."""

from __future__ import annotations

import time
import types
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from coord import codec
from coord.codec import MalformedMessage, Schema, SchemaMismatch, UnencodableMessage
from coord.model.channel import Hello, Submit, ToClient, ToServer
from coord.model.decisions import DECISION_TYPES, AnyDecision, TasksPlaced
from coord.model.entry import Batch, Entry, Origin, Recorded, Submission
from coord.model.events import (
    EVENT_TYPES,
    AnyEvent,
    HeartbeatsSeen,
    HostRegistered,
    JobSubmitted,
    TaskExited,
)
from coord.model.incident import IncidentFooter, IncidentHeader
from coord.model.settings import Settings
from coord.model.spec import JobSpec, RoleSpec
from coord.pb import (
    channel_pb2,
    decisions_pb2,
    events_pb2,
    incident_pb2,
    log_pb2,
    plans_pb2,
    settings_pb2,
    spec_pb2,
)
from tests.codec.samples import UINT32, full, sparse, values

ORIGIN = Origin("client:ann", seq=3, seen_index=17)
MODULES = (
    channel_pb2,
    decisions_pb2,
    events_pb2,
    incident_pb2,
    log_pb2,
    plans_pb2,
    settings_pb2,
    spec_pb2,
)
TRANSLATED = {
    ("HeartbeatsSeen", "slots"): "slot_deltas",
    ("RosterChanged", "joined_slots"): "joined_slot_deltas",
    ("RosterChanged", "left_slots"): "left_slot_deltas",
    ("RosterHeard", "except_slots"): "except_slot_deltas",
    ("RosterCut", "slots"): "slot_deltas",
}


def recorded(event: Any, *decisions: Any) -> Recorded:
    return Recorded(Entry(18, 2, 1_700_000_000_000, ORIGIN, event), 5_000, "ab" * 16, decisions)


def roundtrip_event(event: Any) -> Any:
    return codec.decode_recorded(codec.encode_recorded(recorded(event))).entry.event


def roundtrip_decision(decision: Any) -> Any:
    (found,) = codec.decode_recorded(
        codec.encode_recorded(recorded(sparse(EVENT_TYPES[0]), decision))
    ).decisions
    return found


@pytest.mark.parametrize("make", [full, sparse])
@pytest.mark.parametrize("event_type", EVENT_TYPES)
def test_an_event_keeps_its_value(event_type: type, make: Any) -> None:
    """With every field set, and with every field that may be empty empty."""
    assert make(event_type) == roundtrip_event(make(event_type))


@pytest.mark.parametrize("make", [full, sparse])
@pytest.mark.parametrize("decision_type", DECISION_TYPES)
def test_a_decision_keeps_its_value(decision_type: type, make: Any) -> None:
    """With every field set, and with every field that may be empty empty."""
    assert make(decision_type) == roundtrip_decision(make(decision_type))


@pytest.mark.parametrize("make", [full, sparse])
@pytest.mark.parametrize("kind", typing.get_args(ToServer))
def test_a_message_to_a_server_keeps_its_value(kind: type, make: Any) -> None:
    """With every field set, and with every field that may be empty empty."""
    assert make(kind) == codec.decode_to_server(codec.encode_to_server(make(kind)))


@pytest.mark.parametrize("make", [full, sparse])
@pytest.mark.parametrize("kind", typing.get_args(ToClient))
def test_a_message_to_a_client_keeps_its_value(kind: type, make: Any) -> None:
    """With every field set, and with every field that may be empty empty."""
    found = codec.decode_to_client(codec.encode_to_client(make(kind)))
    assert make(kind) == found
    assert type(found) is kind


def test_ends_of_an_incident_keep_their_values() -> None:
    """The header and the footer of an incident file."""
    for header in (full(IncidentHeader), IncidentHeader()):
        assert header == codec.decode_incident_header(codec.encode_incident_header(header))
    footer = full(IncidentFooter)
    assert footer == codec.decode_incident_footer(codec.encode_incident_footer(footer))


@settings(max_examples=200, deadline=None)
@given(value=values(Batch))
def test_any_batch_keeps_its_value(value: Batch) -> None:
    """Whatever events, integers and texts it carries."""
    assert value == codec.decode_batch(codec.encode_batch(value))


@settings(max_examples=200, deadline=None)
@given(value=values(Recorded))
def test_any_record_keeps_its_value(value: Recorded) -> None:
    """And the bytes are the same each time."""
    encoded = codec.encode_recorded(value)
    assert value == codec.decode_recorded(encoded)
    assert encoded == codec.encode_recorded(codec.decode_recorded(encoded))


@settings(max_examples=200, deadline=None)
@given(value=values(ToServer, UINT32))
def test_any_message_to_a_server_keeps_its_value(value: Any) -> None:
    """In the range of the channel's integers."""
    assert value == codec.decode_to_server(codec.encode_to_server(value))


@settings(max_examples=200, deadline=None)
@given(value=values(ToClient, UINT32))
def test_any_message_to_a_client_keeps_its_value(value: Any) -> None:
    """In the range of the channel's integers."""
    assert value == codec.decode_to_client(codec.encode_to_client(value))


def reachable(kind: Any) -> dict[str, type[msgspec.Struct]]:
    """Every struct that a value of this kind may hold, by name."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is not None:
        found: dict[str, type[msgspec.Struct]] = {}
        for member in typing.get_args(kind):
            found |= reachable(member)
        return found
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {}
    found = {kind.__name__: kind}
    for hint in typing.get_type_hints(kind).values():
        found |= reachable(hint)
    return found


TRAVELLING = reachable(Batch | Recorded | ToServer | ToClient | IncidentHeader | IncidentFooter)


@pytest.mark.parametrize("name", sorted(TRAVELLING))
def test_a_struct_and_its_message_have_the_same_fields(name: str) -> None:
    """By name, so that neither knows something that the other forgets."""
    struct_type = TRAVELLING[name]
    message = "Welcome" if name == "LeaderChanged" else name
    (descriptor,) = [
        module.DESCRIPTOR.message_types_by_name[message]
        for module in MODULES
        if message in module.DESCRIPTOR.message_types_by_name
    ]
    in_model = [TRANSLATED.get((name, field), field) for field in struct_type.__struct_fields__]
    assert sorted(in_model) == sorted(descriptor.fields_by_name)


@pytest.mark.parametrize(
    ("union", "descriptor"),
    [
        (AnyEvent, events_pb2.AnyEvent.DESCRIPTOR),
        (AnyDecision, decisions_pb2.AnyDecision.DESCRIPTOR),
        (ToServer, channel_pb2.ToServer.DESCRIPTOR),
        (ToClient, channel_pb2.ToClient.DESCRIPTOR),
    ],
)
def test_a_oneof_has_every_member(union: Any, descriptor: Any) -> None:
    """Each under its name in snake case."""
    members = [codec.member_name(member) for member in typing.get_args(union)]
    assert sorted(members) == sorted(descriptor.fields_by_name)


class Gone(msgspec.Struct, frozen=True):
    """As `Origin`, without most of it."""

    actor: str


class Mistyped(msgspec.Struct, frozen=True):
    """As `Origin`, with a text for a number."""

    actor: str
    incarnation: str
    seq: int
    seen_index: int
    seen_plan: int


class Defaulted(msgspec.Struct, frozen=True):
    """As `Origin`, with a default that the wire cannot tell from zero."""

    actor: str
    incarnation: int = 0
    seq: int = 1
    seen_index: int = 0
    seen_plan: int = 0


@pytest.mark.parametrize(
    ("struct_type", "says"),
    [
        (Gone, "only in proto/: incarnation, seen_index, seen_plan, seq"),
        (Mistyped, "Mistyped.incarnation is str"),
        (Defaulted, "Defaulted.seq defaults to 1; its field must be optional"),
    ],
)
def test_a_struct_that_differs_from_its_message_is_refused(struct_type: Any, says: str) -> None:
    """When the schema is built, which for all that travels is at import."""
    with pytest.raises(SchemaMismatch, match=says):
        Schema(struct_type, log_pb2.Origin)


def test_an_event_without_a_message_is_refused() -> None:
    """A union whose members are not those of the oneof."""
    with pytest.raises(SchemaMismatch, match="only in the model: hello"):
        Schema(TaskExited | Hello, events_pb2.AnyEvent)


def test_a_field_that_the_wire_lacks_has_the_default_of_the_model() -> None:
    """As when a setting is younger than the log, or a client spares itself a field."""
    assert codec.decode_to_server(channel_pb2.ToServer(submit={}).SerializeToString()) == Submit(())
    hello = channel_pb2.ToServer(hello={"actor": "client:x"}).SerializeToString()
    assert codec.decode_to_server(hello) == Hello("client:x")
    origin = {"actor": "client:x"}
    old = log_pb2.Batch(
        submissions=[
            {"origin": origin, "event": {"cluster_configured": {"settings": {"lease_ms": 9_000}}}}
        ]
    )
    (submission,) = codec.decode_batch(old.SerializeToString()).submissions
    assert submission.event.settings == Settings(lease_ms=9_000)


def test_a_map_is_read_in_the_order_of_its_keys() -> None:
    """So that every node's state has the same order, however a sender wrote it."""
    labels = {f"label-{number}": "x" for number in range(50, 0, -1)}
    event = HostRegistered("h", "a", "b", "h:1", labels=labels)
    assert list(roundtrip_event(event).labels) == sorted(labels)
    backwards = HostRegistered("h", "a", "b", "h:1", labels=dict(sorted(labels.items())))
    assert codec.encode_recorded(recorded(event)) == codec.encode_recorded(recorded(backwards))


@pytest.mark.parametrize(
    ("encoded", "says"),
    [
        (b"\xff\xff\xff", "3 bytes at offset 0 are no Recorded"),
        (b"", "Recorded.entry is missing"),
        (log_pb2.Recorded(entry={"event": {"clock_advanced": {}}}), "Entry.origin is missing"),
        (log_pb2.Recorded(entry={"origin": {}, "event": {}}), "AnyEvent holds nothing known"),
    ],
)
def test_bytes_that_are_no_record_are_refused(encoded: Any, says: str) -> None:
    """With their length and what is wrong."""
    if not isinstance(encoded, bytes):
        encoded = encoded.SerializeToString()
    with pytest.raises(MalformedMessage, match=says):
        codec.decode_recorded(encoded)


def test_an_unknown_word_is_refused() -> None:
    """A text that must be one of an enumeration's."""
    plan = channel_pb2.ToClient(host_plan={"tasks": [{"action": "jump"}]})
    with pytest.raises(MalformedMessage, match="jump"):
        codec.decode_to_client(plan.SerializeToString())


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (TaskExited("h", 2**63, "t"), "TaskExited.incarnation is 9223372036854775808"),
        (TaskExited("h", 1, "\udcff"), "TaskExited.task is"),
        (JobSubmitted(JobSpec("j", (RoleSpec("r", ("a", "\udcff")),))), "RoleSpec.command is"),
        (HeartbeatsSeen("n", (2**64,), (1,)), "HeartbeatsSeen.slots is"),
        (Hello("x"), "is no member of AnyEvent"),
    ],
)
def test_a_value_that_the_wire_cannot_carry_is_named(event: Any, says: str) -> None:
    """Field and value, and nothing is sent."""
    with pytest.raises(UnencodableMessage, match=says):
        codec.encode_batch(Batch(1, 1, 1, (Submission(ORIGIN, event),)))


def test_a_heartbeat_costs_about_two_bytes() -> None:
    """For ten thousand hosts in one frame, of which one in ten is silent."""
    slots = tuple(slot for slot in range(10_000) if slot % 10)
    event = HeartbeatsSeen("node:1", slots, (3,) * len(slots))
    size_bytes = len(codec.encode_recorded(recorded(event)))
    assert size_bytes / len(slots) < 2.02


def fastest_s(call: Any, rounds: int) -> float:
    """The best of several rounds: what the machine can do when it is let."""
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best


def test_the_codec_keeps_up() -> None:
    """Bounds far above what it takes (see the figures of `python -m tests.codec.speed`), so that
    only a change of its nature fails, not a busy machine."""
    exited = recorded(TaskExited("h-1", 3, "digits/trainer/0#3", signal=9, stderr_tail="x" * 80))
    beats = recorded(HeartbeatsSeen("node:1", tuple(range(10_000)), (3,) * 10_000))
    for value, bound_s in ((exited, 100e-6), (beats, 10e-3)):
        encoded = codec.encode_recorded(value)
        assert fastest_s(lambda value=value: codec.encode_recorded(value), 50) < bound_s
        assert fastest_s(lambda encoded=encoded: codec.decode_recorded(encoded), 50) < bound_s


def test_placements_of_a_whole_fleet_keep_their_value() -> None:
    """Ten thousand placements in one decision."""
    placements = tuple(
        {"task": f"j/r/{index}#1", "host": f"h-{index // 8}", "devices": (index % 8,)}
        for index in range(10_000)
    )
    decision = msgspec.convert(
        {
            "type": "TasksPlaced",
            "causes": ("1",),
            "job": "j",
            "gang": "j/r",
            "generation": 1,
            "placements": placements,
        },
        TasksPlaced,
    )
    assert decision == roundtrip_decision(decision)
