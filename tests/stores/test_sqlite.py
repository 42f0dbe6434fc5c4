"""The store in an SQLite file: the conformance suite, and what can happen to a file."""

from __future__ import annotations

import ctypes
import itertools
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from bylaw.guard.stores import SqliteStore, audit_rows, forks, sqlite, verify_chain
from bylaw.guard.stores import sqlite as pruning
from bylaw.guard.stores import sqlite_tables as schema
from bylaw.guard.stores.memory import MemoryStore
from bylaw.guard.stores.ports import GuardStore, StoreUnavailable
from bylaw.guard.stores.records import EventRow, SessionRecord
from bylaw.guard.stores.sqlite_transaction import SqliteTransaction
from tests.stores.conformance import SharedStoreConformance
from tests.stores.support import Clock, count_up, in_processes, note, open_and_count_up, read, write
from tests.support.processes import worker_context


class TestSqliteStore(SharedStoreConformance):
    @pytest.fixture(params=["normal", "full"])
    def opener(self, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., GuardStore]:
        return partial(SqliteStore, tmp_path / "store.db", durability=request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path, busy_timeout=0.1)
    yield store
    store.close()


def _pragma(store: SqliteStore, text: str) -> object:
    """Of the connection that writes."""
    cursor = store._connections._cursor
    assert cursor is not None
    return cursor.execute(f"PRAGMA {text}").fetchone()


# opening


def test_the_file_is_its_owners_only(store: SqliteStore, path: Path) -> None:
    write(store, "s")
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["store.db", "store.db-shm", "store.db-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_durability_sets_synchronous_of_sqlite(path: Path) -> None:
    for durability, synchronous in (("normal", 1), ("full", 2)):
        store = SqliteStore(path, durability=durability)  # type: ignore[arg-type]
        assert _pragma(store, "synchronous") == (synchronous,)
        assert _pragma(store, "journal_mode") == ("wal",)
        store.close()
    with pytest.raises(ValueError, match="durability='none': expected"):
        SqliteStore(path, durability="none")  # type: ignore[arg-type]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"cannot be opened \(No such file or directory\)"):
        SqliteStore(tmp_path / "no" / "store.db")


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        SqliteStore(tmp_path)


def test_the_working_folder_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqliteStore("store.db")
    monkeypatch.chdir("/")
    note(store, "s", 1.0)
    assert len(store.events()) == 1
    store.close()


def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_bytes(b"rules:\n" * 1000)
    with pytest.raises(StoreUnavailable, match="is damaged, or no SQLite file"):
        SqliteStore(path)
    assert path.read_bytes() == b"rules:\n" * 1000


def test_a_file_of_another_program(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE sessions (mine)")
    other.commit()
    with pytest.raises(StoreUnavailable, match="of another program"):
        SqliteStore(path)
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("sessions",)]
    other.close()


def test_a_file_of_a_later_version(store: SqliteStore, path: Path) -> None:
    _pragma(store, f"user_version = {len(schema.MIGRATIONS) + 1}")
    message = f"later version of bylaw .schema {len(schema.MIGRATIONS) + 1}, this one knows {len(schema.MIGRATIONS)}"
    with pytest.raises(StoreUnavailable, match=message):
        SqliteStore(path)


# indexes


@pytest.mark.parametrize(
    "asked", [(), ("after",), ("session",), ("status",), ("after", "session"), ("after", "status")]
)
def test_the_follow_up_is_read_by_an_index_in_its_order(store: SqliteStore, asked: tuple[str, ...]) -> None:
    """All that is asked for is in the index, and nothing is sorted."""
    query = sqlite._FOLLOWED.format(" AND ".join(["kind = ?1", *(sqlite._CONDITIONS[name] for name in asked)]))
    values = ("Notification", *("x" for _ in asked), 10)
    plan = [str(row[3]) for row in store._read(f"EXPLAIN QUERY PLAN {query}", values)]
    assert all(f"{name}=?" in plan[0] for name in ("kind", *asked) if name != "after"), plan
    assert not any("TEMP B-TREE" in step or "SCAN" in step.split()[0] for step in plan), plan


# migrations


def test_a_migration_keeps_what_is_there(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    write(store, "s", b"kept")
    store.close()
    step = ("ALTER TABLE sessions ADD COLUMN extra", "CREATE TABLE more (x)")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, step))
    for _ in range(2):
        store = SqliteStore(path)
        assert _pragma(store, "user_version") == (len(schema.MIGRATIONS),)
        assert read(store, "s") == b"kept"
        store.close()


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(path)
    write(store, "s", b"kept")
    store.close()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, ("CREATE TABLE more (x)", "CREATE TABLE more (x)")))
        with pytest.raises(StoreUnavailable, match="already exists"):
            SqliteStore(path)
    store = SqliteStore(path)
    assert _pragma(store, "user_version") == (len(schema.MIGRATIONS),)
    assert read(store, "s") == b"kept"
    store.close()


