"""Virtual time: an event loop of simulated processes, seeded random streams, a trace."""

from coord_sim.kernel.kernel import Kernel
from coord_sim.kernel.loop import Deadlock, Livelock, SimLoop
from coord_sim.kernel.process import ProcessKilled, SimProcess, current_process
from coord_sim.kernel.trace import Trace

__all__ = [
    "Deadlock",
    "Kernel",
    "Livelock",
    "ProcessKilled",
    "SimLoop",
    "SimProcess",
    "Trace",
    "current_process",
]
