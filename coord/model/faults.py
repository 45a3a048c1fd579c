"""What codes of NVIDIA's driver mean: XIDs of devices, their NVLink details, SXids of switches.

A table of our own, so that the log can be judged without anybody's files: for each code its class
(who could have caused it) and what brings the device back. Facts are those of NVIDIA's published
catalogues. Changing a row changes what is decided: it is a change of the rules.
"""

from __future__ import annotations

import enum

import msgspec

from coord.model.fault_tables import NVLINK_RULES, SXIDS, XIDS


class FaultClass(enum.StrEnum):
    """Who could have caused it."""

    PROGRAM = "program"
    HARDWARE = "hardware"
    DRIVER = "driver"
    NVLINK = "nvlink"
    FOLLOWS = "follows"
    """From another fault, which says more."""
    NOTICE = "notice"
    UNUSED = "unused"
    """A code that no released driver reports."""
    UNKNOWN = "unknown"
    """Not in the table."""


class Recovery(enum.StrEnum):
    """What brings the device back."""

    IGNORE = "ignore"
    RESTART_APP = "restart_app"
    RESET_DEVICE = "reset_device"
    RESET_FABRIC = "reset_fabric"
    """All devices and switches of the host together."""
    REBOOT_HOST = "reboot_host"
    UPDATE_SOFTWARE = "update_software"
    INSPECT = "inspect"
    """Somebody looks at power, cooling, seating or cables."""
    CONTACT_SUPPORT = "contact_support"
    FOLLOW_OTHER = "follow_other"
    """As for the fault that came with it."""


class Fault(msgspec.Struct, frozen=True):
    """A code, judged. `name` is a few plain words."""

    fault_class: FaultClass
    recovery: Recovery
    name: str

    @property
    def blames_host(self) -> bool:
        """The machine is at fault, and not merely by a thing it mended itself."""
        return self.fault_class in _OF_THE_HOST and self.recovery != Recovery.IGNORE

    @property
    def blames_program(self) -> bool:
        return self.fault_class == FaultClass.PROGRAM

    @property
    def stops_work(self) -> bool:
        """No work can go there before somebody has done something about it."""
        return self.blames_host and self.recovery in _STOPS_WORK


_OF_THE_HOST = (FaultClass.HARDWARE, FaultClass.DRIVER, FaultClass.NVLINK)
_STOPS_WORK = (
    Recovery.RESET_DEVICE,
    Recovery.RESET_FABRIC,
    Recovery.REBOOT_HOST,
    Recovery.INSPECT,
)
_STRANGE = Fault(FaultClass.UNKNOWN, Recovery.CONTACT_SUPPORT, "not in the catalogue")


class NvlinkRule(msgspec.Struct, frozen=True):
    """What an NVLink XID (144 to 150) of one unit with one status means.

    `reason` tells apart ways for a link to go down. `fatal` is `yes`, `no` or `link` (for that link
    alone), `side` what failed, `look_at` where to look when it comes back.
    """

    units: tuple[str, ...]
    status: int
    reason: int
    recovery: Recovery
    fatal: str
    side: str
    look_at: str


def _read_faults(table: str) -> dict[int, Fault]:
    found = {}
    for line in table.strip().splitlines():
        code, fault_class, recovery, name = line.split(" ", 3)
        found[int(code)] = Fault(FaultClass(fault_class), _recovery(recovery), name)
    return found


def _recovery(word: str) -> Recovery:
    # `see_text`: the line itself says it; where it does not, whoever knows the device must look.
    return Recovery.CONTACT_SUPPORT if word == "see_text" else Recovery(word)


def _read_rules(table: str) -> dict[int, tuple[NvlinkRule, ...]]:
    found: dict[int, tuple[NvlinkRule, ...]] = {}
    for line in table.strip().splitlines():
        xid, units, status, reason, recovery, fatal, side, look_at = line.split(" ")
        rule = NvlinkRule(
            tuple(units.split("/")), int(status, 16), int(reason), Recovery(recovery), fatal, side,
            look_at,
        )  # fmt: skip
        found[int(xid)] = (*found.get(int(xid), ()), rule)
    return found


XID_FAULTS = _read_faults(XIDS)
SXID_FAULTS = _read_faults(SXIDS)
RULES_OF_NVLINK = _read_rules(NVLINK_RULES)

RECOVERY_CHANGED = 154
_RECOVERIES_IN_TEXT = (
    ("node reboot", Recovery.REBOOT_HOST),
    ("drain and reset", Recovery.RESET_DEVICE),
    ("gpu reset", Recovery.RESET_DEVICE),
    ("drain p2p", Recovery.RESET_DEVICE),
    ("(none)", Recovery.IGNORE),
)


def fault_of(kind: str, code: int, text: str = "") -> Fault:
    """What a code means. `kind` is `xid`, `sxid` or anything else, whose codes are not known here.
    `text` is the line, which for some codes says more."""
    if kind == "sxid":
        known = SXID_FAULTS.get(code, _STRANGE)
        mended = "non-fatal" in text.lower()
        return msgspec.structs.replace(known, recovery=Recovery.IGNORE) if mended else known
    if kind != "xid":
        return _OTHERS.get(kind, _STRANGE)
    known = XID_FAULTS.get(code, _STRANGE)
    if code == RECOVERY_CHANGED:
        return msgspec.structs.replace(known, recovery=_recovery_in(text))
    if code in RULES_OF_NVLINK:
        rule = nvlink_rule(code, text)
        if rule is not None:
            return msgspec.structs.replace(known, recovery=rule.recovery)
    return known


_OTHERS = {
    "off_bus": Fault(FaultClass.HARDWARE, Recovery.REBOOT_HOST, "fell off the bus"),
    "link_down": Fault(FaultClass.NVLINK, Recovery.IGNORE, "network link went down"),
    "memory": Fault(FaultClass.HARDWARE, Recovery.INSPECT, "uncorrectable host memory error"),
}
"""Faults without a code, by the kind that an agent gives them."""


def _recovery_in(text: str) -> Recovery:
    """`changed from 0x0 (None) to 0x2 (Node Reboot Required)`: the last word counts."""
    lowered = text.lower()
    wanted = lowered.rpartition(" to ")[2]
    for words, recovery in _RECOVERIES_IN_TEXT:
        if words in wanted:
            return recovery
    return Recovery.FOLLOW_OTHER


def nvlink_rule(xid: int, text: str) -> NvlinkRule | None:
    """The rule for a line such as `NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)`:
    unit, then in parentheses the words `intrinfo` and `errorstatus`. None where none fits."""
    unit = next(
        (word for word in text.replace(",", " ").split() if "_" in word or word in _BARE), ""
    )
    words = text.partition("(0x")[2].replace(")", " ").split()
    try:
        numbers = [int(word, 16) for word in words[:2]]
    except ValueError:
        return None
    if len(numbers) < 2:
        return None
    intrinfo, status = numbers
    reason = intrinfo >> 20 & 0x3F
    rules = [rule for rule in RULES_OF_NVLINK.get(xid, ()) if unit in rule.units]
    for rule in rules:
        if rule.status == status and rule.reason == reason:
            return rule
    # Several bits at once: the worst of what they say.
    hit = [rule for rule in rules if rule.status & status and rule.reason in (0, reason)]
    hit.sort(key=lambda rule: (rule.recovery != Recovery.RESET_DEVICE, rule.status))
    return hit[0] if hit else None


_BARE = ("TREX", "NETIR", "NVLPW")
