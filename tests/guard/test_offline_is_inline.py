"""One rule, one engine: what the guard matches call by call is what a check of the recorded trace finds.

Rules are in shadow, so that every call runs and the recording is the same whatever matches.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

import bylaw
from bylaw.engine.compile import compile_rules
from bylaw.engine.evaluation import Evaluation
from bylaw.guard.decide.guard import BaseGuard
from bylaw.model.events import Event, Origin, Response, ToolCall, ToolResult, Trace
from bylaw.model.verdict import Outcome, Verdict
from bylaw.rules import load_rules
from bylaw.traces import load_trace
from tests.guard.strategies import Rules, behaviour_rules, follow_ups, guard_rules, mixed_rules, steps
from tests.guard.support import START, Clock, attempt, guard
from tests.support.judge import every_way

Found = Counter[tuple[str, int]]
"""rule and the index of the event at which it is broken"""
Steps = list[tuple[Any, ...]]


def inline(rules: Rules, shown: Steps) -> tuple[list[Event], Found]:
    """What the guard says to each step, and the trace that a recorder would have written."""
    player = play(rules, shown)
    return player.events, player.found


def play(rules: Rules, shown: Steps) -> _Player:
    player = _Player(guard(rules, clock=Clock()), {rule["id"] for rule in rules if "kind" not in rule})
    player.respond("", 0)
    for kind, *fields in shown:
        getattr(player, {"call": "attempt", "result": "answer", "response": "respond"}[kind])(*fields)
    return player


class _Player:
    def __init__(self, guarding: BaseGuard, guard_rules: set[str]) -> None:
        self._guard = guarding
        self._guard_rules = guard_rules
        """for these, what cannot be judged is a violation offline too; for the others it is undecided there"""
        self._now = START
        self._turn = -1
        self._open: list[ToolCall] = []
        self.events: list[Event] = []
        self.found: Found = Counter()
        self.reported: list[tuple[str, int | None]] = []
        """rules that an observed event broke, with the turn they name"""

    def end(self) -> list[tuple[str, int | None]]:
        """What only the end of the session breaks."""
        return [(verdict.rule.id, verdict.turn) for verdict in self._guard.end_session("1")]

    def attempt(self, tool: str, arguments: Any, run: str | None, gap: float) -> None:
        self._now += gap
        call_id, i = f"c{len(self.events)}", len(self.events)
        decision = self._guard.decide(
            attempt(tool, arguments=arguments, run=run, session="1", ts=self._now, call_id=call_id)
        )
        assert decision.allowed, decision
        matches = [match.rule for match in decision.matches if match.certain or match.rule in self._guard_rules]
        self.found.update((rule, i) for rule in matches)
        origin = Origin("1", run=run)
        call = ToolCall(
            origin=origin,
            turn=self._turn,
            at=self._now,
            name=tool,
            call_id=call_id,
            arguments={} if arguments is None else arguments,
        )
        self._open.append(call)
        self.events.append(call)

    def answer(self, number: int, content: Any, gap: float) -> None:
        if not self._open:
            return
        self._now += gap
        call = self._open.pop(number % len(self._open))
        self._note(self._guard.record(call.call_id, content, session="1", ts=self._now))
        self.events.append(
            ToolResult(
                origin=call.origin,
                turn=call.turn,
                at=self._now,
                name=call.name,
                call_id=call.call_id,
                content=content,
                call=call,
            )
        )

    def respond(self, text: str, gap: float) -> None:
        self._now += gap
        self._turn += 1
        response = Response(origin=Origin("1"), turn=self._turn, at=self._now, text=text, content=[])
        self._note(self._guard.observe(response))
        self.events.append(response)

    def _note(self, verdicts: tuple[Verdict, ...]) -> None:
        i = len(self.events)
        self.found.update((v.rule.id, i) for v in verdicts if v.outcome is Outcome.VIOLATED)
        self.reported += [(v.rule.id, v.turn) for v in verdicts if v.outcome is Outcome.VIOLATED]


def offline(rules: Rules, events: list[Event]) -> Found:
    evaluation = Evaluation(compile_rules(load_rules(rules).rules))
    found: Found = Counter()
    for i, event in enumerate(events):
        found.update((v.rule.id, i) for v in evaluation.step(event) if v.outcome is Outcome.VIOLATED)
    return found


def well_formed(events: list[Event]) -> list[Event]:
    """As readers make it: a response has the calls of its turn."""
    issued: dict[int | None, list[ToolCall]] = {}
    for event in events:
        if isinstance(event, ToolCall):
            issued.setdefault(event.turn, []).append(event)
    return [
        replace(event, tool_calls=tuple(issued.get(event.turn, ()))) if isinstance(event, Response) else event
        for event in events
    ]


def agree(rules: Rules, shown: Steps) -> None:
    events, found = inline(rules, shown)
    assert offline(rules, events) == found
    report = bylaw.check(Trace(name="trace", events=tuple(events)), load_rules(rules))
    turns = Counter((rule, events[i].turn) for rule, i in found.elements())
    checked = Counter(
        (verdict.rule.id, verdict.turn)
        for finding in report.findings
        for verdict in [finding.verdict]
        if verdict.outcome is Outcome.VIOLATED and verdict.turn is not None
    )
    assert checked == turns


def as_lines(events: list[Event]) -> bytes:
    """The events as somebody would write them down: handwritten Bylaw JSONL, in their order."""
    kinds = {Response: ("text",), ToolCall: ("name", "call_id", "arguments"), ToolResult: ("call_id", "content")}
    lines: list[dict[str, Any]] = [{"bylaw": "trace/1"}]
    for event in events:
        fields = {key: getattr(event, key) for key in ("at", *kinds[type(event)])}
        who = {"session": "1", "run": event.origin.run}
        lines.append({"kind": event.kind, **who, **{key: value for key, value in fields.items() if value is not None}})
    return b"\n".join(map(msgspec.json.encode, lines))


def agree_through_a_file(rules: Rules, shown: Steps) -> None:
    """The same, where the recording was written to a file and read again."""
    events, found = inline(rules, shown)
    trace = load_trace(as_lines(events))
    assert [event.kind for event in trace.events] == [event.kind for event in events]
    assert offline(rules, list(trace.events)) == found
    assert offline(rules, well_formed(events)) == found


@given(behaviour_rules, steps)
def test_a_file_of_what_the_guard_saw_gives_its_answers(rules: Rules, shown: Steps) -> None:
    agree_through_a_file(rules, shown)


@pytest.mark.proof
@settings(max_examples=10_000)
@given(mixed_rules, steps)
def test_a_file_of_what_the_guard_saw_gives_its_answers_at_length(rules: Rules, shown: Steps) -> None:
    agree_through_a_file(rules, shown)


@given(follow_ups, steps)
def test_a_follow_up_may_be_attempted_after_its_response(rules: Rules, shown: Steps) -> None:
    """A guard is given responses without their calls; a check has them. What both report in the end is the same."""
    player = play(rules, shown)
    seen = Counter((rule, turn) for rule, turn in player.reported + player.end())
    report = bylaw.check(Trace(name="trace", events=tuple(well_formed(player.events))), load_rules(rules))
    broken = [one.verdict for one in report.findings if one.verdict.outcome is Outcome.VIOLATED]
    assert Counter((verdict.rule.id, verdict.turn) for verdict in broken) == seen


@given(mixed_rules, steps)
def test_the_guard_matches_what_a_check_finds(rules: Rules, shown: Steps) -> None:
    agree(rules, shown)


@given(behaviour_rules, steps)
def test_behaviour_rules_match_what_a_check_finds(rules: Rules, shown: Steps) -> None:
    agree(rules, shown)


@pytest.mark.proof
@settings(max_examples=10_000)
@given(mixed_rules, steps)
def test_the_guard_matches_what_a_check_finds_at_length(rules: Rules, shown: Steps) -> None:
    agree(rules, shown)


@given(guard_rules, steps)
def test_guard_rules_are_judged_alike_in_every_way(rules: Rules, shown: Steps) -> None:
    """Engine ≡ twin, index ≡ no index, peek changes nothing, snapshot → restore → same."""
    events, _ = inline(rules, shown)
    every_way(load_rules(rules).rules, well_formed(events))


@pytest.mark.proof
@settings(max_examples=10_000)
@given(guard_rules, steps)
def test_guard_rules_are_judged_alike_in_every_way_at_length(rules: Rules, shown: Steps) -> None:
    events, _ = inline(rules, shown)
    every_way(load_rules(rules).rules, well_formed(events))
