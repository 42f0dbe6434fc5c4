"""Every table × every way to tamper with it: edited, deleted and invented records are found."""

from __future__ import annotations

import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from bylaw.guard.audit.report import AuditFinding, AuditReport
from bylaw.guard.audit.verify import TableCheck
from bylaw.guard.guard import Guard
from bylaw.guard.model import Attempt
from bylaw.guard.stores import SqliteStore
from tests.audit.support import RULES, Tampered, kinds, recorded, verified

PLACES = {
    "sessions": {"id", "touched_at"},
    "reviews": {"number"},
    "followed": {"number"},
    "events": set(),
    "audit": set(),
    "switches": set(),
    "rules": set(),
    "floor": set(),
}
"""columns that hold nothing but the place of a record, or when pruning may delete it"""
OTHERS = {"audit_chain", "sqlite_sequence"}
"""the head and the id of the chain, which `test_tamper` has"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with records in every table."""
    path = tmp_path_factory.mktemp("tables") / "guard.db"
    recorded(path)
    guard = Guard(RULES, store=str(path))
    burst = {"id": "burst", "when": {"call_count_in_window_gt": {"tool": "send", "value": 1, "window_seconds": 60}}}
    follower = Guard([{**burst, "then": "pause"}], store=str(path))
    for _ in range(3):
        guard.decide(Attempt(tool="send", session="s9"))
    follower.follower().once()
    Guard([{"id": "ask", "when": {"tool_name_in": ["wire"]}, "then": "pause"}], store=str(path)).decide(
        Attempt(tool="wire", session="s7")
    )
    guard.terminate("s8")
    guard.kill("worker")
    guard.store.close()
    follower.store.close()
    return path


@pytest.fixture
def path(written: Path, tmp_path: Path) -> Path:
    with sqlite3.connect(written) as file:  # the log is merged into the file
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(shutil.copy(written, tmp_path / "guard.db"))


def _report(path: Path) -> AuditReport:
    store = SqliteStore(path)
    try:
        return verified(store, RULES, allow_unrecomputed=True)
    finally:
        store.close()


def _columns(path: Path, table: str) -> list[str]:
    return [row[1] for row in Tampered(path)(f"PRAGMA table_info({table})") if row[1] not in PLACES[table]]


def test_what_nobody_touched_is_intact(path: Path) -> None:
    report = _report(path)
    assert (report.findings, report.exit_code) == ([], 0)


