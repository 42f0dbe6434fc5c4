"""Histories that are repeated with every request stay JSON until somebody looks, and then are what they were."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from bylaw.model.events import Request
from bylaw.traces import load_trace
from bylaw.traces.formats.messages import chat_messages
from bylaw.traces.formats.spans.attributes import elements, unflatten
from bylaw.traces.formats.spans.span import RecordedInput
from bylaw.traces.records.jsontext import REFUSED, decode_sparsely, decode_whole
from tests.importers.support import lines, requests, results

CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}],
}
ASKED: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    CALL,
    {"role": "tool", "tool_call_id": "c1", "content": "found"},
]
SHAPES: list[Any] = [
    ASKED,
    [ASKED],
    {"messages": ASKED},
    "hi",
    json.dumps(ASKED),
    json.dumps([ASKED]),
    None,
    7,
    "[",
    [],
]


@pytest.mark.parametrize("recorded", SHAPES, ids=range(len(SHAPES)))
def test_what_stayed_json_is_read_as_what_did_not(recorded: Any) -> None:
    kept = RecordedInput(Raw(json.dumps(recorded).encode()))
    plain = RecordedInput(recorded)
    assert kept.results({"c1"}, {"c1"}) == plain.results({"c1"}, {"c1"})
    assert kept.messages() == plain.messages() == chat_messages(recorded)


def test_only_undecoded_parts_stay_json() -> None:
    value = decode_sparsely(
        b'{"a": {"x": [1], "y": {"z": 2}}, "b": [[3]], "c": null, "d": [4]}', {"a": frozenset("x"), "d": None}
    )
    assert isinstance(value["a"]["x"], Raw) and isinstance(value["d"][0], Raw)
    assert decode_whole(value["a"].pop("x")) == [1]
    assert value | {"d": None} == {"a": {"y": {"z": 2}}, "b": [[3]], "c": None, "d": None}


@pytest.mark.parametrize(
    "raw", [b"[1]", b'{"a": {"x": [}}', b'{"b": 1e999}', b'{"a": {"y": 1e999}}', b'{"a": {"x": NaN}}']
)
def test_what_is_broken_or_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(REFUSED):
        decode_sparsely(raw, {"a": frozenset(("x",))})


def test_flattened_lists_are_the_same_element_by_element() -> None:
    flat = {"m.10.message.role": "c", "m.2.message.role": "b", "m.02.message.parts.0": 1, "other": 5}
    found = elements(flat, "m")
    assert found is not None and [one.nested() for one in found] == unflatten(flat, "m")
    for odd in ({"m": 1, "m.0.a": 2}, {"m.0": 1, "m.0.a": 2}, {"m.x.a": 1}):
        assert elements(odd, "m") is None


def generation(*asked: Any, **rest: Any) -> dict[str, Any]:
    data = {"type": "generation", "model": "m", "input": list(asked), "output": [CALL], **rest}
    return {"object": "trace.span", "id": "s", "trace_id": "t", "span_data": data}


def test_a_number_out_of_range_in_a_history_is_its_text() -> None:
    """Skipping does not look at the size of numbers, so that is found only when somebody looks."""
    broken = lines(generation({"role": "user", "content": 1})).replace(b'"content": 1}', b'"content": 1e999}')
    request = requests(load_trace(lines({**generation(), "id": "first"}) + broken))[1]
    assert isinstance(request, Request) and request.messages == [{"role": "user", "content": "1e999"}]


def test_a_broken_history_is_reported_where_it_stands() -> None:
    broken = lines(generation({"role": "user", "content": "x"})).replace(b'"x"', b'"\\q"')
    trace = load_trace(lines(generation()) + broken, skip_bad=True)
    assert [(problem.code, problem.span and problem.span.line) for problem in trace.problems] == [("bad-json", 2)]


def test_half_a_surrogate_in_a_history_is_repaired_with_a_warning() -> None:
    trace = load_trace(lines(generation({"role": "user", "content": "\ud800"})))
    assert [problem.code for problem in trace.problems] == ["lone-surrogate"]
    assert requests(trace)[0].messages == [{"role": "user", "content": "\ufffd"}]


def test_an_absurd_number_is_no_time() -> None:
    span = {**generation(), "started_at": 10**400, "ended_at": 10**400}
    assert requests(load_trace(lines(span)))[0].at is None


def test_a_batch_in_a_batch_is_no_message() -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "f"}}
    trace = load_trace(lines([call, [call]], {"jsonrpc": "2.0", "id": 1, "result": {"content": "x"}}), skip_bad=True)
    assert (trace.skipped, trace.problems[0].message) == (1, "a message is an object, not a list")
    assert len(results(trace)) == 1
