"""A stochastic agent, for measuring how often the gate trips on noise and how often it sees a real change."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from bylaw.diff.api import compare_versions
from bylaw.diff.model import Change, DiffReport
from bylaw.model.rule import Rule
from bylaw.text.decisions import decisions
from tests.support.build import trace

WORDS = [f"word{first}{second}" for first in "abcdefgh" for second in "klmnopqrst"]
TOOLS = ["look_up", "search", "verify", "list_items", "notify", "close"]
Turn = dict[str, Any]
Session = list[Turn]
Mutation = Callable[[Session, random.Random], Session]
Sides = tuple[list[list[Session]], list[list[Session]]]
"""baseline and candidate: the sessions of each task"""


def session(name: str, task: int, rng: random.Random, noise: float) -> Session:
    """One run of a task: its plan of calls, with steps skipped, repeated and reworded at random, and an answer."""
    plan = random.Random(task)
    amount = plan.randint(10, 999)
    slow = rng.lognormvariate(0, 0.5 * noise)  # the turns of a session are slow together
    asked = f"task {task}: please refund {amount} dollars to alice, order {1000 + task}"
    turns: Session = []
    for step in range(plan.randint(3, 7)):
        tool, words = plan.choice(TOOLS), plan.choices(WORDS, k=12)
        if rng.random() < noise / 2:
            continue
        args = {"id": step if rng.random() > noise / 2 else rng.randint(0, 9)}
        count = 2 if rng.random() < noise / 4 else 1
        turns += [_turn({"name": tool, "args": args}, _reworded(words, rng, noise), rng, slow)] * count
    turns.append(_turn({"name": "confirm", "args": {"amount": amount}}, [], rng, slow))
    turns.append(_turn({"name": "pay", "args": {"to": "alice", "amount": amount}}, [], rng, slow))
    said = amount if rng.random() > noise / 2 else amount + rng.randint(1, 9)
    denies = "not " if rng.random() < noise / 4 else ""
    closing = _reworded(plan.choices(WORDS, k=20), rng, noise)
    when = "after" if rng.random() < noise / 4 else "before"
    answer = [f"The refund of {said} dollars is {denies}possible,", *closing, f"and is paid {when} the holidays"]
    turns.append(_turn(None, answer, rng, slow))
    return _with_requests(name, asked, [dict(turn) for turn in turns])


def _reworded(words: list[str], rng: random.Random, noise: float) -> list[str]:
    return [rng.choice(WORDS) if rng.random() < noise else word for word in words]


def _turn(call: Any, words: list[str], rng: random.Random, slow: float) -> Turn:
    return {
        "calls": [call] if call else [],
        "text": " ".join(words),
        "latency": 200 * slow * (rng.lognormvariate(0, 0.2) if slow != 1 else 1),
        "tokens": [100, int(40 * (rng.lognormvariate(0, 0.3) if slow != 1 else 1))],
    }


def _with_requests(name: str, asked: str, turns: Session) -> Session:
    """Each request repeats what was said before, as a live conversation does."""
    messages: list[Any] = [{"role": "user", "content": asked}]
    for turn in turns:
        turn |= {"session": name, "request": {"messages": list(messages)}}
        messages += [{"role": "assistant", "content": turn["text"]}, {"role": "user", "content": "ok"}]
    return turns


# -- changes ----------------------------------------------------------------------------------------------------------


def drop(run: Session, rng: random.Random) -> Session:
    return [turn for turn in run if not _calls(turn, "confirm")]


def argument(run: Session, rng: random.Random) -> Session:
    return _with_call(run, "pay", lambda call: {**call, "args": {**call["args"], "to": "bob"}})


def swap(run: Session, rng: random.Random) -> Session:
    return _with_call(run, "confirm", lambda call: {**call, "name": "escalate"})


def refusal(run: Session, rng: random.Random) -> Session:
    return [*run[:-1], {**run[-1], "text": "I'm sorry, but I can't help with that."}]


def number(run: Session, rng: random.Random) -> Session:
    words = run[-1]["text"].split()
    return [*run[:-1], {**run[-1], "text": " ".join([*words[:3], str(rng.randint(1_000, 9_999)), *words[4:]])}]


def negation(run: Session, rng: random.Random) -> Session:
    text = run[-1]["text"].replace(" not possible", " possible").replace(" possible", " not possible")
    return [*run[:-1], {**run[-1], "text": text}]


def opposite(run: Session, rng: random.Random) -> Session:
    text = run[-1]["text"].replace(" after the", " before the").replace(" before the", " after the")
    return [*run[:-1], {**run[-1], "text": text}]


def paraphrase(run: Session, rng: random.Random) -> Session:
    def other(word: str) -> str:
        return f"other{word}" if word.startswith("word") else word

    return [{**turn, "text": " ".join(map(other, turn["text"].split()))} for turn in run]


def order(run: Session, rng: random.Random) -> Session:
    """Confirms only after it has paid."""
    first, second = run[-3], run[-2]
    return [*run[:-3], {**first, "calls": second["calls"]}, {**second, "calls": first["calls"]}, run[-1]]


def mention(run: Session, rng: random.Random) -> Session:
    """Pays the number of the order, which the user mentions too, instead of the amount."""
    asked = run[0]["request"]["messages"][0]["content"]
    number = int(asked.rsplit(" ", 1)[1])
    return _with_call(run, "pay", lambda call: {**call, "args": {**call["args"], "amount": number}})


def silence(run: Session, rng: random.Random) -> Session:
    return run[:-1]


MUTATIONS: dict[str, Mutation] = {
    "drop": drop,
    "argument": argument,
    "swap": swap,
    "refusal": refusal,
    "number": number,
    "negation": negation,
    "opposite": opposite,
    "order": order,
    "mention": mention,
    "silence": silence,
    "paraphrase": paraphrase,
}


def _calls(turn: Turn, tool: str) -> bool:
    return any(call["name"] == tool for call in turn["calls"])


def _with_call(run: Session, tool: str, change: Callable[[Any], Any]) -> Session:
    return [{**turn, "calls": [change(call) for call in turn["calls"]]} if _calls(turn, tool) else turn for turn in run]


# -- comparisons ------------------------------------------------------------------------------------------------------

DESIGNS: dict[str, Callable[[int], tuple[int, int]]] = {
    "1 v 1": lambda task: (1, 1),
    "2 v 1": lambda task: (2, 1),
    "2 v 2": lambda task: (2, 2),
    "mixed": lambda task: (2, 1) if task % 4 == 0 else (1, 1),
}
"""trials of the baseline and of the candidate for each task"""


def sides(
    seed: int,
    *,
    tasks: int = 40,
    design: str = "2 v 1",
    noise: float = 0.2,
    mutation: Mutation | None = None,
    share: float = 0.5,
) -> Sides:
    """Baseline and candidate: the sessions of each task. `share` of the candidate's sessions are changed."""
    rng = random.Random(seed)
    both: Sides = ([], [])
    for task in range(tasks):
        counts = DESIGNS[design](task) if design in DESIGNS else tuple(map(int, design.split(" v ")))
        for number, (side, count) in enumerate(zip("bc", counts, strict=True)):
            runs = [session(f"{side}{task}.{trial}", task, rng, noise) for trial in range(count)]
            if number and mutation:
                runs = [mutation(run, rng) if rng.random() < share else run for run in runs]
            both[number].append(runs)
    return both