@pytest.mark.parametrize("pruned", [False, True])
def test_what_guards_write_during_the_verification_is_no_fault(
    path: Path, pruned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard, compare = Guard(RULES, store=str(path)), TableCheck.compare

    def write_and_compare(check: TableCheck) -> list[AuditFinding]:
        for _ in range(3):
            guard.decide(Attempt(tool="send", session="s9"))
        if pruned:
            guard.store.prune(before=time.time())
        return compare(check)

    before = guard.store.audit_head()
    monkeypatch.setattr(TableCheck, "compare", write_and_compare)
    report = _report(path)
    assert (report.findings, report.exit_code, report.head) == ([], 0, before)
    monkeypatch.undo()
    assert _report(path).findings == []
    guard.store.close()


def test_every_table_is_in_this_test(path: Path) -> None:
    tables = {name for (name,) in Tampered(path)("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == PLACES.keys() | OTHERS
    empty = [table for table in PLACES if not Tampered(path)(f"SELECT 1 FROM {table} LIMIT 1")]
    assert empty == []
    assert len(Tampered(path)("SELECT hash FROM rules")) == 2


@pytest.mark.parametrize("table", PLACES)
def test_an_edit_of_any_column_is_found(path: Path, table: str) -> None:
    for column in _columns(path, table):
        copy = Path(shutil.copy(path, path.with_name(f"{column}.db")))
        tampered = Tampered(copy)
        [[rowid, before]] = tampered(f"SELECT {_rowid(table)}, {column} FROM {table} LIMIT 1")
        other = 10**6 if column == "seq" else _other(before)
        tampered(f"UPDATE {table} SET {column} = ? WHERE {_rowid(table)} = ?", other, rowid)
        report = _report(copy)
        assert report.exit_code == 1, f"{table}.{column} was {before!r}"
        assert table == "audit" or table in {finding.table for finding in report.findings}


@pytest.mark.parametrize("table", PLACES)
def test_a_deleted_record_is_found(path: Path, table: str) -> None:
    rows = Tampered(path)(f"SELECT {_rowid(table)} FROM {table} LIMIT 3")
    assert rows
    for (rowid,) in rows:
        copy = Path(shutil.copy(path, path.with_name("deleted.db")))
        Tampered(copy)(f"DELETE FROM {table} WHERE {_rowid(table)} = ?", rowid)
        if table == "floor":  # without it, no session can begin
            assert any(finding.table == "floor" for finding in _report(copy).findings)
            continue
        found = _report(copy).findings
        assert found and (table == "audit" or [one.kind for one in found if one.table == table] == ["dropped"])


@pytest.mark.parametrize("table", PLACES)
def test_an_invented_record_is_found(path: Path, table: str) -> None:
    tampered = Tampered(path)
    names = [row[1] for row in tampered(f"PRAGMA table_info({table})")]
    row = dict(zip(names, tampered(f"SELECT * FROM {table} LIMIT 1")[0], strict=True))
    for name in ("id", "number", "seq"):
        if type(row.get(name)) is int:
            row[name] = 10**6
    for name in ("session", "id", "agent", "hash"):
        if isinstance(row.get(name), str) and table not in ("events", "audit"):
            row[name] = f"{row[name]}-2"
    marks = ", ".join("?" * len(row))
    tampered(f"INSERT INTO {table} VALUES ({marks})", *row.values())
    found = _report(path).findings
    assert found and (table == "audit" or {one.table for one in found} == {table})


def test_a_deleted_session_does_not_restart_its_cap_unseen(tmp_path: Path) -> None:
    path = tmp_path / "guard.db"
    rules = [{"id": "cap", "when": {"call_count_in_session_gt": {"tool": "pay", "value": 2}}, "then": "block"}]

    def decide() -> bool:
        guard = Guard(rules, store=str(path))
        allowed = guard.decide(Attempt(tool="pay", session="s")).allowed
        guard.store.close()
        return allowed

    assert [decide() for _ in range(3)] == [True, True, False]
    Tampered(path)("DELETE FROM sessions")
    store = SqliteStore(path)
    assert [(one.kind, one.table) for one in verified(store, rules).findings] == [("dropped", "sessions")]
    store.close()
    assert decide(), "the store cannot know"
    store = SqliteStore(path)
    assert verified(store, rules).exit_code == 1
    store.close()


def test_pruned_records_are_vouched_for(path: Path) -> None:
    store = SqliteStore(path)
    deleted = store.prune(before=1e10)
    assert deleted["events"] and deleted["sessions"] and deleted["audit"]
    assert verified(store, RULES, allow_unrecomputed=True).findings == []
    store.close()
    recorded(path, seed=3)
    assert _report(path).findings == []
    Tampered(path)("UPDATE sessions SET terminated = NULL WHERE session = 's8'")
    assert [(one.kind, one.table) for one in _report(path).findings] == [("edited", "sessions")]


def _rowid(table: str) -> str:
    return {"switches": "agent", "rules": "hash"}.get(table, "rowid")


def _other(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("a", "b") if "a" in value else f"{value}x"
    if isinstance(value, bytes):
        return value + b" "
    return "an operator" if value is None else value + 1


def test_kinds_of_findings_are_those_of_the_chain(path: Path) -> None:
    Tampered(path)("DELETE FROM events WHERE seq = 2")
    [(seq, kind)] = kinds(_report(path))
    assert kind == "dropped" and seq == 2
