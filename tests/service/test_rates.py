"""A limit on requests is the same with any number of workers."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from bylaw.guard.service import auth as rates
from bylaw.guard.service.app import ServeConfig, ServiceFile, make_context
from bylaw.guard.service.auth import ProcessRateTable, Rates, SharedRateTable
from bylaw.guard.service.context import Settings
from bylaw.guard.service.errors import TooMany
from bylaw.guard.stores import SqliteStore
from tests.service.support import RULES


def allowed(limits: Rates, who: str, asked: int) -> int:
    found = 0
    for _ in range(asked):
        try:
            has_left = limits.has_left(who)
            limits.spend(who)
            assert has_left
            found += 1
        except TooMany:
            pass
    return found


@pytest.mark.parametrize("kind", ["own", "shared"])
def test_a_burst_is_let_through_and_then_the_rate(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("bylaw.guard.service.auth.time.monotonic", lambda: now[0])
    limits = Rates(10.0, 5.0, ProcessRateTable() if kind == "own" else SharedRateTable(tmp_path / "rates"))
    assert allowed(limits, "ann", 9) == 5
    assert allowed(limits, "ben", 9) == 5  # somebody else
    now[0] += 0.25
    assert allowed(limits, "ann", 9) == 2
    now[0] += 3600
    assert allowed(limits, "ann", 9) == 5


def ask(path: Path, results: Any) -> None:
    limits = Rates(0.001, 1000.0, SharedRateTable(path))
    results.put([allowed(limits, who, 700) for who in ("ann", "ben")])


def test_processes_share_what_is_left(tmp_path: Path) -> None:
    """Of 1,400 requests of each name, made by two processes, 1,000 are let through."""
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    workers = [context.Process(target=ask, args=(tmp_path / "rates", results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join(300)
    assert [sum(each) for each in zip(*found, strict=True)] == [1000, 1000]


def test_those_who_were_silent_longest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "BUCKETS", 1)
    moments = SharedRateTable(tmp_path / "rates")
    for number in range(3 * rates.WIDTH):
        moments.change(f"key-{number}", lambda _, number=number: float(number))  # type: ignore[misc]
    found = [moments.get(f"key-{number}") for number in range(3 * rates.WIDTH)]
    assert found == [0.0] * 2 * rates.WIDTH + [float(one) for one in range(2 * rates.WIDTH, 3 * rates.WIDTH)]


def test_workers_of_one_service_share_their_limits(tmp_path: Path) -> None:
    (tmp_path / "guard.yaml").write_text(RULES)
    limits = ServiceFile(limits=Settings(rate=0.001, burst=3))
    config = ServeConfig(policies=(str(tmp_path / "guard.yaml"),), workers=2, metrics=str(tmp_path), file=limits)
    store = SqliteStore(tmp_path / "guard.db")
    first, second = (Rates(0.001, 3, make_context(config, store).moments) for _ in range(2))
    assert allowed(first, "key", 2) + allowed(second, "key", 5) == 3
    alone = ServeConfig(policies=config.policies, metrics=str(tmp_path), file=limits)
    assert make_context(alone, store).moments is None
