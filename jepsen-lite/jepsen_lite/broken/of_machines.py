"""Disks and networks that misbehave beyond what the product is to bear."""

from __future__ import annotations

from jepsen_lite.broken.breakage import Breakage
from jepsen_lite.disks.machine import BROKEN_DISK, SWALLOW_FSYNC
from jepsen_lite.network.wrong import BROKEN_PROXY, Wrong

MACHINES = (
    Breakage(
        name="disk-swallows-fsync",
        what="disks answer an fsync that they have not done",
        workload="registers",
        nemesis="power-cut",
        environ={BROKEN_DISK: SWALLOW_FSYNC},
    ),
    Breakage(
        name="proxy-corrupts",
        what="the network changes a digit now and then, under the sum that TCP checks",
        workload="registers",
        nemesis="none",
        environ={BROKEN_PROXY: Wrong.CORRUPT},
        options={"network": "proxied"},
    ),
)
