"""The agent between its ports: registrations refused and superseded, a disk that is full."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path

import msgspec
import pytest

from coord.agent.files import DataDirectory
from coord.agent.proctable import boot_id
from coord.agent.records import Phase, Records
from coord.client.errors import Rejected
from coord.client.inbox import Superseded
from coord.model.events import LaunchFailed
from coord.model.rejections import Rejection
from tests.agent.support import (
    HOST,
    FakeChannel,
    config_for,
    key,
    order,
    plan,
    running,
    stop_order,
    until,
)


async def test_a_refused_registration_ends_an_agent_only_if_it_has_no_tasks(
    tmp_path: Path,
) -> None:
    """Another live agent has this host id: a fresh agent says so and ends; one with tasks goes on
    asking, as they would be left without an agent."""
    refusal = Rejected("registration of host 'h1'", Rejection.HOST_ID_IN_USE)
    channel = FakeChannel()
    channel.refuse = refusal
    with pytest.raises(ExceptionGroup) as caught:
        async with running(config_for(tmp_path / "fresh"), channel):
            await until(lambda: False)
    assert caught.group_contains(Rejected)
    config = config_for(tmp_path / "with")
    channel = FakeChannel()
    async with running(config, channel):
        channel.deliver(plan(order(("sleep", "1000"), grace_ms=0), version=1))
        await until(lambda: channel.of(key()) == ["TaskStarted"])
    channel = FakeChannel()
    channel.refuse = refusal
    async with running(msgspec.structs.replace(config, stop_tasks=True), channel) as daemon:
        await until(lambda: channel.refused > 0)
        channel.refuse = None
        await until(lambda: channel.registrations)
        assert daemon.tasks.records[key()].phase is Phase.RUNNING


async def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """What cannot be recorded is not launched, and that is told; how a task ended is told all the
    same, and written once there is room."""
    channel = FakeChannel()
    directory = FullDirectory(tmp_path)
    disk = Records(directory, HOST, uuid.uuid4().hex, boot_id())
    async with running(config_for(tmp_path), channel, disk=disk) as daemon:
        channel.deliver(plan(order(("sleep", "1000")), version=1))
        await until(lambda: channel.of(key()) == ["TaskStarted"])
        directory.full = True
        channel.deliver(plan(stop_order(), order(index=1), version=2))
        await until(lambda: channel.of(key()) == ["TaskStarted", "TaskExited", "TaskReaped"])
        await until(lambda: channel.of(key(1)) == ["LaunchFailed", "TaskReaped"])
        failed = channel.one(LaunchFailed, key(1))
        assert "No space left" in failed.error
        assert not failed.user_error
        assert daemon.tasks.records[key()].phase is Phase.GONE
        assert [record.phase for record in disk.load()] == [Phase.RUNNING]
        directory.full = False
        await until(lambda: [record.phase for record in disk.load()] == [Phase.GONE] * 2)


class FullDirectory(DataDirectory):
    """A data directory whose file system is full when told so."""

    full = False

    def replace(self, name: str, content: bytes, *, synced: bool) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().replace(name, content, synced=synced)


async def test_a_superseded_agent_registers_anew_and_obeys_the_new_plan(tmp_path: Path) -> None:
    """What runs goes on meanwhile and is told of; what the new plan lacks is stopped."""
    channel = FakeChannel()
    async with running(config_for(tmp_path, stop_tasks=True), channel) as daemon:
        orders = [order(("sleep", "1000"), index=index, grace_ms=100) for index in (0, 1)]
        channel.deliver(plan(*orders, version=5))
        await until(lambda: channel.of(key()) == channel.of(key(1)) == ["TaskStarted"])
        channel.deliver(Superseded(1, "stale_incarnation"))
        await until(lambda: len(channel.registrations) == 2)
        assert [one.task for one in channel.registrations[1]] == [key(), key(1)]
        channel.deliver(plan(version=9, incarnation=1))
        channel.deliver(plan(orders[1], version=1, incarnation=2))
        await until(lambda: "TaskReaped" in channel.of(key()))
        record = daemon.tasks.records[key(1)]
        assert (record.phase, record.stopping) == (Phase.RUNNING, False)
        assert [getattr(event, "incarnation", 0) for event in channel.events[-2:]] == [2, 2]
