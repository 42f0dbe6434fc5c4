"""What OpenAI's Agents SDK exports."""

from __future__ import annotations

from typing import Any

import pytest

from tests.importers.support import calls, read, responses, results, story


def span(id: str, second: int, parent: str | None, error: Any = None, **data: Any) -> dict[str, Any]:
    return {
        "object": "trace.span",
        "id": id,
        "trace_id": "trace_1",
        "parent_id": parent,
        "started_at": f"2026-01-01T00:00:{second:02}+00:00",
        "ended_at": f"2026-01-01T00:00:{second + 1:02}+00:00",
        "span_data": data,
        "error": error,
    }


USER = {"role": "user", "content": "refund order 7"}
ASKS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order": 7}'}}],
}
RUN = [
    span("f", 3, "a", type="function", name="refund", input='{"order": 7}', output="done", mcp_data={"server": "shop"}),
    span(
        "g1",
        1,
        "a",
        type="generation",
        model="m",
        input=[USER],
        output=[ASKS],
        usage={"input_tokens": 5, "output_tokens": 2},
    ),
    span("h", 5, "a", type="handoff", from_agent="triage", to_agent="refunds"),
    span("g2", 7, "b", type="generation", model="m", input=[USER], output=[{"role": "assistant", "content": "Done."}]),
    span("b", 6, None, type="agent", name="refunds"),
    span("a", 0, None, type="agent", name="triage"),
    {"object": "trace", "id": "trace_1", "workflow_name": "w", "group_id": "chat 9"},
]
STORY = [
    "0 request user",
    "0 response",
    '0 tool_call refund {"order": 7}',
    '0 tool_result refund "done"',
    "None annotation handoff",
    "1 request user",
    "1 response Done.",
]


def test_spans_one_a_line_or_in_a_batch() -> None:
    for trace in (read(*RUN), read({"data": RUN})):
        assert (trace.format, trace.sessions, story(trace)) == ("agents-sdk", ("chat 9",), STORY)
        assert [response.origin.agent for response in responses(trace)] == ["triage", "refunds"]
        assert [(result.call_id, result.latency_ms) for result in results(trace)] == [("c1", 1000)]
        assert responses(trace)[0].usage is not None


def test_a_response_that_is_only_named() -> None:
    trace = read(
        span("r", 1, None, type="response", response_id="resp_1"),
        span("f", 3, None, type="function", name="refund", input="{}", output=None, error=None),
        span("t", 5, None, type="function", name="mail", input="{}", error={"message": "no route", "data": None}),
    )
    assert story(trace) == [
        "0 request",
        "0 response -",
        "0 tool_call refund {}",
        "0 tool_result refund null",
        "0 tool_call mail {}",
        '0 tool_result mail "no route" failed',
    ]


def test_a_response_that_is_there() -> None:
    item = {"type": "function_call", "call_id": "c1", "name": "refund", "arguments": "{}"}
    whole = {"model": "m", "output": [item], "usage": {"input_tokens": 1, "output_tokens": 2}}
    trace = read(span("r", 1, None, type="response", input=[USER], response=whole))
    assert [call.call_id for call in calls(trace)] == ["c1"]


def test_what_is_broken_is_reported() -> None:
    trace = read(*RUN, {"object": "trace.span", "id": "x"}, {"data": [7]}, skip_bad=True)
    assert (trace.skipped, len(trace.turns)) == (2, 2)


def test_a_generation_whose_output_is_items_has_all_calls_of_them() -> None:
    """As the SDK for JavaScript writes the spans of models of other providers."""

    def item(id: str, order: int) -> dict[str, Any]:
        return {"type": "function_call", "callId": id, "name": "refund", "arguments": f'{{"order": {order}}}'}

    trace = read(
        span("g", 1, None, type="generation", model="m", input=[USER], output=[item("c1", 7), item("c2", 8)]),
        span("f", 3, None, type="function", name="refund", input='{"order": 8}', output="no"),
        span("e", 3, None, type="function", name="refund", input='{"order": 7}', output="done"),
    )
    assert [(call.call_id, call.arguments, call.group) for call in calls(trace)] == [
        ("c1", {"order": 7}, 0),
        ("c2", {"order": 8}, 0),
    ]
    assert {result.call_id: result.content for result in results(trace)} == {"c1": "done", "c2": "no"}


def issued(*uses: tuple[str, str, str]) -> dict[str, Any]:
    listed = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": given}} for id, name, given in uses
    ]
    return {"role": "assistant", "content": None, "tool_calls": listed}


def waits_and_resumes(*, turns: bool, model: bool) -> list[dict[str, Any]]:
    """`mail` runs at once, `refund` waits for an approval, and runs in the run that resumes."""
    first, second = ("t1", "t2") if turns else ("a", "b")
    spans = [
        span("a", 0, None, type="agent", name="shop"),
        span("f1", 2, first, type="function", name="mail", input="{}", output="sent"),
        span("f2", 2, first, type="function", name="refund", input='{"order": 7}', output=None),
        span("b", 10, None, type="agent", name="shop"),
        span("f3", 11, "b", type="function", name="refund", input='{"order": 7}', output="done"),
    ]
    if turns:
        spans += [span("t1", 1, "a", type="custom", name="turn"), span("t2", 12, "b", type="custom", name="turn")]
    if model:
        asks, says = (
            issued(("c1", "mail", "{}"), ("c2", "refund", '{"order": 7}')),
            {"role": "assistant", "content": "ok"},
        )
        spans.append(span("g1", 1, first, type="generation", model="m", input=[USER], output=[asks]))
        spans.append(span("g2", 13, second, type="generation", model="m", input=[USER], output=[says]))
    return spans


@pytest.mark.parametrize(("turns", "model"), [(True, True), (False, True), (True, False)])
def test_a_call_that_waited_for_an_approval_counts_once(turns: bool, model: bool) -> None:
    trace = read(*waits_and_resumes(turns=turns, model=model))
    assert [call.name for call in calls(trace)] == ["mail", "refund"]
    assert [(result.name, result.content, result.origin.run) for result in results(trace)] == [
        ("mail", "sent", "a"),
        ("refund", "done", "a"),
    ]
    assert trace.problems == ()


def test_two_calls_with_one_input_are_two() -> None:
    """A tool may return nothing; a call that the model of the second run issued is another one."""
    spans = waits_and_resumes(turns=True, model=False)
    spans[4]["parent_id"], spans[4]["started_at"] = "t2", "2026-01-01T00:00:14+00:00"
    assert [call.name for call in calls(read(*spans))] == ["mail", "refund", "refund"]
    other = waits_and_resumes(turns=True, model=False)
    other[4]["span_data"]["input"] = '{"order": 8}'
    assert [call.name for call in calls(read(*other))] == ["mail", "refund", "refund"]
