"""One process of the killing test: decides, records, answers and resumes as fast as it can, until it is killed.

What it was told is written to a file of its own before it goes on: that much was acknowledged.
"""

from __future__ import annotations

import os
import random
import time
from contextlib import suppress
from typing import Any

from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.model import Decision
from bylaw.guard.stores import SqliteStore
from tests.guard.support import attempt, guard

LIMIT = 3
RULES: dict[str, Any] = {
    "rules": [{"id": "made", "kind": "temporal", "params": {"at_most": LIMIT, "of": "pay"}, "then": "block"}],
    "guard": {
        "mode": "hitl",
        "rules": [
            {"id": "tried", "when": {"call_count_in_session_gt": {"tool": "pay", "value": 40}}, "then": "block"},
            {"id": "ask", "when": {"tool_name_in": ["wire"]}, "then": "pause"},
        ],
    },
}


def work(path: str, acknowledged: str, seed: int) -> None:
    guarding = guard(RULES, store=SqliteStore(path, busy_timeout=300), clock=time.time, breaker_after=10**6)
    chance = random.Random(seed)
    told = os.open(acknowledged, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    while True:
        session = f"s{int(time.time() * 8)}"  # one for all, for an eighth of a second
        if chance.random() < 0.3:
            _ask(guarding, session, chance, told)
        else:
            decision = guarding.decide(attempt({"tool": "pay", "session": session, "args": {"i": chance.random()}}))
            _tell(told, decision)
            if decision.allowed and chance.random() < 0.7:
                guarding.record(decision, "paid")


def _ask(guarding: BaseGuard, session: str, chance: random.Random, told: int) -> None:
    """Everybody asks for the same few calls, so that everybody tries to use the same approvals."""
    call = attempt({"tool": "wire", "session": session, "args": {"to": chance.randrange(2)}})
    decision = guarding.decide(call)
    _tell(told, decision)
    if decision.review is None:
        return
    with suppress(ValueError):  # somebody else has
        guarding.reviews.approve(decision.review, by="ann")
    _tell(told, guarding.decide(call, review=decision.review))


def _tell(told: int, decision: Decision) -> None:
    os.write(told, f"{decision.call_id} {decision.action} {decision.decided_by}\n".encode())
