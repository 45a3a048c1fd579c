"""Commands with which somebody else's cluster lets itself be broken, from a YAML file.

    servers:                     # by any name; `url` is of its API
      s1:
        url: http://10.0.0.1:7101
        kill: ssh coord-1 systemctl kill -s KILL coord
        start: ssh coord-1 systemctl start coord
    hosts:                       # by host id
      gpu-17:
        kill: ssh gpu-17 systemctl kill -s KILL coord-agent
        kill_all: ssh gpu-17 systemctl kill -s KILL coord-agent.slice
        start: ssh gpu-17 systemctl start coord-agent
    network:                     # {source} and {target} are names from above, or `clients`
      cut: ./firewall drop {source} {target}
      delay: ./netem {source} {target} delay {ms}ms {jitter_ms}ms
      heal: ./firewall and-netem-clear

All are optional; what has no command is refused. A command ends with 0 when it did what it should.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

SERVER_ACTS = ("kill", "terminate", "start", "pause", "resume")
HOST_ACTS = (*SERVER_ACTS, "kill_all", "pause_all")
NETWORK_ACTS = {
    "cut": ("source", "target"),
    "delay": ("source", "target", "ms", "jitter_ms"),
    "throttle": ("source", "target", "bytes_s"),
    "lossy": ("source", "target", "share"),
    "reset": ("source", "target"),
    "mend": ("source", "target"),
    "heal": (),
}
TIMEOUT_S = 60.0


class HooksError(Exception):
    """The file cannot be used, or a command failed; the message names it and says what to do."""


class ServerHooks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Commands for one server; empty: there is none."""

    url: str = ""
    kill: str = ""
    terminate: str = ""
    start: str = ""
    pause: str = ""
    resume: str = ""


class HostHooks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Commands for one host: `kill` and `pause` of its agent, `..._all` of the whole machine."""

    kill: str = ""
    terminate: str = ""
    start: str = ""
    pause: str = ""
    resume: str = ""
    kill_all: str = ""
    pause_all: str = ""


class NetworkHooks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Commands with the names of NETWORK_ACTS in braces."""

    cut: str = ""
    delay: str = ""
    throttle: str = ""
    lossy: str = ""
    reset: str = ""
    mend: str = ""
    heal: str = ""


class Hooks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    servers: dict[str, ServerHooks] = {}
    hosts: dict[str, HostHooks] = {}
    network: NetworkHooks = NetworkHooks()


def read_hooks(path: Path) -> Hooks:
    """Raises HooksError, which names the file, the place in it, and what is wrong."""
    try:
        hooks = msgspec.yaml.decode(path.read_bytes(), type=Hooks)
    except OSError as error:
        raise HooksError(
            f"{path} cannot be read ({error.strerror}); name a file with hooks"
        ) from error
    except msgspec.MsgspecError as error:
        raise HooksError(f"{path}: {error}; see jepsen_lite.cluster.hooks for the form") from error
    _check(path, hooks)
    return hooks


def _check(path: Path, hooks: Hooks) -> None:
    for act, places in NETWORK_ACTS.items():
        command = getattr(hooks.network, act)
        try:
            command.format(**dict.fromkeys(places, ""))
        except (KeyError, IndexError, ValueError) as error:
            known = ", ".join(f"{{{place}}}" for place in places) or "nothing in braces"
            raise HooksError(
                f"{path}: network.{act} is {command!r}; it may hold {known}"
            ) from error
    shapes = [act for act in ("cut", "delay", "throttle", "lossy") if getattr(hooks.network, act)]
    if shapes and not hooks.network.heal:
        raise HooksError(
            f"{path}: network.{shapes[0]} is given without network.heal: give the command that "
            "takes everything back"
        )


def run_hook(command: str, values: Mapping[str, Any] | None = None) -> None:
    """Run it, each value as one word. Raises HooksError with what it said when it fails."""
    words = [word.format(**(values or {})) for word in shlex.split(command)]
    shown = shlex.join(words)
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HooksError(f"`{shown}` did not end within {TIMEOUT_S:g} s") from error
    except OSError as error:
        raise HooksError(
            f"`{shown}` cannot be run ({error.strerror}): is the program installed?"
        ) from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-500:]
        raise HooksError(f"`{shown}` ended with {done.returncode}: {said or 'it said nothing'}")
