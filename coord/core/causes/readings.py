"""What the words that a process left behind say: of the program, of the machine, or merely that
somebody else had gone.

Pure and plain: a few phrases of PyTorch, NCCL, Gloo, CUDA and JAX, looked for in lower case. What
has none of them is the program's own.
"""

from __future__ import annotations

import enum


class Sign(enum.StrEnum):
    NONE = ""
    """Nothing was said."""
    HARDWARE = "hardware"
    """The machine or its network failed under it."""
    ENDED = "ended"
    """Somebody asked it to end."""
    CONSEQUENCE = "consequence"
    """It waited for another one in vain, or lost the connection to it."""
    DOUBTFUL = "doubtful"
    """Its own, and neither the program nor the machine can be told to be at fault."""
    PROGRAM = "program"
    """Anything else: its own."""


_PHRASES: tuple[tuple[Sign, tuple[str, ...]], ...] = (
    (
        Sign.HARDWARE,
        (
            "uncorrectable ecc",
            "eccuncorrectable",
            "fallen off the bus",
            "gpu is lost",
            "unable to determine the device handle",
            "no cuda-capable device",
            "cuda error: system not yet initialized",
            "got async event : port error",
            "ibv_get_async_event failed",
            "local catastrophic error",
            "cudaerrorhardwarestackerror",
            "cuda_error_contained",
            "cudaerrorcontained",
            "uncorrectable nvlink",
        ),
    ),
    (
        Sign.DOUBTFUL,
        (
            "cuda failure, unknown error",
            "cuda failure 999",
            "cuda failure 'unknown error'",
            "cuda error: unknown error",
            "cudaerrorunknown",
            "cuda_error_unknown",
            "[errno 5] input/output error",
            "[errno 116] stale file handle",
            "[errno 121] remote i/o error",
        ),
    ),
    (
        Sign.ENDED,
        (
            "signalexception",
            "got signal: 15",
            "received 15 death signal",
            "keyboardinterrupt",
            "received sigterm",
        ),
    ),
    (
        Sign.CONSEQUENCE,
        (
            "collective operation timeout",
            "exception (either an error or timeout) detected by watchdog",
            "to avoid data inconsistency",
            "watchdog thread terminated",
            "timed out waiting",
            "wait timeout after",
            "socket timeout",
            "client socket has timed out",
            "connection closed by peer",
            "connection reset by peer",
            "connection refused",
            "connection was closed",
            "socket closed",
            "broken pipe",
            "remote process exited",
            "remote peer",
            "nccl communicator was aborted",
            "ncclremoteerror",
            "ncclsystemerror",
            "got completion from peer",
            "got completion with error",
            "rendezvousclosederror",
            "rendezvoustimeouterror",
            "rendezvousconnectionerror",
            "distnetworkerror",
            "diststoreerror",
            "heartbeat monitor timed out",
            "barrier timed out",
            "coordination service",
            "deadline exceeded",
        ),
    ),
)


def sign_of(error: str, tail: str) -> Sign:
    """`error`: of the error file; `tail`: the last lines of standard error, heard only where there
    is no error, but for what they say of the machine."""
    told = error.lower()
    seen = tail.lower()
    if _has(_PHRASES[0][1], told) or _has(_PHRASES[0][1], seen):
        return Sign.HARDWARE
    heard = told or seen
    if not heard.strip():
        return Sign.NONE
    for sign, phrases in _PHRASES[1:]:
        if _has(phrases, heard):
            return sign
    return Sign.PROGRAM


def _has(phrases: tuple[str, ...], text: str) -> bool:
    return any(phrase in text for phrase in phrases)
