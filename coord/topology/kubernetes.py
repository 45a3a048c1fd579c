"""Labels of Kubernetes nodes: `kubectl get nodes -o yaml` (or json), Node documents, the file of a
kind cluster. Kueue Topology documents among them say which labels are levels, widest first;
without one, the labels in `LEVEL_OF` are."""

from __future__ import annotations

from coord.model.place import Located, Place
from coord.topology.documents import Value, documents
from coord.topology.names import BadNames, host_name
from coord.topology.topology import Topology

FORMAT = "kubernetes"

HOST_LABEL = "kubernetes.io/hostname"

LEVEL_OF = {
    "topology.kubernetes.io/zone": "zone",
    "failure-domain.beta.kubernetes.io/zone": "zone",
    "topology.k8s.aws/network-node-layer-1": "zone",
    "topology.k8s.aws/network-node-layer-2": "pod",
    "topology.k8s.aws/network-node-layer-3": "rack",
    "cloud.google.com/gce-topology-block": "pod",
    "cloud.google.com/gce-topology-subblock": "rack",
    "cloud.provider.com/topology-block": "pod",
    "cloud.provider.com/topology-rack": "rack",
    "oci.oraclecloud.com/rdma.hpc_island_id": "zone",
    "oci.oraclecloud.com/rdma.network_block_id": "pod",
    "oci.oraclecloud.com/rdma.local_block_id": "rack",
    "network.topology.nvidia.com/datacenter": "zone",
    "network.topology.nvidia.com/core": "zone",
    "network.topology.nvidia.com/spine": "pod",
    "network.topology.nvidia.com/block": "rack",
    "network.topology.nvidia.com/leaf": "rack",
    "network.topology.nvidia.com/accelerator": "nvlink",
    "topology.kubernetes.io/rack": "rack",
    "nvidia.com/gpu.clique": "nvlink",
}
"""Where two labels of a node mean one level, the later one here counts."""

_LEVELS = ("zone", "pod", "rack", "nvlink")


def parse(text: str, name: str) -> Topology:
    """Raises TopologyError. `name` is what errors call the file."""
    found = documents(text, name)
    nodes: list[tuple[str, Value, dict[str, Value]]] = []
    orders: list[tuple[Value, list[str]]] = []
    others: dict[str, None] = {}
    for document in found:
        _collect(document, nodes, orders, others)
    levels = dict(LEVEL_OF)
    if orders:
        (first, order), *more = orders
        for other, differing in more:
            if differing != order:
                what = f"other levels than the Topology before ({first.where})"
                raise other.error(what, "keep one Topology")
        levels = _levels(order, first)
    if not nodes:
        found_kinds = [*(["Topology"] if orders else []), *others]
        what = f"there is no node in it, only {', '.join(found_kinds[:5]) or 'nothing'}"
        raise found[0].error(what, "give the output of `kubectl get nodes -o yaml`")
    return _topology(nodes, levels, bool(orders), others)


def _collect(
    document: Value,
    nodes: list[tuple[str, Value, dict[str, Value]]],
    orders: list[tuple[Value, list[str]]],
    others: dict[str, None],
) -> None:
    if document.is_list():
        for entry in document.entries():
            _collect(entry, nodes, orders, others)
        return
    fields = document.fields()
    kind = fields["kind"].text() if "kind" in fields else ""
    if kind == "Cluster" and "nodes" in fields:
        nodes += _kind_workers(fields)
    elif (kind in ("List", "NodeList", "TopologyList") or not kind) and "items" in fields:
        for item in fields["items"].entries():
            _collect(item, nodes, orders, others)
    elif kind == "Node" or (not kind and "metadata" in fields):
        nodes.append(_node(document, fields))
    elif kind == "Topology":
        orders.append((document, _order(document, fields)))
    elif not kind:
        raise document.error("it has no kind", "give the output of `kubectl get nodes -o yaml`")
    else:
        others[kind] = None


