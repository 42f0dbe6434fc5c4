"""A stochastic agent, for measuring how often the gate cries wolf and how often it sees a real change."""

from __future__ import annotations

import random
from typing import Any

from bylaw.diff.api import compare_versions
from bylaw.diff.model import Change, DiffReport
from tests.support.build import trace

WORDS = [f"word{i}" for i in range(80)]
TOOLS = ["look_up", "search", "verify", "pay", "notify", "close"]
Turn = dict[str, Any]


def session(name: str, task: int, rng: random.Random, noise: float) -> list[Turn]:
    """One run of a task: its plan of calls, with steps skipped, repeated and reworded at random."""
    plan = random.Random(task)
    user = {"messages": [{"role": "user", "content": f"task {task}"}]}
    turns: list[Turn] = []
    for step in range(plan.randint(4, 8)):
        tool, words = plan.choice(TOOLS), plan.choices(WORDS, k=12)
        if rng.random() < noise:
            continue
        reworded = [rng.choice(WORDS) if rng.random() < noise else word for word in words]
        calls = [{"name": tool, "args": {"id": step if rng.random() > noise else rng.randint(0, 9)}}]
        turns += [_turn(name, user, calls, reworded, rng, noise)] * (2 if rng.random() < noise / 2 else 1)
    return turns or [_turn(name, user, [], ["nothing"], rng, noise)]


def _turn(name: str, user: Any, calls: Any, words: list[str], rng: random.Random, noise: float) -> Turn:
    latency = 200 * (rng.lognormvariate(0, 0.5) if noise else 1)
    tokens = [100, int(40 * (rng.lognormvariate(0, 0.3) if noise else 1))]
    return {
        "session": name,
        "request": user,
        "calls": calls,
        "text": " ".join(words),
        "latency": latency,
        "tokens": tokens,
    }


def noisy_pair(seed: int, tasks: int = 25, noise: float = 0.25) -> DiffReport:
    """The same agent on both sides, two trials each: nothing changed."""
    rng = random.Random(seed)
    sides = [
        [
            turn
            for task in range(tasks)
            for trial in range(2)
            for turn in session(f"{side}{task}.{trial}", task, rng, noise)
        ]
        for side in "bc"
    ]
    return _diff(*sides)


def swapped_pair(seed: int, sessions: int = 50, share: float = 0.3) -> DiffReport:
    """An agent without noise; in the candidate, this share of the sessions swaps one call for another tool."""
    rng = random.Random(seed)
    baseline = [session(f"s{task}", task, rng, 0.0) for task in range(sessions)]
    candidate = [[dict(turn) for turn in one] for one in baseline]
    for one in rng.sample(candidate, round(share * sessions)):
        turn = rng.choice(one)
        old = turn["calls"][0]
        turn["calls"] = [{**old, "name": rng.choice([tool for tool in TOOLS if tool != old["name"]])}]
    return _diff([t for one in baseline for t in one], [t for one in candidate for t in one])


def _diff(baseline: list[Turn], candidate: list[Turn]) -> DiffReport:
    return compare_versions([trace(baseline, name="b")], [trace(candidate, name="c")], fail_on=Change.MODERATE)


def false_alarms(runs: int, first: int = 0) -> float:
    return sum(noisy_pair(first + i).tripped for i in range(runs)) / runs


def power(runs: int, share: float, first: int = 0) -> float:
    return sum(swapped_pair(first + i, share=share).tripped for i in range(runs)) / runs
