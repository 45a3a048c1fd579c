"""Runs a transcript: prose, events, and below each block all that the state machine made of it.

A block ends at `----`; what stands below it, up to the next empty line, is the output. Before each
event the clock advances by 10 ms. Beside events (`notation.py`, `relay_notation.py`) a block may
hold:

    +500                   the leader's clock advances so far (or `-500`: is set back)
    run 3000 but h2 h3     for 3 s, every 500 ms: all live hosts but these beat, the clock ticks
    seen h1 h2             when they were heard last
    again                  the last event arrives once more, from the same origin
    plan h1 [env], show job d, show gang d/t, show host h1, show task d/t/0#1,
    show checkpoints d/t, show incident 1, queue, due, digest, why d, hosts d/t (by rank)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from coord_sim.core_world.driver import Driver

from coord.core.machine import next_due_ms
from coord.core.placement import explain_job
from coord.core.plans import host_plan
from coord.core.state import LIVE_HOST, state_digest
from coord.model import events
from coord.model.entry import Entry, Recorded

from .notation import Unreadable, parse
from .relay_notation import RELAY_VERBS, parse_relay


class Transcript:
    """One file's machine. `run` takes the text and returns it with the outputs that are true."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.last: Entry | None = None

    def run(self, text: str) -> str:
        blocks = []
        for block in text.strip().split("\n\n"):
            commands = block.split("\n----")[0].split("\n")
            lines = [line for line in commands if line and not line.startswith("#")]
            if not lines:
                blocks.append(block)
                continue
            output = [out for line in lines for out in self.command(line)]
            blocks.append("\n".join([*commands, "----", *output]))
        return "\n\n".join(blocks) + "\n"

    def command(self, line: str) -> list[str]:
        verb, *words = line.split()
        if verb[0] in "+-" and verb[1:].isdigit():
            self.driver.wall_ms += int(verb)
            return []
        if verb == "run":
            return self._run(int(words[0]), words[2:])
        if verb == "again":
            assert self.last is not None
            event, origin = self.last.event, self.last.origin
            return render(self._send(event, origin=origin, term=None))
        query = QUERIES.get(verb)
        if query is not None:
            return query(self.driver, words)
        read = parse_relay if verb in RELAY_VERBS else parse
        parsed = read(line, self.driver.state)
        output = []
        for event in parsed.events:
            output += render(self._send(event, origin=parsed.origin, term=parsed.term))
        return output

    def _send(self, event: Any, **sent: Any) -> Recorded:
        self.driver.wall_ms += 10
        record = self.driver.send(event, **sent)
        self.last = record.entry
        return record

    def _run(self, duration_ms: int, silent: list[str]) -> list[str]:
        """Only entries that decided something are shown."""
        state = self.driver.state
        output = []
        for _ in range(duration_ms // 500):
            self.driver.wall_ms += 490
            live = [
                state.hosts[name]
                for name in state.slots
                if state.hosts[name].status in LIVE_HOST and name not in silent
            ]
            beat = events.HeartbeatsSeen(
                "node:1",
                tuple(host.slot for host in live),
                tuple(host.incarnation for host in live),
            )
            for event in (beat, events.ClockAdvanced()):
                record = self._send(event)
                if record.decisions or record.rejection:
                    output += render(record)
        return output or [f"nothing until {state.meta.now_ms} ms"]


def render(record: Recorded) -> list[str]:
    """The entry, then each decision with its id and its causes."""
    entry = record.entry
    subject = getattr(entry.event, "task", None) or getattr(entry.event, "host", "")
    head = f"{entry.index} {type(entry.event).__name__}"
    head += f" {subject}" if subject else ""
    head += f" @{record.now_ms}"
    if record.rejection:
        head += f" rejected: {record.rejection}"
    if record.duplicate_of:
        head += f" duplicate of {record.duplicate_of}"
    if record.result:
        head += f" result {record.result}"
    lines = [head]
    for ordinal, decision in enumerate(record.decisions):
        said = _fields(decision, skip=("causes",))
        lines.append(
            f"  {entry.index}.{ordinal} {type(decision).__name__} {said} <- "
            + " ".join(decision.causes)
        )
    return lines


def _fields(row: msgspec.Struct, skip: tuple[str, ...] = ()) -> str:
    """`name=value` of every field that is not at its default."""
    said = []
    defaults = {
        field.name: field.default for field in msgspec.structs.fields(row) if not field.required
    }
    for name in row.__struct_fields__:
        value = getattr(row, name)
        if name in skip or (name in defaults and value == defaults[name]):
            continue
        if value in ((), {}) and name in defaults:
            continue
        said.append(f"{name}={_value(value)}")
    return " ".join(said)


def _value(value: Any) -> str:
    if isinstance(value, msgspec.Struct):
        return f"({_fields(value)})"
    if isinstance(value, tuple):
        return "[" + " ".join(_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + " ".join(f"{key}={item}" for key, item in sorted(value.items())) + "}"
    text = str(value)
    return f'"{text}"' if " " in text or not text else text


def _show(driver: Driver, words: list[str]) -> list[str]:
    state = driver.state
    kind, key = words
    if kind == "checkpoints":
        found = [state.checkpoints[name] for name in state.checkpoints_by_gang.get(key, ())]
        return [_fields(checkpoint) for checkpoint in found] or ["none"]
    row = state.table(kind + "s").get(key)
    return [_fields(row, skip=("spec", "key"))] if row is not None else ["none"]


def _plan(driver: Driver, words: list[str]) -> list[str]:
    plan = host_plan(driver.state, words[0])
    test = f" test {plan.test}" if plan.test else ""
    lines = [f"version {plan.version} incarnation {plan.incarnation}{test}"]
    for order in plan.tasks:
        said = _fields(order, skip=("task", "job", "role", "index", "generation", "action", "env"))
        lines.append(f"  {order.action} {order.task} {said}".rstrip())
        lines += [f"    {name}={value}" for name, value in order.env.items() if "env" in words]
    return lines


def _why(driver: Driver, words: list[str]) -> list[str]:
    state = driver.state
    why = explain_job(state, state.jobs[words[0]])
    lines = [f"{why.job} {why.status}", *(f"  never: {one}" for one in why.never_fits)]
    for gang in why.gangs:
        lines.append(f"  {_fields(gang, skip=('sieves', 'chosen', 'best_other'))}")
        lines += [f"    {_fields(sieve)}" for sieve in gang.sieves]
        lines += [f"    chosen {_fields(one)}" for one in gang.chosen]
        lines += [f"    other {_fields(gang.best_other)}"] if gang.best_other else []
    return lines


def _hosts(driver: Driver, words: list[str]) -> list[str]:
    gang = driver.state.gangs[words[0]]
    spares = [hold.host for hold in gang.holds if hold.spare]
    kept = f", spares {' '.join(spares)}" if spares else ""
    return [f"{gang.phase}: {' '.join(gang.hosts)}{kept}"]


def _seen(driver: Driver, words: list[str]) -> list[str]:
    state = driver.state
    heard = [f"{name} @{state.last_seen_ms[state.hosts[name].slot]}" for name in words]
    return [f"{', '.join(heard)}; it is {state.meta.now_ms}"]


def _queue(driver: Driver, words: list[str]) -> list[str]:
    gangs = [driver.state.gangs[key] for key in sorted(driver.state.waiting)]
    return [f"{gang.key} {gang.queue_reason}: {gang.queue_detail}" for gang in gangs] or ["empty"]


QUERIES: dict[str, Any] = {
    "plan": _plan,
    "show": _show,
    "queue": _queue,
    "why": _why,
    "hosts": _hosts,
    "seen": _seen,
    "due": lambda driver, _: [f"{next_due_ms(driver.state)} ms"],
    "digest": lambda driver, _: [state_digest(driver.state)],
}


def run_file(path: Path) -> str:
    """The text of a transcript with its outputs made anew."""
    text = path.read_text()
    try:
        return Transcript().run(text)
    except (Unreadable, IndexError, ValueError, msgspec.ValidationError) as wrong:
        raise AssertionError(f"{path.name} cannot be read: {wrong!r}") from wrong
