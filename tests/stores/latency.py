"""`python -m tests.stores.latency [DECISIONS]`: what a store adds to one decision, in microseconds.

A decision here reads its session and the switches, writes the session (600 bytes of state), appends one event and one
audit row (460 bytes of data each) and commits; 50 sessions take turns. One thread, nobody else on the file.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bylaw.guard.stores import MemoryStore, SqliteStore
from bylaw.guard.stores.ports import GuardStore
from bylaw.guard.stores.records import EventRow

DATA: dict[str, Any] = {
    "session": "s-12345",
    "agent": "billing",
    "run": "r1",
    "tool": "refund",
    "arguments": {"order": "A-1001", "amount": 1500, "note": "customer asked"},
    "action": "block",
    "decided_by": "big-refund",
    "matched": ["big-refund", "log-all"],
    "reason": "refunds over 1000 need a person",
    "policy": "sha256:" + "a" * 64,
    "counters": {"call_count_in_run_gt": 3, "call_count_in_session_gt": 4},
    "latency_us": 12.5,
    "review": None,
}


def measure(store: GuardStore, decisions: int, *, sessions: int = 50) -> str:
    state = os.urandom(600)
    took = sorted(_decide(store, f"session {number % sessions}", state) for number in range(decisions))
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
    figures = [f"{name} {took[int(decisions * share)] * 1e6:8.1f}" for name, share in shares.items()]
    return "   ".join([*figures, f"mean {sum(took) / decisions * 1e6:8.1f}"])


def _decide(store: GuardStore, key: str, state: bytes) -> float:
    started = time.perf_counter()
    with store.transaction(key) as transaction:
        record = transaction.session(key)
        transaction.switches()
        record.state, record.version = state, record.version + 1
        transaction.put_session(record)
        transaction.append_event(EventRow(key, "decision", time.time(), DATA))
        transaction.append_audit(time.time(), DATA)
    return time.perf_counter() - started


def main(decisions: int = 20_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        normal = SqliteStore(Path(folder) / "normal.db")
        full = SqliteStore(Path(folder) / "full.db", durability="full")
        print("memory        ", measure(MemoryStore(), decisions))
        print("sqlite normal ", measure(normal, decisions))
        print("sqlite full   ", measure(full, decisions // 20))
        normal.close()
        full.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
