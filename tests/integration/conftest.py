"""`start_fleet` starts a cluster for one test and ends every process of it afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coord.cli.local import LocalCluster
from coord.client.sync import SyncClient
from tests.integration.cluster import PATIENT, Fleet


@pytest.fixture
def start_fleet(tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    """`start_fleet(nodes=3, agents=2, devices=1, settings=QUICK)`: ready when it returns."""
    with contextlib.ExitStack() as open_things:

        def start(**options: Any) -> Fleet:
            options.setdefault("settings", PATIENT)
            cluster = LocalCluster(tmp_path / "cluster", **options)
            open_things.enter_context(cluster)
            cluster.start()
            cluster.wait_ready(timeout_s=60)
            client = open_things.enter_context(SyncClient(cluster.urls, actor="tester"))
            return Fleet(cluster, client)

        yield start
