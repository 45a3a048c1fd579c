"""Bytes <-> model. The only importer of `coord/pb`.

Structs and protobuf messages are matched by name, once, at import: a struct and its message must
have the same fields of the same kinds, and every event, decision and channel message must be a
member of its oneof, or the import fails with `SchemaMismatch` and everything that differs.

A struct's default that is not zero must be `optional` in the proto; where the wire lacks such a
field (an old log, a sparing client), the struct's default holds. Maps are decoded in the order of
their keys, so that every reader sees the same.
"""

from __future__ import annotations

import enum
import operator
import re
import types
import typing
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, Generic, TypeVar

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from coord.model import channel
from coord.model.decisions import DECISION_TYPES, AnyDecision, RosterCut
from coord.model.entry import Batch, Recorded
from coord.model.events import EVENT_TYPES, AnyEvent, HeartbeatsSeen
from coord.model.incident import IncidentFooter, IncidentHeader
from coord.model.roster import RosterChanged, RosterHeard
from coord.pb import channel_pb2, incident_pb2, log_pb2, peer_pb2


class MalformedMessage(ValueError):
    """Bytes that no release wrote, or only a newer one. Nothing was done with them."""


class UnencodableMessage(ValueError):
    """A field has a value that the wire cannot carry. Nothing was sent or stored."""


class SchemaMismatch(Exception):
    """The model and `proto/` differ. Raised at import; run `make proto` after mending either."""


T = TypeVar("T")
Fill = Callable[[Any, Any], None]
"""(struct, empty message): write the struct's fields into the message."""
Build = Callable[[Any], Any]
"""(message): the struct."""
Converter = tuple[Fill, Build]


class Schema(Generic[T]):
    """One kind of message, between a struct (or a union of structs) and bytes."""

    def __init__(self, kind: Any, message_type: Any) -> None:
        self._name: str = message_type.DESCRIPTOR.name
        self._message_type = message_type
        self._fill, self._build = _converter(kind, message_type.DESCRIPTOR)

    def encode(self, value: T) -> bytes:
        """The same bytes for equal values, whatever the order of their dicts."""
        message = self._message_type()
        self._fill(value, message)
        return typing.cast(bytes, message.SerializeToString(deterministic=True))

    def decode(self, encoded: bytes) -> T:
        """Raises MalformedMessage."""
        try:
            return typing.cast(T, self._build(self._message_type.FromString(encoded)))
        except (DecodeError, ValueError) as error:
            raise MalformedMessage(
                f"{len(encoded)} bytes at offset 0 are no {self._name} that this release can read: "
                f"{error}"
            ) from error


# Matching structs and messages


_WIRE_NAMES: dict[tuple[type, str], str] = {
    (HeartbeatsSeen, "slots"): "slot_deltas",
    (RosterChanged, "joined_slots"): "joined_slot_deltas",
    (RosterChanged, "left_slots"): "left_slot_deltas",
    (RosterHeard, "except_slots"): "except_slot_deltas",
    (RosterCut, "slots"): "slot_deltas",
}
"""Fields that are named otherwise on the wire, because they mean something else there: slots are
sent as distances."""

_INTEGERS = frozenset(
    {
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_SINT64,
        FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_INT32,
        FieldDescriptor.TYPE_SINT32,
        FieldDescriptor.TYPE_UINT32,
    }
)
_SCALARS: dict[type, frozenset[int]] = {
    int: _INTEGERS,
    bool: frozenset({FieldDescriptor.TYPE_BOOL}),
    str: frozenset({FieldDescriptor.TYPE_STRING}),
    bytes: frozenset({FieldDescriptor.TYPE_BYTES}),
}

_converters: dict[tuple[Any, str], Converter] = {}


def _converter(kind: Any, descriptor: Descriptor | None) -> Converter:
    if descriptor is None:
        raise SchemaMismatch(f"{kind} is a message; its field in proto/ is not")
    key = (kind, descriptor.full_name)
    if key not in _converters:
        make = _union_converter if _is_union(kind) else _struct_converter
        _converters[key] = make(kind, descriptor)
    return _converters[key]


def _is_union(kind: Any) -> bool:
    return isinstance(kind, types.UnionType)


