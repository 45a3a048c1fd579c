"""Why a job waits or where it went, as rows and sentences. Pure."""

from __future__ import annotations

from coord.cli.output import Column
from coord.cli.wording import clock_text, count_text
from coord.model.why import GangWhy, JobWhy, QueueWhy, Sieve, Standing

SIEVE_COLUMNS = (
    Column("ASKED"),
    Column("HOSTS LEFT", right=True),
    Column("EXCLUDED", right=True),
    Column("WHY"),
    Column("FOR EXAMPLE"),
)
STANDING_COLUMNS = (
    Column("HOST"),
    Column("", status=True),
    Column("FITS", right=True),
    Column("LEVELS AWAY", right=True),
    Column("WASTES", right=True),
    Column("DEVICES FREE", right=True),
    Column("CPUS FREE", right=True),
    Column("MIB FREE", right=True),
)
_ASKED = {
    "known": "are known",
    "up": "take new work",
    "device type": "have devices of the type",
    "rails": "are on enough rails",
    "free": "have room for a replica",
    "company": "may be shared, or are near",
    "domain": "are in the domain chosen",
}
HOSTS_TOLD = 8


def why_lines(why: JobWhy) -> list[str]:
    """The head."""
    return [
        f"job {why.job}  {why.status}",
        *(f"cannot start on this fleet: {problem}" for problem in why.never_fits),
    ]


def gang_why_lines(gang: GangWhy) -> list[str]:
    lines = [f"gang {gang.gang}  {gang.phase}"]
    if gang.reason:
        lines.append(f"  waits: {gang.reason}{f': {gang.detail}' if gang.detail else ''}")
    if gang.hosts:
        names = [f"{name} x{count}" for name, count in gang.hosts.items()]
        more = f" and {len(names) - HOSTS_TOLD} more" if len(names) > HOSTS_TOLD else ""
        where = "was on" if gang.phase in ("waiting", "stopped", "succeeded") else "is on"
        told = ", ".join(names[:HOSTS_TOLD])
        lines.append(f"  {where} {count_text(len(names), 'host')}: {told}{more}")
    if gang.sieves:
        least = f", at least {gang.smallest}" if gang.smallest != gang.wanted else ""
        fit = count_text(gang.fit, "replica")
        lines.append(f"  {fit} of {gang.wanted}{least} would have places now")
    if gang.domains:
        told = ", ".join(f"{name} {fit}" for name, fit in gang.domains.items())
        lines.append(f"  replicas that fit by domain: {told}")
    if gang.queue is not None:
        lines += [f"  {line}" for line in queue_why_lines(gang.queue)]
    return lines


def queue_why_lines(why: QueueWhy) -> list[str]:
    """What holds it up besides room on hosts, as it is now; the turn always."""
    lines = []
    if why.over:
        lines.append(_over(why))
    elif why.closed:
        lines.append(f"{_queue(why)} may use no more {', '.join(why.closed)}")
    for one in why.leaving:
        left = count_text(one.tasks, "task")
        notice = (
            f"notice ends in {clock_text(one.within_ms)}" if one.within_ms else "notice is over"
        )
        lines.append(f"waits for {one.gang} to leave its place: {left} left, {notice}")
    if why.first:
        lines.append(f"there is room, but it is kept for {why.first}, which comes first")
    if why.kept:
        names = [f"{name} x{count}" for name, count in why.kept.items()]
        more = f" and {len(names) - HOSTS_TOLD} more" if len(names) > HOSTS_TOLD else ""
        lines.append(f"room is kept for it on {', '.join(names[:HOSTS_TOLD])}{more}")
    if why.whole:
        lines.append(
            f"waits for all {why.whole} replicas for {clock_text(why.whole_for_ms)} more, "
            "then starts with fewer"
        )
    names = list(why.before)
    more = f" and {why.turn - 1 - len(names)} more" if why.turn - 1 > len(names) else ""
    before = f", after {', '.join(names)}{more}" if names else ""
    lines.append(f"turn {why.turn}{before}")
    return lines


def _over(why: QueueWhy) -> str:
    if why.closed:
        return f"{_queue(why)} may use no more {', '.join(why.closed)}"
    left = "whatever is free" if why.left < 0 else _thousandths(why.left)
    told = f"{_queue(why)} may use {left} more devices, {_thousandths(why.needs)} are needed: it "
    told += f"uses {_thousandths(why.used)} of its quota of {why.quota}"
    if why.may_borrow >= 0:
        told += f" and may borrow {why.may_borrow}"
    if why.kept_back:
        told += f"; other queues keep {_thousandths(why.kept_back)} to themselves"
    return told


def _queue(why: QueueWhy) -> str:
    return f"queue {why.queue}" if why.queue else "the queue without a name"


def sieve_row(sieve: Sieve) -> tuple[str, ...]:
    why = ", ".join(f"{count} {reason}" for reason, count in sieve.why.items())
    return (
        _ASKED.get(sieve.asked, sieve.asked),
        str(sieve.hosts),
        str(sieve.excluded or "-"),
        why,
        "; ".join(sieve.examples),
    )


def standing_rows(gang: GangWhy) -> list[tuple[str, ...]]:
    """The worst of the chosen ones first; then the best of the others."""
    rows = [_standing_row(one, "chosen") for one in gang.chosen]
    if gang.best_other is not None:
        rows.append(_standing_row(gang.best_other, "best other"))
    return rows


def _standing_row(one: Standing, what: str) -> tuple[str, ...]:
    devices, cpus, memory_mib = one.left
    return (
        one.host,
        what,
        str(one.fit),
        str(one.distance),
        str(one.wasted),
        _thousandths(devices),
        _thousandths(cpus),
        str(memory_mib),
    )


def _thousandths(millis: int) -> str:
    whole, part = divmod(millis, 1_000)
    return f"{whole}.{part:03d}".rstrip("0") if part else str(whole)
