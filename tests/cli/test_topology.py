"""`coordctl topology`: what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coord.cli import topology as topology_command
from coord.cli.exits import Exit
from coord.cli.main import cli
from coord.cli.topology_rows import ROWS_WANTED, domain_rows
from coord.client.views import PlacedHost
from coord.model.entities import HostStatus
from coord.model.entry import Entry, Origin
from coord.model.events import (
    AnyEvent,
    ClockAdvanced,
    ClusterConfigured,
    DrainRequested,
    HeartbeatsSeen,
    HostRegistered,
    JobSubmitted,
    LeaderElected,
)
from coord.model.place import Place, Rail
from coord.model.settings import Settings
from coord.model.spec import JobSpec, Resources, RoleSpec
from tests.cli.fake_client import FakeClient
from tests.conftest import Golden

GOLDEN = Path(__file__).parent / "golden" / "topology"

FABRIC = """\
# Two pods of two racks.
SwitchName=core Switches=pod[1-2]
SwitchName=pod1 Switches=rack[1-2]
SwitchName=pod2 Switches=rack[3-4]
SwitchName=rack1 Nodes=node[01-03]
SwitchName=rack2 Nodes=node[04-06]
SwitchName=rack3 Nodes=node[07-09]
SwitchName=rack4 Nodes=node[10-12]
"""
NCCL = """\
<system version="1">
 <cpu numaid="0">
  <pci busid="0000:01:00.0" class="0x030200">
   <gpu dev="0"><nvlink target="0000:02:00.0" count="4" tclass="0x030200"/></gpu>
  </pci>
  <pci busid="0000:02:00.0" class="0x030200">
   <gpu dev="1"><nvlink target="0000:01:00.0" count="4" tclass="0x030200"/></gpu>
  </pci>
  <pci busid="0000:03:00.0" class="0x020700"><nic><net name="mlx5_0" dev="0"/></nic></pci>
  <pci busid="0000:04:00.0" class="0x020700"><nic><net name="mlx5_1" dev="1"/></nic></pci>
 </cpu>
