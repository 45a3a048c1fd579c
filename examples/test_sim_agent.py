"""Is the agent in `sim_agent.py` right? Asked of a simulated cluster that kills it at bad moments.

pytest examples/test_sim_agent.py                 # some seeds fail, and it says how to repeat one
AGENT=careful pytest examples/test_sim_agent.py   # the mistake mended: every seed passes
"""

from __future__ import annotations

import os

import pytest
from coord_sim import AgentContext, job
from coord_sim.pytest_plugin import WorldFactory
from sim_agent import SmallAgent

CAREFUL = os.environ.get("AGENT") == "careful"


async def agent(context: AgentContext) -> None:
    await SmallAgent(context, careful=CAREFUL).run()


@pytest.mark.sim(seeds=30)
def test_a_job_survives_the_death_of_agents(world: WorldFactory) -> None:
    """Nothing is asserted but the end: that no device has two owners, no task runs twice and no
    report is untrue is checked at every step by the world itself."""
    with world(hosts=0, network="delays", disk="uneven") as w:
        hosts = [w.add_host(name, agent=agent) for name in ("left", "right")]
        w.submit(job("train", replicas=3, steps=8))
        for _ in range(5):
            w.run_for(w.rng.uniform(0.0, 1.0))
            for host in hosts:
                if w.rng.random() < 0.7:
                    host.kill_agent()
        w.settle()
        assert w.job("train").status == "completed"