def compare(
    both: Sides,
    rules: Sequence[Rule] = (),
    *,
    fail_on: Change = Change.SEVERE,
    deterministic: bool = False,
) -> DiffReport:
    flat = [[turn for runs in side for run in runs for turn in run] for side in both]
    traces = [trace(turns, name=name) for name, turns in zip("bc", flat, strict=True)]
    return compare_versions([traces[0]], [traces[1]], rules, fail_on=fail_on, deterministic=deterministic)


def trips(runs: int, first: int = 0, *, fail_on: Change = Change.SEVERE, **options: Any) -> float:
    """The share of simulated comparisons that trip the gate."""
    return sum(compare(sides(first + i, **options), fail_on=fail_on).tripped for i in range(runs)) / runs


def mcnemar_trips(runs: int, first: int = 0, **options: Any) -> float:
    return sum(mcnemar(sides(first + i, **options)) <= 0.05 for i in range(runs)) / runs


def mcnemar(both: Sides) -> float:
    """McNemar's exact test: does the candidate equal the first baseline run less often than the second one does?"""
    worse = better = 0
    for before, after in zip(*both, strict=True):
        if len(before) > 1:
            same = [_said(before[0]) == _said(one) for one in (before[1], after[0])]
            worse, better = worse + (same[0] and not same[1]), better + (same[1] and not same[0])
    return exact_p(worse, better)


def exact_p(worse: int, better: int) -> float:
    """The two-sided sign test of discordant pairs."""
    from math import comb

    n, least = worse + better, min(worse, better)
    return min(1.0, 2 * sum(comb(n, k) for k in range(least + 1)) / 2**n) if n else 1.0


def _said(run: Session) -> Any:
    """What exact match compares: the calls and what the answer decides."""
    calls = [turn["calls"] for turn in run if turn["calls"]]
    last = next((turn["text"] for turn in reversed(run) if turn["text"].strip()), "")
    return calls, replace(decisions(last), places=frozenset())
