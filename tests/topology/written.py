"""Random fleets, and each of them as the tools write them."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import yaml
from hypothesis import strategies as st

from coord.model.place import Located, Place, Rail


class Fleet(msgspec.Struct):
    """A tree of three levels. `rails`: which of a pod's leaves, of one for each rail, a host hangs
    on; a host hangs on one of them at least."""

    places: dict[str, Place]
    rails: dict[str, tuple[int, ...]]

    @property
    def leaf_of(self) -> dict[str, str]:
        return {host: place.rack for host, place in self.places.items()}

    def parents(self) -> dict[str, str]:
        """A rack's pod and a pod's zone, by name: every name is there once."""
        found = {}
        for place in self.places.values():
            found[place.rack] = place.pod
            found[place.pod] = place.zone
        return found


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Up to 2 zones of 2 pods of 3 racks of 3 hosts, one rack at least."""
    places: dict[str, Place] = {}
    rails: dict[str, tuple[int, ...]] = {}
    for zone in range(draw(st.integers(1, 2))):
        for pod in range(draw(st.integers(1, 2))):
            for rack in range(draw(st.integers(1, 3))):
                for _ in range(draw(st.integers(1, 3))):
                    host = f"node{len(places):03d}"
                    places[host] = Place(
                        f"z{zone}",
                        f"z{zone}p{pod}",
                        f"z{zone}p{pod}r{rack}",
                        f"nv{zone}{pod}{rack}",
                    )
                    chosen = draw(st.sets(st.integers(0, 3), min_size=1))
                    rails[host] = tuple(sorted(chosen))
    return Fleet(places, rails)


def slurm_tree(fleet: Fleet) -> str:
    children: dict[str, list[str]] = {}
    for child, parent in fleet.parents().items():
        children.setdefault(parent, []).append(child)
    lines = ["# a comment", ""]
    lines += [
        f"SwitchName={parent} Switches={','.join(under)}" for parent, under in children.items()
    ]
    leaves: dict[str, list[str]] = {}
    for host, leaf in fleet.leaf_of.items():
        leaves.setdefault(leaf, []).append(host)
    lines += [
        f"SwitchName={leaf} \\\n  Nodes={compact(hosts)} LinkSpeed=100"
        for leaf, hosts in leaves.items()
    ]
    return "\n".join(lines) + "\n"


def compact(hosts: list[str]) -> str:
    """node001,node002 as node[001,002]."""
    return f"node[{','.join(host[4:] for host in hosts)}]"


def slurm_blocks(fleet: Fleet) -> str:
    blocks: dict[str, list[str]] = {}
    for host, place in fleet.places.items():
        blocks.setdefault(place.nvlink, []).append(host)
    lines = [f"BlockName={block} Nodes={compact(hosts)}" for block, hosts in blocks.items()]
    return "\n".join([*lines, "BlockSizes=1,2,4"])


def topograph(fleet: Fleet) -> str:
    children: dict[str, list[str]] = {}
    for child, parent in fleet.parents().items():
        children.setdefault(parent, []).append(child)
    blocks: dict[str, list[str]] = {}
    for host, leaf in fleet.leaf_of.items():
        blocks.setdefault(leaf, []).append(host)
    return yaml.safe_dump(
        {
            "switches": {parent: {"switches": under} for parent, under in children.items()},
            "blocks": [
                {
                    "switch": leaf,
                    "nodes": hosts,
                    "annotations": {"x.test/domain": fleet.places[hosts[0]].nvlink},
                }
                for leaf, hosts in blocks.items()
            ],
        }
    )


def nodes(fleet: Fleet) -> dict[str, object]:
    """As `kubectl get nodes` lists them."""
    items = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": host,
                "labels": {
                    "kubernetes.io/hostname": host,
                    "topology.kubernetes.io/zone": place.zone,
                    "cloud.provider.com/topology-block": place.pod,
                    "cloud.provider.com/topology-rack": place.rack,
                    "nvidia.com/gpu.clique": place.nvlink,
                },
            },
        }
        for host, place in fleet.places.items()
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def kubernetes_json(fleet: Fleet) -> str:
    return json.dumps(nodes(fleet), indent=2)


def kubernetes_yaml(fleet: Fleet) -> str:
    return yaml.safe_dump(nodes(fleet))


