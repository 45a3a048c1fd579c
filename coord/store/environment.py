"""One LMDB environment a node: everything a node must find again after a crash.

The loop stages writes and commits them at the end of its tick, in one transaction and with one
fsync, so that a crash leaves all of a tick or nothing of it. Reads on the loop see staged writes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import lmdb
import msgspec

from coord.store.directory import DISK_FULL, free_bytes, fsync_path, lock_directory, no_room
from coord.store.examine import is_readable
from coord.store.ports import REJOIN, StorageCorrupt, WrongDataDirectory
from coord.store.staging import Staged

FORMAT = 1
DATABASES = ("raft_log", "raft_meta", "events", "state", "store_meta")
KEY_LENGTH_LIMIT = 511
AGENT_FILE = "agent.json"
"""What an agent begins its own data directory with (see coord/agent/README.md)."""
DEFAULT_MAP_SIZE_BYTES = 16 * 1024**3
"""Address space, not disk: the file is as long as its contents need."""

_GROW_WHEN_FREE_BELOW = 4
"""The map is doubled in advance once less than one part in so many of it is free."""

_DAMAGE = (
    lmdb.BadTxnError,
    lmdb.CorruptedError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageFullError,
    lmdb.PageNotFoundError,
)
"""What LMDB says of pages that make no sense; of all that a transaction does after the first."""

_SHORT_OF_ROOM_BYTES = 1 << 20
"""With less than this free, an I/O error is taken for a full disk."""

Row = tuple[str, bytes, bytes]
"""Database, key, value."""


class Identity(msgspec.Struct, frozen=True):
    """Whose data a directory holds."""

    cluster: str
    node: int


class ReadTransaction:
    """The durable contents at one moment, whatever is committed meanwhile. One thread at a time."""

    def __init__(
        self, transaction: lmdb.Transaction[bytes], handles: dict[str, lmdb._Database]
    ) -> None:
        self._transaction = transaction
        self._handles = handles

    def get(self, database: str, key: bytes) -> bytes | None:
        return self._transaction.get(key, db=self._handles[database])

    def range(self, database: str, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values with start <= key < stop, ascending. An empty `stop` is no bound."""
        with self._transaction.cursor(db=self._handles[database]) as cursor:
            if not (cursor.set_range(start) if start else cursor.first()):
                return
            for key, value in cursor:
                if stop and key >= stop:
                    return
                yield key, value

    def backwards(self, database: str) -> Iterator[tuple[bytes, bytes]]:
        """All keys and values, descending."""
        with self._transaction.cursor(db=self._handles[database]) as cursor:
            if cursor.last():
                yield from cursor.iterprev()

    def count(self, database: str) -> int:
        return int(self._transaction.stat(self._handles[database])["entries"])


