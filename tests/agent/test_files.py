"""The agent's files: one contract, on a real directory and on a simulated disk."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from coord_sim.kernel import Kernel
from coord_sim.world.agent_disk import AgentDisk, SimFiles

from coord.agent.exits import ExitNotes, Note
from coord.agent.files import AgentFiles, DataDirectory
from coord.agent.lease import Lease, LeaseFile
from coord.agent.records import Phase, Records, TaskRecord, WrongDirectory, record_name
from tests.agent.support import key, order

Reopen = Callable[[], AgentFiles]


@pytest.fixture(params=["real", "simulated"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    """Opens the files of one agent after another."""
    if request.param == "real":
        yield lambda: DataDirectory(tmp_path / "data")
        return
    disk = AgentDisk(random.Random(1))
    with Kernel(1) as kernel:

        def opened() -> AgentFiles:
            return SimFiles(disk, Path("data"), kernel.spawn("agent", _nothing))

        yield opened


async def _nothing() -> None:
    return


def test_files_are_there_for_the_next_agent(reopen: Reopen) -> None:
    """Replaced whole, found by folder in order, removed once or twice."""
    files = reopen()
    for synced in (False, True):
        files.replace("tasks/b.json", b"b" * 10, synced=synced)
        files.replace("tasks/b.json", b"b", synced=synced)
    files.replace("tasks/a.json", b"", synced=False)
    files.replace("agent.json", b"x", synced=True)
    files.close()
    again = reopen()
    assert again.names("tasks") == ["tasks/a.json", "tasks/b.json"]
    assert [again.read(name) for name in again.names("tasks")] == [b"", b"b"]
    assert again.read("tasks/c.json") is None
    assert again.names("exits") == []
    again.remove("tasks/b.json")
    again.remove("tasks/b.json")
    assert again.names("tasks") == ["tasks/a.json"]
    assert again.where("agent.json").endswith("data/agent.json")
    again.close()


def test_records_notes_and_lease_stand_on_them(reopen: Reopen) -> None:
    """What each class writes, the same class reads for the next agent."""
    files = reopen()
    records = Records(files, "h1", "a", "boot")
    record = TaskRecord(order(()), Phase.LAUNCHING)
    records.write(record)
    assert records.next_registration() == 1
    ExitNotes(files).write(key(), Note(256, fenced=True))
    LeaseFile(files, "boot").write(7.0, 6.0)
    files.close()
    files = reopen()
    records = Records(files, "h1", "b", "boot")
    assert list(records.load()) == [record]
    assert (records.identity.agent, records.next_registration()) == ("a", 2)
    assert ExitNotes(files).read(key()) == Note(256, fenced=True)
    assert ExitNotes(files).read(key(1)) == Note()
    assert LeaseFile(files, "boot").read() == Lease("boot", 7.0, 6.0)
    assert LeaseFile(files, "another").read() is None
    files.close()


def test_a_record_that_was_cut_off_counts_for_nothing_after_a_boot(reopen: Reopen) -> None:
    """Within the boot it stops the agent, for its process may hold a device."""
    files = reopen()
    Records(files, "h1", "a", "boot").note_seen(1, 0)
    files.replace(record_name(key()), b'{"order', synced=False)
    with pytest.raises(WrongDirectory, match="cannot be read"):
        list(Records(files, "h1", "a", "boot").load())
    assert list(Records(files, "h1", "a", "next boot").load()) == []
    assert files.names("tasks") == []
    files.close()