def _node(document: Value, fields: dict[str, Value]) -> tuple[str, Value, dict[str, Value]]:
    meta = fields["metadata"].fields() if "metadata" in fields else {}
    if "name" not in meta:
        raise document.error("a node without metadata.name", "give it a name")
    name = meta["name"]
    try:
        host_name(name.text())
    except BadNames as error:
        raise name.error(str(error), "correct it") from error
    labels = meta.get("labels")
    return name.text(), name, labels.fields() if labels and not labels.is_nothing() else {}


def _kind_workers(fields: dict[str, Value]) -> list[tuple[str, Value, dict[str, Value]]]:
    """kind calls its workers CLUSTER-worker, CLUSTER-worker2, ..."""
    cluster = fields["name"].text() if "name" in fields else "kind"
    workers: list[tuple[str, Value, dict[str, Value]]] = []
    for entry in fields["nodes"].entries():
        node = entry.fields()
        role = node["role"].text() if "role" in node else ""
        if role not in ("worker", "control-plane"):
            raise entry.error(f"role `{role}`", "it must be worker or control-plane")
        if role == "worker":
            name = f"{cluster}-worker{len(workers) + 1 if workers else ''}"
            labels = node.get("labels")
            workers.append((name, entry, labels.fields() if labels else {}))
    return workers


def _order(document: Value, fields: dict[str, Value]) -> list[str]:
    spec = fields["spec"].fields() if "spec" in fields else {}
    if "levels" not in spec:
        raise document.error("a Topology without spec.levels", "name its levels, widest first")
    order: list[str] = []
    for entry in spec["levels"].entries():
        level = entry.fields()
        if "nodeLabel" not in level:
            raise entry.error("a level without nodeLabel", "name the label")
        label = level["nodeLabel"].text()
        if label in order:
            raise entry.error(f"level `{label}` stands there twice", "keep one")
        order.append(label)
    return [label for label in order if label != HOST_LABEL]


def _levels(order: list[str], told: Value) -> dict[str, str]:
    """What Kueue's labels mean: those whose meaning is known keep it as long as the order stands,
    otherwise the narrowest is the rack, the one before the pod, the one before that the zone."""
    if len(order) > len(_LEVELS):
        what = f"{len(order)} levels above the host"
        raise told.error(what, f"there are {len(_LEVELS)}: {', '.join(_LEVELS)}")
    known = [_LEVELS.index(LEVEL_OF[label]) for label in order if label in LEVEL_OF]
    if len(known) == len(order) and known == sorted(dict.fromkeys(known)):
        return {label: LEVEL_OF[label] for label in order}
    narrowest = 3 if len(order) < len(_LEVELS) else 4
    return dict(zip(order, _LEVELS[narrowest - len(order) : narrowest], strict=True))


def _topology(
    nodes: list[tuple[str, Value, dict[str, Value]]],
    levels: dict[str, str],
    ordered: bool,
    others: dict[str, None],
) -> Topology:
    hosts: dict[str, Located] = {}
    seen: dict[str, None] = {}
    unplaced: list[str] = []
    for host, value, labels in nodes:
        if host in seen:
            raise value.error(f"node `{host}` is named twice", "keep one")
        seen[host] = None
        place = {}
        for label, level in levels.items():
            if label in labels and labels[label].text():
                place[level] = _domain(labels[label])
        if place:
            hosts[host] = Located(host, Place(**place))
        else:
            unplaced.append(host)
    if not hosts:
        what = f"none of {len(nodes)} nodes has a label that is a level"
        remedy = "add Kueue's Topology to the file" if not ordered else "label them"
        raise nodes[0][1].error(what, remedy)
    notes = []
    if unplaced:
        shown = f"{', '.join(unplaced[:5])}{' ...' if len(unplaced) > 5 else ''}"
        notes.append(f"{len(unplaced)} nodes have no label that is a level: {shown}")
    if others:
        notes.append(f"not used: {', '.join(others)}")
    return Topology(FORMAT, tuple(hosts[host] for host in sorted(hosts)), (), tuple(notes))


def _domain(value: Value) -> str:
    try:
        return host_name(value.text())
    except BadNames as error:
        raise value.error(str(error), "correct the label") from error
