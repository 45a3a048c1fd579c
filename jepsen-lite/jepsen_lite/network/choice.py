"""Which network a run gets, and what is said about what this machine lacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import structlog

from jepsen_lite.network import namespaces
from jepsen_lite.network.namespaces import Namespaces
from jepsen_lite.network.port import Network, NetworkFailed
from jepsen_lite.network.proxied import Proxied
from jepsen_lite.network.wrong import BROKEN_PROXY, wrong_by

KINDS = ("auto", "namespaces", "proxied")

log = structlog.get_logger()


def which_network(
    kind: str,
    mark: str,
    *,
    needs: frozenset[str] = frozenset(),
    seed: int = 0,
    trouble: Path | None = None,
    tell: Callable[[str], object] | None = None,
) -> Network:
    """The network for a run with this mark: the one asked for, or with `auto` namespaces where the
    machine has them and they can do all that is needed, else the proxy.

    `tell` (a warning in the log, if none is given) hears what is missing and why; `trouble` is the
    proxy's log. Raises NetworkFailed when the one asked for cannot be had, ValueError for a kind
    that does not exist.
    """
    say = tell or log.warning
    if kind not in KINDS:
        raise ValueError(f"network is {kind!r}; it must be one of {', '.join(KINDS)}")
    try:
        wrong = wrong_by()
    except ValueError as error:
        raise NetworkFailed(str(error)) from error
    if wrong is not None and kind == "namespaces":
        raise NetworkFailed(f"{BROKEN_PROXY} is of the proxy alone; use proxied, or unset it")
    if kind == "proxied" or wrong is not None:
        return Proxied(mark, seed=seed, log=trouble)
    problem = namespaces.obstacle()
    if kind == "namespaces":
        if problem:
            raise NetworkFailed(problem)
        return _told(Namespaces(mark), say)
    if problem:
        say(f"no network namespaces, so the proxy is used: {problem}")
        return Proxied(mark, seed=seed, log=trouble)
    network = Namespaces(mark)
    lacking = sorted(needs - network.can)
    if lacking:
        reasons = "; ".join(f"{name}: {network.missing[name]}" for name in lacking)
        say(f"namespaces cannot do what is needed, so the proxy is used: {reasons}")
        return Proxied(mark, seed=seed, log=trouble)
    return _told(network, say)


def _told(network: Namespaces, say: Callable[[str], object]) -> Network:
    for capability, why in network.missing.items():
        say(f"network namespaces cannot {capability} here: {why}")
    return network