def kueue(fleet: Fleet) -> str:
    """Labels of one's own, which Kueue's Topology puts in order."""
    levels = ["example.test/hall", "example.test/row", "example.test/cabinet"]
    documents: list[object] = [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Topology",
            "metadata": {"name": "default"},
            "spec": {"levels": [{"nodeLabel": level} for level in levels]},
        }
    ]
    for host, place in fleet.places.items():
        labels = dict(zip(levels, (place.zone, place.pod, place.rack), strict=True))
        metadata = {"name": host, "labels": labels}
        documents.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    return yaml.safe_dump_all(documents)


class Cable(msgspec.Struct, frozen=True):
    """`one` and `other` are names; `host` tells whether `one` is one, with this adapter."""

    one: str
    other: str
    host: bool = False
    adapter: str = ""


def tree_cables(fleet: Fleet) -> list[Cable]:
    """One rail for each host, to the switch of its rack."""
    cables = [Cable(host, leaf, True, "mlx5_0") for host, leaf in fleet.leaf_of.items()]
    return cables + [Cable(child, parent) for child, parent in fleet.parents().items()]


def rail_cables(fleet: Fleet) -> list[Cable]:
    """A leaf for each rail of a pod, of which a host may lack some; two cables from each leaf to
    each of two spines."""
    cables = []
    used: dict[str, None] = {}
    for host, rails in fleet.rails.items():
        for rail in rails:
            leaf = f"{fleet.places[host].pod}-leaf{rail}"
            used[leaf] = None
            cables.append(Cable(host, leaf, True, f"mlx5_{rail}"))
    for leaf in used:
        cables += [Cable(leaf, spine) for spine in ("spine0", "spine1") for _ in range(2)]
    return cables


def located_on_rails(fleet: Fleet) -> dict[str, tuple[Rail, ...]]:
    return {
        host: tuple(Rail(f"mlx5_{rail}", f"{fleet.places[host].pod}-leaf{rail}") for rail in rails)
        for host, rails in fleet.rails.items()
    }


def ibnetdiscover(cables: list[Cable]) -> str:
    """Every cable told from both ends, as the tool tells it."""
    switches = {name: None for cable in cables for name in _switches(cable)}
    ids = {name: f"S-{number:016x}" for number, name in enumerate(switches, start=1)}
    ports: dict[str, int] = dict.fromkeys(switches, 0)
    lines: dict[str, list[str]] = {name: [] for name in switches}
    adapters: list[str] = []
    for number, cable in enumerate(cables, start=4096):
        ports[cable.other] += 1
        far = ports[cable.other]
        if cable.host:
            guid = f"{number:016x}"
            said = f"{cable.one} {cable.adapter}"
            lines[cable.other].append(f'[{far}]\t"H-{guid}"[1]({guid}) \t\t# "{said}" lid 1 4xNDR')
            adapters.append(
                f"vendid=0x2c9\ndevid=0x1021\nsysimgguid=0x{guid}\ncaguid=0x{guid}\n"
                f'Ca\t1 "H-{guid}"\t\t# "{said}"\n'
                f'[1]({guid}) \t"{ids[cable.other]}"[{far}]\t\t# lid 1 lmc 0 '
                f'"{_described(cable.other)}" lid 2 4xNDR\n'
            )
        else:
            ports[cable.one] += 1
            near = ports[cable.one]
            for name, port, other, its in (
                (cable.one, near, cable.other, far),
                (cable.other, far, cable.one, near),
            ):
                told = f'[{port}]\t"{ids[other]}"[{its}]\t\t# "{_described(other)}" lid 3 4xNDR'
                lines[name].append(told)
    blocks = ["#\n# Topology file: generated on Wed Aug  6 16:11:23 2025\n#\n"]
    for name, told in lines.items():
        head = f'Switch\t65 "{ids[name]}"\t\t# "{_described(name)}" enhanced port 0 lid 4 lmc 0'
        guid = ids[name][2:]
        blocks.append(
            f"vendid=0x2c9\ndevid=0xd2f2\nswitchguid=0x{guid}({guid})\n{head}\n"
            + "\n".join(told)
            + "\n"
        )
    return "\n".join(blocks + adapters)


