"""One process of the killing test: decides, records, answers, resumes, exchanges its rules and forks as fast as it can,
until it is killed.

What it was told is written to a file of its own before it goes on: that much was acknowledged.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import time
from contextlib import suppress
from typing import Any

import bylaw
from bylaw.guard.stores import SqliteStore
from tests.guard.support import attempt

LIMIT = 3


def _rules(made: str, *more: dict[str, Any]) -> dict[str, Any]:
    limit = {"at_most": LIMIT, "of": "pay"}
    return {
        "rules": [
            {
                "id": "made",
                "kind": "temporal",
                "params": limit,
                "scope": "session",
                "then": "block",
                "reason": made,
            }
        ],
        "guard": {
            "mode": "hitl",
            "rules": [
                {"id": "tried", "when": {"call_count_in_session_gt": {"tool": "pay", "value": 40}}, "then": "block"},
                {"id": "ask", "when": {"tool_name_in": ["wire"]}, "then": "pause"},
                *more,
            ],
        },
    }


VERSIONS = (
    _rules("enough"),
    _rules("no more"),
    _rules("enough", {"id": "x", "when": {"tool_name_in": ["x"]}, "then": "block"}),
)
"""they differ in what neither the limit nor an approval depends on"""


def work(path: str, acknowledged: str, seed: int, alive: str) -> None:
    """`alive` is locked until this process and all that it has forked have ended."""
    fcntl.flock(os.open(alive, os.O_RDONLY), fcntl.LOCK_SH)
    guard = bylaw.Guard(VERSIONS[seed % 3], store=SqliteStore(path, busy_timeout=300), breaker_after=10**6)
    chance = random.Random(seed)
    reported = os.open(acknowledged, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    while True:
        act(guard, chance, reported)
        if chance.random() < 0.03:
            _fork(guard, random.Random(chance.random()), reported)
        if chance.random() < 0.03:
            guard.reload(chance.choice(VERSIONS))


def _fork(guard: bylaw.Guard, chance: random.Random, reported: int) -> None:
    child = os.fork()
    if not child:
        try:
            for _ in range(chance.randrange(1, 6)):
                act(guard, chance, reported)
        finally:
            os._exit(0)
    if chance.random() < 0.5:
        time.sleep(chance.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
    if chance.random() < 0.5:  # else it may outlive this process
        os.waitpid(child, 0)


def act(guard: bylaw.Guard, chance: random.Random, reported: int) -> None:
    session = f"s{int(time.time() * 8)}"  # one for all, for an eighth of a second
    if chance.random() < 0.3:
        _ask(guard, session, chance, reported)
        return
    decision = guard.decide(attempt({"tool": "pay", "session": session, "args": {"i": chance.random()}}))
    _tell(reported, decision)
    if decision.allowed and chance.random() < 0.7:
        guard.record(decision, "paid")


def _ask(guard: bylaw.Guard, session: str, chance: random.Random, reported: int) -> None:
    """Everybody asks for the same few calls, so that everybody tries to use the same approvals. Some are edited."""
    to = chance.randrange(2)
    call = attempt({"tool": "wire", "session": session, "args": {"to": to, "amount": 900}})
    decision = guard.decide(call)
    _tell(reported, decision)
    if decision.review is None:
        return
    edited = {"tool": "wire", "arguments": {"to": to, "amount": 5}}
    with suppress(ValueError):  # somebody else has
        guard.reviews.approve(decision.review, by="ann", edited=chance.choice([None, edited]))
    _tell(reported, guard.decide(call, review=decision.review))
    _tell(
        reported,
        guard.decide(
            attempt({"tool": "wire", "session": session, "args": edited["arguments"]}), review=decision.review
        ),
    )


def _tell(reported: int, decision: bylaw.Decision) -> None:
    os.write(reported, f"{decision.call_id} {decision.action} {decision.decided_by}\n".encode())