def member_name(struct_type: type) -> str:
    """The struct's field in a oneof: `TaskExited` is `task_exited`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", struct_type.__name__).lower()


def _union_converter(union: Any, descriptor: Descriptor) -> Converter:
    """A message that is one oneof, with a member for each struct of the union."""
    members = {member_name(struct_type): struct_type for struct_type in typing.get_args(union)}
    _compare(descriptor.name, set(members), set(descriptor.fields_by_name))
    fills: dict[type, tuple[str, Fill]] = {}
    builds: dict[str, Build] = {}
    for name, struct_type in members.items():
        fill, build = _converter(struct_type, descriptor.fields_by_name[name].message_type)
        fills[struct_type] = (name, fill)
        builds[name] = build
    (oneof,) = (one.name for one in descriptor.oneofs)
    message_name = descriptor.name

    def fill_member(struct: Any, message: Any) -> None:
        found = fills.get(type(struct))
        if found is None:
            raise UnencodableMessage(f"{struct!r} is no member of {message_name}")
        member = getattr(message, found[0])
        member.SetInParent()
        found[1](struct, member)

    def build_member(message: Any) -> Any:
        name = message.WhichOneof(oneof)
        if name is None:
            raise MalformedMessage(
                f"{message_name} holds nothing known; a newer release may have written it"
            )
        return builds[name](getattr(message, name))

    return fill_member, build_member


def _struct_converter(struct_type: type[msgspec.Struct], descriptor: Descriptor) -> Converter:
    hints = typing.get_type_hints(struct_type)
    fields = msgspec.structs.fields(struct_type)
    wire_names = [_WIRE_NAMES.get((struct_type, field.name), field.name) for field in fields]
    _compare(struct_type.__name__, set(wire_names), set(descriptor.fields_by_name))
    plain: list[str] = []
    writers: list[tuple[str, Fill]] = []
    readers: list[tuple[int, Build]] = []
    for at, (field, wire_name) in enumerate(zip(fields, wire_names, strict=True)):
        wire = descriptor.fields_by_name[wire_name]
        found = _field_converter(struct_type, field, hints[field.name], wire)
        if found is None:
            plain.append(field.name)
        else:
            writers.append((field.name, found[0]))
            readers.append((at, found[1]))
    return (
        _struct_fill(struct_type.__name__, tuple(plain), tuple(writers)),
        _struct_build(struct_type, wire_names, tuple(readers)),
    )


def _struct_fill(
    struct_name: str, plain: tuple[str, ...], writers: tuple[tuple[str, Fill], ...]
) -> Fill:
    plain_values = _attributes(plain)

    def fill(struct: Any, message: Any) -> None:
        name = ""
        try:
            for name, value in zip(plain, plain_values(struct), strict=True):
                if value:
                    setattr(message, name, value)
            for name, write in writers:  # noqa: B007 the handler names it
                write(struct, message)
        except UnencodableMessage:
            raise
        except (TypeError, ValueError) as error:
            raise UnencodableMessage(
                f"{struct_name}.{name} is {getattr(struct, name)!r:.200}, which cannot be stored: "
                f"{error}"
            ) from error

    return fill


def _struct_build(
    struct_type: Any, wire_names: list[str], readers: tuple[tuple[int, Build], ...]
) -> Build:
    wire_values = _attributes(tuple(wire_names))

    def build_plain(message: Any) -> Any:
        return struct_type(*wire_values(message))

    def build(message: Any) -> Any:
        values = list(wire_values(message))
        for at, read in readers:
            values[at] = read(message)
        return struct_type(*values)

    return build if readers else build_plain


def _attributes(names: tuple[str, ...]) -> Callable[[Any], Iterable[Any]]:
    """Reads the attributes of these names in one call."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda owner: tuple(getattr(owner, name) for name in names)


