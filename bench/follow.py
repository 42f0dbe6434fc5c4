"""`make bench`, seventh part: how fast the follow-up goes through an event log, beside bare decoding, and its memory.

Each figure comes from a process of its own, in events per second of its processor. `decoding` reads the same rows from
the same SQLite file, page by page, and decodes their JSON: nothing that follows a log can be faster. `replay` folds six
rules over them (a window, a count over the session, an argument, an order, a limit of calls, a forbidden text) and
keeps what they remember of each session, and the incidents, in a second SQLite file. `follow` does it live: in batches
of 500 (2,000 while it is behind, as it is here), into the store that has the log, and all that is remembered is
written with each batch.

Every session has 100 events, half of them calls and half results. Four logs: `50 at once`, so that a replay meets all
of a session in one batch; `1000 at once`, so that it meets five events of each; `broken`, 50 at once where each tenth
event breaks a rule; `unanswered`, 50 at once with 1000 calls each and no result ever, so that each session remembers
hundreds of open calls.

Bias: the log is written by hand in the form that a guard writes, in order, with short arguments; every call is allowed.
But for `broken`, one call in 2,000 breaks a rule. The disk cache is warm. Memory is the highest that the process
reached, interpreter and SQLite's own cache included: what grows with the log shows in it.

    .venv/bin/python bench/follow.py --events 1000000
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

RULES: dict[str, Any] = {
    "rules": [
        {"id": "order", "kind": "must_call_before", "params": {"first": "verify", "second": "refund"}, "then": "block"},
        {"id": "limit", "kind": "temporal", "params": {"at_most": 250, "of": "send"}, "then": "block"},
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
            {"id": "many", "when": {"call_count_in_session_gt": {"value": 1000}}, "then": "block"},
            {
                "id": "cap",
                "when": {"tool_name_in": ["refund"], "arg_gt": {"path": "amount", "value": 500}},
                "then": "block",
            },
        ],
    },
}
TOOLS = ("search", "send", "verify", "search", "refund")
LOGS = {"50 at once": (50, 100), "1000 at once": (1000, 100), "broken": (50, 100), "unanswered": (50, 1000)}
"""how many sessions go on at once, and how many events each has"""
INSERT = "INSERT INTO events (session, kind, at, data) VALUES (?, ?, ?, ?)"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--folder", help="where the logs are put: about 300 bytes an event")
    parser.add_argument("--log", choices=LOGS, default="50 at once", help=argparse.SUPPRESS)
    parser.add_argument("--part", choices=["write", "decoding", "replay", "follow"], help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part is not None:
        print(json.dumps(globals()[f"_{given.part}"](given.path, given.log, given.events)))
        return
    print(f"{platform.machine()}, Python {platform.python_version()}")
    print("| log | events | decoding, /s | replay, /s | of decoding | MiB | follow, /s | MiB | incidents |")
    print("|---|---|---|---|---|---|---|---|---|")
    for log, events in (("50 at once", given.events // 10), *((log, given.events) for log in LOGS)):
        _row(log, events, given.folder)


def _row(log: str, events: int, folder: str | None) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        path = str(Path(inside) / "guard.db")
        _part("write", path, log, events)
        bare, full, live = (_part(part, path, log, events) for part in ("decoding", "replay", "follow"))
    assert full["incidents"] == live["incidents"]
    speed, again, following = (events / one["seconds"] for one in (bare, full, live))
    share = f"{again / speed:.0%}"
    replayed = f"{speed:,.0f} | {again:,.0f} | {share} | {full['mib']:.0f}"
    print(
        f"| {log} | {events:,} | {replayed} | {following:,.0f} | {live['mib']:.0f} | {full['incidents']:,} |",
        flush=True,
    )


def _part(part: str, path: str, log: str, events: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--part", part, "--path", path, "--log", log, "--events", str(events)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def _write(path: str, log: str, events: int) -> None:
    """Straight into the table: a store would take longer than what is measured."""
    from bylaw.guard.stores import SqliteStore

    SqliteStore(path).close()
    connection, rows = sqlite3.connect(path), _rows(log, events)
    with connection:
        connection.executemany(INSERT, rows)
    connection.close()


def _rows(log: str, events: int) -> Iterator[tuple[str, str, float, str]]:
    at_once, long = LOGS[log]
    for number in range(events):
        block, within = divmod(number, at_once * long)
        session, at = f"session-{block * at_once + within % at_once}", 1_700_000_000.0 + number / 10
        step = within // at_once
        if step % 2 and log != "unanswered":
            data = {"content": "done", "found": [], "is_error": None, "result_of": f"call-{number - at_once}"}
            yield session, "result", at, _text(data)
            continue
        tool = TOOLS[step // 2 % len(TOOLS)]
        arguments = {"amount": 900 if log == "broken" or number % 997 < 5 else 20, "query": f"order {number}"}
        told = {"attempt": {"arguments": arguments, "tool": tool, "ts": at}, "decision": _allowed(f"call-{number}")}
        yield session, "decision", at, _text(told)


def _text(data: dict[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"))


def _allowed(call: str) -> dict[str, Any]:
    told = {"decided_by": None, "latency_us": 10.5, "matched": [], "policy": "sha256:" + "0" * 64}
    counted = {"many: call_count_in_session_gt": 12}
    return {"action": "allow", "call_id": call, "counters": counted, **told, "reason": "", "review": None}


def _decoding(path: str, log: str, events: int) -> dict[str, Any]:
    from bylaw.guard.stores import SqliteStore

    store, after, started = SqliteStore(path), 0, process_time()
    while rows := store.events(after=after, limit=500):
        after = rows[-1].seq
    return _measured(started)


def _replay(path: str, log: str, events: int) -> dict[str, Any]:
    from bylaw.guard.incidents.follower import replay
    from bylaw.guard.stores import SqliteStore
    from bylaw.rules import load_guard

    store, scratch = SqliteStore(path), SqliteStore(f"{path}.scratch")
    policies = load_guard(RULES).policies
    started = process_time()
    found = replay(policies, store, scratch=scratch, each=lambda incident: None)
    assert found.events == events
    return {**_measured(started), "incidents": found.count}


def _follow(path: str, log: str, events: int) -> dict[str, Any]:
    """Last: it writes into the log."""
    from bylaw.guard.incidents.follower import Correlator
    from bylaw.guard.stores import SqliteStore
    from bylaw.rules import load_guard

    store = SqliteStore(path)
    correlator, opened = Correlator(load_guard(RULES).policies, store), 0
    started = process_time()
    while (step := correlator.step()).events:
        opened += len(step.opened)
    return {**_measured(started), "incidents": opened}


def _measured(started: float) -> dict[str, Any]:
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": process_time() - started, "mib": kib / 1024}


if __name__ == "__main__":
    main()
