"""Whatever is done to a file: it is read, and then the cluster takes it; or it is refused with a
message that names the file and what to do."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Iterator

import pytest

from coord.core.machine import apply
from coord.core.state import new_state
from coord.model.entry import Entry, Origin
from coord.model.events import ClusterConfigured, TopologyImported
from coord.model.place import Place
from coord.topology import reading
from coord.topology.reading import FORMATS, read
from coord.topology.topology import Topology, TopologyError
from tests.topology import written
from tests.topology.written import Fleet

FLEET = Fleet(
    {
        "node000": Place("z0", "z0p0", "z0p0r0", "nv0"),
        "node001": Place("z0", "z0p0", "z0p0r0", "nv0"),
        "node002": Place("z0", "z0p0", "z0p0r1", "nv1"),
        "node003": Place("z1", "z1p0", "z1p0r0", "nv2"),
    },
    {"node000": (0, 1), "node001": (0,), "node002": (1,), "node003": (0, 1)},
)
SAMPLES = {
    **{way: (write(FLEET), "") for way, (write, _) in written.TREES.items()},
    "ibnetdiscover rails": (written.ibnetdiscover(written.rail_cables(FLEET)), ""),
    "netq rails": (written.netq(written.rail_cables(FLEET)), ""),
    "netq domains": ('[{"Name": "n1", "DomainUUID": "d1", "Health": "BAD"}]', ""),
    "kind": (
        "kind: Cluster\nnodes:\n- role: worker\n  labels:\n    nvidia.com/gpu.clique: c1\n",
        "",
    ),
    "nvidia-smi": (written.nvidia_smi([0, 0, 1], 2), "h1"),
    "nccl": (written.nccl([0, 0, 1], 2), "h1"),
}
JUNK = (
    "",
    "?!",
    "=",
    "[",
    "]",
    "{",
    '"',
    "<",
    "-1",
    "0",
    "x" * 300,
    "\t",
    "é",
    "a/b",
    "[1-999999999]",
)


def imported(topology: Topology) -> str:
    """What the state machine says to it: empty when it takes it."""
    state = new_state()
    apply(state, Entry(1, 1, 1, Origin("node:1"), ClusterConfigured("c", logic_version=2)))
    event = TopologyImported(topology.hosts, topology.switches, "file")
    return apply(state, Entry(2, 1, 2, Origin("client:a", seq=1), event)).rejection


def judge(text: str, host: str, format_name: str = "") -> None:
    found, refusal = None, ""
    try:
        found = read(text.encode(), "file", format_name, host)
    except TopologyError as error:
        refusal = str(error)
    if found is not None:
        assert imported(found) == ""
        assert found.hosts
    else:
        assert re.match(r"file(:\d+)?: .+; .+", refusal, re.S), refusal
        assert len(refusal) < 1_000


def lines_changed(text: str) -> Iterator[str]:
    """Each line left out, doubled, exchanged with the next; the text cut after it and within it."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        before, after = lines[:at], lines[at + 1 :]
        yield "\n".join(before + after)
        yield "\n".join([*before, line, line, *after])
        yield "\n".join([*before, *after[:1], line, *after[1:]])
        yield "\n".join([*before, line])
        yield "\n".join([*before, line[: len(line) // 2]])


def tokens_changed(text: str) -> Iterator[str]:
    """Each token for each piece of junk, and for the token before it."""
    tokens = list(re.finditer(r'[^\s",:=<>]+', text))
    for at, token in enumerate(tokens):
        others = [*JUNK, tokens[at - 1].group()]
        for junk in others:
            yield text[: token.start()] + junk + text[token.end() :]


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_file_with_changed_lines_is_read_or_refused(sample: str) -> None:
    """Never another exception, never something that the cluster then refuses."""
    text, host = SAMPLES[sample]
    for changed in lines_changed(text):
        judge(changed, host)


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_file_with_changed_tokens_is_read_or_refused(sample: str) -> None:
    """A thousand of them, chosen at random but always the same ones."""
    text, host = SAMPLES[sample]
    changed = list(tokens_changed(text))
    for one in random.Random(sample).sample(changed, min(1_000, len(changed))):
        judge(one, host)


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_file_of_another_format_is_refused(format_name: str) -> None:
    """Also when it is said to be what it is not."""
    for sample, (text, host) in SAMPLES.items():
        if not sample.startswith(format_name):
            for given in ("", host or "h1"):
                judge(text, given, format_name)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "file: it is empty; give the whole file"),
        (b" \n\n", "file: it is empty"),
        (b"hello\n", "file: its format cannot be told from its content; name it with --format"),
        (b"SwitchName=\0a", "file:1: it is no text: a zero byte"),
        (b"a\nb\n\xff\xfe", "file:3: it is no text (UTF-8)"),
        (gzip.compress(b"SwitchName=a Nodes=b", mtime=0)[:-9], "file: it is cut off (gzip)"),
        (b"\x1f\x8bxx", "file: it is damaged"),
        (b"SwitchName=a Nodes=b\nSwitchName=c Nodes=b", "file:2: node `b` is named in `a` and `c`"),
        (b"SwitchName=a Nodes=b,b", "file:1: node `b` is named in `a` twice"),
        (b"SwitchName=a Nodes=b\nSwitchName=a Nodes=c", "file:2: `a` is defined a second time"),
        (b"SwitchName=a Switches=b", "file:1: switch `b` is defined in no line"),
        (
            b"SwitchName=a Switches=b\nSwitchName=b Switches=a",
            "file:1: a cycle: b below a below b; take one link away",
        ),
        (b"SwitchName=a Switches=a", "file:1: a cycle: a below a"),
        (
            b"SwitchName=a Switches=c\nSwitchName=b Switches=c\nSwitchName=c Nodes=n",
            "file:2: switch `c` has two parents, `a` and `b`",
        ),
        (b"SwitchName=a", "file:1: switch `a` has neither Switches= nor Nodes="),
        (b"SwitchName=a Nods=b", "file:1: unknown key `nods` (there is switches, nodes,"),
        (b"SwitchName=a Nodes=b[1-", "file:1: `b[1-` has a bracket without its other half"),
        (b"SwitchName=a Nodes=b[9-1]", "file:1: the range `9-1` runs backwards"),
        (b"SwitchName=a Nodes=b[1-99999999]", "stands for more than 200,000 names"),
        (b"SwitchName=a Nodes=b[1-999][1-999]", "stands for more than 200,000 names"),
        (b"SwitchName=a Nodes=b\nBlockName=c Nodes=d", "file:2: switches and blocks in one file"),
        (b"BlockName=a Nodes=b\nBlockSizes=4,2", "file:2: BlockSizes do not ascend"),
        (b"BlockName=a Nodes=b\nBlockSizes=x", "file:2: `x` is no size of a block"),
        (b"SwitchName=a \\", "file:1: the last line goes on and the file ends"),
        (b"<system><cpu/></system>", "file:1: <cpu> has no numaid"),
        (b"<system>\n<cpu numaid='0'>\n</system>", "file:3: no XML: mismatched tag"),
        (b"<!DOCTYPE x [<!ENTITY a 'b'>]>\n<system/>", "file:1: it declares a document type"),
        (b"<graphs/>", "file:1: this is NCCL's graph of channels, not its topology"),
        (b"kind: Job\n", "file:1: there is no node in it, only Job"),
        (b"kind: Node\nmetadata:\n  name: a\n", "file:3: none of 1 nodes has a label that is"),
        (b"kind: Node\nkind: Node\n", "file:2: `kind` stands there twice"),
        (b"kind: Node\nmetadata: 3\n", "file:2: is `3`, not fields with names"),
        (b"kind: [\n", "file:2: no YAML"),
        (b'{"items": [{"kind": "Node"}]}', "file: items[0]: a node without metadata.name"),
        (b'{"kind": "List",\n "items": [,]}', "file:2: no JSON"),
        (b"switches:\n  a:\n    switches: [b]\nblocks:\n- switch: c\n  nodes: [n1]\n",
         "file:5: switch `c` is not among the switches"),
        (b"switches:\n  a:\n    switches: [b]\n  b:\n    switches: [a]\nblocks: []\n",
         "file:3: a cycle: b below a below b"),
        (b"blocks:\n- nodes: [n1]\n- nodes: ['n[1-2]']\n", "file:3: node `n1` is named twice"),
        (b'[{"links": [], "nodes": []}]', "file: [0]: no host hangs on a switch"),
        (b'[{"DomainUUID": "d"}]', "file: [0]: has no `Name`"),
        (b"\tGPU0\tGPU1\nGPU0\tX\tNV1\nGPU1\tSYS\tX\n", "GPU1-GPU0 is SYS"),
        (b"\tGPU0\tGPU1\nGPU0\tX\n", "file:2: row GPU0 has 1 of 2 cells"),
        (b"\tGPU0\tGPU1\nGPU0\tX\tNVX\n", "file:2: GPU0-GPU1 is `NVX`; it must be NV1, NV2"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_place_and_the_remedy(content: bytes, told: str) -> None:
    with pytest.raises(TopologyError) as refused:
        read(content, "file", host="h1" if content[:1] in b"<\t" and content else "")
    assert told in str(refused.value)


def test_a_file_that_describes_one_host_needs_its_name() -> None:
    text, _ = SAMPLES["nccl"]
    with pytest.raises(TopologyError, match="name it with --host"):
        read(text.encode(), "file")
    with pytest.raises(TopologyError, match="leave --host away"):
        read(SAMPLES["slurm"][0].encode(), "file", host="h1")
    with pytest.raises(TopologyError, match="no name"):
        read(text.encode(), "file", host="a/b")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 300_000,
        '{"a":' * 300_000,
        "- " * 300_000,
        "".join(" " * depth + "a:\n" for depth in range(2_000)),
        "<system>" * 100_000,
        "a: &a [b]\nkind: *a\n",
    ],
)
def test_a_file_that_is_nested_too_deep_is_refused(text: str) -> None:
    """Before any recursion follows it down."""
    for format_name in ("kubernetes", "topograph", "netq", "nccl"):
        judge(text, "h1" if format_name == "nccl" else "", format_name)


def test_a_file_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed or not, and without unpacking more of it than the limit."""
    monkeypatch.setattr(reading, "SIZE_LIMIT_BYTES", 1 << 20)
    for content in (b"#" * ((1 << 20) + 1), gzip.compress(b"#" * (1 << 24))):
        with pytest.raises(TopologyError, match="larger than 1 MiB"):
            read(content, "file")
