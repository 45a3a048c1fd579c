"""Random histories of the core: repeatable, and with checks that speak up."""

from __future__ import annotations

from collections import Counter

import pytest
from coord_sim.core_world import CoreViolation, World, run
from coord_sim.core_world import faults as world_faults

from coord.core.machine import apply
from coord.core.state import new_state, state_digest
from coord.model import events


def test_a_seed_gives_the_same_history_twice() -> None:
    """To the digest, whatever ran in between."""
    first = run(7, 120, twin=False)
    run(8, 60)
    assert run(7, 120, twin=False) == first
    assert first.property == ""
    assert first.entries > 100


def test_the_twin_only_watches() -> None:
    """A machine that is reloaded at every entry changes nothing of the history."""
    assert run(11, 100, twin=True) == run(11, 100, twin=False)


def test_a_history_is_a_log_like_any_other() -> None:
    """Its entries alone give its state again."""
    world = World(5, twin=False)
    world.live_through(120)
    state = new_state()
    for entry in world.driver.entries:
        apply(state, entry)
    assert state_digest(state) == state_digest(world.state)


def test_every_fault_happens() -> None:
    """Each kind of fault changes something in some history, or it would test nothing."""
    world = World(3, twin=False)
    world.live_through(60)
    machine = next(iter(world.machines.values()))
    for fault in dict.fromkeys((*world_faults.FAULTS, *world_faults.RARE)):
        before = world.state.meta.applied_index
        for _ in range(3):
            fault(world, machine)
            world.tick()
            world.agents()
        assert world.state.meta.applied_index > before


def test_a_violation_names_property_and_offender() -> None:
    """An assertion for tests, with its parts apart for reports."""
    violation = CoreViolation("an exclusive task runs once", "j1/trainer/0 runs 2 times")
    assert isinstance(violation, AssertionError)
    assert (violation.property, violation.detail) == (
        "an exclusive task runs once",
        "j1/trainer/0 runs 2 times",
    )
    assert str(violation) == "an exclusive task runs once: j1/trainer/0 runs 2 times"


def test_a_broken_invariant_ends_the_history_with_its_sentence() -> None:
    """The sentence is the property, so that campaigns can count by it."""
    world = World(1, twin=False)
    world.live_through(30)
    host = next(iter(world.state.hosts.values()))
    world.state.slots[host.slot] = "nobody"
    with pytest.raises(CoreViolation) as raised:
        world.send(events.NoteAdded("me", "x", "y"))
    assert raised.value.property == "slots are dense, and each host keeps its own"


def test_processes_tell_the_truth() -> None:
    """Two live processes with one device are seen, whatever the state believes."""
    world = World(2, twin=False)
    for _ in range(40):
        world.tick()
        world.agents()
    found = [
        (machine, process)
        for machine in world.machines.values()
        for process in machine.processes.values()
        if process.alive and process.devices
    ]
    machine, process = found[0]
    other = type(process)("j9/x/0#1", "j9", "x", 0, 1, 5, process.devices, False)
    machine.processes[other.key] = other
    with pytest.raises(CoreViolation, match="a device has at most one live owner"):
        world.pass_time(10)


def test_a_queue_for_one_host_is_given_time() -> None:
    """Five of six hosts are drained or small, and the tasks of one job go there one by one."""
    outcome = run(209876938797318, 300, twin=False)
    assert outcome.property == ""


def test_histories_differ_in_kind() -> None:
    """Seeds draw how much goes wrong, and how many machines there are."""
    worlds = [World(seed, twin=False) for seed in range(30)]
    assert len(Counter(world.fault_rate for world in worlds)) == 3
    assert len(Counter(len(world.machines) for world in worlds)) > 3
