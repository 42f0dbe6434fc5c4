"""An audit written by the real guard, and ways to tamper with the file that holds it."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

from bylaw.guard.audit.report import AuditReport
from bylaw.guard.audit.verify import verify
from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.model import Attempt
from bylaw.guard.stores import SqliteStore
from bylaw.guard.stores.ports import GuardStore
from bylaw.guard.stores.records import AuditHead
from tests.guard.support import Clock, guard, policies

RULES: dict[str, Any] = {
    "guard": {
        "mode": "hitl",
        "rules": [
            {
                "id": "cap",
                "when": {"tool_name_in": ["pay"], "arg_gt": {"path": "amount", "value": 500}},
                "then": "block",
            },
            {"id": "ask", "when": {"call_count_in_session_gt": {"tool": "pay", "value": 2}}, "then": "pause"},
            {"id": "key", "when": {"arg_regex": {"path": "api_key", "pattern": "^live"}}, "then": "block"},
            {
                "id": "verified",
                "kind": "temporal",
                "params": {"formula": "G (tool(pay) -> O tool(verify))"},
                "then": "block",
            },
        ],
    }
}


def verified(store: GuardStore, *rules: Any, heads: tuple[AuditHead, ...] = (), **more: Any) -> AuditReport:
    files = [policies(one) for one in rules]
    return verify(store, files, known=heads, **more)


def kinds(report: AuditReport) -> list[tuple[int, str]]:
    return [(finding.seq, finding.kind) for finding in report.findings]


def in_chain(report: AuditReport) -> list[tuple[int, str]]:
    """Findings in the chain itself, and not in the tables that it vouches for."""
    return [(finding.seq, finding.kind) for finding in report.findings if finding.table is None]


def recorded(path: Path, *, rules: Any = RULES, calls: int = 12, seed: int = 0) -> None:
    """A file with a few sessions in it."""
    store, clock, chance = SqliteStore(path), Clock(), random.Random(seed)
    running = guard(rules, store=store, clock=clock)
    for i in range(calls):
        clock.now += 1.25
        work(running, f"s{i % 2}", chance)
    store.close()


def work(running: BaseGuard, session: str, chance: random.Random) -> None:
    tool = chance.choice(["pay", "verify", "send"])
    given = {"amount": chance.choice([5, 900]), "api_key": chance.choice(["live-1", "test-1"])}
    attempt = Attempt(tool=tool, arguments=given, session=session)
    decision = running.decide(attempt)
    if decision.allowed:
        running.record(decision, "done")
    elif decision.review is not None:
        running.reviews.approve(decision.review, by="ann")
        running.decide(attempt, review=decision.review)


class Tampered:
    """The file, opened past the store."""

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path, isolation_level=None)

    def __call__(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._file.execute(statement, values).fetchall()

    def rows(self) -> list[tuple[Any, ...]]:
        return self("SELECT seq, at, data, previous, hash, stored FROM audit ORDER BY seq")

    def write(self, rows: list[tuple[Any, ...]]) -> None:
        self("DELETE FROM audit")
        for row in rows:
            self("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?)", *row)

    def put_head(self, seq: int, hash: str) -> None:
        self("UPDATE sqlite_sequence SET seq = ? WHERE name = 'audit head'", f"{seq}:{hash}")
