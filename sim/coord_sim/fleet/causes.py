"""Why hosts fail, how often, and what their failure looks like to whoever watches.

Rates are interruptions per 1,000 GPU-days, of a published run of 54 days on 16,384 GPUs (419 of
them): a lower bound, for what interrupted nothing was not counted.
"""

from __future__ import annotations

import enum

import msgspec


class Showing(enum.StrEnum):
    """What can be seen of a failure."""

    EXIT = "exit"
    """One rank's process ends; its agent reports it at once."""
    SILENT = "silent"
    """The machine is gone, agent and all; its lease runs out."""
    HANG = "hang"
    """Everything looks alive, and no step ends any more."""


class Cause(msgspec.Struct, frozen=True):
    """One line of the table. `repair`: the machine stays bad until somebody repairs it.

    `published` counts the interruptions of the 54-day run; `components` are the names it gave them.
    """

    name: str
    title: str
    per_1000_gpu_days: float
    showing: Showing
    repair: bool
    published: int
    components: tuple[str, ...]


CAUSES = (
    Cause("device", "device fault", 0.167, Showing.EXIT, True, 148, ("Faulty GPU",)),
    Cause("hbm", "device memory (HBM)", 0.081, Showing.EXIT, True, 72, ("GPU HBM3 Memory",)),
    Cause("software", "software", 0.063, Showing.EXIT, False, 56, ("Software Bug", "Dependency")),
    Cause(
        "switch_or_cable",
        "switch or cable",
        0.040,
        Showing.HANG,
        True,
        35,
        ("Network Switch/Cable",),
    ),
    Cause(
        "host_maintenance",
        "unplanned maintenance",
        0.036,
        Showing.SILENT,
        True,
        32,
        ("Host Maintenance",),
    ),
    Cause("sram", "device memory (SRAM)", 0.021, Showing.EXIT, True, 19, ("GPU SRAM Memory",)),
    Cause(
        "system_processor",
        "device's system processor",
        0.019,
        Showing.HANG,
        True,
        17,
        ("GPU System Processor",),
    ),
    Cause(
        "host_parts",
        "other host parts",
        0.016,
        Showing.SILENT,
        True,
        14,
        (
            "SSD",
            "Power Supply",
            "Server Chassis",
            "IO Expansion Board",
            "CPU",
            "System Memory",
        ),
    ),
    Cause("nic", "network card", 0.008, Showing.HANG, True, 7, ("NIC",)),
    Cause(
        "watchdog",
        "collective watchdog",
        0.008,
        Showing.HANG,
        False,
        7,
        ("NCCL Watchdog Timeouts",),
    ),
    Cause("sensor", "sensor", 0.007, Showing.EXIT, True, 6, ("GPU Thermal Interface + Sensor",)),
    Cause(
        "silent_corruption",
        "silent corruption, once noticed",
        0.007,
        Showing.EXIT,
        True,
        6,
        ("Silent Data Corruption",),
    ),
)

CAUSE_OF = {cause.name: cause for cause in CAUSES}

LINK_CAUSES = ("switch_or_cable", "nic")
"""Link failures: link flaps are counted as a multiple of these."""

# What is no failure of one machine, by the names results are told under.
JOB = "job"
"""The job itself fails, on no machine's account."""
PLANNED = "planned"
"""Maintenance with notice."""
SWITCH = "switch"
"""A leaf switch takes all of its hosts away at once."""
FLAP = "link_flap"
"""A link was down for a moment."""
FALSE_VERDICT = "false_verdict"
"""The coordinator was wrong: nothing had failed."""
FIRST_START = "first_start"

TITLES = {
    **{cause.name: cause.title for cause in CAUSES},
    JOB: "the job itself",
    PLANNED: "planned maintenance",
    SWITCH: "whole switch",
    FLAP: "link flaps",
    FALSE_VERDICT: "false verdicts",
    FIRST_START: "first start",
}
