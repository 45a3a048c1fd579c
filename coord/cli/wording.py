"""Numbers and durations as people read them."""

from __future__ import annotations

import signal

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


def age_text(duration_ms: int) -> str:
    """A duration in its two largest units: `12s`, `3m12s`, `2h05m`, `4d03h`."""
    if duration_ms < 0:
        return "-"
    if duration_ms < MINUTE_MS:
        return f"{duration_ms // SECOND_MS}s"
    if duration_ms < HOUR_MS:
        return f"{duration_ms // MINUTE_MS}m{duration_ms % MINUTE_MS // SECOND_MS:02d}s"
    if duration_ms < DAY_MS:
        return f"{duration_ms // HOUR_MS}h{duration_ms % HOUR_MS // MINUTE_MS:02d}m"
    return f"{duration_ms // DAY_MS}d{duration_ms % DAY_MS // HOUR_MS:02d}h"


def clock_text(duration_ms: int) -> str:
    """A duration to the millisecond: `0.310s`, `3m12.045s`, `1h02m03.004s`."""
    if duration_ms < 0:
        return f"-{clock_text(-duration_ms)}"
    seconds = f"{duration_ms % MINUTE_MS // SECOND_MS}.{duration_ms % SECOND_MS:03d}s"
    if duration_ms < MINUTE_MS:
        return seconds
    minutes = f"{duration_ms % HOUR_MS // MINUTE_MS}m{seconds.rjust(7, '0')}"
    if duration_ms < HOUR_MS:
        return minutes
    return f"{duration_ms // HOUR_MS}h{minutes.rjust(10, '0')}"


def time_of_day_text(wall_ms: int) -> str:
    """Milliseconds since 1970 as the time of that day in UTC: `09:15:02.120`."""
    of_day_ms = wall_ms % DAY_MS
    hours, minutes = of_day_ms // HOUR_MS, of_day_ms % HOUR_MS // MINUTE_MS
    seconds, rest_ms = of_day_ms % MINUTE_MS // SECOND_MS, of_day_ms % SECOND_MS
    return f"{hours:02d}:{minutes:02d}:{seconds:02d}.{rest_ms:03d}"


def phase_text(duration_ms: int) -> str:
    """A phase of an incident: its duration, or `-` when it was not reached."""
    return "-" if duration_ms < 0 else clock_text(duration_ms)


def count_text(count: int, one: str, many: str = "") -> str:
    """`1 task`, `4 tasks`, `12,000 entries`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size_text(size_bytes: int) -> str:
    """`512 B`, `14.2 KiB`, `3.0 GiB`."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024 or unit == "TiB":
            break
    return f"{size:.1f} {unit}"


def signal_text(number: int) -> str:
    """`signal 9 (SIGKILL)`; the number alone where it has no name here."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def resources_text(devices: int, cpu_millis: int, memory_mib: int) -> str:
    """`2 devices, 4 CPUs, 8.0 GiB`, leaving out what is 0."""
    parts = []
    if devices:
        parts.append(count_text(devices, "device"))
    if cpu_millis:
        cpus = f"{cpu_millis / 1000:g}"
        parts.append(f"{cpus} CPU{'' if cpus == '1' else 's'}")
    if memory_mib:
        parts.append(size_text(memory_mib << 20))
    return ", ".join(parts) or "nothing"


def telling_line(text: str, limit: int = 200) -> str:
    """The last line of `text` that says something, cut to `limit` characters.

    The last, because a traceback or a stderr tail ends with what went wrong.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    return lines[-1] if len(lines[-1]) <= limit else lines[-1][: limit - 1] + "…"


def listed(words: tuple[str, ...] | list[str], limit: int = 4) -> str:
    """`a, b, c`, or `a, b, c, d and 12 more`."""
    if len(words) <= limit:
        return ", ".join(words)
    return f"{', '.join(words[:limit])} and {len(words) - limit} more"
