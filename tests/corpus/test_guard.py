"""The guard on recorded traffic: SOPBench's bank, whose every dialogue says whether and where it broke its prompt.

Every call is put before a guard in shadow mode, which decides and lets it happen all the same, since it did happen. So
what follows a call that would have been stopped is judged as it was recorded.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

import bylaw
from tests.support.yaml_files import load_yaml

pytestmark = pytest.mark.corpus
RULES = Path(__file__).with_name("bank.yaml")

SENTENCES = {
    "account-exists": r'"username" must exist within',
    "admin-authenticated": r"has authenticated the admin password",
    "balance-for-the-box": r"balance of at least (\d+)",
    "can-pay-the-loan": r"the requested owed balance payment",
    "card-paid-off": r"outstanding balance on credit card",
    "credit-score": r"score higher than the (\d+)",
    "currency-known": r"exist within the database foreign exchange",
    "deposit-limit": r"deposit amount .* equal to the (\d+)",
    "destination-exists": r'"destination_username" must exist within',
    "enough-balance": r"more account balance",
    "enough-credit": r"credit of credit card",
    "exchange-limit": r"exchange amount .* equal to the (\d+)",
    "logged-in": r"is logged in previously",
    "no-account-yet": r"MUST NOT EXIST",
    "no-card-debts": r"any outstanding balance on any",
    "no-debts": r"any outstanding owed balance",
    "owes-little": r"owed balance less than (\d+)",
    "whole-database": r"the database as a whole",
}
"""by rule: words that only its sentence has"""
NO_RULE = r"equal to or greater than >=\*\* their owed|^None$|conditions must be met:$"
"""half of an either-or, whose rule goes by the other half; no sentences"""


class Dialogue(Struct):
    id: str
    label: dict[str, bool]
    first_violation: dict[str, int | None]
    """by label, which result was that of the first call that should not have been made"""
    prompt: str
    events: list[dict[str, Any]]

    @property
    def is_clean(self) -> bool:
        return not self.label["constraint_violated"] and not self.label["order_violated"]

    def calls(self) -> Iterator[tuple[str | None, Any, Any]]:
        """Tool, arguments and result, in the order of the results; no tool where nothing was called."""
        waiting: list[tuple[str, Any]] = []
        for event in self.events:
            if event["type"] == "tool_call":
                waiting.append((event["name"], event["args"]))
            elif event["type"] == "tool_result":
                found = next((i for i, (name, _) in enumerate(waiting) if name == event["name"]), None)
                call = (None, None) if found is None else waiting.pop(found)
                yield *call, as_value(event["content"])


def as_value(content: str) -> Any:
    """What the bank returned: its text is Python's, and some recordings say before it that the call went well."""
    try:
        value = ast.literal_eval(content)
    except (SyntaxError, ValueError):
        return content
    return value[1] if isinstance(value, tuple) and len(value) == 2 else value


class Replay(Struct):
    """One dialogue, and the rules that each of its calls broke, by the number of its result."""

    dialogue: Dialogue
    broken: dict[int, tuple[str, ...]]
    calls: int


class Bank:
    def __init__(self, data: Path) -> None:
        with gzip.open(data / "sopbench" / "prompts.json.gz") as file:
            self.prompts: dict[str, str] = json.load(file)
        with gzip.open(data / "sopbench" / "events.jsonl.gz") as file:
            rows = [json.loads(line) for line in file if b'"domain": "bank"' in line]
        self.dialogues = [
            Dialogue(row["id"], row["label"], row["first_violation"], row["prompt_id"], row["events"]) for row in rows
        ]

    def replay(self, every: int, *, one_file: bool = False) -> list[Replay]:
        """Every nth dialogue under the rules of its own prompt, or all of them under the file as it stands."""
        guards: dict[str, bylaw.Guard] = {}
        replays = []
        for dialogue in self.dialogues[::every]:
            key = "" if one_file else dialogue.prompt
            if key not in guards:
                rules = load_yaml(RULES.read_text()) if one_file else rules_of(self.prompts[key])
                guards[key] = bylaw.Guard(rules, shadow=True)
            replays.append(replayed(dialogue, guards[key]))
        return replays


def replayed(dialogue: Dialogue, guard: bylaw.Guard) -> Replay:
    broken, number = {}, -1
    for number, (tool, arguments, result) in enumerate(dialogue.calls()):
        if tool is None:
            continue
        decision = guard.decide(bylaw.Attempt(tool=tool, arguments=arguments, session=dialogue.id))
        assert decision.decided_by != "on_error", decision.reason
        if decision.would is not None:
            broken[number] = decision.matched or (decision.decided_by or "",)
        guard.record(decision, result)
    return Replay(dialogue, broken, number + 1)


# -- the rules of one prompt ------------------------------------------------------------------------------------------


