"""Processes that decide, record, answer with edits, resume, exchange their rules and fork are killed at random points.

Afterwards: no limit exceeded, no approval used twice or for another call than the person approved, the audit verified,
and every decision that was returned to somebody is in it as it was returned.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from bylaw.guard.audit.verify import verify_audit
from bylaw.guard.stores import SqliteStore, audit_rows
from bylaw.guard.stores.records import AuditRow
from tests.guard.kill_worker import LIMIT, work
from tests.support.processes import worker_context

WORKERS = 4


@pytest.mark.parametrize("kills", [12, pytest.param(600, marks=pytest.mark.proof)])
def test_killed_at_random(kills: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "guard.db"
    SqliteStore(path).close()
    alive = tmp_path / "alive"
    alive.touch()
    _kill_at_random(path, tmp_path, kills, alive)
    with alive.open() as last:
        fcntl.flock(last, fcntl.LOCK_EX)  # until children whose parent was killed have ended
    reported = _acknowledged(tmp_path)
    store = SqliteStore(path)
    rows = list(audit_rows(store))
    found = _problems(rows, reported, store, path)
    with capsys.disabled():
        decisions = sum(row.data["kind"] == "decision" for row in rows)
        reloads = sum(row.data.get("how") == "reloaded" for row in rows)
        print(f"\n{decisions:,} attempts, {len(reported):,} answers, {kills} kills, {reloads} reloads, ", end="")
        print(f"{len(found)} violations found")
    assert found == []
    assert len(reported) > 100
    store.close()


def _kill_at_random(path: Path, folder: Path, kills: int, alive: Path) -> None:
    """Each worker is killed after it got a random number of answers; WORKERS of them run until the end."""
    chance, context = random.Random(5), worker_context()

    def start(number: int) -> tuple[BaseProcess, Path]:
        reported = folder / f"answers-{number}"
        process = context.Process(target=work, args=(str(path), str(reported), number, str(alive)), daemon=True)
        process.start()
        return process, reported

    workers = [start(number) for number in range(WORKERS)]
    for number in range(WORKERS, kills):
        victim = chance.randrange(WORKERS)
        _kill(*workers[victim], answers=chance.randrange(1, 40))
        workers[victim] = start(number)
    for process, reported in workers:
        _kill(process, reported, answers=chance.randrange(1, 40))


def _kill(process: BaseProcess, reported: Path, answers: int) -> None:
    give_up = time.monotonic() + 300
    while not reported.exists() or reported.read_bytes().count(b"\n") < answers:
        assert process.is_alive(), "a worker ended by itself"
        assert time.monotonic() < give_up, "a worker does nothing"
        time.sleep(0.002)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)


def _acknowledged(folder: Path) -> list[tuple[str, str, str]]:
    lines = [line for path in folder.glob("answers-*") for line in path.read_text().split("\n")[:-1]]
    return [(call, action, by) for call, action, by in (line.split() for line in lines)]


def _problems(rows: list[AuditRow], reported: list[tuple[str, str, str]], store: SqliteStore, path: Path) -> list[str]:
    decisions = [row.data["decision"] for row in rows if row.data["kind"] == "decision"]
    attempts = [row.data for row in rows if row.data["kind"] == "decision"]
    report = verify_audit(store)  # by the rules that are stored
    found = [str(finding) for finding in report.findings] + [f"left out: {why}" for why in report.unrecomputed]
    made = Counter(
        row["session"] for row in attempts if row["attempt"]["tool"] == "pay" and row["decision"]["action"] == "allow"
    )
    found += [f"{number} calls in {session}" for session, number in made.items() if number > LIMIT]
    used = Counter(one["review"] for one in decisions if one["decided_by"] == "review" and one["action"] == "allow")
    spent = Counter(row.data["review"] for row in rows if row.data["kind"] == "review" and row.data["what"] == "spent")
    found += [f"{review} used {number} times" for review, number in used.items() if number > 1]
    found += [
        f"{review}: used and spent differ" for review in used.keys() | spent.keys() if used[review] != spent[review]
    ]
    edits = {row.data["review"]: row.data["edited"] for row in rows if row.data.get("what") == "approved"}
    for row in attempts:
        if row["decision"]["action"] == "allow" and row["decision"]["decided_by"] == "review":
            edit = edits[row["decision"]["review"]]
            if row["attempt"]["arguments"]["amount"] != (900 if edit is None else edit["arguments"]["amount"]):
                found.append(f"{row['decision']['review']}: another call ran than was approved")
    written = {one["call_id"]: (one["action"], str(one["decided_by"])) for one in decisions}
    found += [f"{call} {action} is lost" for call, action, by in reported if written.get(call) != (action, by)]
    found += [
        f"a fault: {one['reason']}" for one in decisions if one["decided_by"] in ("on_error", "on_store_unavailable")
    ]
    logged = [event for event in _events(store) if event == "decision"]
    found += [] if len(logged) == len(decisions) else [f"{len(logged)} logged, {len(decisions)} audited"]
    with sqlite3.connect(path) as connection:
        sound = connection.execute("PRAGMA integrity_check").fetchone()[0]
    connection.close()
    return found + ([] if sound == "ok" else [str(sound)])


def _events(store: SqliteStore) -> list[str]:
    kinds, after = [], 0
    while page := store.events(after=after):
        kinds += [row.kind for row in page]
        after = page[-1].seq
    return kinds
