"""What coord relies on in PySyncObj, by name and by line. An upgrade that changes any of it fails
here, and names it, before it can lose anything."""

from __future__ import annotations

import hashlib
import inspect
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import pysyncobj
import pysyncobj.journal
import pysyncobj.pickle
import pysyncobj.serializer
import pysyncobj.syncobj
import pysyncobj.transport
import pytest
from pysyncobj.config import FAIL_REASON, SERIALIZER_STATE, SyncObjConf
from pysyncobj.syncobj import _COMMAND_TYPE, _RAFT_STATE, SyncObj

import coord.raft.guarded_raft
from coord.raft import library, unpickle
from coord.raft.configuration import MembershipChange, membership_change
from coord.raft.guarded_raft import _Library
from coord.raft.journal import Journal
from coord.raft.library import PeerNode, payload_of, regular_command
from coord.raft.ports import Member

SOURCES = {
    "config.py": "fbbc7ff9f18e4d15a7fd563376e42f5bd192956879d4b810b056d5248b955698",
    "node.py": "e4a3f027cd8291f558334bb9c977e952f6b6989e7e1fa1588d3005ef0b990e2c",
    "serializer.py": "4d39fde2f15000ad8f507ec229ebd4f6a86371b6f84d4dc1439a9cccd52857ee",
    "syncobj.py": "e8bdf06797085d734df86e24ab4802fe87893dff77268565ec036f7ad4a1cfe4",
    "transport.py": "0c9d89f9c4781ec9772df8011d7975a1a4a1a5f541357e12eae85a813e92b50b",
}
"""SHA-256 of each file that was read line by line; see README.md for what to do on a change."""

RELIED_UPON = {
    "syncobj.py": [
        # The names that are replaced, and where they are asked.
        "from .poller import createPoller",
        "    PIPE_NOTIFIER_ENABLED = True",
        "from .journal import createJournal",
        "from .monotonic import monotonic as monotonicTime",
        "import random",
        "import pysyncobj.pickle as pickle",
        "        self.__raftLog = createJournal(self.__conf.journalFile)",
        "        self._poller = createPoller(self.__conf.pollerType)",
        "        return minTimeout + (maxTimeout - minTimeout) * random.random()",
        "        if not self.__conf.appendEntriesUseBatch and PIPE_NOTIFIER_ENABLED:",
        # Start: the dump is loaded in the first tick and must begin like the journal (G13).
        "        if self.__needLoadDumpFile:",
        "                    self.__raftLog[0] != data[2] or \\",
        "                    self.__raftLog[1] != data[1]:",
        "            self.__raftLastApplied = data[1][1]",
        # Proposals are worked off in order, within the tick, and never kept without a leader.
        "            if self.__raftLeader is None and self.__conf.commandsWaitLeader:",
        "                command, callback = self.__commandsQueue.get_nowait()",
        "                    self.__raftLog.add(command, idx, term)",
        "                        'type': 'apply_command',",
        # The index of an apply is one more than the last.
        "                    self.__raftLastApplied += 1",
        # Where a message has no prevLogIdx nor snapshot, it only keeps the follower following.
        "            if 'prevLogIdx' in message:",
        "            elif serialized is not None:",
        # Replies move two numbers.
        "                if reset:",
        "                    if self.__raftMatchIndex[node] < currentNodeIdx:",
        "                self.__lastResponseTime[node] = monotonicTime()",
        # A vote request deposes, and cannot be granted with last index 0.
        "                    if lastLogTerm < self.__getCurrentLogTerm():",
        "                            lastLogIdx < self.__getCurrentLogIndex():",
        # Leadership is handed over by this, and so is a follower made to stand for election.
        "            if message['term'] >= self.__raftCurrentTerm and node == self.__raftLeader:",
        "                self.__raftElectionDeadline = 0",
        # Members.
        "        if self.__raftLastApplied < self.__noopIDx:",
        "            self.__transport.addNode(newNode)",
        "            self.__transport.dropNode(oldNode)",
        "    def __doChangeCluster(self, request, reverse = False):",
    ],
    "serializer.py": [
        "            return (None,) + self.__deserializer(self.__fileName)",
        "        data, isFirst, isLast = data",
    ],
}

UNPICKLED = {
    "syncobj.py": ["pickle.loads(command[1:])", "pickle.loads(self.__recvTransmission)"],
    "serializer.py": ["pickle.load(g)"],
    "journal.py": ["loads(open(self.__path, 'rb').read())"],
    "tcp_connection.py": ["pickle.loads(zlib.decompress(data))"],
}
"""Every place where the library unpickles (rule G9)."""


def source(name: str) -> str:
    return (Path(pysyncobj.__file__).parent / name).read_text()


def test_the_version_is_the_one_that_was_read() -> None:
    """The guard answers the hazards of exactly this release."""
    assert pysyncobj.syncobj.VERSION == "0.3.17"


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_the_source_is_the_one_that_was_read(name: str) -> None:
    """Not a line of it is another."""
    assert hashlib.sha256(source(name).encode()).hexdigest() == SOURCES[name], (
        f"pysyncobj/{name} has changed; read the difference against coord/raft/README.md"
    )


@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for name, lines in RELIED_UPON.items() for line in lines]
)
def test_a_line_relied_upon_is_there(name: str, line: str) -> None:
    """Behaviour that the guard builds on."""
    assert line in source(name).splitlines(), f"pysyncobj/{name} no longer has {line!r}"


