"""The kinds that are about calls. Where nobody knows whether a call is one that is meant, every possibility is judged.

A rule is broken where it is broken in every possible case. Otherwise it is what all cases agree on, or inconclusive.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from bylaw.model.canonical import json_equal
from bylaw.model.events import Response, ToolCall
from bylaw.model.verdict import Outcome
from tests.twin.comparison import UNKNOWN, holds_for_call, number
from tests.twin.comparison import _below as below
from tests.twin.part import Answer, Part, settled

Meant = bool | None
Case = tuple[Outcome, set[int]]
"""the outcome, and the places of the calls that break the rule"""


def is_named(call: ToolCall, names: list[str]) -> bool:
    return any(call.name == name or fnmatch.fnmatchcase(call.name, name) for name in names)


def is_meant(call: ToolCall, names: list[str], where: Any = None) -> Meant:
    if not is_named(call, names):
        return False
    if where is None:
        return True
    return holds_for_call(where, call)


def judge_no_call(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    return _at_most(0, params, part, matching)


def judge_max_calls(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    return _at_most(params["limit"], params, part, matching)


def judge_forbidden_args(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    each = [
        {"all_of": [{"path": path, "op": op, "value": value} for op, value in tests.items()]}
        for path, tests in params["args"].items()
    ]
    return _at_most(0, {"tool": params["tool"], "where": [{"any_of": each}]}, part, matching)


def judge_must_call_once(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    _, truths = _judged(params, part, matching)
    counts = range(truths.count(True), len(truths) - truths.count(False) + 1)
    outcome, breaches = _at_most(1, params, part, matching)
    if breaches or outcome is Outcome.INCONCLUSIVE:
        return outcome, breaches
    if part.complete and 0 in counts:
        return (Outcome.VIOLATED, [None]) if max(counts) == 0 else (Outcome.INCONCLUSIVE, [])
    return outcome, []


def _at_most(limit: int, params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    calls, truths = _judged(params, part, matching)
    certain = [i for i, truth in enumerate(truths) if truth]
    possible = [i for i, truth in enumerate(truths) if truth is not False]
    if len(certain) > limit:
        return Outcome.VIOLATED, [calls[i].turn for i in certain[limit:]]
    return settled(part, blind=len(possible) > limit), []


def _judged(params: dict[str, Any], part: Part, matching: list[Response]) -> tuple[list[ToolCall], list[Meant]]:
    """The calls on the turns, and whether they are meant."""
    turns = {turn.turn for turn in matching}
    calls = [call for call in part.calls if call.turn in turns]
    return calls, [is_meant(call, params["tool"], params.get("where")) for call in calls]


# -- sums -------------------------------------------------------------------------------------------------------------


def judge_max_sum(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    calls, truths = _judged(params, part, matching)
    added = [(i, truths[i], _amount(params["path"], call)) for i, call in enumerate(calls) if truths[i] is not False]
    limit = Fraction(str(params["limit"]))
    over: list[int | None] = []
    doubtful = any(amount is None for _, _, amount in added)
    known = [(i, truth, amount) for i, truth, amount in added if amount is not None and amount != "nothing"]
    for last, (i, truth, amount) in enumerate(known):
        before = known[: last + 1]
        least = sum(value for _, sure, value in before if sure)
        most = sum(value for _, _, value in before)
        if truth and amount > 0 and least > limit:
            over.append(calls[i].turn)
        elif amount > 0 and most > limit:
            doubtful = True
    if over:
        return Outcome.VIOLATED, over
    sure = any(truth for _, truth, _ in known)
    return settled(part, blind=doubtful or (not sure and bool(known)), judged=sure), []


def _amount(path: str, call: ToolCall) -> Any:
    """What a call adds: "nothing", or None if nobody knows."""
    if not isinstance(call.arguments, dict):
        return None
    values = [None if value is UNKNOWN else number(value) for value in below(call.arguments, path.split("."))]
    if None in values:
        return None
    return sum(max(Fraction(0), Fraction(str(value))) for value in values) if values else "nothing"


# -- order ------------------------------------------------------------------------------------------------------------


def judge_must_call_before(params: dict[str, Any], part: Part, matching: list[Response]) -> Answer:
    turns = {turn.turn for turn in matching}
    firsts = [(i, truth) for i, call in enumerate(part.calls) if (truth := _fits(params["first"], call)) is not False]
    seconds = [
        (i, truth)
        for i, call in enumerate(part.calls)
        if call.turn in turns and (truth := _fits(params["second"], call)) is not False
    ]
    if "same" in params:
        return _before_same(params["same"], part, firsts, seconds)
    return _combine(_cases(params["only_if_both"], part, firsts, seconds), part)


def _fits(calls: Any, call: ToolCall) -> Meant:
    given = calls if isinstance(calls, dict) else {"tool": calls}
    return is_meant(call, given["tool"], given.get("where"))


Places = Sequence[tuple[int, Meant]]


def _cases(only_if_both: bool, part: Part, firsts: Places, seconds: Places) -> list[Case]:
    """Which call is the earliest `first`, and whether all or none of the doubtful calls are a `second`."""
    certain = next((i for i, truth in firsts if truth), None)
    earliest = [i for i, _ in firsts if certain is None or i <= certain]
    return [
        _before(only_if_both, part, first, [i for i, truth in seconds if truth or doubtful_too])
        for first in [*earliest, *([None] if certain is None else [])]
        for doubtful_too in (False, True)
    ]


def _before(only_if_both: bool, part: Part, first: int | None, seconds: list[int]) -> Case:
    if only_if_both and first is None:
        return settled(part, judged=False), set()
    early = {i for i in seconds if first is None or i <= first}
    if early:
        return Outcome.VIOLATED, early
    return (Outcome.OK if seconds and first is not None else settled(part, judged=False)), set()


def _combine(cases: list[Case], part: Part) -> Answer:
    always = set.intersection(*(broken for _, broken in cases))
    outcomes = {outcome for outcome, _ in cases}
    if always:
        return Outcome.VIOLATED, [part.calls[i].turn for i in sorted(always)]
    return (outcomes.pop() if len(outcomes) == 1 else Outcome.INCONCLUSIVE), []


def _before_same(paths: list[str], part: Part, firsts: Places, seconds: Places) -> Answer:
    broken: list[int | None] = []
    doubtful = kept = False
    for i, truth in seconds:
        same = [_both(sure, _same(paths, part.calls[place], part.calls[i])) for place, sure in firsts if place < i]
        if truth and not any(one is not False for one in same):
            broken.append(part.calls[i].turn)
        elif True not in same:
            doubtful = True
        kept = kept or (bool(truth) and True in same)
    if broken:
        return Outcome.VIOLATED, broken
    return settled(part, blind=doubtful or (bool(seconds) and not kept), judged=kept), []


def _both(one: Meant, other: Meant) -> Meant:
    return False if False in (one, other) else None if None in (one, other) else True


def _same(paths: list[str], one: ToolCall, other: ToolCall) -> Meant:
    """Unknown if a value of either cannot be read; a call that lacks a value has no other with the same."""
    left, right = _values(paths, one), _values(paths, other)
    if [] in (left, right):
        return False
    if left is None or right is None:
        return None
    return all(map(json_equal, left, right))


def _values(paths: list[str], call: ToolCall) -> list[Any] | None:
    if not isinstance(call.arguments, dict):
        return None
    found = [below(call.arguments, path.split(".")) for path in paths]
    if [] in found:
        return []
    values = [value for one in found for value in one]
    return None if any(value is UNKNOWN for value in values) else values


def calls_one(must: dict[str, Any], turn: Response) -> Meant:
    truths = [is_meant(call, must["tool_name"], must.get("where")) for call in turn.tool_calls]
    return True if True in truths else None if None in truths else False
