"""Langfuse's observations, from the API and from the blob export."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.importers.support import read, requests, responses, results, story

USER = {"role": "user", "content": "refund order 7"}
ASKS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order": 7}'}}],
}


def seen(id: str, kind: str, second: int, input: Any, output: Any, **rest: Any) -> dict[str, Any]:
    return {
        "id": id,
        "traceId": "t1",
        "type": kind,
        "name": rest.pop("name", id),
        "startTime": f"2026-01-01T00:00:{second:02}.000Z",
        "endTime": f"2026-01-01T00:00:{second + 1:02}.000Z",
        "parentObservationId": "a",
        "level": "DEFAULT",
        "input": input,
        "output": output,
        **rest,
    }


RUN = [
    seen("g2", "GENERATION", 6, [USER, ASKS, {"role": "tool", "tool_call_id": "c1", "content": "done"}], "Done."),
    seen("f", "TOOL", 4, {"order": 7}, "done", name="refund"),
    seen(
        "g1",
        "GENERATION",
        2,
        {"messages": [USER], "tools": [{"type": "function"}]},
        ASKS,
        model="m",
        usageDetails={"input": 6, "input_cached_tokens": 3, "output": 4, "total": 13},
        sessionId="chat 9",
    ),
    seen("a", "AGENT", 0, None, None, parentObservationId=None, name="support"),
]
STORY = [
    "0 request user",
    "0 response",
    '0 tool_call refund {"order": 7}',
    '0 tool_result refund "done"',
    "1 request user assistant tool",
    "1 response Done.",
]
NAMES = {"traceId": "trace_id", "startTime": "start_time", "endTime": "end_time", "usageDetails": "usage_details"}
NAMES |= {"parentObservationId": "parent_observation_id", "sessionId": "session_id"}


def blob(row: dict[str, Any]) -> dict[str, Any]:
    """As the blob export writes it: other names, texts for objects, times without a zone."""
    found = {NAMES.get(key, key): value for key, value in row.items()}
    for key in ("start_time", "end_time"):
        found[key] = found[key].replace("T", " ").removesuffix("Z")
    return {key: json.dumps(value) if isinstance(value, (dict, list)) else value for key, value in found.items()}


@pytest.mark.parametrize("shape", ["lines", "page", "trace", "blob"])
def test_api_and_blob(shape: str) -> None:
    if shape == "page":
        trace = read({"data": RUN, "meta": {"page": 1}})
    elif shape == "trace":
        bare = [{key: value for key, value in row.items() if key != "sessionId"} for row in RUN]
        trace = read({"id": "t1", "sessionId": "chat 9", "observations": bare})
    else:
        trace = read(*(RUN if shape == "lines" else map(blob, RUN)))
    assert (trace.format, trace.sessions, story(trace)) == ("langfuse", ("chat 9",), STORY)
    first = responses(trace)[0]
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.cached_input_tokens, first.usage.output_tokens) == (9, 3, 4)
    assert (first.model, first.latency_ms, first.origin.agent, first.origin.run) == ("m", 1000, "support", "a")
    assert len(requests(trace)[0].tools or ()) == 1
    assert [(result.call_id, result.latency_ms) for result in results(trace)] == [("c1", 1000)]


def test_counts_that_are_inside_stay_inside() -> None:
    usage = {"input": 9, "input_cached_tokens": 3, "output": 4, "total": 13}
    (response,) = responses(read(seen("g", "GENERATION", 1, "x", "y", usageDetails=usage)))
    assert response.usage is not None
    assert response.usage.input_tokens == 9


def test_errors_and_guardrails() -> None:
    trace = read(
        seen("g", "generation", 1, [USER], ASKS),
        seen("f", "tool", 3, {"order": 7}, None, name="refund", level="ERROR", statusMessage="no such order"),
        seen("q", "guardrail", 5, "x", "blocked"),
    )
    assert story(trace)[2:] == [
        '0 tool_call refund {"order": 7}',
        '0 tool_result refund "no such order" failed',
        "None annotation guardrail",
    ]


def test_what_is_broken_is_reported() -> None:
    trace = read(*RUN, {"data": [7]}, {"nothing": 1}, 5, skip_bad=True)
    assert (trace.skipped, len(trace.turns)) == (3, 2)