def test_many_threads_open_a_new_file_at_once(path: Path) -> None:
    stores: list[SqliteStore] = []
    threads = [threading.Thread(target=lambda: stores.append(SqliteStore(path))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        count_up(store, "s", 2)
        store.close()
    assert len(stores) == 16
    last = SqliteStore(path)
    assert read(last, "s") == b"32"
    last.close()


def test_many_processes_open_new_files_at_once(tmp_path: Path) -> None:
    """One of them may restore the index of the log while another reads."""
    barrier = worker_context().Barrier(4)
    in_processes(_open_new_files, [(tmp_path, barrier, 50)] * 4)
    store = SqliteStore(tmp_path / "49.db")
    assert read(store, "s") == b"4"
    store.close()


def test_opening_waits_for_a_lock_that_reading_needs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteStore(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    is_current = schema.is_current
    attempts = itertools.count(1)

    def need_a_lock(connection: sqlite3.Connection) -> bool:
        if next(attempts) == 2:
            other.execute("COMMIT")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
        return is_current(connection)

    monkeypatch.setattr(schema, "is_current", need_a_lock)
    SqliteStore(path).close()
    assert next(attempts) == 3
    other.close()


def _open_new_files(folder: Path, barrier: Barrier, files: int) -> None:
    try:
        for number in range(files):
            barrier.wait(timeout=60)
            open_and_count_up(partial(SqliteStore, folder / f"{number}.db"), "s", 1, "")
    except BaseException:
        barrier.abort()
        raise


# what can go wrong


def test_a_lock_held_by_another_process(store: SqliteStore, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match="is locked by another process"), store.transaction("s"):
        pass
    assert 0.1 <= time.monotonic() - started < 60
    assert store.events() == []  # readers do not wait
    other.execute("COMMIT")
    other.close()
    assert write(store, "s") == 1


def test_a_full_disk_undoes_the_transaction(store: SqliteStore) -> None:
    write(store, "s", b"before")
    _pragma(store, "max_page_count = 20")
    with pytest.raises(StoreUnavailable, match="the disk is full"), store.transaction("s") as transaction:
        transaction.append_event(EventRow("s", "k", 1.0, {}))
        transaction.put_session(SessionRecord("s", 2, bytes(10_000_000)))
    assert read(store, "s") == b"before"
    assert store.events() == []
    assert write(store, "s", b"after") == 2


def test_a_failure_that_is_swallowed_still_undoes_everything(store: SqliteStore) -> None:
    """SQLite may have undone what came before; what comes after must not be kept alone."""
    _pragma(store, "max_page_count = 20")
    with pytest.raises(StoreUnavailable, match="disk is full"), store.transaction("s") as transaction:
        transaction.append_event(EventRow("s", "k", 1.0, {}))
        with pytest.raises(StoreUnavailable):
            transaction.put_session(SessionRecord("s", 1, bytes(10_000_000)))
        with pytest.raises(StoreUnavailable):
            transaction.append_audit(1.0, {})
    assert store.events() == [] and store.audit() == []
    assert note(store, "s", 1.0) == 1


def test_a_file_that_cannot_be_written(store: SqliteStore) -> None:
    _pragma(store, "query_only = 1")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        write(store, "s")
    assert write(store, "s") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write every file")
def test_a_file_without_permission_to_write(path: Path) -> None:
    SqliteStore(path).close()
    path.chmod(0o400)
    with pytest.raises(StoreUnavailable, match="Permission denied"):
        SqliteStore(path)


def test_a_damaged_file_makes_the_store_unavailable(path: Path) -> None:
    store = SqliteStore(path)
    for number in range(200):
        write(store, f"s{number}", bytes(500))
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    store = SqliteStore(path)
    with pytest.raises(StoreUnavailable, match="is damaged"):
        write(store, "s1")
    with pytest.raises(StoreUnavailable, match="is damaged"):
        store.events()
    store.close()


def test_a_file_cut_short(path: Path) -> None:
    store = SqliteStore(path)
    write(store, "s", bytes(1_000_000))
    store.close()
    os.truncate(path, 100_000)
    with pytest.raises(StoreUnavailable, match="is damaged"):
        SqliteStore(path)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_removed_while_in_use(store: SqliteStore, path: Path, replaced: bool) -> None:
    """SQLite would go on writing into a file that nobody can find again."""
    write(store, "s")
    path.unlink()
    if replaced:
        path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            write(store, "s")
        with pytest.raises(StoreUnavailable, match="removed or replaced"):
            store.events()
    assert path.exists() == replaced


@pytest.mark.parametrize("left", ["log", "no log", "read-only folder"])
def test_a_file_that_is_only_read(path: Path, left: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writing = SqliteStore(path)
    write(writing, "s")
    if left != "log":
        writing.close()
    before = path.read_bytes()
    if left == "read-only folder":
        monkeypatch.setattr(os, "access", lambda *_: False)
    reading = SqliteStore(path, read_only=True)
    assert reading.digests("sessions")
    with pytest.raises(StoreUnavailable, match="for reading only"):
        write(reading, "s")
    reading.close()
    writing.close()
    assert left == "log" or path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.fixture
def reading(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
    """A store that is read by somebody who may not write its folder."""
    with closing(SqliteStore(path)) as writing:
        write(writing, "s")
    monkeypatch.setattr(os, "access", lambda path, _: not os.path.isdir(path))
    reading = SqliteStore(path, read_only=True)
    yield reading
    reading.close()


def _write_much(path: Path) -> None:
    with closing(SqliteStore(path)) as writing:
        for number in range(40):
            write(writing, f"more {number}", b"x" * 500)


def test_a_reader_without_write_access_sees_what_others_commit(reading: SqliteStore, path: Path) -> None:
    assert len(reading.digests("sessions")) == 1
    with closing(SqliteStore(path)) as writing:
        write(writing, "new")
        assert len(reading.digests("sessions")) == 2, "from the log"
    _write_much(path)
    assert len(reading.digests("sessions")) == 42


def test_pages_from_before_and_after_a_write_are_not_mixed(reading: SqliteStore, path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="was written while it was read: try again"), reading.snapshot() as view:
        view.audit_head()
        _write_much(path)
        view.digests("sessions")
    with reading.snapshot() as view:
        assert len(view.digests("sessions")) == 41
    with pytest.raises(KeyboardInterrupt), reading.snapshot() as view:  # not replaced by StoreUnavailable
        view.audit_head()
        _write_much(path)
        raise KeyboardInterrupt


def test_a_file_that_is_written_while_it_is_opened_is_not_called_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write_much(path)
    monkeypatch.setattr(os, "access", lambda path, _: not os.path.isdir(path))

    def look(connection: sqlite3.Connection) -> bool:
        patched.undo()
        _write_much(path)
        raise sqlite3.DatabaseError("database disk image is malformed")

    with monkeypatch.context() as patched:
        patched.setattr(schema, "is_empty", look)
        with pytest.raises(StoreUnavailable, match="was written while it was read: try again"):
            SqliteStore(path, read_only=True)
    SqliteStore(path, read_only=True).close()


def test_what_cannot_be_only_read(path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        SqliteStore(path, read_only=True)
    assert not path.exists()
    SqliteStore(path).close()
    with sqlite3.connect(path) as file:
        file.execute(f"PRAGMA user_version = {len(schema.MIGRATIONS) - 1}")
    with pytest.raises(StoreUnavailable, match="earlier version"):
        SqliteStore(path, read_only=True)
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (len(schema.MIGRATIONS) - 1,)


# forks: Python warns of them where there are threads, which is what is tested

_threaded = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def _in_fork(work: Callable[[], None]) -> int:
    """The exit code of a forked child that runs it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@_threaded
def test_a_forked_child_has_connections_of_its_own(store: SqliteStore) -> None:
    count_up(store, "s", 3)
    store.events()
    assert _in_fork(lambda: count_up(store, "s", 5)) == 0
    count_up(store, "s", 1)
    assert _in_fork(lambda: (count_up(store, "s", 1), store.close())[0]) == 0
    assert read(store, "s") == b"10"
    assert verify_chain(store.audit()) == []


@_threaded
def test_no_connection_is_open_during_a_fork(store: SqliteStore, path: Path) -> None:
    """SQLite would believe in the child that it holds the locks of the parent."""

    def child() -> None:
        assert not [fd for fd in os.listdir("/proc/self/fd") if _is_of(store, fd)]

    count_up(store, "s", 3)
    store.events()
    assert _in_fork(child) == 0
    count_up(store, "s", 1)
    assert read(store, "s") == b"4"


def _is_of(store: SqliteStore, fd: str) -> bool:
    with suppress(OSError):
        return os.readlink(f"/proc/self/fd/{fd}").startswith(store._connections.path)
    return False


@_threaded
def test_a_fork_that_python_does_not_see(store: SqliteStore, path: Path) -> None:
    """Some servers fork in C. The child is refused, and the parent is not disturbed."""
    count_up(store, "s", 3)
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        refused = 0
        for use in (lambda: write(store, "s"), store.events, lambda: SqliteStore(path)):
            try:
                use()
            except StoreUnavailable as problem:
                refused += "after the fork" in str(problem)
            except BaseException:
                os._exit(9)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    count_up(store, "s", 1)
    assert read(store, "s") == b"4"


@_threaded
def test_a_fork_while_another_thread_writes(store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork waits for the transaction, but not for ever. Then the file cannot be used in the child."""
    monkeypatch.setattr(forks, "PATIENCE", 0.1)
    inside, done = threading.Event(), threading.Event()

    def hold() -> None:
        with store.transaction("s") as transaction:
            transaction.put_session(SessionRecord("s", 1, b"1"))
            inside.set()
            done.wait(300)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(300)

    def child() -> None:
        with pytest.raises(StoreUnavailable, match="create the guard after the fork"):
            write(store, "s")
        with pytest.raises(StoreUnavailable, match="create the guard after the fork"):
            SqliteStore(path)

    assert _in_fork(child) == 0
    done.set()
    holder.join()
    count_up(store, "s", 1)
    assert read(store, "s") == b"2"


@_threaded
def test_a_transaction_ends_in_the_process_that_began_it(store: SqliteStore) -> None:
    def child() -> None:
        with pytest.raises(RuntimeError, match="process that began it"):
            transaction.__exit__(None, None, None)
        with pytest.raises(StoreUnavailable, match="create the guard after the fork"):
            write(store, "s")

    with store.transaction("s") as transaction:
        transaction.put_session(SessionRecord("s", 1, b"kept"))
        assert _in_fork(child) == 0
    assert read(store, "s") == b"kept"


# pruning


def test_pruning_that_is_stopped_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is a transaction of its own, and after any of them the store is whole."""
    monkeypatch.setattr(pruning, "STEP", 3)
    clock = Clock(now=50.0)
    store = SqliteStore(path, clock=clock)
    for at in range(20):
        write(store, f"s{at}")
        note(store, "s", float(at))
    clock.now, stops = 100.0, 0
    while True:
        with monkeypatch.context() as patch:
            patch.setattr(store, "transaction", _stopping(store.transaction, after=2))
            try:
                store.prune(before=60.0)
                break
            except KeyboardInterrupt:
                stops += 1
        assert verify_chain(audit_rows(store)) == []
    assert stops > 7
    assert store.events() == []
    assert [row.data["kind"] for row in store.audit()] == ["anchor"] + ["prune"] * (len(store.audit()) - 1)
    assert write(store, "s1") == 2
    store.close()


def _stopping(transaction: Callable[[str], SqliteTransaction], *, after: int) -> Callable[[str], SqliteTransaction]:
    calls = itertools.count()

    def begin(session: str) -> SqliteTransaction:
        if next(calls) >= after:
            raise KeyboardInterrupt
        return transaction(session)

    return begin


@pytest.mark.parametrize("before", [float("nan"), float("inf")])
def test_nothing_is_older_than_no_time(path: Path, before: float) -> None:
    for store in (SqliteStore(path), MemoryStore()):
        with pytest.raises(ValueError, match="expected a time"):
            store.prune(before=before)
        store.close()


def test_two_processes_prune_and_write(path: Path) -> None:
    opener = partial(SqliteStore, path, busy_timeout=300)
    work = [(opener, "s", 200, "a"), (opener, "t", 200, "b")]
    pruner = threading.Thread(target=_prune_often, args=(path,))
    pruner.start()
    in_processes(open_and_count_up, work)
    pruner.join()
    store = opener()
    assert (read(store, "s"), read(store, "t")) == (b"200", b"200")
    assert verify_chain(audit_rows(store)) == []
    store.close()


def _prune_often(path: Path) -> None:
    store = SqliteStore(path, busy_timeout=300)
    for before in range(0, 150, 5):
        store.prune(before=float(before))
        time.sleep(0.02)
    store.close()
