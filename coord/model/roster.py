"""Who stands behind a relay, and whom of them it heard."""

from __future__ import annotations

import msgspec

from coord.model.event import Event

LAG_SHARE = 4
"""Beats that waited at a relay for more than this part of the lease come too late."""


class Roster(msgspec.Struct, frozen=True, omit_defaults=True):
    """A relay's hosts, by phase and then slot: three columns of one length.

    `incarnation` and `number` are those of the newest `RosterChanged`; a beat counts only where
    both agree. A unit of time, in which phases count, lasts `unit_ms`.
    """

    relay: str
    incarnation: int
    number: int
    unit_ms: int
    slots: tuple[int, ...]
    incarnations: tuple[int, ...]
    phases: tuple[int, ...]


class RosterChanged(Event, frozen=True):
    """Hosts came to stand behind a relay, or left it: its roster is as of `number` now.

    The relay is the origin's actor (`relay:<name>`) in the origin's incarnation. A roster follows
    on the one numbered one less of the same incarnation; one that `replaces` starts anew under any
    number, and alone says what a unit of time is. Slots ascend. A host that joins again changes its
    incarnation or its phase. A host stands in one roster at most: the last one that it joined.

    A phase is when a host beats: in which unit of the relay's period, counted from 0.
    """

    number: int
    joined_slots: tuple[int, ...] = ()
    joined_incarnations: tuple[int, ...] = ()
    joined_phases: tuple[int, ...] = ()
    left_slots: tuple[int, ...] = ()
    replaces: bool = False
    unit_ms: int = 0
    """Of a roster that `replaces`: of phases and ages; at most a tenth of the lease. Else 0."""


class RosterHeard(Event, frozen=True):
    """The relay heard every host of its roster whose phase is at least `from_phase` and less than
    `to_phase`, in the unit of its phase or the one before, but for the exceptions.

    The window ended (with the unit before `to_phase`) `lag_ms` before the relay sent this. Except
    slots ascend, each with an age: 0, it was not heard; else it was heard, and last in the
    how-manieth unit before the window's end, whatever its phase. The host of phase p is taken as
    heard at the end of its unit, as if its age were `to_phase` - p: never before its beat arrived,
    so that the lease counted here is never shorter than its agent's own.
    """

    number: int
    from_phase: int
    to_phase: int
    lag_ms: int = 0
    except_slots: tuple[int, ...] = ()
    except_ages: tuple[int, ...] = ()
