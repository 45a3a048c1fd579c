"""Lines of transcripts that a relay sends; see `notation.py` for the others.

    roster r1 anew h1@3 h2@7 unit_ms=20   RosterChanged that replaces: hosts with their phases
    roster r1 h3@5 h4@5#2 -h1             that follows: h4 in incarnation 2, h1 has left
    heard r1 0..10 but h2 h3~4 lag_ms=30  RosterHeard of phases 0 to 9: h2 was not heard, h3 was,
                                          last in the fourth unit before the window's end

`number=` is the one after the last, or the last; `process=` the relay's own incarnation, 1 unless
said; `s7` is slot 7, whosever.
"""

from __future__ import annotations

import shlex
from typing import Any

from coord.core.state import State
from coord.model.entry import Origin
from coord.model.roster import RosterChanged, RosterHeard

from .notation import Line

UNIT_MS = 10


def parse_relay(text: str, state: State) -> Line:
    verb, relay, *words = shlex.split(text)
    plain = [word for word in words if "=" not in word]
    options = {name: int(value) for name, _, value in (w.partition("=") for w in words if "=" in w)}
    process = options.pop("process", 1)
    event = (_roster if verb == "roster" else _heard)(state, relay, plain, options)
    return Line([event], Origin(f"relay:{relay}", process, state.meta.applied_index + 1))


def _roster(state: State, relay: str, plain: list[str], options: dict[str, int]) -> RosterChanged:
    anew = plain[:1] == ["anew"]
    known = state.rosters.get(relay)
    joined = []
    for word in plain[anew:]:
        name, _, rest = word.partition("@")
        phase, _, incarnation = rest.partition("#")
        if not word.startswith("-"):
            slot = slot_of(state, name)
            live = state.live_incarnations[slot] if slot < len(state.slots) else 1
            joined.append((slot, int(incarnation or live), int(phase)))
    joined.sort()
    given: dict[str, Any] = {
        "number": known.number + 1 if known else 1,
        "unit_ms": UNIT_MS if anew else 0,
        **options,
    }
    return RosterChanged(
        joined_slots=tuple(slot for slot, _, _ in joined),
        joined_incarnations=tuple(incarnation for _, incarnation, _ in joined),
        joined_phases=tuple(phase for _, _, phase in joined),
        left_slots=tuple(sorted(slot_of(state, w[1:]) for w in plain if w.startswith("-"))),
        replaces=anew,
        **given,
    )


def _heard(state: State, relay: str, plain: list[str], options: dict[str, int]) -> RosterHeard:
    first, _, last = plain[0].partition("..")
    excepted = []
    for word in plain[2:]:
        name, _, age = word.partition("~")
        excepted.append((slot_of(state, name), int(age or 0)))
    excepted.sort()
    known = state.rosters.get(relay)
    return RosterHeard(
        from_phase=int(first),
        to_phase=int(last),
        except_slots=tuple(slot for slot, _ in excepted),
        except_ages=tuple(age for _, age in excepted),
        **{"number": known.number if known else 1, **options},
    )


def slot_of(state: State, name: str) -> int:
    if name[:1] == "s" and name[1:].isdigit():
        return int(name[1:])
    return state.hosts[name].slot


RELAY_VERBS = ("roster", "heard")
