"""One member as a process of its own: `python -m tests.raft.server_process CONFIG`.

CONFIG is JSON: node, members [[node, peer, api]...], directory, and optionally tls [certificate,
key, authority], joins. Commands are JSON lines on stdin, answers JSON lines on stdout; while it
loads, each acknowledged payload is a line of its own, written before the next proposal.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import Any

import msgspec
import structlog

from coord.raft.handshake import peer_context
from coord.raft.ports import Committed, Member
from coord.raft.pysyncobj_log import PySyncObjLog
from coord.raft.timings import RaftTimings
from coord.store.environment import Environment, Identity
from tests.raft.fakes import ListMachine


def say(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


async def load(log: PySyncObjLog, seconds: float, name: str, size: int, tell: bool) -> None:
    """Sequential proposals for so long; answers their number and latencies."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + seconds
    latencies_ms = []
    number = 0
    started = time.perf_counter()
    while loop.time() < until_s:
        number += 1
        payload = f"{name}-{number}".encode().ljust(size, b".")
        before = time.perf_counter()
        outcome = await log.propose(payload, 2.0)
        if isinstance(outcome, Committed):
            latencies_ms.append((time.perf_counter() - before) * 1000)
            if tell:
                say(ack=payload.decode())
        else:
            await asyncio.sleep(0.005)
    took_s = time.perf_counter() - started
    latencies_ms.sort()
    count = len(latencies_ms)
    say(
        loaded=count,
        per_s=count / took_s,
        p50_ms=latencies_ms[count // 2] if count else 0.0,
        p99_ms=latencies_ms[count * 99 // 100] if count else 0.0,
    )


async def serve(config: dict[str, Any]) -> None:
    environment = Environment.open(
        config["directory"],
        identity=Identity(config.get("cluster", "test"), config["node"]),
        create=True,
    )
    machine = ListMachine(environment)
    log = PySyncObjLog(
        config["node"],
        tuple(Member(*member) for member in config["members"]),
        environment,
        rng=random.Random(),
        ssl_context=peer_context(*config["tls"]) if config.get("tls") else None,
        timings=RaftTimings(**config.get("timings", {})),
        joins=config.get("joins", False),
    )
    log.on_halt(lambda error: say(halted=repr(error)))
    await log.start(machine)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    say(ready=True)
    while line := await reader.readline():
        command = json.loads(line)
        what = command["do"]
        if what == "status":
            say(status=msgspec.to_builtins(log.status()), applied=len(machine.applied))
        elif what == "propose":
            outcome = await log.propose(command["payload"].encode(), 3.0)
            say(outcome=type(outcome).__name__, at=time.time())
        elif what == "load":
            await load(log, command["seconds"], command["name"], command["size"], command["tell"])
        elif what == "payloads":
            say(payloads=[payload.decode() for payload in machine.payloads()])
        elif what == "snapshot":
            say(snapshot=await log.snapshot())
        elif what == "add":
            say(outcome=type(await log.add_member(Member(*command["member"]), 5.0)).__name__)
        else:
            break
    await log.stop()
    environment.close()


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(file=sys.stderr))
    asyncio.run(serve(json.loads(sys.argv[1])))
