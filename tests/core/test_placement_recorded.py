"""Room left for the jobs typically seen: a slice of the comparison on the recorded cluster."""

from __future__ import annotations

import pytest

from tests.bench import filling


@pytest.mark.parametrize("name", filling.LISTS)
def test_a_full_cluster_leaves_fewer_devices_unusable_than_by_other_policies(name: str) -> None:
    """On every eighth node, filled by the protocol of the benchmark, over three orders of the pods.

    The whole cluster is filled by `python -m tests.bench --only placement`.
    """
    if not filling.RECORDED.exists():
        pytest.skip(f"the recorded cluster is not at {filling.RECORDED}")
    fleet = [host for host in filling.hosts() if host.devices][::8]
    needs = filling.pods(name)
    left = {
        policy: sum(filling.unusable_millis(fleet, needs, seed, choose) for seed in (1, 2, 3))
        for policy, choose in filling.POLICIES.items()
    }
    best = min(left, key=lambda policy: left[policy])
    assert best == "ours", left