def test_everything_that_unpickles_is_known() -> None:
    """A new place would be a new door (rule G9)."""
    for path in sorted(Path(pysyncobj.__file__).parent.glob("*.py")):
        if path.name in ("pickle.py", "batteries.py"):
            continue
        rest = path.read_text()
        for known in UNPICKLED.get(path.name, []):
            assert known in rest, f"pysyncobj/{path.name} no longer has {known!r}"
            rest = rest.replace(known, "")
        for word in ("pickle.load", "loads("):
            assert word not in rest, f"pysyncobj/{path.name} unpickles in a place not covered"


def test_the_replacements_are_in_place() -> None:
    """Importing coord.raft.library is enough."""
    module: Any = pysyncobj.syncobj
    assert module.PIPE_NOTIFIER_ENABLED is False
    assert module.monotonicTime is library._loop_time
    assert module.createJournal is library._active_journal
    assert isinstance(module.random, library._ActiveRandom)
    assert module.createPoller("auto").poll(0.0) is None
    assert module.pickle.loads is unpickle.restricted_loads
    assert module.pickle.load is unpickle.restricted_load
    assert pysyncobj.serializer.pickle.load is unpickle.restricted_load
    assert pysyncobj.journal.loads is unpickle.restricted_loads


def test_nothing_is_drawn_or_opened_outside_of_an_instance() -> None:
    """A second use of the library in the process would be told."""
    with pytest.raises(RuntimeError, match="outside of active"):
        pysyncobj.syncobj.random.random()
    with pytest.raises(RuntimeError, match="outside of active"):
        pysyncobj.syncobj.createJournal(None)
    with library.active(random.Random(1), None):
        assert 0 <= pysyncobj.syncobj.random.random() < 1


def test_the_journal_has_every_method_of_the_librarys() -> None:
    """With the same arguments."""
    for name, theirs in inspect.getmembers(pysyncobj.journal.Journal, inspect.isfunction):
        ours = getattr(Journal, name)
        names = list(inspect.signature(ours).parameters)
        assert names == list(inspect.signature(theirs).parameters), name


def test_the_constructor_takes_a_transport() -> None:
    """So that no private name is touched to give it ours."""
    assert "transport" in inspect.signature(SyncObj.__init__).parameters


def test_options_are_known_to_the_library() -> None:
    """An option that it does not know would be ignored without a word."""
    known = vars(SyncObjConf())
    text = inspect.getsource(coord.raft.guarded_raft)
    used = text.split("SyncObjConf(\n")[1]
    for line in used.split("\n        )")[0].splitlines():
        assert line.strip().split("=")[0] in known


def test_numbers_have_the_meanings_relied_upon() -> None:
    """They stand in logs, or in callbacks."""
    assert struct.pack("B", _COMMAND_TYPE.REGULAR) == library.REGULAR
    assert struct.pack("B", _COMMAND_TYPE.NO_OP) == library.NO_OP
    assert struct.pack("B", _COMMAND_TYPE.MEMBERSHIP) == library.MEMBERSHIP
    assert struct.pack("B", _COMMAND_TYPE.VERSION) == library.VERSION
    assert (_RAFT_STATE.FOLLOWER, _RAFT_STATE.CANDIDATE, _RAFT_STATE.LEADER) == (0, 1, 2)
    assert (FAIL_REASON.SUCCESS, SERIALIZER_STATE.NOT_SERIALIZING) == (0, 0)


def test_there_is_exactly_one_replicated_method() -> None:
    """A second one would change what numbers in old logs mean."""
    replicated = [
        name
        for name, member in inspect.getmembers(_Library)
        if getattr(member, "replicated", False) and name != member.origName
    ]
    assert replicated == ["commit_v0"]


def test_an_entry_is_a_call_of_the_one_method() -> None:
    """The single-node log writes what the library would, so that either reads the other's."""
    payload = bytes(range(256))
    command = regular_command(payload)
    assert command[:1] == library.REGULAR
    assert unpickle.restricted_loads(command[1:]) == (0, (payload,))
    assert payload_of(command) == payload
    assert payload_of(library.NO_OP) is None


def test_a_change_of_members_reads_back_from_the_log() -> None:
    """The bytes below were written by the first release; they are read for ever."""
    written = bytes.fromhex(FIRST_RELEASE_ADD)
    change = membership_change(library.MEMBERSHIP + written)
    assert change == MembershipChange(True, Member(4, "10.0.0.4:7", "10.0.0.4:8"))
    node = PeerNode(4, "10.0.0.4:7", "10.0.0.4:8")
    assert unpickle.dumps(["add", 4, node]) == written


FIRST_RELEASE_ADD = (
    "8005954f000000000000005d94288c03616464944b048c12636f6f72642e726166742e6c69627261"
    "7279948c08506565724e6f64659493944b048c0a31302e302e302e343a37948c0a31302e302e302e"
    "343a389487945294652e"
)


@pytest.mark.parametrize(
    "value",
    [None, True, 7, -(2**70), 1.5, "text", b"\x00\xff", [1, (2, {"k": b"v"})], {"a": [None]}],
    ids=repr,
)
def test_plain_values_pass_the_unpickler(value: Any) -> None:
    """Everything that the library itself puts into the log."""
    assert unpickle.restricted_loads(unpickle.dumps(value)) == value


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("pwned",)


@pytest.mark.parametrize(
    "encoded",
    [
        pickle.dumps(Evil()),
        pickle.dumps(Path("/")),
        pickle.dumps(b"bytes through a codec", protocol=2),
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x04\x95",
        b"",
        b"garbage",
        b"(dp0\nS'a'\np1\nPx\n.",
    ],
)
def test_anything_else_is_refused(encoded: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything of it is built."""
    with pytest.raises(pickle.UnpicklingError):
        unpickle.restricted_loads(encoded)
    assert capsys.readouterr().out == ""
