"""The whole cluster in one thread: servers, hosts, agents and clients on simulated ports.

`from coord_sim import world` gives this package, and `world(seed)` is the way in for tests: see
`coord_sim.scenario.world`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """A package that can be called, since it has the name that its way in should have."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from coord_sim.scenario import world

        return world(*arguments, **options)


sys.modules[__name__].__class__ = _Package
