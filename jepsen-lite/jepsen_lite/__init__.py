"""Break a real cluster of processes, record what its clients saw, and judge it.

For suites of others. Tests have fixtures (`jepsen_lite.pytest_plugin`); programs write

    async with Cluster(directory, servers=3, hosts=2) as cluster:
        await cluster.start()
        await cluster.wait_ready()
        ...
    assert_holds(judge_history(history.operations, Register()))

Everything is loaded when it is first asked for, so that the pytest plugin costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jepsen_lite.cluster.attached import Attached as Attached
    from jepsen_lite.cluster.attached import Unreachable as Unreachable
    from jepsen_lite.cluster.cluster import Cluster as Cluster
    from jepsen_lite.cluster.cluster import ClusterFailed as ClusterFailed
    from jepsen_lite.history.journal import History as History
    from jepsen_lite.history.journal import HistoryError as HistoryError
    from jepsen_lite.history.journal import HistoryWriter as HistoryWriter
    from jepsen_lite.history.journal import read_history as read_history
    from jepsen_lite.history.operation import Fault as Fault
    from jepsen_lite.history.operation import Operation as Operation
    from jepsen_lite.history.operation import Outcome as Outcome
    from jepsen_lite.judge.exported import judge_exported as judge_exported
    from jepsen_lite.judge.exported import read_exported as read_exported
    from jepsen_lite.judge.models import UNKNOWN as UNKNOWN
    from jepsen_lite.judge.models import Model as Model
    from jepsen_lite.judge.models import Register as Register
    from jepsen_lite.judge.models import TextByKey as TextByKey
    from jepsen_lite.judge.verdict import Judgement as Judgement
    from jepsen_lite.judge.verdict import Verdict as Verdict
    from jepsen_lite.judge.verdict import judge_history as judge_history
    from jepsen_lite.nemeses.catalogue import NEMESES as NEMESES
    from jepsen_lite.nemeses.port import Misfortune as Misfortune
    from jepsen_lite.nemeses.port import Nemesis as Nemesis
    from jepsen_lite.network.port import NotPossible as NotPossible
    from jepsen_lite.run.options import RunOptions as RunOptions
    from jepsen_lite.testing.clusters import ClusterFactory as ClusterFactory
    from jepsen_lite.testing.clusters import RunningCluster as RunningCluster
    from jepsen_lite.testing.misfortunes import Nemeses as Nemeses
    from jepsen_lite.testing.recording import SharedHistory as SharedHistory
    from jepsen_lite.testing.verdicts import Violated as Violated
    from jepsen_lite.testing.verdicts import assert_holds as assert_holds

_MODULES = {
    "cluster.attached": ("Attached", "Unreachable"),
    "cluster.cluster": ("Cluster", "ClusterFailed"),
    "history.journal": ("History", "HistoryError", "HistoryWriter", "read_history"),
    "history.operation": ("Fault", "Operation", "Outcome"),
    "judge.exported": ("judge_exported", "read_exported"),
    "judge.models": ("UNKNOWN", "Model", "Register", "TextByKey"),
    "judge.verdict": ("Judgement", "Verdict", "judge_history"),
    "nemeses.catalogue": ("NEMESES",),
    "nemeses.port": ("Misfortune", "Nemesis"),
    "network.port": ("NotPossible",),
    "run.options": ("RunOptions",),
    "testing.clusters": ("ClusterFactory", "RunningCluster"),
    "testing.misfortunes": ("Nemeses",),
    "testing.recording": ("SharedHistory",),
    "testing.verdicts": ("Violated", "assert_holds"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "NEMESES", "UNKNOWN", "Attached", "Cluster", "ClusterFactory", "ClusterFailed", "Fault",
    "History", "HistoryError", "HistoryWriter", "Judgement", "Misfortune", "Model", "Nemeses",
    "Nemesis", "NotPossible", "Operation", "Outcome", "Register", "RunOptions", "RunningCluster",
    "SharedHistory", "TextByKey", "Unreachable", "Verdict", "Violated", "assert_holds",
    "judge_exported", "judge_history", "read_exported", "read_history",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"jepsen_lite.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
