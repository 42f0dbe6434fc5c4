"""The processes of the killing test: some decide as fast as they can, one follows, until they are killed."""

from __future__ import annotations

import random
import time
from typing import Any

from bylaw.guard.incidents.follower import Correlator
from bylaw.guard.stores import SqliteStore
from tests.guard.support import attempt, guard, policies

RULES: dict[str, Any] = {
    "rules": [{"id": "made", "kind": "temporal", "params": {"at_most": 3, "of": "pay"}, "then": "block"}],
    "guard": {
        "mode": "hitl",
        "rules": [
            {
                "id": "burst",
                "when": {"call_count_in_window_gt": {"tool": "send", "value": 4, "windowSeconds": 60}},
                "then": "pause",
            },
            {"id": "cap", "when": {"arg_gt": {"path": "amount", "value": 8}}, "then": "block"},
        ],
    },
}


def decide(path: str, seed: int) -> None:
    guarding = guard(RULES, store=SqliteStore(path, busy_timeout=300), clock=time.time, breaker_after=10**6)
    chance = random.Random(seed)
    while True:
        session = f"s{int(time.time() * 2)}-{chance.randrange(3)}"
        fields = {"tool": chance.choice(["pay", "send"]), "session": session, "args": {"amount": chance.randrange(10)}}
        decision = guarding.decide(attempt(fields))
        if decision.allowed and chance.random() < 0.5:
            guarding.record(decision, "done")


def follow(path: str, seed: int) -> None:
    store, chance = SqliteStore(path, busy_timeout=300), random.Random(seed)
    correlator = Correlator(policies(RULES), store, notify=True, batch=chance.choice([3, 20, 200]))
    while True:
        if not correlator.step().events:
            time.sleep(0.005)
