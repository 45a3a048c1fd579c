"""The table of device faults, against the catalogues that it was made from."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from coord.model.faults import (
    RULES_OF_NVLINK,
    SXID_FAULTS,
    XID_FAULTS,
    FaultClass,
    Recovery,
    fault_of,
    nvlink_rule,
)

CATALOGUE = Path(__file__).parents[3] / "shared" / "data" / "failures" / "nvidia_xid_catalog"

RESOLUTIONS = {
    "CONTACT_SUPPORT": Recovery.CONTACT_SUPPORT,
    "RESTART_APP": Recovery.RESTART_APP,
    "IGNORE": Recovery.IGNORE,
    "RESET_GPU": Recovery.RESET_DEVICE,
    "RESTART_BM": Recovery.REBOOT_HOST,
    "RESTART_VM": Recovery.REBOOT_HOST,
    "CHECK_MECHANICALS": Recovery.INSPECT,
    "UPDATE_SWFW": Recovery.UPDATE_SOFTWARE,
    "WORKFLOW_XID_45": Recovery.FOLLOW_OTHER,
    "CHECK_UVM": Recovery.FOLLOW_OTHER,
    "WORKFLOW_XID_48": Recovery.RESET_DEVICE,
    "WORKFLOW_NVLINK_ERR": Recovery.RESET_DEVICE,
    "XID_154_EVAL": Recovery.FOLLOW_OTHER,
}
"""What the catalogue says first, in our words. Where it refers to a workflow or to the line itself,
the tests below say more."""
READ_FROM_THE_LINE = ("WORKFLOW_NVLINK5_ERR", "XID_154", "")


def rows(name: str) -> list[dict[str, str]]:
    path = CATALOGUE / name
    if not path.exists():
        pytest.skip(f"{path} is not there: the catalogue is not part of this repository")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_xid_of_the_catalogue_has_its_class_and_recovery() -> None:
    """All 172, and none beside them."""
    catalogue = rows("xid_catalog.csv")
    assert [int(row["xid"]) for row in catalogue] == sorted(XID_FAULTS)
    wrong = {
        row["xid"]: (row["immediate_resolution"], XID_FAULTS[int(row["xid"])].recovery)
        for row in catalogue
        if row["immediate_resolution"] not in READ_FROM_THE_LINE
        and RESOLUTIONS[row["immediate_resolution"]] != XID_FAULTS[int(row["xid"])].recovery
    }
    assert wrong == {}
    unused = [int(row["xid"]) for row in catalogue if row["description"] == "Unused"]
    table = [code for code, fault in XID_FAULTS.items() if fault.fault_class == FaultClass.UNUSED]
    assert [code for code in unused if code not in (14, 108)] == table


def test_what_the_catalogue_puts_down_to_the_application_is_the_programs() -> None:
    """Where it says to look at the application, and for the workflows of XID 13 and 31."""
    for row in rows("xid_catalog.csv"):
        asked = row["investigatory_resolution"]
        if asked == "CHECK_APP/CUDA" or asked in ("WORKFLOW_XID_13", "WORKFLOW_XID_31"):
            assert XID_FAULTS[int(row["xid"])].fault_class == FaultClass.PROGRAM, row


def test_every_nvlink_rule_of_the_catalogue_is_found_by_its_line() -> None:
    """All 94: a line with its unit, reason and status leads to its recovery, by both drivers'
    names."""
    catalogue = rows("nvlink5_xid144_150_rules.csv")
    assert len(catalogue) == sum(len(rules) for rules in RULES_OF_NVLINK.values())
    for row in catalogue:
        reason = int(row["intrinfopatternv1"][6:12], 2)
        for unit in row["unit"].split("/"):
            intrinfo, status = reason << 20, int(row["errorstatus"], 16)
            line = f"{unit} Fatal XC0 i0 Link 08 (0x{intrinfo:08x} 0x{status:08x} 0x00000000)"
            fault = fault_of("xid", int(row["xid"]), line)
            assert fault.fault_class == FaultClass.NVLINK
            assert fault.recovery == RESOLUTIONS[row["resolution"]], row
            rule = nvlink_rule(int(row["xid"]), line)
            assert rule is not None
            fatal = {"N": "no", "F": "yes", "L": "link"}[row["severity"][0]]
            assert rule.fatal == fatal, row


def test_every_sxid_of_the_catalogue_has_its_class_and_recovery() -> None:
    """All 93. Corrected errors are ignored, fatal ones never are."""
    catalogue = rows("sxid_catalog.csv")
    assert sorted(int(row["sxid"]) for row in catalogue) == sorted(SXID_FAULTS)
    for row in catalogue:
        fault = SXID_FAULTS[int(row["sxid"])]
        fatal = "Always" in row["always_fatal"] or row["always_fatal"] == "true"
        if "Single bit" in row["name"] or "safely ignored" in row["impact"]:
            assert fault.recovery == Recovery.IGNORE, row
        if fatal or "Reset all GPUs" in row["recovery"] or "reset to all GPUs" in row["recovery"]:
            assert fault.recovery == Recovery.RESET_FABRIC, row
        if "Restart" in row["recovery"]:
            assert fault.recovery == Recovery.REBOOT_HOST, row
        if "mechanical" in row["recovery"]:
            assert fault.recovery == Recovery.INSPECT, row


@pytest.mark.parametrize(
    ("kind", "code", "text", "recovery"),
    [
        ("xid", 154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
         Recovery.RESET_DEVICE),
        ("xid", 154, "GPU recovery action changed from 0x1 (GPU Reset) to 0x2 (Node Reboot)",
         Recovery.REBOOT_HOST),
        ("xid", 154, "GPU recovery action changed from 0x1 (GPU Reset) to 0x0 (None)",
         Recovery.IGNORE),
        ("xid", 154, "", Recovery.FOLLOW_OTHER),
        ("xid", 149, "", Recovery.CONTACT_SUPPORT),
        ("xid", 149, "NETIR_LINK_EVT (0xzz", Recovery.CONTACT_SUPPORT),
        ("xid", 9_999, "", Recovery.CONTACT_SUPPORT),
        ("sxid", 20034, "Fatal, Link 30 LTSSM Fault Up", Recovery.RESET_FABRIC),
        ("sxid", 20034, "Non-fatal, Link 30 LTSSM Fault Up", Recovery.IGNORE),
        ("off_bus", 0, "", Recovery.REBOOT_HOST),
        ("made_up", 7, "", Recovery.CONTACT_SUPPORT),
    ],
)  # fmt: skip
def test_some_codes_are_read_with_their_line(
    kind: str, code: int, text: str, recovery: Recovery
) -> None:
    """And what nobody knows is nobody's fault, but support's to tell."""
    assert fault_of(kind, code, text).recovery == recovery


def test_who_is_at_fault() -> None:
    """Of the codes that are seen most."""
    assert [fault_of("xid", code).blames_program for code in (13, 31, 43)] == [True] * 3
    assert [fault_of("xid", code).blames_host for code in (48, 64, 74, 79, 94, 95, 119)] == [
        True
    ] * 7
    for code in (45, 63, 154):
        assert not fault_of("xid", code).blames_host
        assert not fault_of("xid", code).blames_program
    assert [fault_of("xid", code).stops_work for code in (79, 94, 31, 63)] == [
        True, False, False, False,
    ]  # fmt: skip
