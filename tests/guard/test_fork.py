"""A guard in a process that forks: nothing is lost, no limit starts again, nothing waits for ever, and no two calls
have the same id. The processes are real; `fork_worker` runs in each."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bylaw.guard.stores import SqliteStore, audit_rows, verify_chain
from tests.guard.fork_worker import LIMIT

WAYS = ("parent_closes", "daemon", "preload", "pool", "busy")
ROOT = Path(__file__).parents[2]


def run(way: str, store: str, folder: Path, *, timeout: float = 150) -> list[list[str]]:
    """The decisions that were returned to anybody: call id, action, decided by, session."""
    acked = folder / "acked"
    command = [sys.executable, "-m", "tests.guard.fork_worker", way, store, str(acked)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.split(" ") for line in acked.read_text().splitlines()]


@pytest.mark.parametrize("way", WAYS)
def test_a_fork_with_a_store(way: str, tmp_path: Path) -> None:
    check_stored(run(way, str(tmp_path / "guard.db"), tmp_path), tmp_path / "guard.db")


def check_stored(decisions: list[list[str]], path: Path, *, killed: bool = False) -> None:
    """Everything that was returned is stored, and the limit of a session holds over all processes."""
    store = SqliteStore(path)
    rows = list(audit_rows(store))
    assert verify_chain(rows) == []
    stored = [row.data["decision"]["call_id"] for row in rows if row.data["kind"] == "decision"]
    assert len(stored) == len(set(stored))
    ids = [decision[0] for decision in decisions]
    assert len(ids) == len(set(ids))
    # a process that is killed may have decided without telling anybody
    assert set(ids) <= set(stored) if killed else sorted(ids) == sorted(stored)
    assert {(action, by) for _, action, by, _ in decisions} <= {("allow", "None"), ("block", "made")}
    allowed = Counter(row.data["session"] for row in rows if row.data["decision"]["action"] == "allow")
    attempted = Counter(row.data["session"] for row in rows)
    assert allowed == {session: min(LIMIT, n) for session, n in attempted.items()}
    store.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_fork_without_a_store(way: str, tmp_path: Path) -> None:
    """Each process continues with a copy of the sessions. Closing does not matter to it."""
    decisions = run(way, "-", tmp_path)
    ids = [decision[0] for decision in decisions]
    assert len(ids) == len(set(ids))
    assert {(action, by) for _, action, by, _ in decisions} <= {("allow", "None"), ("block", "made")}


@pytest.mark.proof
def test_a_storm_of_forks(tmp_path: Path) -> None:
    seconds = float(os.environ.get("FORK_STORM_SECONDS", "60"))
    decisions = run("storm", str(tmp_path / "guard.db"), tmp_path, timeout=seconds + 300)
    check_stored(decisions, tmp_path / "guard.db", killed=True)
