"""Bylaw JSONL as people write it by hand, and what is said about lines that cannot be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.model.events import Annotation, Message, SessionStart
from bylaw.traces import load_trace
from tests.unit.readers.shapes import HI, MORE, calls, kinds, lines, problems_of, responses, results, sessions

HEAD = {"bylaw": "trace/1"}
RESOLVED = {"bylaw": "trace/1", "resolved": True}


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def test_a_file_written_by_hand() -> None:
    more = [*HI, {"role": "assistant", "content": "look"}, {"role": "user", "content": "yes"}]
    trace = load_trace(
        lines(
            {**HEAD, "name": "mine", "header": {"by": "me"}},
            {"kind": "request", "messages": HI, "model": "m"},
            {"kind": "response", "content": "look", "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
            {"kind": "tool_call", "name": "pay", "call_id": "c", "arguments": '{"n": 1}'},
            {"kind": "tool_result", "call_id": "c", "content": "ok"},
            {"kind": "message", "role": "user", "content": "aside"},
            {"kind": "annotation", "label": "note", "data": [1]},
            {"kind": "request", "messages": more},
            {"kind": "response", "content": [{"type": "tool_use", "id": "d", "name": "send", "input": {}}]},
            {"kind": "tool_call", "name": "send", "call_id": "d", "arguments": {}},
        ).encode()
    )
    assert (trace.name, trace.header, trace.format, trace.complete) == ("mine", {"by": "me"}, "bylaw", True)
    assert sessions(trace) == ["1", "1"]
    assert calls(trace) == [("pay", "c", 0), ("send", "d", 1)]
    assert results(trace) == [("pay", "c", 0)]
    first, second = responses(trace)
    assert (first.text, first.usage and first.usage.total) == ("look", 7)
    assert first.tool_calls[0].arguments == {"n": 1}
    assert second.request is not None
    assert second.request.messages == more
    assert sum(isinstance(event, (Message, Annotation)) for event in trace.events) == 2
    assert [event.source.line for event in responses(trace) if event.source] == [3, 9]
    assert trace.problems == ()


def test_calls_named_in_a_response_come_only_from_their_lines() -> None:
    block = {"type": "tool_use", "id": "x", "name": "from-block", "input": {}}
    trace = load_trace(
        lines(
            HEAD,
            {"kind": "response", "content": [block], "calls": ["y"]},
            {"kind": "tool_call", "name": "from-line", "call_id": "y"},
        ).encode()
    )
    assert calls(trace) == [("from-line", "y", 0)]


def test_sessions_by_hand() -> None:
    named = [{"kind": "request", "session": s, "messages": HI} for s in "aba"]
    answers = [{"kind": "response", "session": s, "content": "x"} for s in "baa"]
    assert sessions(load_trace(lines(HEAD, *named, *answers).encode())) == ["b", "a", "a"]
    afresh = [{"kind": "request", "messages": m} for m in (HI, MORE, HI)]
    talk = [line for one in afresh for line in (one, {"kind": "response", "content": "x"})]
    assert sessions(load_trace(lines(HEAD, *talk).encode())) == ["1", "1", "2"]
    marked = [{"kind": "session_start", "metadata": {"n": n}} for n in (1, 2)]
    trace = load_trace(lines(HEAD, marked[0], *talk[:2], marked[1], *talk[:2]).encode())
    assert sessions(trace) == ["1", "2"]
    assert [e.metadata for e in trace.events if isinstance(e, SessionStart)] == [{"n": 1}, {"n": 2}]


def test_who_an_event_is_from() -> None:
    line = {
        "kind": "message",
        "role": "user",
        "session": "s",
        "run": "r",
        "parent_run": "p",
        "agent": "a",
        "parent_agent": "b",
    }
    for head in (HEAD, RESOLVED):
        first, second = load_trace(lines(head, line, line).encode()).events
        assert first.origin is second.origin
        assert (first.origin.run, first.origin.parent_run, first.origin.agent) == ("r", "p", "a")
        assert first.origin.parent_agent == "b"


@pytest.mark.parametrize("head", [HEAD, RESOLVED])
@pytest.mark.parametrize(
    ("complete", "end", "wanted"),
    [
        (True, None, True),
        (False, None, False),
        ("marked", None, False),
        ("marked", {"kind": "trace_end", "complete": True}, True),
        ("marked", {"kind": "trace_end", "complete": False}, False),
        (True, {"kind": "trace_end", "complete": False, "notes": ["cut"], "skipped": 2}, False),
    ],
)
def test_complete_or_not(head: dict[str, Any], complete: Any, end: Any, wanted: bool) -> None:
    rows = [{**head, "complete": complete}, {"kind": "response", "session": "1", "content": text("a")}]
    trace = load_trace(lines(*rows, *([end] if end else [])).encode())
    assert (trace.complete, len(trace.turns)) == (wanted, 1)
    if end and "notes" in end:
        assert (trace.notes, trace.skipped) == (("cut",), 2)


def test_a_last_line_that_is_cut_off() -> None:
    data = lines({**RESOLVED, "complete": "marked"}, {"kind": "response", "session": "1"}).encode() + b'{"kind":"resp'
    trace = load_trace(data)
    assert (trace.complete, trace.skipped, len(trace.turns)) == (False, 0, 1)
    assert trace.notes[-1] == "the last record is cut off and was left out"


@pytest.mark.parametrize("head", [HEAD, RESOLVED])
def test_unknown_keys_are_named_and_passed_over(head: dict[str, Any]) -> None:
    rows = [{**head, "nmae": "x"}, {"kind": "response", "session": "1", "contnt": [], "stop_reason": "end_turn"}]
    trace = load_trace(lines(*rows).encode())
    assert [(p.code, p.is_error, p.message, p.help) for p in trace.problems] == [
        ("unknown-key", False, "unknown key `nmae`", "did you mean `name`?"),
        ("unknown-key", False, "unknown key `contnt`", "did you mean `content`?"),
    ]
    assert responses(trace)[0].stop_reason == "end_turn"


def test_only_some_unknown_keys_are_listed() -> None:
    trace = load_trace(lines(HEAD, *[{"kind": "response", "foo": 1}] * 30).encode())
    assert (len(trace.problems), len(trace.turns)) == (20, 30)
    assert "10 more unknown keys are not listed" in trace.notes


def test_another_version_is_refused() -> None:
    (problem,) = problems_of(lines({"bylaw": "trace/2", "new": 1}, {"kind": "new"}).encode(), skip_bad=True)
    assert (problem.code, str(problem.span)) == ("unsupported-version", "trace:1:11")


@pytest.mark.parametrize("head", [HEAD, RESOLVED])
@pytest.mark.parametrize(
    ("bad", "code", "message"),
    [
        ({"kind": "respnse"}, "unknown-kind", "unknown record kind `respnse`"),
        ({"session": "x"}, "wrong-type", "a record has no `kind`"),
        ({"kind": "tool_call"}, "wrong-type", "a record has no `name`"),
        ({"kind": "request", "turn": "x"}, "wrong-type", "`turn` must be a number, not text"),
        ({"kind": "response", "session": 5}, "wrong-type", "`session` must be text, not a number"),
        ([], "wrong-type", "a record is an object, not a list"),
        ({"bylaw": "trace/1"}, "unknown-kind", "a second trace begins here"),
    ],
)
def test_bad_lines(head: dict[str, Any], bad: Any, code: str, message: str) -> None:
    data = lines(head, {"kind": "response", "session": "1"}, bad).encode()
    (problem,) = problems_of(data)
    assert (problem.code, problem.message, problem.span and problem.span.line) == (code, message, 3)
    assert load_trace(data, skip_bad=True).skipped == 1


def test_a_bad_header_is_refused() -> None:
    (problem,) = problems_of(lines({**HEAD, "complete": "maybe"}).encode(), skip_bad=True)
    assert (problem.code, problem.span and problem.span.line) == ("wrong-type", 1)


def test_broken_links_are_warnings() -> None:
    rows = [
        RESOLVED,
        {"kind": "response", "session": "1", "request": 9},
        {"kind": "response", "session": "1", "calls": ["a", "b"]},
        {"kind": "tool_call", "session": "1", "name": "x", "call_id": "a"},
        {"kind": "tool_call", "session": "1", "name": "x", "call_id": "z"},
    ]
    trace = load_trace(lines(*rows).encode())
    assert [(p.code, p.span and p.span.line) for p in trace.problems] == [("broken-link", 2), ("broken-link", 3)]
    assert kinds(trace.events) == ["response", "response", "tool_call", "tool_call"]
    assert [c.call_id for c in responses(trace)[1].tool_calls] == ["a"]


def test_links_to_requests() -> None:
    rows: list[Any] = [
        RESOLVED,
        {"kind": "request", "session": "1", "model": "one"},
        {"kind": "request", "session": "2", "model": "two"},
        {"kind": "response", "session": "1"},
        {"kind": "response", "session": "1", "request": 2},
        {"kind": "response", "session": "2", "request": 3},
        {"kind": "request", "session": "1", "model": "three"},
        {"kind": "response", "session": "1", "request": None},
        {"kind": "response", "session": "1", "request": {"kind": "request", "session": "1", "model": "inside"}},
        {"kind": "request", "session": "1", "model": "four"},
        {"kind": "response", "session": "1"},
    ]
    trace = load_trace(lines(*rows).encode())
    assert [r.request and r.request.model for r in responses(trace)] == [None, "one", "two", None, "inside", "four"]
    assert trace.problems == ()


def test_a_file_without_a_header_is_read_as_written_by_hand() -> None:
    trace = load_trace(lines({"kind": "request", "messages": HI}, {"kind": "response", "content": "a"}).encode())
    assert (trace.format, len(trace.turns)) == ("bylaw", 1)


def test_lines_as_python_objects() -> None:
    trace = load_trace([HEAD, {"kind": "request", "messages": HI}, {"kind": "response", "content": "a"}])
    assert str(trace.events[1].source) == "trace:3:[2]"


def test_a_line_as_the_documentation_shows_it() -> None:
    line = json.loads('{"kind":"tool_result","call_id":"c1","content":"45","is_error":false,"latency_ms":12}')
    (event,) = load_trace(lines(HEAD, line).encode()).events
    assert event.kind == "tool_result"
