"""The agent on each host: launches tasks as plans say, watches and ends them, reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coord.agent.config import AgentConfig
    from coord.agent.daemon import AgentFailed, run_agent

__all__ = ["AgentConfig", "AgentFailed", "run_agent"]


def __getattr__(name: str) -> Any:
    # Late, so that the keeper, which lives in this package, stays small.
    if name == "AgentConfig":
        from coord.agent.config import AgentConfig

        return AgentConfig
    if name in __all__:
        from coord.agent import daemon

        return getattr(daemon, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
