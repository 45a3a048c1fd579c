"""Somebody else's cluster: it is used, and broken by its own commands alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from jepsen_lite.cluster.attached import Attached, Unreachable
from jepsen_lite.cluster.cluster import Cluster
from jepsen_lite.cluster.hooks import HooksError
from jepsen_lite.network.port import NotPossible

from tests.free_ports import free_ports

HOOKS = """
servers:
  one: {{url: "{url}", kill: "touch {directory}/killed", start: "touch {directory}/started"}}
hosts:
  gpu-17: {{pause_all: "touch {directory}/paused", resume: "touch {directory}/resumed"}}
network:
  cut: touch "{directory}/cut {{source}} {{target}}"
  heal: touch {directory}/healed
"""
NOWHERE = "http://127.0.0.1:9"


def write_hooks(directory: Path, text: str = HOOKS, url: str = NOWHERE) -> Path:
    path = directory / "hooks.yaml"
    path.write_text(text.format(url=url, directory=directory))
    return path


async def test_a_cluster_of_others_is_used_and_broken_by_its_hooks(tmp_path: Path) -> None:
    """Clients work, hooks run, and what they did is taken back at the end; the cluster runs on."""
    cluster_directory, files = tmp_path / "cluster", tmp_path / "files"
    files.mkdir()
    async with Cluster(cluster_directory, servers=1, hosts=0, network="proxied") as theirs:
        await theirs.start()
        await theirs.wait_ready()
        (server,) = theirs.servers.values()
        async with Attached(hooks=write_hooks(files, url=server.url)) as attached:
            assert await attached.leader() == "one"
            async with attached.client("tester") as client:
                assert (await client.note("test", "theirs")).index > 0
            attached.servers["one"].kill()
            attached.hosts["gpu-17"].pause_all()
            attached.network.cut("one", "gpu-17")
            assert {"killed", "paused", "cut one gpu-17"} <= {f.name for f in files.iterdir()}
        assert {"started", "resumed", "healed"} <= {f.name for f in files.iterdir()}
        assert server.running


def test_what_has_no_hook_is_refused_with_its_name(tmp_path: Path) -> None:
    """So that whoever wants it knows what to write where."""
    attached = Attached(hooks=write_hooks(tmp_path))
    assert attached.servers["one"].can == {"kill", "start"}
    assert attached.network.can == {"cut", "one_way"}
    with pytest.raises(NotPossible, match=r"servers\.one\.pause in the file of hooks"):
        attached.servers["one"].pause()
    with pytest.raises(NotPossible, match=r"hosts\.gpu-17\.kill_all"):
        attached.hosts["gpu-17"].kill_all()
    with pytest.raises(NotPossible, match=r"cannot delay: give a command as network\.delay"):
        attached.network.delay("one", "gpu-17", 5.0)


async def test_a_cluster_that_cannot_be_reached_is_told_with_what_to_do() -> None:
    """Within the time given."""
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(Unreachable, match=f"no server of {url} answers .* check the addresses"):
        async with Attached([url], timeout_s=1.0):
            pytest.fail("nobody is there")
    with pytest.raises(ValueError, match="give URLs"):
        Attached()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("servers: [1, 2]", r"hooks\.yaml: Expected `object`, got `array`"),
        ("servers: {{one: {{kil: x}}}}", "unknown field `kil`"),
        ("network: {{cut: 'drop {{nobody}}', heal: y}}", r"network\.cut .* may hold {source}"),
        ("network: {{cut: drop}}", r"network\.cut is given without network\.heal"),
        ("a: b: c", r"hooks\.yaml: "),
    ],
)
def test_a_bad_file_of_hooks_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    """With its name, the place, and what is wrong."""
    with pytest.raises(HooksError, match=complaint):
        Attached([NOWHERE], hooks=write_hooks(tmp_path, text))


def test_a_file_that_is_not_there_and_a_command_that_fails_are_told(tmp_path: Path) -> None:
    """The command with what it said."""
    with pytest.raises(HooksError, match="cannot be read"):
        Attached([NOWHERE], hooks=tmp_path / "nothing.yaml")
    text = "servers: {{one: {{kill: 'ls {directory}/nothing', start: no-such-program}}}}"
    one = Attached([NOWHERE], hooks=write_hooks(tmp_path, text)).servers["one"]
    with pytest.raises(HooksError, match=r"`ls .*nothing` ended with 2: .*nothing"):
        one.kill()
    with pytest.raises(HooksError, match="is the program installed"):
        one.start()