def conditions_of(prompt: str) -> dict[str, dict[str, list[str]]]:
    """Rule → the number in its sentence, or "" → actions that have the sentence."""
    found: dict[str, dict[str, list[str]]] = {}
    _, _, text = prompt.partition("### Actions with Constraints:")
    for section in text.split("###")[0].split("\n* ")[1:]:
        action, _, body = section.partition(":")
        for sentence in filter(None, map(str.strip, body.splitlines())):
            for rule, number in recognised(sentence):
                found.setdefault(rule, {}).setdefault(number, []).append(action.strip())
    return found


def recognised(sentence: str) -> Iterator[tuple[str, str]]:
    hits = {rule: hit for rule, pattern in SENTENCES.items() if (hit := re.search(pattern, sentence))}
    assert len(hits) == 1 or (not hits and re.search(NO_RULE, sentence)), sentence
    for rule, hit in hits.items():
        yield rule, hit[1] if hit.re.groups else ""


def rules_of(prompt: str) -> dict[str, Any]:
    """The file's rules, each for the actions that this prompt has its sentence for, with its number."""
    conditions = conditions_of(prompt)
    written = load_yaml(RULES.read_text())["guard"]["rules"]
    rules = [
        adapted(rule, number, actions) for rule in written for number, actions in conditions.get(rule["id"], {}).items()
    ]
    return {"guard": {"rules": rules}}


def adapted(rule: dict[str, Any], number: str, actions: Iterable[str]) -> dict[str, Any]:
    text = json.dumps({**rule, "id": f"{rule['id']} {number}".strip()})
    if "when" not in rule:
        text = re.sub(r"tool\([^,)]*", f"tool({' | '.join(actions)}", text, count=1)
    if number:
        text = re.sub(r"((?:[<>]=?|\"value\":) )\d+", rf"\g<1>{number}", text, count=1)
    adapted: dict[str, Any] = json.loads(text)
    return adapted


# -- what came of it --------------------------------------------------------------------------------------------------


class Score(Struct):
    """Of dialogues that broke their prompt: stopped at the call that did, stopped at one before it, or not."""

    at: int = 0
    before: int = 0
    missed: int = 0

    def add(self, replay: Replay, call: int) -> None:
        if call in replay.broken:
            self.at += 1
        elif any(number < call for number in replay.broken):
            self.before += 1
        else:
            self.missed += 1

    def __str__(self) -> str:
        total = self.at + self.before + self.missed
        stopped = (self.at + self.before) / total
        return (
            f"{stopped:6.1%} of {total:,} ({self.at:,} at the call, {self.before:,} before it, {self.missed:,} missed)"
        )


def scores(replays: Iterable[Replay]) -> dict[str, Score]:
    found = {"constraint": Score(), "order": Score(), "either": Score()}
    for replay in replays:
        calls = {
            kind: call
            for kind in ("constraint", "order")
            if (call := replay.dialogue.first_violation[f"{kind}_call"]) is not None
        }
        for kind, call in calls.items():
            found[kind].add(replay, call)
        if calls:
            found["either"].add(replay, min(calls.values()))
    return found


def report(title: str, replays: list[Replay]) -> tuple[float, float]:
    """The shares of violating and of clean dialogues in which a call is stopped."""
    found, clean = scores(replays), [replay for replay in replays if replay.dialogue.is_clean]
    stopped = [replay for replay in clean if replay.broken]
    calls, false = sum(replay.calls for replay in clean), sum(len(replay.broken) for replay in stopped)
    print(f"\nSOPBench bank, {len(replays):,} dialogues, {title}")
    for kind, score in found.items():
        print(f"  stopped, {kind + ' violated:':21} {score}")
    print(f"  clean dialogues stopped:       {len(stopped) / len(clean):6.1%} of {len(clean):,}")
    print(f"  calls in them stopped:         {false / calls:6.1%} of {calls:,}")
    reasons = Counter(rule.split()[0] for replay in stopped for rule in replay.broken[min(replay.broken)])
    print(f"  by: {', '.join(f'{rule} {n}' for rule, n in reasons.most_common())}")
    either = found["either"]
    return 1 - either.missed / (either.at + either.before + either.missed), len(stopped) / len(clean)


EVERY = [60, pytest.param(1, marks=pytest.mark.proof)]


@pytest.fixture(scope="module")
def bank(data: Path) -> Bank:
    return Bank(data)


@pytest.mark.parametrize("every", EVERY)
def test_each_dialogue_under_the_rules_of_its_own_prompt(bank: Bank, every: int) -> None:
    caught, false = report("each under the rules of its own prompt", bank.replay(every))
    assert caught > false


@pytest.mark.parametrize("every", EVERY)
def test_all_dialogues_under_the_rules_of_the_fullest_prompt(bank: Bank, every: int) -> None:
    caught, false = report("all under the file as it stands", bank.replay(every, one_file=True))
    assert caught > false
