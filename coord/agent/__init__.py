"""The agent on each host: launches tasks as plans say, watches and ends them, reports."""

from coord.agent.config import AgentConfig
from coord.agent.daemon import AgentFailed, run_agent

__all__ = ["AgentConfig", "AgentFailed", "run_agent"]
