"""Calls and results keep their recorded order inside a turn, in every format that has one, and as a guard sees it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

import bylaw
from bylaw.model.events import Origin, Response, Trace
from bylaw.model.verdict import Outcome
from bylaw.rules import load_rules
from bylaw.traces import load_trace
from bylaw.traces.export import export_trace
from tests.guard.support import Clock, attempt, guard
from tests.importers.support import calls, export, lines, read, results, span, story
from tests.unit.readers.shapes import request, response, use
from tests.unit.readers.shapes import result as returned

RULES: list[dict[str, Any]] = [
    {"id": "stop", "kind": "temporal", "params": {"never": "b", "after": {"result": "a", "error": True}}},
    {"id": "wait", "kind": "temporal", "params": {"before": "b", "require": {"result": "a"}}},
]
Step = tuple[str, str, bool]
"""`call` or `result`, the tool, and whether the call failed"""
INSIDE: list[Step] = [("call", "a", False), ("result", "a", True), ("call", "b", False)]
ATONCE: list[Step] = [("call", "a", False), ("call", "b", False), ("result", "a", True)]


# One turn in three formats


def as_bylaw(steps: list[Step]) -> bytes:
    reported: list[Any] = [{"bylaw": "trace/1"}, {"kind": "request"}, {"kind": "response", "content": "on it"}]
    for at, (kind, tool, failed) in enumerate(steps, 1):
        more = {"content": "x", "is_error": failed} if kind == "result" else {"arguments": {}}
        reported.append({"kind": f"tool_{kind}", "name": tool, "call_id": tool, "at": 1e9 + at, **more})
    return lines(*reported)


def as_agentlog(steps: list[Step]) -> bytes:
    reported = [request(), response("on it")]
    for kind, tool, failed in steps:
        payload: dict[str, Any] = {"tool_name": tool, "tool_call_id": tool}
        payload |= {"output": "x", "is_error": failed} if kind == "result" else {"arguments": {}}
        reported.append({**returned("?"), "kind": f"tool_{kind}", "payload": payload})
    return lines(*reported)


def as_spans(steps: list[Step], *, issued: bool = False) -> bytes:
    """A tool's span from its call to its result; one without a result lasts until after the others."""
    tools = [tool for kind, tool, _ in steps if kind == "call"]
    found = []
    for number, tool in enumerate(tools):
        start = 2 + steps.index(("call", tool, False))
        over = [(at, failed) for at, (kind, name, failed) in enumerate(steps) if (kind, name) == ("result", tool)]
        end, failed = (2 + over[0][0], over[0][1]) if over else (90 + number, False)
        values = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.tool.call.id": tool}
        values |= {"error.type": "tool_error"} if failed else {}
        found.append(span(tool, start, end, values, status={"code": 2} if failed else {}))
    parts = [{"type": "tool_call", "id": tool, "name": tool, "arguments": {}} for tool in tools if issued]
    chat = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "s"}
    if parts:
        chat["gen_ai.output.messages"] = _json([{"role": "assistant", "parts": parts}])
    return lines(export(span("m", 0, 1, chat), *found))


def _json(value: Any) -> str:
    return lines(value).decode().strip()


FORMATS = {
    "bylaw": as_bylaw,
    "agentlog": as_agentlog,
    "otlp": as_spans,
    "otlp, in the answer too": lambda steps: as_spans(steps, issued=True),
}


def ran(trace: Trace) -> list[tuple[str, str | None]]:
    events = [event for event in trace.events if event.kind in ("tool_call", "tool_result")]
    return [(event.kind.removeprefix("tool_"), getattr(event, "name", None)) for event in events]


