"""Scenarios: a simulated cluster led by hand, with agents and workers of one's own in it."""

from coord_sim.scenario.face import Scenario, world
from coord_sim.scenario.handles import HostHandle, RankHandle, ServerHandle
from coord_sim.scenario.jobs import job
from coord_sim.scenario.machine import Machine
from coord_sim.scenario.own_agent import AgentContext
from coord_sim.scenario.own_worker import Worker
from coord_sim.scenario.telling import NotReached, RequestFailed, Violation

__all__ = [
    "AgentContext", "HostHandle", "Machine", "NotReached", "RankHandle", "RequestFailed",
    "Scenario", "ServerHandle", "Violation", "Worker", "job", "world",
]  # fmt: skip
