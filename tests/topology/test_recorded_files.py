"""Files as the tools of real fleets wrote them, where they are at hand: exact counts of each."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from coord.model.place import Place, Rail
from coord.topology.reading import read
from coord.topology.topology import Topology, TopologyError
from tests.topology.test_malformed import imported

RECORDED = Path(__file__).parents[3] / "shared" / "data" / "topology"

pytestmark = pytest.mark.skipif(
    not RECORDED.is_dir(), reason=f"the recorded topologies are not at hand: no {RECORDED}"
)

TREES: dict[str, tuple[str, int, int, Counter[str]]] = {
    "ib_fabric/dgx_ndr_ibnetdiscover.out.gz": (
        "ibnetdiscover", 122, 40, Counter(zone=1, pod=8),
    ),
    "ib_fabric/azure_hdr_ibnetdiscover_faked_guids.txt": (
        "ibnetdiscover", 10, 8, Counter(zone=1, pod=2, rack=5),
    ),
    "slurm_topology_conf/backfill.topology.conf": ("slurm", 32, 0, Counter(nvlink=8)),
    "slurm_topology_conf/check.topology.conf": ("slurm", 32, 0, Counter(nvlink=8)),
    "slurm_topology_conf/testcase1.topology.conf": (
        "slurm", 10_000, 529, Counter(zone=2, pod=26, rack=500),
    ),
    "slurm_topology_conf/testcase2.topology.conf": (
        "slurm", 10_000, 528, Counter(zone=2, pod=26, rack=500),
    ),
    "slurm_topology_conf/testcase3.topology.conf": (
        "slurm", 400, 23, Counter(zone=1, pod=2, rack=20),
    ),
    "slurm_topology_conf/testcase4.topology.conf": ("slurm", 400, 22, Counter(pod=2, rack=20)),
    "slurm_topology_conf/testcase5.topology.conf": ("slurm", 400, 22, Counter(pod=2, rack=20)),
    "slurm_topology_conf/testcase6.topology.conf": ("slurm", 40, 7, Counter(pod=2, rack=5)),
    "topograph_models/small-tree.yaml": ("topograph", 6, 3, Counter(pod=1, rack=2, nvlink=2)),
    "topograph_models/medium.yaml": (
        "topograph", 8, 7, Counter(zone=2, pod=2, rack=4, nvlink=4),
    ),
    "topograph_models/large.yaml": (
        "topograph", 96, 19, Counter(zone=3, pod=6, rack=12, nvlink=12),
    ),
    "topograph_models/nvl72.yaml": (
        "topograph", 72, 7, Counter(zone=1, pod=2, rack=4, nvlink=4),
    ),
    "topograph_models/dual-xclr-regular.yaml": (
        "topograph", 96, 19, Counter(zone=3, pod=6, rack=12, nvlink=12),
    ),
    "topograph_models/dual-xclr-irregular.yaml": (
        "topograph", 255, 34, Counter(zone=2, pod=2, rack=29, nvlink=29),
    ),
    "kueue_tas/kind-cluster.yaml": ("kubernetes", 8, 0, Counter(pod=2, rack=2)),
    "kueue_tas/kind-cluster-tas.yaml": ("kubernetes", 8, 0, Counter(pod=2, rack=2)),
    "netq/topologyGraph.json": ("netq", 8, 3, Counter(pod=1, rack=2)),
    "netq/computeNodes.json": ("netq", 2, 0, Counter(nvlink=1)),
}  # fmt: skip
"""Format, hosts, switches, and how many names each level has."""

HOSTS: dict[str, tuple[str, int, int, tuple[int, ...]]] = {
    "nccl_xml/aws/p4d-24xl-topo.xml": ("nccl", 8, 4, ()),
    "nccl_xml/aws/p4de-24xl-topo.xml": ("nccl", 8, 4, ()),
    "nccl_xml/azure/nc48v4-topo.xml": ("nccl", 2, 1, (2,)),
    "nccl_xml/azure/ncv4-topo.xml": ("nccl", 4, 1, ()),
    "nccl_xml/azure/ndv2-topo.xml": ("nccl", 8, 1, ()),
    "nccl_xml/azure/ndv4-topo.xml": ("nccl", 8, 8, ()),
    "nccl_xml/azure/ndv5-topo.xml": ("nccl", 8, 8, ()),
    "nccl_xml/oci/H100-topology.xml": ("nccl", 8, 16, (8,)),
    "nccl_xml/oci/H100-topology-kubernetes.xml": ("nccl", 8, 16, (8,)),
    "nccl_xml/oci/topo-flattened.xml": ("nccl", 8, 8, ()),
    "nccl_xml/oci/topo-flattened-b4.xml": ("nccl", 8, 8, ()),
    "nvidia_smi_topo/mleng_network_README.md_4.txt": ("nvidia-smi", 2, 0, (2,)),
    "nvidia_smi_topo/mleng_network_README.md_7.txt": ("nvidia-smi", 8, 0, (8,)),
    "nvidia_smi_topo/mleng_network_README.md_8.txt": ("nvidia-smi", 8, 0, (8,)),
    "nvidia_smi_topo/mleng_training_performance_README.md_23.txt": ("nvidia-smi", 8, 0, (8,)),
    "nvidia_smi_topo/nccl_issue_1453_h100_gpu_rows.txt": ("nvidia-smi", 8, 9, (8,)),
    "nvidia_smi_topo/nccl_issue_933_a800_gpu_rows.txt": ("nvidia-smi", 8, 9, (8,)),
}
"""Format, devices, adapters, and the sizes of islands."""

NO_FORMAT = "its format cannot be told"
REFUSED = {
    "ib_fabric/azure_hostfile.txt": NO_FORMAT,
    "ib_fabric/azure_vmhost_guid_map.txt": NO_FORMAT,
    "ib_fabric/dgx_ndr_links.csv": NO_FORMAT,
    "ib_fabric/ibnetdiscover_malformed.out": "out:10: Ca `dgx-gb200-n01-c1 HCA-1` has no link",
    "kueue_tas/sample-gpu-queues.yaml": "there is no node in it, only Topology",
    "kueue_tas/sample-job-preferred.yaml": "there is no node in it, only Job",
    "kueue_tas/sample-job-required.yaml": "there is no node in it, only Job",
    "kueue_tas/sample-job-unconstrained.yaml": "there is no node in it, only Job",
    "kueue_tas/sample-queues.yaml": "there is no node in it, only Topology",
    "nccl_xml/aws/g5.48xl-topo.xml": "it tells of no adapter",
    "nccl_xml/azure/ncv4-graph.xml": "graph of channels",
    "nvidia_smi_topo/mleng_compute_accelerator_nvidia_debug.md_0.txt": NO_FORMAT,
    "nvidia_smi_topo/mleng_compute_accelerator_nvidia_debug.md_2.txt": NO_FORMAT,
    "nvidia_smi_topo/mleng_network_README.md_5.txt": "it tells of no adapter",
    "nvidia_smi_topo/mleng_network_debug_README.md_5.txt": NO_FORMAT,
    "nvidia_smi_topo/mleng_network_debug_README.md_13.txt": "topo -p2p",
    "nvidia_smi_topo/mleng_network_debug_README.md_14.txt": "topo -p2p",
}


def recorded(name: str) -> Topology:
    path = RECORDED / name
    host = "h1" if name.partition("/")[0] in ("nccl_xml", "nvidia_smi_topo") else ""
    return read(path.read_bytes(), path.name, host=host)


def test_every_recorded_file_is_looked_at() -> None:
    found = {str(path.relative_to(RECORDED)) for path in RECORDED.rglob("*") if path.is_file()}
    known = {*TREES, *HOSTS, *REFUSED}
    assert {name for name in found if not name.endswith("SOURCE.txt")} == known


@pytest.mark.parametrize("name", TREES)
def test_a_recorded_tree_has_its_hosts_and_switches(name: str) -> None:
    found = recorded(name)
    levels = {
        level: len({getattr(host.place, level) for host in found.hosts} - {""})
        for level in ("zone", "pod", "rack", "nvlink")
    }
    expected = TREES[name]
    assert (found.format, len(found.hosts), len(found.switches)) == expected[:3]
    assert +Counter(levels) == expected[3]
    assert imported(found) == ""


@pytest.mark.parametrize("name", HOSTS)
def test_a_recorded_host_has_its_devices_and_adapters(name: str) -> None:
    found = recorded(name)
    (located,) = found.hosts
    islands = tuple(len(island.devices) for island in located.islands)
    assert (found.format, found.devices, len(located.rails), islands) == HOSTS[name]
    assert imported(found) == ""


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_topology_is_refused(name: str) -> None:
    with pytest.raises(TopologyError) as refused:
        recorded(name)
    assert REFUSED[name] in str(refused.value)
    assert str(refused.value).startswith(Path(name).name)


def test_a_fat_tree_has_every_cable_that_its_table_has() -> None:
    """1,646 links as switches tell them, and no rail of a host but those in the table."""
    with (RECORDED / "ib_fabric/dgx_ndr_links.csv").open(newline="") as table:
        rows = list(csv.DictReader(table))
    found = recorded("ib_fabric/dgx_ndr_ibnetdiscover.out.gz")
    assert found.links == len(rows) == 1_646

    def system(described: str) -> str:
        return described.removeprefix("MF0;").partition(":")[0]

    rails = Counter(
        (*row["peer_name"].split(), system(row["switch_name"]))
        for row in rows
        if row["peer_kind"] == "hca" and len(row["peer_name"].split()) == 2
    )
    assert rails == Counter(
        (host.host, rail.rail, rail.switch) for host in found.hosts for rail in host.rails
    )
    counts = Counter(len(host.rails) for host in found.hosts)
    assert counts == {4: 109, 3: 11, 2: 2}

    cables = Counter(
        (system(row["switch_name"]), system(row["peer_name"]))
        for row in rows
        if row["peer_kind"] == "switch" and "LEAF" in row["switch_name"]
    )
    uplinks = {
        (switch.switch, up.switch): up.links for switch in found.switches for up in switch.uplinks
    }
    assert uplinks == cables
    assert sum(uplinks.values()) == 532


def test_hosts_of_a_scalable_unit_share_a_pod() -> None:
    """Hosts are called after their unit: a08-p1-dgx-04-c01 stands in unit 04."""
    found = recorded("ib_fabric/dgx_ndr_ibnetdiscover.out.gz")
    units: dict[str, set[str]] = {}
    for host in found.hosts:
        if "dgx" in host.host:
            units.setdefault(host.place.pod, set()).add(host.host.split("-")[3])
    assert sorted(len(named) for named in units.values()) == [1] * 8
    assert {unit for named in units.values() for unit in named} == {f"0{n}" for n in range(1, 9)}


def test_a_recorded_nvl72_fleet_stands_in_its_domains() -> None:
    found = {host.host: host for host in recorded("topograph_models/nvl72.yaml").hosts}
    assert found["node1101"].place == Place("zone1", "spine-1", "leaf-1-1", "nvl-1-1")
    assert found["node2218"].place == Place("zone1", "spine-2", "leaf-2-2", "nvl-2-2")


def test_recorded_ethernet_rails_keep_their_interfaces() -> None:
    found = {host.host: host for host in recorded("netq/topologyGraph.json").hosts}
    assert found["dgx-05"].rails == tuple(
        Rail(name, "net-unit-l2") for name in ("ens1f0np1", "ens1f1np3", "ens4f0np0", "ens4f1np2")
    )


def test_the_nearest_adapter_of_each_recorded_device_is_told() -> None:
    """An H100 host: each device has one adapter behind the same PCIe bridge."""
    found = recorded("nvidia_smi_topo/nccl_issue_1453_h100_gpu_rows.txt")
    nearest = {one.device: one.nic for one in found.distances if one.path == "PIX"}
    assert nearest == {0: "NIC8", 1: "NIC7", 2: "NIC6", 3: "NIC5", 4: "NIC4", 5: "NIC3", 6: "NIC2",
                       7: "NIC1"}  # fmt: skip