class Environment:
    """Staged writes over an LMDB environment.

    All methods belong to one thread but `read_transaction` and `copy_to`, which any may call.
    Exactly one process has a data directory open.
    """

    def __init__(
        self, path: str, lock_file: int, map_size_bytes: int, max_map_size_bytes: int
    ) -> None:
        self._path = path
        self._lock_file = lock_file
        self._max_map_size_bytes = max_map_size_bytes
        self._staged = Staged()
        self._closed = False
        self._failed: Exception | None = None
        """Why a commit failed for good. What a failed fsync left on the disk nobody knows, and one
        that is tried again may succeed without having written."""
        self._readers = 0
        self._map_lock = threading.Lock()
        """Held to begin a read and to move the map, which must not happen under a reader."""
        self.last_commit_ms = 0.0
        """How long the last commit took, fsync included."""
        try:
            self._lmdb = lmdb.open(path, map_size=map_size_bytes, max_dbs=len(DATABASES))
            self._check_length()
            self._handles = {name: self._lmdb.open_db(name.encode()) for name in DATABASES}
        except lmdb.Error as error:
            raise _opening_failed(path, error) from error

    @classmethod
    def open(
        cls,
        path: str,
        map_size_bytes: int = DEFAULT_MAP_SIZE_BYTES,
        identity: Identity | None = None,
        create: bool = True,
        max_map_size_bytes: int = 0,
    ) -> Environment:
        """Open, or with `create` make, the data directory of `identity` (None: whoever's it is).

        `max_map_size_bytes` is how far the map may grow (0: without limit). Raises
        WrongDataDirectory, DataDirectoryInUse, StorageCorrupt and StorageFull.
        """
        exists = (Path(path) / "data.mdb").exists()
        if not exists and (Path(path) / AGENT_FILE).exists():
            raise WrongDataDirectory(
                f"{path} is the data directory of an agent; give the server one of its own"
            )
        if not exists and not create:
            raise WrongDataDirectory(
                f"{path} holds no data of a server; give the directory of an existing one"
            )
        if not exists and identity is None:
            raise ValueError(f"{path} is new; say whose it is to be")
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
            lock_file = lock_directory(path)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            raise no_room(path, "the disk is full") from error
        environment = None
        try:
            environment = cls(path, lock_file, map_size_bytes, max_map_size_bytes)
            environment._check_identity(identity)
        except BaseException:
            if environment is not None:
                environment._lmdb.close()
            os.close(lock_file)
            raise
        return environment

    @property
    def path(self) -> str:
        return self._path

    @property
    def identity(self) -> Identity:
        """Whose data this is."""
        cluster, node = self.get("store_meta", b"cluster"), self.get("store_meta", b"node")
        if cluster is None or node is None:
            raise _damaged(self._path, "store_meta lacks cluster or node")
        try:
            return Identity(cluster.decode(), int(node))
        except ValueError as error:
            raise _damaged(self._path, f"store_meta says whose it is so: {error}") from error

    # Writing

    @property
    def dirty(self) -> bool:
        """Something is staged that no commit has made durable yet."""
        return bool(self._staged)

    def stage(self, database: str, key: bytes, value: bytes | None) -> None:
        """Have the next commit write this, or delete the key for None."""
        if not 0 < len(key) <= KEY_LENGTH_LIMIT:
            raise ValueError(
                f"a key of {len(key)} bytes for {database}; it must have 1 to {KEY_LENGTH_LIMIT}"
            )
        self._staged.put(self._known(database), key, value)

    def stage_range_delete(self, database: str, start: bytes, stop: bytes) -> None:
        """Have the next commit delete all keys with start <= key < stop (empty: no bound)."""
        self._staged.delete_range(self._known(database), start, stop)

    def staged(self, database: str, start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
        """Keys and values of the range that are staged and not durable yet, ascending."""
        return self._staged.tail(self._known(database), start, stop)

    def commit(self) -> None:
        """Make everything staged durable, in one transaction. Nothing staged: no transaction.

        On StorageFull nothing was written and everything stays staged for the next commit. Any
        other error means that this process must not go on writing here.
        """
        if self._staged:
            self._commit((), tuple)

    def _commit(self, databases: tuple[str, ...], contents: Callable[[], Iterable[Row]]) -> None:
        if self._failed is not None:
            raise self._failed
        started = time.perf_counter()
        self._grow_in_advance()
        retried = False
        while True:
            try:
                self._write(databases, contents)
                break
            except lmdb.MapFullError as error:
                if not self._grow():
                    raise no_room(
                        self._path,
                        f"its map of {self.map_size_bytes} bytes is full and must not grow now",
                    ) from error
            except lmdb.Error as error:
                if self._disk_is_full(error):
                    self._reopen()
                    raise no_room(self._path, "the disk is full") from error
                if error.code != errno.EIO or retried:
                    self._failed = error
                    if isinstance(error, _DAMAGE):
                        self._failed = _damaged(self._path, str(error))
                    raise self._failed from error
                retried = True
        self._staged = Staged()
        self.last_commit_ms = (time.perf_counter() - started) * 1000.0

    def replace(self, databases: tuple[str, ...], contents: Callable[[], Iterable[Row]]) -> None:
        """Commit everything staged and, in the same transaction, empty these databases and write
        `contents`, which may go into any database and wins over what is staged.

        `contents` is called again if the map has to grow. Errors as in `commit`.
        """
        self._commit(databases, contents)

    def _write(self, databases: tuple[str, ...], contents: Callable[[], Iterable[Row]]) -> None:
        with self._lmdb.begin(write=True) as transaction:
            for database, start, stop in self._staged.deleted_ranges():
                _delete_range(transaction, self._handles[database], start, stop)
            for database, key, staged in self._staged.writes():
                handle = self._handles[database]
                if staged is None:
                    transaction.delete(key, db=handle)
                else:
                    transaction.put(key, staged, db=handle)
            for database in databases:
                transaction.drop(self._handles[database], delete=False)
            for database, key, value in contents():
                transaction.put(key, value, db=self._handles[database])

    # Reading

    def get(self, database: str, key: bytes) -> bytes | None:
        """The value with what is staged, None where there is none."""
        known, value = self._staged.lookup(self._known(database), key)
        if known:
            return value
        with self.read_transaction() as transaction:
            return transaction.get(database, key)

    def range(
        self, database: str, start: bytes, stop: bytes, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        """Keys and values with start <= key < stop, ascending, with what is staged."""
        found: list[tuple[bytes, bytes]] = []
        if limit == 0:
            return found
        with self.read_transaction() as transaction:
            durable = transaction.range(self._known(database), start, stop)
            for item in self._staged.merge(database, durable, start, stop):
                found.append(item)
                if limit is not None and len(found) >= limit:
                    break
        return found

    def first(self, database: str) -> tuple[bytes, bytes] | None:
        """The lowest key with its value, with what is staged."""
        found = self.range(database, b"", b"", limit=1)
        return found[0] if found else None

    def last(self, database: str) -> tuple[bytes, bytes] | None:
        """The highest key with its value, with what is staged."""
        with self.read_transaction() as transaction:
            durable = transaction.backwards(self._known(database))
            return next(self._staged.merge_backwards(database, durable), None)

    @contextlib.contextmanager
    def read_transaction(self) -> Iterator[ReadTransaction]:
        """The durable contents as of now, for any thread. Staged writes are not in it. Raises
        StorageCorrupt, also out of what is read in it, where LMDB meets a damaged page."""
        with self._map_lock:
            if self._closed:
                raise RuntimeError(f"{self._path} is closed; nothing can be read from it")
            transaction = self._lmdb.begin()
            self._readers += 1
        try:
            yield ReadTransaction(transaction, self._handles)
        except _DAMAGE as error:
            raise _damaged(self._path, str(error)) from error
        finally:
            transaction.abort()
            with self._map_lock:
                self._readers -= 1

    # The file

    def copy_to(self, path: str) -> None:
        """Copy the durable contents into a new directory, compacted and fsynced."""
        os.mkdir(path)
        with self._map_lock:
            self._readers += 1
        try:
            self._lmdb.copy(path, compact=True)
        except _DAMAGE as error:
            raise _damaged(self._path, str(error)) from error
        finally:
            with self._map_lock:
                self._readers -= 1
        for name in (os.path.join(path, "data.mdb"), path, os.path.dirname(path) or "."):
            fsync_path(name)

    def size_bytes(self) -> int:
        """Length of the file that holds everything."""
        return os.stat(os.path.join(self._path, "data.mdb")).st_size

    @property
    def map_size_bytes(self) -> int:
        """How long the file may become before the map must grow."""
        return int(self._lmdb.info()["map_size"])

    def limit_map(self, max_map_size_bytes: int) -> None:
        """How far the map may grow from now on; 0: without limit."""
        self._max_map_size_bytes = max_map_size_bytes

    def close(self) -> None:
        """Give the directory up. What is staged is lost. Idempotent; no reader may be left."""
        with self._map_lock:
            if self._closed:
                return
            if self._readers:
                raise RuntimeError(f"{self._path} cannot be closed under {self._readers} readers")
            self._closed = True
        self._lmdb.close()
        os.close(self._lock_file)

    def _grow_in_advance(self) -> None:
        info = self._lmdb.info()
        used_bytes = (info["last_pgno"] + 1) * self._lmdb.stat()["psize"]
        if info["map_size"] - used_bytes < info["map_size"] // _GROW_WHEN_FREE_BELOW:
            self._grow()

    def _grow(self) -> bool:
        """Double the map. False when it may not grow, or a reader stands in it."""
        with self._map_lock:
            size_bytes = self.map_size_bytes
            wanted = size_bytes * 2
            if self._max_map_size_bytes:
                wanted = min(wanted, self._max_map_size_bytes)
            if self._readers or wanted <= size_bytes:
                return False
            self._lmdb.set_mapsize(wanted)
        return True

    def _disk_is_full(self, error: lmdb.Error) -> bool:
        """LMDB calls a short write, which is how most disks become full, an I/O error. If room was
        made meanwhile, trying again tells: a commit writes all of its pages anew."""
        if error.code != errno.EIO:
            return error.code in DISK_FULL or isinstance(error, lmdb.DiskError)
        return free_bytes(self._path) < max(self._staged.size_bytes(), _SHORT_OF_ROOM_BYTES)

    def _reopen(self) -> None:
        """A failure while the root page was being written leaves LMDB refusing everything; the
        file itself is sound, so that opening it again is enough."""
        with self._map_lock:
            if self._readers:
                return
            map_size_bytes = self.map_size_bytes
            self._lmdb.close()
            self._lmdb = lmdb.open(self._path, map_size=map_size_bytes, max_dbs=len(DATABASES))
            self._handles = {
                name: self._lmdb.open_db(name.encode(), create=False) for name in DATABASES
            }

    def _check_length(self) -> None:
        """Raises StorageCorrupt for a file that is cut off. A page at its end may be missing and
        not be missed: LMDB does not write what the same transaction gave back."""
        wanted = (self._lmdb.info()["last_pgno"] + 1) * self._lmdb.stat()["psize"]
        size_bytes = os.path.getsize(os.path.join(self._path, "data.mdb"))
        if size_bytes < wanted and not is_readable(self._path):
            self._lmdb.close()
            raise StorageCorrupt(
                f"{self._path}/data.mdb is cut off: it has {size_bytes} of {wanted} bytes; {REJOIN}"
            )

    def _known(self, database: str) -> str:
        if database not in self._handles:
            raise KeyError(f"no database {database!r}; there are {', '.join(DATABASES)}")
        return database

    def _check_identity(self, identity: Identity | None) -> None:
        """Record whose directory this is, or refuse what is another's."""
        found = self.get("store_meta", b"format")
        if found is None:
            self._record_identity(identity)
            return
        if not found.isdigit():
            raise _damaged(self._path, f"store_meta says that its format is {found.hex()}")
        if int(found) > FORMAT:
            raise WrongDataDirectory(
                f"{self._path} has data format {int(found)}, this release reads up to {FORMAT}; "
                "start the release that wrote it, or a newer one"
            )
        owner = self.identity
        if identity is not None and owner.cluster != identity.cluster:
            raise WrongDataDirectory(
                f"{self._path} belongs to cluster {owner.cluster!r}, not {identity.cluster!r}; "
                "give the right directory, or an empty one"
            )
        if identity is not None and owner.node != identity.node:
            raise WrongDataDirectory(
                f"{self._path} belongs to node {owner.node}, not {identity.node}; "
                "give each server its own directory"
            )

    def _record_identity(self, identity: Identity | None) -> None:
        with self.read_transaction() as transaction:
            foreign = any(transaction.count(database) for database in DATABASES)
        if identity is None or foreign:
            raise WrongDataDirectory(
                f"{self._path} has data without a format; it is not, or not wholly, a server's"
            )
        self.stage("store_meta", b"format", str(FORMAT).encode())
        self.stage("store_meta", b"cluster", identity.cluster.encode())
        self.stage("store_meta", b"node", str(identity.node).encode())
        self.commit()
        fsync_path(self._path)


def _opening_failed(path: str, error: lmdb.Error) -> Exception:
    full = error.code in DISK_FULL or isinstance(error, lmdb.DiskError)
    if full or (error.code == errno.EIO and free_bytes(path) < _SHORT_OF_ROOM_BYTES):
        return no_room(path, "the disk is full")
    if isinstance(error, lmdb.VersionMismatchError):
        return WrongDataDirectory(f"{path}/data.mdb is of another LMDB version: {error}")
    return StorageCorrupt(f"{path}/data.mdb cannot be opened: {error}; {REJOIN}")


def _damaged(path: str, why: str) -> StorageCorrupt:
    return StorageCorrupt(f"{path}/data.mdb is damaged: {why}; stop this server and {REJOIN}")


def _delete_range(
    transaction: lmdb.Transaction[bytes], handle: lmdb._Database, start: bytes, stop: bytes
) -> None:
    with transaction.cursor(db=handle) as cursor:
        found = cursor.set_range(start) if start else cursor.first()
        while found and (not stop or cursor.key() < stop):
            found = cursor.delete()
