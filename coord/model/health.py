"""Words about health checks: how one ended, and why it ran."""

import enum


class HealthOutcome(enum.StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    MISSING = "missing"
    """There is no such check on the host, which is no pass."""


BAD_OUTCOMES = (HealthOutcome.FAILED, HealthOutcome.TIMED_OUT)
"""What keeps work away."""


class CheckOccasion(enum.StrEnum):
    BEFORE_LAUNCH = "before_launch"
    PERIODIC = "periodic"
    ON_REQUEST = "on_request"