def netq(cables: list[Cable]) -> str:
    switches = [name for cable in cables for name in _switches(cable)]
    hosts = [cable.one for cable in cables if cable.host]
    links = []
    for number, cable in enumerate(cables):
        near = cable.adapter if cable.host else f"swp{number}a"
        ends = [
            {"interface": near, "node": f"id-{cable.one}"},
            {"interface": f"swp{number}b", "node": f"id-{cable.other}"},
        ]
        links.append({"compounded_links": [{"id": str(number), "interfaces": ends}], "size": 1})
    devices = [(name, "switch") for name in dict.fromkeys(switches)]
    devices += [(name, "discovered_via_lldp") for name in dict.fromkeys(hosts)]
    tier = [{"id": f"id-{name}", "name": name, "device_type": kind} for name, kind in devices]
    return json.dumps([{"links": links, "nodes": [{"compounded_nodes": tier}]}])


def _switches(cable: Cable) -> tuple[str, ...]:
    return (cable.other,) if cable.host else (cable.one, cable.other)


def _described(switch: str) -> str:
    return f"MF0;{switch}:MQM9701/U1"


TREES: dict[str, tuple[Callable[[Fleet], str], tuple[str, ...]]] = {
    "slurm": (slurm_tree, ("zone", "pod", "rack")),
    "slurm blocks": (slurm_blocks, ("nvlink",)),
    "topograph": (topograph, ("zone", "pod", "rack", "nvlink")),
    "kubernetes json": (kubernetes_json, ("zone", "pod", "rack", "nvlink")),
    "kubernetes yaml": (kubernetes_yaml, ("zone", "pod", "rack", "nvlink")),
    "kueue": (kueue, ("zone", "pod", "rack")),
    "ibnetdiscover": (lambda fleet: ibnetdiscover(tree_cables(fleet)), ("zone", "pod", "rack")),
    "netq": (lambda fleet: netq(tree_cables(fleet)), ("zone", "pod", "rack")),
}
"""How a fleet is written, and the levels that the format tells."""


def nvidia_smi(island_of: list[int], nics: int) -> str:
    """Devices of one island are linked; NICs are near the device of their number."""
    devices = [f"GPU{number}" for number in range(len(island_of))]
    adapters = [f"NIC{number}" for number in range(nics)]
    lines = ["\t" + "\t".join([*devices, *adapters, "CPU Affinity", "NUMA Affinity"])]
    for row, one in enumerate(devices + adapters):
        cells = []
        for column in range(len(devices) + nics):
            if column == row:
                cells.append(" X ")
            elif max(row, column) < len(devices):
                cells.append("NV18" if island_of[row] == island_of[column] else "SYS")
            else:
                cells.append("PIX" if column % 8 == row % 8 else "NODE")
        affinity = ["0-79", "0"] if row < len(devices) else []
        lines.append("\t".join([one, *cells, *affinity]))
    legend = [f"  NIC{number}: mlx5_{number}" for number in range(nics)]
    return "\n".join([*lines, "", "Legend:", "", "  X    = Self", "", "NIC Legend:", "", *legend])


def nccl(island_of: list[int], nics: int) -> str:
    """Devices of an island hang on switches of their own."""
    lines = ['<system version="1">', '  <cpu numaid="0">']
    for number, island in enumerate(island_of):
        lines += [
            f'<pci busid="0000:{number:02x}:00.0" class="0x030200"><gpu dev="{number}">',
            f'<nvlink target="{_linked(island_of, number, island)}" count="1" tclass="0x030200"/>'
            if island_of.count(island) > 1
            else "",
            "</gpu></pci>",
        ]
    for number in range(nics):
        lines.append(
            f'<pci busid="0001:{number:02x}:00.0" class="0x020700"><nic>'
            f'<net name="mlx5_{number}" dev="{number}"/></nic></pci>'
        )
    return "\n".join([*lines, "</cpu>", "</system>"])


def _linked(island_of: list[int], number: int, island: int) -> str:
    """Bus id of the next device of the island, around it."""
    members = [at for at, other in enumerate(island_of) if other == island]
    after = members[(members.index(number) + 1) % len(members)]
    return f"0000:{after:02x}:00.0"


def hosts_by_name(hosts: tuple[Located, ...]) -> dict[str, Located]:
    return {located.host: located for located in hosts}