def _field_converter(
    struct_type: type, field: msgspec.structs.FieldInfo, kind: Any, wire: FieldDescriptor
) -> Converter | None:
    """How to write and read one field; None for a scalar that is simply copied."""
    name = field.name
    where = f"{struct_type.__name__}.{name}"
    origin = typing.get_origin(kind)
    if (struct_type, name) in _WIRE_NAMES:
        return _slots_converter(name, wire.name)
    if origin is dict:
        return _map_converter(name)
    if origin is tuple:
        element = typing.get_args(kind)[0]
        _expect(where, wire.is_repeated, "is a tuple; its field must be repeated")
        if wire.type == FieldDescriptor.TYPE_MESSAGE:
            return _repeated_converter(name, _converter(element, wire.message_type))
        return _packed_converter(where, name, element, wire)
    _expect(where, not wire.is_repeated, "is one value; its field must not be repeated")
    if _is_union(kind) or issubclass(kind, msgspec.Struct):
        return _message_converter(where, field, _converter(kind, wire.message_type))
    return _scalar_converter(where, field, kind, wire)


def _scalar_converter(
    where: str, field: msgspec.structs.FieldInfo, kind: type, wire: FieldDescriptor
) -> Converter | None:
    name, default = field.name, field.default
    is_enum = issubclass(kind, enum.StrEnum)
    wire_kind: type = str if is_enum else kind
    _expect(where, wire.type in _SCALARS[wire_kind], f"is {kind.__name__}; its field is not")
    if not wire.has_presence:
        zero = default is msgspec.NODEFAULT or not default
        _expect(where, zero, f"defaults to {default!r}; its field must be optional")
        if is_enum:
            return _copy(name, str), lambda message: kind(getattr(message, name))
        return None
    _expect(where, default is not msgspec.NODEFAULT and not is_enum, "must not be optional")

    def read(message: Any) -> Any:
        return getattr(message, name) if message.HasField(name) else default

    return _copy(name, kind), read


def _copy(name: str, wire_kind: Callable[[Any], Any]) -> Fill:
    def write(struct: Any, message: Any) -> None:
        setattr(message, name, wire_kind(getattr(struct, name)))

    return write


def _packed_converter(where: str, name: str, element: type, wire: FieldDescriptor) -> Converter:
    _expect(where, wire.type in _SCALARS[element], f"holds {element.__name__}; its field does not")

    def write(struct: Any, message: Any) -> None:
        value = getattr(struct, name)
        if value:
            getattr(message, name).extend(value)

    return write, lambda message: tuple(getattr(message, name))


def _repeated_converter(name: str, element: Converter) -> Converter:
    fill, build = element

    def write(struct: Any, message: Any) -> None:
        value = getattr(struct, name)
        if value:
            add = getattr(message, name).add
            for one in value:
                fill(one, add())

    return write, lambda message: tuple([build(one) for one in getattr(message, name)])


def _map_converter(name: str) -> Converter:
    def write(struct: Any, message: Any) -> None:
        value = getattr(struct, name)
        if value:
            getattr(message, name).update(value)

    def read(message: Any) -> Any:
        found = getattr(message, name)
        return dict(sorted(found.items())) if found else {}

    return write, read


def _message_converter(
    where: str, field: msgspec.structs.FieldInfo, element: Converter
) -> Converter:
    name, default = field.name, field.default
    fill, build = element

    def write(struct: Any, message: Any) -> None:
        member = getattr(message, name)
        member.SetInParent()
        fill(getattr(struct, name), member)

    def read(message: Any) -> Any:
        if message.HasField(name):
            return build(getattr(message, name))
        if default is msgspec.NODEFAULT:
            raise MalformedMessage(f"{where} is missing")
        return default

    return write, read


def _slots_converter(name: str, wire_name: str) -> Converter:
    def write(struct: Any, message: Any) -> None:
        slots = getattr(struct, name)
        if slots:
            deltas = getattr(message, wire_name)
            deltas.append(slots[0])
            deltas.extend(map(operator.sub, slots[1:], slots))

    return write, lambda message: tuple(accumulate(getattr(message, wire_name)))


def _compare(name: str, model: set[str], wire: set[str]) -> None:
    if model != wire:
        raise SchemaMismatch(
            f"{name}: only in the model: {', '.join(sorted(model - wire)) or 'nothing'}; "
            f"only in proto/: {', '.join(sorted(wire - model)) or 'nothing'}"
        )


def _expect(where: str, holds: bool, otherwise: str) -> None:
    if not holds:
        raise SchemaMismatch(f"{where} {otherwise}")


