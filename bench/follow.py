"""`make bench`, seventh part: how fast the follow-up goes through an event log, beside bare decoding, and its memory.

Each figure comes from a process of its own. `decoding` reads the same rows from the same SQLite file, page by page, and
decodes their JSON: nothing that follows a log can be faster. `replay` folds six rules over them (a window, a count over
the session, an argument, an order, a limit of calls, a forbidden text) and keeps what they remember of each session,
and the incidents, in a second SQLite file.

Bias: the log is written by hand in the form that a guard writes, in order, with short arguments; every call is
allowed and answered at once. A session has 100 events, and 50 sessions go on at once; a few calls break a rule.
The disk cache is warm. Memory is the highest that the process reached, interpreter and SQLite's own cache included.

    .venv/bin/python bench/follow.py --events 1000000
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

RULES: dict[str, Any] = {
    "rules": [
        {"id": "order", "kind": "must_call_before", "params": {"first": "verify", "second": "refund"}, "then": "block"},
        {"id": "limit", "kind": "temporal", "params": {"at_most": 60, "of": "send"}, "then": "block"},
        {"id": "text", "kind": "forbidden_text", "params": {"text": "internal only"}, "then": "block"},
    ],
    "guard": {
        "mode": "hitl",
        "rules": [
            {
                "id": "burst",
                "when": {"call_count_in_window_gt": {"tool": "send", "value": 30, "windowSeconds": 300}},
                "then": "pause",
            },
            {"id": "many", "when": {"call_count_in_session_gt": {"value": 48}}, "then": "block"},
            {
                "id": "cap",
                "when": {"tool_name_in": ["refund"], "arg_gt": {"path": "amount", "value": 500}},
                "then": "block",
            },
        ],
    },
}
TOOLS = ("search", "send", "verify", "search", "refund")
AT_ONCE, LONG = 50, 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--part", choices=["write", "decoding", "replay"], help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part is not None:
        print(json.dumps(globals()[f"_{given.part}"](given.path, given.events)))
        return
    print(f"{platform.machine()}, Python {platform.python_version()}")
    print("| events | decoding, events/s | replay, events/s | of decoding | replay, MiB | incidents |")
    print("|---|---|---|---|---|---|")
    for events in (given.events // 10, given.events):
        _row(events)


def _row(events: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "guard.db")
        _part("write", path, events)
        bare, full = _part("decoding", path, events), _part("replay", path, events)
    speed, full_speed = events / bare["seconds"], events / full["seconds"]
    share = f"{full_speed / speed:.0%}"
    print(f"| {events:,} | {speed:,.0f} | {full_speed:,.0f} | {share} | {full['mib']:.0f} | {full['incidents']:,} |")


def _part(part: str, path: str, events: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--part", part, "--path", path, "--events", str(events)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def _write(path: str, events: int) -> None:
    from bylaw.adapters.stores import SqliteStore

    store, rows = SqliteStore(path), _rows(events)
    done = False
    while not done:
        with store.transaction("") as transaction:
            for _ in range(20_000):
                row = next(rows, None)
                if row is None:
                    done = True
                    break
                transaction.append_event(row)
    store.close()


def _rows(events: int) -> Iterator[Any]:
    from bylaw.model.stores import EventRow

    for number in range(events):
        block, within = divmod(number, AT_ONCE * LONG)
        session, at = f"session-{block * AT_ONCE + within % AT_ONCE}", 1_700_000_000.0 + number / 10
        step, call = within // AT_ONCE, f"call-{number}"
        if step % 2:
            data = {"result_of": f"call-{number - AT_ONCE}", "content": "done", "is_error": None, "found": []}
            yield EventRow(session, "result", at, data)
            continue
        tool = TOOLS[step // 2 % len(TOOLS)]
        arguments = {"query": f"order {number}", "amount": 900 if number % 997 < 5 else 20}
        yield EventRow(session, "decision", at, {"attempt": _attempt(tool, at, arguments), "decision": _allowed(call)})


def _attempt(tool: str, at: float, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"tool": tool, "ts": at, "arguments": arguments}


def _allowed(call: str) -> dict[str, Any]:
    told = {"action": "allow", "decided_by": None, "matched": [], "reason": "", "review": None}
    counted = {"many: call_count_in_session_gt": 12}
    return {**told, "policy": "sha256:" + "0" * 64, "counters": counted, "call_id": call, "latency_us": 10.5}


def _decoding(path: str, events: int) -> dict[str, Any]:
    from bylaw.adapters.stores import SqliteStore

    store, after, started = SqliteStore(path), 0, perf_counter()
    while rows := store.events(after=after, limit=500):
        after = rows[-1].seq
    return _measured(started)


def _replay(path: str, events: int) -> dict[str, Any]:
    from bylaw.adapters.stores import SqliteStore
    from bylaw.dialects import load_guard
    from bylaw.jobs.follow.replay import replay

    store, scratch = SqliteStore(path), SqliteStore(f"{path}.scratch")
    policies = load_guard(RULES).policies
    started = perf_counter()
    found = replay(policies, store, scratch=scratch)
    assert found.events == events
    return {**_measured(started), "incidents": len(found.incidents)}


def _measured(started: float) -> dict[str, Any]:
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": perf_counter() - started, "mib": kib / 1024}


if __name__ == "__main__":
    main()
