"""Processes that decide, record, answer and resume on one file are killed at random points.

Afterwards: no limit exceeded, no approval used twice, the chain intact, and every decision that somebody was told is
in the audit as it was told.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from bylaw.guard.stores import SqliteStore, audit_rows, verify_chain
from bylaw.guard.stores.records import AuditRow
from tests.guard.kill_worker import LIMIT, work

WORKERS = 4


@pytest.mark.parametrize("seconds", [6, pytest.param(120, marks=pytest.mark.proof)])
def test_killed_at_random(seconds: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "guard.db"
    SqliteStore(path).close()
    kills = _kill_at_random(path, tmp_path, seconds)
    told = _acknowledged(tmp_path)
    store = SqliteStore(path)
    rows = list(audit_rows(store))
    found = _problems(rows, told, store, path)
    with capsys.disabled():
        decisions = sum(row.data["kind"] == "decision" for row in rows)
        print(f"\n{decisions:,} attempts, {len(told):,} answers told, {kills} kills, {len(found)} violations found")
    assert found == []
    assert kills > 3 and len(told) > 100
    store.close()


def _kill_at_random(path: Path, folder: Path, seconds: float) -> int:
    chance, context, kills = random.Random(5), multiprocessing.get_context("forkserver"), 0
    context.set_forkserver_preload(["tests.guard.kill_worker"])

    def start(number: int) -> BaseProcess:
        process = context.Process(target=work, args=(str(path), str(folder / f"told-{number}"), number), daemon=True)
        process.start()
        return process

    workers = [start(number) for number in range(WORKERS)]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(chance.uniform(0.05, 0.3))
        victim = chance.randrange(WORKERS)
        _kill(workers[victim])
        kills += 1
        workers[victim] = start(WORKERS + kills)
    for worker in workers:
        _kill(worker)
    return kills + WORKERS


def _kill(process: BaseProcess) -> None:
    assert process.pid is not None and process.is_alive(), "a worker ended by itself"
    os.kill(process.pid, signal.SIGKILL)
    process.join(10)


def _acknowledged(folder: Path) -> list[tuple[str, str, str]]:
    lines = [line for path in folder.glob("told-*") for line in path.read_text().split("\n")[:-1]]
    return [(call, action, by) for call, action, by in (line.split() for line in lines)]


def _problems(rows: list[AuditRow], told: list[tuple[str, str, str]], store: SqliteStore, path: Path) -> list[str]:
    decisions = [row.data["decision"] for row in rows if row.data["kind"] == "decision"]
    attempts = [row.data for row in rows if row.data["kind"] == "decision"]
    found = [str(problem) for problem in verify_chain(rows)]
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
    written = {one["call_id"]: (one["action"], str(one["decided_by"])) for one in decisions}
    found += [f"{call} {action} is lost" for call, action, by in told if written.get(call) != (action, by)]
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
