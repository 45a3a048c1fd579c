"""Climates in which one kind of hazard comes about often, for runs that look there alone.

Most seeds meet everything at some rate; what needs several things at one moment they meet too
seldom to be relied on. `WorldOptions.focus` names one of these.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Focus(msgspec.Struct, frozen=True):
    """`faults` are weights, of the menus of `faults.INJECT`; `changes`, fields of a `Climate`."""

    told: str
    faults: dict[str, int]
    changes: dict[str, Any] = {}


_ASKING = {"submit": 1, "note": 4, "read": 2}

FOCUSES: dict[str, Focus] = {
    "answers": Focus(
        "what people ask for is done while nobody who waits for it can learn that",
        {"net.deaf_leader": 4, "net.isolate_leader": 1, "server.pause": 1},
        {
            "clients": 3,
            "network": "delays",
            "fault_gap_s": 8.0,
            "request_gap_s": 0.5,
            "requests": _ASKING,
        },
    ),
    "behind": Focus(
        "servers that were away are asked for what they have missed",
        {"client.asks_behind": 4, "net.reset": 1},
        {
            "clients": 3,
            "network": "delays",
            "fault_gap_s": 4.0,
            "request_gap_s": 0.5,
            "requests": _ASKING,
        },
    ),
    "members": Focus(
        "servers join over bad links, or a leader that is cut off from those it has",
        {"members.apart": 2, "members.joins_slowly": 2, "members.swap": 1, "members.remove": 1},
        {"fault_gap_s": 4.0},
    ),
    "forwarding": Focus(
        "what agents report gets lost between servers, and what comes after it does not",
        {"net.reset": 4, "net.supersede": 2, "net.flaky": 2, "net.one_way": 1, "rank.exit": 2},
        {"clients": 1, "fault_gap_s": 0.5, "request_gap_s": 2.0, "requests": {"submit": 4}},
    ),
}