</system>
"""


def entries(*events: AnyEvent) -> list[Entry]:
    settings = Settings(lease_ms=3_000, suspect_ms=1_500, heartbeat_ms=500, fence_ms=1_000)
    first: list[AnyEvent] = [ClusterConfigured("c", settings, 2), LeaderElected(1, 1)]
    return [
        Entry(index, 1, 1_000 * index, Origin("client:a", seq=index), event)
        for index, event in enumerate([*first, *events], start=1)
    ]


def host(number: int, rails: tuple[Rail, ...] = ()) -> HostRegistered:
    name = f"node{number:02}"
    return HostRegistered(name, f"a-{name}", "b", "lan", 8, 64_000, 64_000, rails=rails)


@pytest.fixture
def fake() -> FakeClient:
    """Eleven of the twelve hosts and one more: a job of 16 devices, one host silent, one lost to
    drain, one with two of four rails."""
    rails = tuple(Rail(f"mlx5_{number}") for number in range(4))
    hosts = [host(number, rails=rails) for number in range(1, 12)]
    hosts[6] = host(7, rails=rails[:2])
    role = RoleSpec("r", ("x",), 2, resources=Resources(devices=8))
    others = [slot for slot in range(12) if slot != 4]
    beats = [
        event
        for _ in range(3)
        for event in (
            HeartbeatsSeen("node:1", tuple(others), (1,) * len(others)),
            ClockAdvanced(),
        )
    ]
    return FakeClient(
        entries(
            *hosts,
            host(99, rails=rails),
            JobSubmitted(JobSpec("train", (role,))),
            DrainRequested("node09", "ann"),
            *beats,
        )
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "topology.conf").write_text(FABRIC)
    (tmp_path / "host.xml").write_text(NCCL)
    (tmp_path / "cycle.conf").write_text("SwitchName=a Switches=b\nSwitchName=b Switches=a\n")
    (tmp_path / "packed.gz").write_bytes(gzip.compress(FABRIC.encode()))
    return tmp_path


def run(fake: FakeClient, *arguments: str, **more: Any) -> Result:
    return CliRunner().invoke(cli, ["topology", *arguments], obj=fake.connect, **more)


def test_before_and_after_an_import(fake: FakeClient, files: Path, golden: Golden) -> None:
    """A dry run, the import, the same again, one more host, and the tree after each."""
    said = []
    for command in (
        "show",
        "import topology.conf --dry-run",
        "show",
        "import topology.conf",
        "import topology.conf",
        "show",
        "show --level pod",
        "register node12",
        "import host.xml --host node12",
        "show --level rack",
    ):
        if command.startswith("register"):
            _send(fake, host(12))
            continue
        words = [str(files / word) if "." in word else word for word in command.split()]
        result = run(fake, *words)
        assert result.exit_code == Exit.OK, result.output
        said.append(f"$ coordctl topology {command}\n{result.stdout}{result.stderr}")
        assert not [line for line in result.stdout.splitlines() if line != line.rstrip()]
    golden(GOLDEN / "import.txt", "\n".join(said))
    assert fake.state.topology["node12"].switch == "rack4"


def _send(fake: FakeClient, event: AnyEvent) -> None:
    asyncio.run(fake.submit(event))


def test_json_has_everything(fake: FakeClient, files: Path) -> None:
    """Rows at the level asked for, and what they are made of; of an import, each change."""
    packed = run(fake, "import", str(files / "packed.gz"), "-o", "json")
    changes = json.loads(packed.stdout)
    assert [change["host"] for change in changes["changed"]][:2] == ["node01", "node02"]
    assert (changes["unnamed"], changes["unregistered"]) == (["node99"], ["node12"])
    shown = json.loads(run(fake, "show", "--level", "pod", "-o", "json").stdout)
    assert [(row["path"], row["hosts"]) for row in shown["domains"]] == [
        ("core", 11),
        ("core/pod1", 6),
        ("core/pod2", 5),
    ]
    assert shown["without_place"] == ["node99"]
    assert len(shown["hosts"]) == len(shown["imported"]) == 12


def test_a_file_from_a_pipe_is_read(fake: FakeClient) -> None:
    result = run(fake, "import", "-", "--dry-run", input=FABRIC)
    assert result.exit_code == Exit.OK
    assert result.stdout.startswith("read standard input (slurm): 12 hosts, 7 switches\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["cycle.conf"], "cycle.conf:1: a cycle: b below a below b; take one link away; nothing"),
        (["host.xml"], "host.xml: it describes one host (nccl) and does not name it; name it with"),
        (["topology.conf", "--host", "h"], "it names its hosts itself (slurm); leave --host away"),
        (["topology.conf", "--format", "nccl"], "topology.conf:1: no XML: "),
        (["absent.conf"], "No such file or directory; nothing was imported"),
    ],
)
def test_a_wrong_file_is_refused_and_nothing_is_sent(
    fake: FakeClient, files: Path, arguments: list[str], told: str
) -> None:
    before = len(fake.records)
    result = run(fake, "import", str(files / arguments[0]), *arguments[1:])
    assert result.exit_code == Exit.USAGE
    assert told in result.stderr
    assert len(fake.records) == before


def test_what_the_cluster_refuses_is_told(fake: FakeClient, files: Path) -> None:
    """A rail of the one import hangs on a switch that the next one takes away."""
    (files / "rails.json").write_text(
        json.dumps([{"Name": "node01", "DomainUUID": "d1"}, {"Name": "node02", "DomainUUID": "d1"}])
    )
    assert run(fake, "import", str(files / "topology.conf")).exit_code == Exit.OK
    merged = run(fake, "import", str(files / "rails.json"), "--merge")
    assert merged.exit_code == Exit.OK, merged.output
    assert fake.state.hosts["node01"].place == Place("core", "pod1", "rack1", "d1")


def test_watching_shows_each_change_once(
    fake: FakeClient, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As JSON: one line for each."""
    monkeypatch.setattr(topology_command, "REFRESH_S", 0.0)
    ask, answers = fake.topology, iter(["ask", "ask", "import", "ask", "end"])

    async def topology() -> object:
        match next(answers):
            case "import":
                content = topology_command._read(str(files / "topology.conf"), "f", "", "")
                await fake.import_topology(content.hosts, content.switches)
            case "end":
                raise KeyboardInterrupt
        return await ask()

    monkeypatch.setattr(fake, "topology", topology)
    lines = run(fake, "show", "-w", "-o", "json").stdout.splitlines()
    assert [len(json.loads(line)["domains"]) for line in lines] == [0, 18]


def a_fleet(hosts: int) -> list[PlacedHost]:
    return [
        PlacedHost(
            f"host-{number:05}",
            HostStatus.LOST if number % 97 == 0 else HostStatus.UP,
            place=Place(f"z{number // 512}", f"p{number // 128 % 4}", f"r{number // 16 % 8}"),
            rails=tuple(Rail(f"mlx5_{rail}") for rail in range(8 if number % 50 else 6)),
            devices=8,
            devices_used=number % 9,
        )
        for number in range(hosts)
    ]


@pytest.mark.parametrize(
    ("hosts", "level"), [(8, "host"), (60, "rack"), (1_000, "pod"), (16_000, "zone")]
)
def test_a_large_fleet_fits_on_a_screen(hosts: int, level: str) -> None:
    """Down to the last level that fits; every host is counted once at each level."""
    rows, shown = domain_rows(a_fleet(hosts))
    assert (shown, len(rows) <= ROWS_WANTED) == (level, True)
    everything, _ = domain_rows(a_fleet(hosts), "host")
    for name in ("zone", "pod", "rack", "host"):
        at_level = [row for row in everything if row.level == name]
        assert sum(row.hosts for row in at_level) == hosts
        assert sum(row.up + row.lost for row in at_level) == hosts
        assert sum(row.devices for row in at_level) == 8 * hosts
        assert sum(row.rails_expected - row.rails for row in at_level) == 2 * -(-hosts // 50)
    assert [row.path for row in everything if row.level != "host"] == sorted(
        row.path for row in everything if row.level != "host"
    )