def decided(steps: list[Step]) -> dict[str, set[str]]:
    """The rules that a guard matches at each call, where every call runs."""
    running = guard([{**rule, "then": "block", "shadow": True} for rule in RULES], clock=Clock())
    running.observe(Response(origin=Origin("1"), text="on it", content=[]))
    found: dict[str, set[str]] = {}
    for kind, tool, failed in steps:
        if kind == "call":
            matched = running.decide(attempt(tool, session="1", call_id=tool)).matches
            found[tool] = {match.rule for match in matched}
        else:
            running.record(tool, "x", session="1", is_error=failed)
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_after_a_result_stays_after_it(name: str) -> None:
    trace = load_trace(FORMATS[name](INSIDE))
    expected = [("call", "a"), ("result", "a"), ("call", "b")]
    assert ran(trace)[:3] == expected
    (turn,) = trace.turns
    assert [call.name for call in turn.tool_calls] == ["a", "b"]  # conditions see the whole turn
    assert {call.turn for call in calls(trace)} == {0}
    assert broken(trace) == {"stop"} == decided(INSIDE)["b"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_result_after_both_calls_stays_there(name: str) -> None:
    trace = load_trace(FORMATS[name](ATONCE))
    assert ran(trace)[:3] == [("call", "a"), ("call", "b"), ("result", "a")]
    assert broken(trace) == {"wait"} == decided(ATONCE)["b"]


def broken(trace: Trace, rules: Any = RULES) -> set[str]:
    report = bylaw.check(trace, load_rules(rules))
    return {finding.verdict.rule.id for finding in report.findings if finding.verdict.outcome is Outcome.VIOLATED}


@pytest.mark.parametrize("batch", [0, *(pytest.param(batch, marks=pytest.mark.proof) for batch in range(1, 20))])
def test_every_format_gives_the_guards_answer(batch: int) -> None:
    """Random calls and results of one turn, 30 a batch: three formats, and each of them written and read again."""
    for seed in range(batch * 30, batch * 30 + 30):
        rng, waiting, steps = Random(seed), ["a", "b", "c", "d"], list[Step]()
        open_calls: list[str] = []
        while waiting or (open_calls and rng.random() < 0.8):
            if waiting and (not open_calls or rng.random() < 0.5):
                open_calls.append(waiting.pop(rng.randrange(len(waiting))))
                steps.append(("call", open_calls[-1], False))
            else:
                steps.append(("result", open_calls.pop(rng.randrange(len(open_calls))), rng.random() < 0.5))
        expected = {rule for matched in decided(steps).values() for rule in matched}
        for name, write in FORMATS.items():
            assert broken(load_trace(write(steps))) == expected, (seed, name, steps)


@pytest.mark.parametrize("to", ["bylaw", "otlp", "atif"])
@pytest.mark.parametrize("name", FORMATS)
def test_the_order_survives_a_conversion(name: str, to: str, tmp_path: Path) -> None:
    trace = load_trace(FORMATS[name](INSIDE))
    path = tmp_path / "out.jsonl"
    export_trace(trace, path, to=to)
    again = load_trace(path)
    assert again.events == trace.events


# What is recorded twice


def test_a_call_in_the_response_with_a_record_of_its_own_after_a_result_ran_there() -> None:
    trace = load_trace(
        lines(
            request(),
            response(use("a", "1"), use("b", "2"), use("c", "3")),
            {**returned("1"), "kind": "tool_call", "payload": {"tool_name": "a", "tool_call_id": "1", "arguments": {}}},
            returned("1"),
            {**returned("2"), "kind": "tool_call", "payload": {"tool_name": "b", "tool_call_id": "2", "arguments": {}}},
            returned("2"),
        )
    )
    assert ran(trace) == [("call", "a"), ("call", "c"), ("result", "a"), ("call", "b"), ("result", "b")]
    assert [call.name for call in trace.turns[0].tool_calls] == ["a", "b", "c"]
    assert trace.problems == ()


def test_calls_of_other_sessions_in_between() -> None:
    records = [
        {"kind": kind, "session": session, **rest}
        for kind, session, rest in [
            ("response", "1", {"content": "x"}),
            ("tool_call", "1", {"name": "a", "call_id": "1"}),
            ("response", "2", {"content": "y"}),
            ("tool_result", "1", {"call_id": "1"}),
            ("tool_call", "2", {"name": "c", "call_id": "3"}),
            ("tool_call", "1", {"name": "b", "call_id": "2"}),
        ]
    ]
    trace = load_trace(lines({"bylaw": "trace/1"}, *records))
    assert ran(trace) == [("call", "a"), ("result", "a"), ("call", "c"), ("call", "b")]
    assert [[call.name for call in turn.tool_calls] for turn in trace.turns] == [["a", "b"], ["c"]]


def test_calls_that_openai_ran_itself() -> None:
    items = [
        {"type": "mcp_call", "id": "1", "name": "a", "arguments": "{}", "server_label": "s", "error": "no"},
        {"type": "mcp_call", "id": "2", "name": "b", "arguments": "{}", "server_label": "s", "output": "ok"},
    ]
    trace = read({"object": "response", "id": "r", "output": items})
    assert ran(trace) == [("call", "a"), ("result", "a"), ("call", "b"), ("result", "b")]
    assert broken(trace) == {"stop"}


# Where nobody knows


def tied(**times: tuple[float, float]) -> Trace:
    tools = [
        span(
            name, *at, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.id": name}
        )
        for name, at in times.items()
    ]
    return read(export(span("m", 0, 1, {"gen_ai.operation.name": "chat"}), *tools))


def test_an_unknown_order_is_said_once_and_decides_nothing() -> None:
    trace = tied(a=(2, 3), b=(3, 4), c=(4, 5))
    (problem,) = trace.problems
    assert (problem.code, problem.severity) == ("unknown-order", "warning")
    assert [call.unordered for call in calls(trace)] == [(), ("a",), ("b",)]
    report = bylaw.check(trace, load_rules(RULES))
    assert _undecided(report) == {"stop", "wait"}


def test_other_rules_are_not_concerned() -> None:
    rules = [{"id": "wait", "kind": "temporal", "params": {"before": "c", "require": {"result": "a"}}}]
    assert not _undecided(bylaw.check(tied(a=(2, 3), b=(3, 4), c=(5, 6)), load_rules(rules)))


def _undecided(report: Any) -> set[str]:
    return {one.verdict.rule.id for one in report.findings if one.verdict.outcome is Outcome.INCONCLUSIVE}


def untimed(*names: str) -> Any:
    """A turn with tools whose spans have no time."""
    about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": "x"}
    tools = [span(f"{name}{at}", 0, 0, {**about, "gen_ai.tool.name": name}) for at, name in enumerate(names)]
    for tool in tools:
        del tool["startTimeUnixNano"], tool["endTimeUnixNano"]
    return read(export(span("m", 0, 1, {"gen_ai.operation.name": "chat"}), *tools))


def test_spans_without_a_time() -> None:
    trace = untimed("a", "b")
    assert [call.unordered for call in calls(trace)] == [("b",), ("a",)]
    assert [result.name for result in results(trace)] == ["a", "b"]
    assert [problem.code for problem in trace.problems] == ["unknown-order"]


def test_a_call_may_be_unordered_with_another_of_its_own_tool_or_with_any() -> None:
    assert [call.unordered for call in calls(untimed("a", "a", "b"))] == [("a", "b"), ("a", "b"), ("a",)]
    assert {len(call.unordered) for call in calls(untimed(*(f"t{at:03}" for at in range(101))))} == {100}
    assert {call.unordered for call in calls(untimed(*(f"t{at:03}" for at in range(102))))} == {("*",)}


def test_an_unknown_order_survives_a_conversion(tmp_path: Path) -> None:
    trace = tied(a=(2, 3), b=(3, 4))
    for to in ("bylaw", "otlp", "atif"):
        export_trace(trace, tmp_path / f"{to}.jsonl", to=to)
        again = load_trace(tmp_path / f"{to}.jsonl")
        assert story(again) == story(trace)
        assert [call.unordered for call in calls(again)] == [(), ("a",)]


@pytest.mark.parametrize("issued", [False, True])
@pytest.mark.parametrize("tools", ["a", "b", "ab", "mab"])
@pytest.mark.parametrize("lost", ["startTimeUnixNano", "endTimeUnixNano", "both", "zero"])
def test_a_span_without_a_time_has_no_order_whatever_the_answer_holds(tools: str, lost: str, issued: bool) -> None:
    reported = json.loads(as_spans([*INSIDE, ("result", "b", False)], issued=issued))
    times = ["startTimeUnixNano", "endTimeUnixNano"]
    for one in reported["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for key in times if lost in ("both", "zero") else [lost]:
            if one["spanId"] in tools and lost == "zero":
                one[key] = "0"
            elif one["spanId"] in tools:
                del one[key]
    trace = read(reported)
    loose = ("a" in tools and lost != "startTimeUnixNano") or ("b" in tools and lost != "endTimeUnixNano")
    codes = [problem.code for problem in trace.problems]
    assert codes == ["unknown-order"] or (codes == [] and not loose)
    assert _undecided(bylaw.check(trace, load_rules(RULES))) == ({"stop", "wait"} if loose else set())