def _check_unions() -> None:
    """`AnyEvent` and `AnyDecision` are written out for type checkers; they must be complete."""
    for union, expected in ((AnyEvent, EVENT_TYPES), (AnyDecision, DECISION_TYPES)):
        listed = {struct_type.__name__ for struct_type in typing.get_args(union)}
        _compare(str(expected[0].__base__), {one.__name__ for one in expected}, listed)


_check_unions()

# What travels and what is kept

_batch: Schema[Batch] = Schema(Batch, log_pb2.Batch)
_recorded: Schema[Recorded] = Schema(Recorded, log_pb2.Recorded)
_to_server: Schema[channel.ToServer] = Schema(channel.ToServer, channel_pb2.ToServer)
_to_client: Schema[channel.ToClient] = Schema(channel.ToClient, channel_pb2.ToClient)
_incident_header: Schema[IncidentHeader] = Schema(IncidentHeader, incident_pb2.IncidentHeader)
_incident_footer: Schema[IncidentFooter] = Schema(IncidentFooter, incident_pb2.IncidentFooter)

encode_batch, decode_batch = _batch.encode, _batch.decode
encode_recorded, decode_recorded = _recorded.encode, _recorded.decode
encode_to_server, decode_to_server = _to_server.encode, _to_server.decode
encode_to_client, decode_to_client = _to_client.encode, _to_client.decode
encode_incident_header = _incident_header.encode
decode_incident_header = _incident_header.decode
encode_incident_footer = _incident_footer.encode
decode_incident_footer = _incident_footer.decode

# Peer frames: what servers send each other, as dicts, because raft's library speaks in dicts

_PEER_NAMES = {"prevLogIdx": "prev_log_index", "prevLogTerm": "prev_log_term"}
"""Keys of the library's messages that are not spelled as in the proto."""


def encode_peer_frame(message: dict[str, Any]) -> bytes:
    """`message["type"]` names the member of PeerFrame; `entries` are (command, index, term)."""
    frame = peer_pb2.PeerFrame()
    kind = message["type"]
    try:
        inside = getattr(frame, kind)
        inside.SetInParent()
        for key, value in message.items():
            if key == "entries":
                for command, index, term in value:
                    inside.entries.add(command=command, index=index, term=term)
            elif key == "members":
                for node, peer_address, api_address in value:
                    inside.members.add(
                        node=node, peer_address=peer_address, api_address=api_address
                    )
            elif key != "type":
                setattr(inside, _PEER_NAMES.get(key, key), value)
        return typing.cast(bytes, frame.SerializeToString())
    except (AttributeError, TypeError, ValueError) as error:
        raise UnencodableMessage(f"no peer frame {kind!r} can carry this: {error}") from error


def decode_peer_frame(encoded: bytes) -> dict[str, Any]:
    """The dict that `encode_peer_frame` was given. Raises MalformedMessage."""
    try:
        frame = peer_pb2.PeerFrame.FromString(encoded)
    except (DecodeError, ValueError) as error:
        raise MalformedMessage(f"{len(encoded)} bytes are no peer frame: {error}") from error
    kind = frame.WhichOneof("kind")
    if kind is None:
        raise MalformedMessage(f"{len(encoded)} bytes are no peer frame that this release knows")
    inside = getattr(frame, kind)
    message: dict[str, Any] = {"type": kind}
    for key, name, optional in _PEER_FIELDS[kind]:
        if key == "entries":
            message[key] = [(one.command, one.index, one.term) for one in inside.entries]
        elif key == "members":
            message[key] = [(one.node, one.peer_address, one.api_address) for one in inside.members]
        elif not optional or inside.HasField(name):
            message[key] = getattr(inside, name)
    return message


def _peer_fields() -> dict[str, list[tuple[str, str, bool]]]:
    """For each kind of frame its fields: key in the dict, name in the message, optional."""
    keys = {name: key for key, name in _PEER_NAMES.items()}
    return {
        member.name: [
            (keys.get(field.name, field.name), field.name, field.name in keys)
            for field in member.message_type.fields
        ]
        for member in peer_pb2.PeerFrame.DESCRIPTOR.fields
    }


_PEER_FIELDS = _peer_fields()
