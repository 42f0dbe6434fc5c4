"""A correlator is killed at random points under load: no incident is lost, none is doubled."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from bylaw.guard.incidents.follower import Correlator, replay
from bylaw.guard.stores import SqliteStore, audit_rows, verify_chain
from bylaw.guard.stores.records import Detection, Incident, Notification
from tests.guard.support import policies
from tests.incidents.kill_worker import RULES, decide, follow
from tests.incidents.support import all_of, summary
from tests.support.processes import worker_context

DECIDING = 2


@pytest.mark.parametrize("kills", [8, pytest.param(300, marks=pytest.mark.proof)])
def test_killed_at_random(kills: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "guard.db"
    SqliteStore(path).close()
    caught_at = _kill_at_random(path, kills)
    store = SqliteStore(path)
    Correlator(policies(RULES), store, notify=True).catch_up()
    scratch = SqliteStore(tmp_path / "scratch.db")
    replayed = replay(policies(RULES), store, scratch=scratch)
    incidents, detections = all_of(store, Incident), all_of(store, Detection)
    with capsys.disabled():
        sent = f"{replayed.events:,} events, {kills} kills at {caught_at} positions"
        print(f"\n{sent}, {len(incidents):,} incidents, {len(detections):,} detections")
    assert summary(store) == summary(scratch)
    assert Counter(one.incident for one in detections) == {one.id: one.count for one in incidents}
    opened = Counter(row.data["incident"] for row in audit_rows(store) if row.data.get("what") == "opened")
    assert opened == Counter(one.id for one in incidents)
    assert {one.id for one in all_of(store, Notification)} == {f"incident.opened:{one.id}:1" for one in incidents}
    assert verify_chain(audit_rows(store)) == []
    assert caught_at > 3 and len(detections) > 20
    scratch.close()
    store.close()


def _kill_at_random(path: Path, kills: int) -> int:
    """Each follower is killed after a random number of events. Returns at how many positions in the log that was."""
    chance, context = random.Random(7), worker_context()
    deciding = [_start(context, decide, path, number) for number in range(DECIDING)]
    store, positions = SqliteStore(path), set()
    for number in range(kills):
        follower = _start(context, follow, path, number)
        _wait_until_it_is_at(_position(store) + chance.randrange(1, 150), store, follower, *deciding)
        _kill(follower)
        positions.add(_position(store))
    for process in deciding:
        _kill(process)
    store.close()
    return len(positions)


def _wait_until_it_is_at(position: int, store: SqliteStore, *needed: BaseProcess) -> None:
    give_up = time.monotonic() + 300
    while _position(store) < position:
        assert all(process.is_alive() for process in needed), "a process ended by itself"
        assert time.monotonic() < give_up, "the follower does nothing"
        time.sleep(0.002)


def _position(store: SqliteStore) -> int:
    from bylaw.guard.stores.records import Position

    found = store.followed(Position)
    return found[0].seq if found else 0


def _start(context: ForkServerContext, work: object, path: Path, number: int) -> BaseProcess:
    process = context.Process(target=work, args=(str(path), number), daemon=True)  # type: ignore[arg-type]
    process.start()
    return process


def _kill(process: BaseProcess) -> None:
    assert process.pid is not None and process.is_alive(), "a process ended by itself"
    os.kill(process.pid, signal.SIGKILL)
    process.join(60)
