"""Processes that write are killed at random points: nothing committed may be lost, nothing half done may stay."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bylaw.guard.stores import SqliteStore, audit_rows, verify_chain
from bylaw.guard.stores.ports import GuardStore
from bylaw.guard.stores.records import EventRow
from tests.stores.hammer import ACKNOWLEDGED, SHARED
from tests.stores.support import read

ROOT = Path(__file__).parent.parent.parent
AT_ONCE = 3


@dataclass
class Figures:
    kills: int = 0
    acknowledged: dict[str, int] = field(default_factory=dict)
    """by process: the last number that it said was committed"""
    in_flight: int = 0
    """committed, but killed before saying so"""

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {sum(self.acknowledged.values())} transactions acknowledged,"
            f" {self.in_flight} more committed in flight, 0 lost, 0 partial"
        )


class Hammer:
    """One process that writes until it is killed."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._said = path.parent / f"{name}.said"
        with self._said.open("wb") as said:
            command = [sys.executable, "-m", "tests.stores.hammer", str(path), name]
            self._process = subprocess.Popen(command, stdout=said, cwd=ROOT)

    def kill(self) -> int:
        """The last number that it said was committed."""
        self.wait_until_it_writes()
        time.sleep(random.uniform(0, 0.1))
        self.stop()
        said = self._said.read_bytes()
        whole = len(said) // ACKNOWLEDGED * ACKNOWLEDGED
        return int.from_bytes(said[whole - ACKNOWLEDGED : whole], "big")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def wait_until_it_writes(self) -> None:
        give_up = time.monotonic() + 300
        while not self._said.stat().st_size:
            assert self._process.poll() is None, "the process ended by itself"
            assert time.monotonic() < give_up, "the process does not write"
            time.sleep(0.001)


def kill_often(path: Path, kills: int) -> Figures:
    """There are always AT_ONCE writers, until the last of them are killed too."""
    figures, running = Figures(), [Hammer(path, f"writer {number}") for number in range(AT_ONCE)]
    try:
        while running:
            victim = running[random.randrange(len(running))]
            figures.acknowledged[victim.name] = victim.kill()
            running.remove(victim)
            figures.kills += 1
            if figures.kills + len(running) < kills:
                running.append(Hammer(path, f"writer {AT_ONCE + figures.kills}"))
    finally:
        for hammer in running:
            hammer.stop()
    return figures


def check(store: GuardStore, figures: Figures) -> None:
    committed = _committed(store)
    for name, acknowledged in figures.acknowledged.items():
        assert acknowledged <= committed[name] <= acknowledged + 1, name
    figures.in_flight = committed[SHARED] - sum(figures.acknowledged.values())
    assert committed.pop(SHARED) == sum(committed.values())
    assert verify_chain(audit_rows(store)) == []


def _committed(store: GuardStore) -> Counter[str]:
    """By session, how far it was counted; its state, events and audit rows must all say the same."""
    events = _all_events(store)
    committed = Counter(row.session for row in events)
    audited = Counter(row.data["session"] for row in audit_rows(store))
    states = {session: int(read(store, session)[:20]) for session in committed}
    assert committed == audited == states
    assert [row.seq for row in events] == list(range(1, len(events) + 1))
    seen: Counter[str] = Counter()
    for row in events:
        seen[row.session] += 1
        assert row.data["count"] == seen[row.session]
    return committed


def _all_events(store: GuardStore) -> list[EventRow]:
    rows: list[EventRow] = []
    while page := store.events(after=rows[-1].seq if rows else 0):
        rows += page
    return rows


def _run(path: Path, kills: int, capsys: pytest.CaptureFixture[str]) -> None:
    figures = kill_often(path, kills)
    store = SqliteStore(path)
    check(store, figures)
    store.close()
    with capsys.disabled():
        print(f"\n{figures}")


def test_killed_writers_lose_no_committed_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run(tmp_path / "store.db", 10, capsys)


@pytest.mark.proof
def test_many_killed_writers_lose_no_committed_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run(tmp_path / "store.db", 200, capsys)
