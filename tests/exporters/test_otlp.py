"""The spans that are written: valid OTLP, in OpenTelemetry's words, and readable without anything of Bylaw's own."""

from __future__ import annotations

import base64
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given

from bylaw.errors import InputError
from bylaw.model.events import Annotation, Request, Trace
from bylaw.traces import load_trace
from bylaw.traces.export import export_trace
from tests import strategies
from tests.exporters.support import refunds
from tests.importers.support import calls, lines, responses, results

IDS = {"traceId": 32, "spanId": 16, "parentSpanId": 16}


def exported(trace: Trace) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.otlp.jsonl")
        export_trace(trace, path)
        return [json.loads(line) for line in path.read_bytes().splitlines()]


def spans(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        span
        for record in records
        for resource in record["resourceSpans"]
        for scope in resource.get("scopeSpans", ())
        for span in scope["spans"]
    ]


def attributes_of(span: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def named(records: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [span for span in spans(records) if span["name"] == name]


def test_a_request_and_its_response_use_opentelemetry_attributes() -> None:
    chat = named(exported(refunds()), "chat m")[0]
    found = attributes_of(chat)
    assert (chat["kind"], chat["startTimeUnixNano"], chat["endTimeUnixNano"]) == (
        3,
        "1767225601000000000",
        "1767225603000000000",
    )
    assert {key: value for key, value in found.items() if "messages" not in key and not key.startswith("bylaw.")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": "s1",
        "gen_ai.agent.name": "support",
        "gen_ai.agent.id": "r1",
        "gen_ai.request.model": "m",
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.max_tokens": "100",
        "gen_ai.system_instructions": '[{"type":"text","content":"Be kind."}]',
        "gen_ai.tool.definitions": found["gen_ai.tool.definitions"],
        "gen_ai.response.model": "m-2",
        "gen_ai.response.finish_reasons": {"values": [{"stringValue": "tool_use"}]},
        "gen_ai.usage.input_tokens": "40",
        "gen_ai.usage.output_tokens": "9",
        "gen_ai.usage.cache_read.input_tokens": "30",
        "gen_ai.usage.reasoning.output_tokens": "4",
    }
    (tool,) = json.loads(found["gen_ai.tool.definitions"])
    assert (tool["type"], tool["name"], tool["parameters"]) == ("function", "refund", {"type": "object"})
    assert json.loads(found["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "Refund orders 7 and 8."}]}
    ]
    (answer,) = json.loads(found["gen_ai.output.messages"])
    assert (answer["role"], answer["finish_reason"]) == ("assistant", "tool_use")
    assert answer["parts"][:3] == [
        {"type": "reasoning", "content": "two"},
        {"type": "text", "content": "At once."},
        {"type": "tool_call", "id": "c1", "name": "refund", "arguments": {"order": 7}},
    ]


def test_parallel_calls_have_one_parent_and_errors_a_status() -> None:
    records = exported(refunds())
    good, bad = named(records, "execute_tool refund")
    (agent,) = named(records, "invoke_agent support")
    (below,) = named(records, "invoke_agent mailer")
    assert good["parentSpanId"] == bad["parentSpanId"] == below["parentSpanId"] == agent["spanId"]
    assert agent["parentSpanId"] == ""
    assert len({span["traceId"] for span in spans(records)}) == 1
    assert attributes_of(good)["gen_ai.tool.call.arguments"] == '{"order":7}'
    assert (attributes_of(good)["gen_ai.tool.call.result"], "status" in good) == ("done", False)
    assert (bad["status"]["code"], attributes_of(bad)["error.type"]) == (2, "tool_error")
    assert json.loads(attributes_of(bad)["gen_ai.tool.call.result"]) == {"reason": "no such order"}


def test_a_call_without_a_result_has_no_end() -> None:
    asked = {"kind": "response", "at": 5, "content": [{"type": "tool_use", "id": "c", "name": "t", "input": {}}]}
    (tool,) = named(exported(load_trace(lines(asked))), "execute_tool t")
    assert (tool["startTimeUnixNano"], "endTimeUnixNano" in tool) == ("5000000000", False)


def test_a_request_that_failed_has_the_error() -> None:
    origin = refunds().events[1].origin
    failed = Request(origin=origin, model="m")
    told_of = Annotation(origin=origin, label="error", data={"message": "overloaded"})
    (chat,) = named(exported(Trace(name="t", events=(failed, told_of))), "chat m")
    assert chat["status"] == {"code": 2, "message": "overloaded"}


def test_what_is_not_known_is_not_made_up() -> None:
    chat = named(exported(load_trace(lines({"kind": "response", "content": "a"}))), "chat")[0]
    assert {"startTimeUnixNano", "endTimeUnixNano"}.isdisjoint(chat)
    assert {key for key in attributes_of(chat) if key.startswith("gen_ai.")} == {
        "gen_ai.operation.name",
        "gen_ai.conversation.id",
        "gen_ai.output.messages",
    }


def without_ours(records: list[dict[str, Any]]) -> bytes:
    def stripped(value: Any) -> Any:
        if isinstance(value, list):
            return [
                stripped(one)
                for one in value
                if not (isinstance(one, dict) and str(one.get("key")).startswith("bylaw."))
            ]
        return {key: stripped(one) for key, one in value.items()} if isinstance(value, dict) else value

    return lines(*map(stripped, records))


def test_an_export_without_slots_reads_as_the_same_story() -> None:
    trace = refunds()
    bare = load_trace(without_ours(exported(trace)))
    assert [
        (call.turn, call.name, call.call_id, call.arguments, call.group, call.origin.agent) for call in calls(bare)
    ] == [(call.turn, call.name, call.call_id, call.arguments, call.group, call.origin.agent) for call in calls(trace)]
    assert [
        (one.turn, one.text, one.stop_reason, one.at, one.origin.agent, one.origin.parent_agent)
        for one in responses(bare)
    ] == [
        (one.turn, one.text, one.stop_reason, one.time, one.origin.agent, one.origin.parent_agent)
        for one in responses(trace)
        if one.request is not None
    ]
    assert [(one.call_id, one.content, one.is_error) for one in results(bare)] == [
        (one.call_id, one.content, one.is_error) for one in results(trace)
    ]
    first, wanted = responses(bare)[0].usage, responses(trace)[0].usage
    assert first is not None
    assert wanted is not None
    counts = ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens")
    assert [getattr(first, name) for name in counts] == [getattr(wanted, name) for name in counts]


@given(trace=strategies.traces)
def test_it_is_valid_protobuf_json(trace: Trace) -> None:
    json_format = pytest.importorskip("google.protobuf.json_format", reason="opentelemetry-proto is not installed")
    pb2 = pytest.importorskip("opentelemetry.proto.trace.v1.trace_pb2", reason="opentelemetry-proto is not installed")
    assume(trace.events)
    for record in exported(trace):
        for span in spans([record]):
            for key, length in IDS.items():  # hexadecimal in OTLP, where protobuf's JSON has base64
                assert len(span[key]) == length or (key == "parentSpanId" and span[key] == "")
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
            assert span["spanId"] != span["parentSpanId"]
        json_format.ParseDict(record, pb2.TracesData())


# Files that were changed


def problems(data: bytes) -> list[tuple[str, int | None]]:
    with pytest.raises(InputError) as error:
        load_trace(data)
    return [(one.code, one.span and one.span.line) for one in error.value.diagnostics]


def test_spans_of_others_in_the_file_are_refused_and_not_passed_over() -> None:
    records = exported(refunds())
    other = {"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "chat"}]}]}]}
    assert problems(lines(*records, other)) == [("unknown-kind", len(records) + 1)]
    assert load_trace(lines(*records, other), skip_bad=True).events == refunds().events


@pytest.mark.parametrize("other", [{"hello": 1}, {"messages": [{"role": "user", "content": '"resourceSpans"'}]}])
def test_what_is_no_otlp_at_all_is_refused_too(other: dict[str, Any]) -> None:
    records = exported(refunds())
    assert problems(lines(*records, other)) == [("unknown-kind", len(records) + 1)]
    plain = {"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "chat"}]}]}]}
    assert problems(lines(plain, other)) == [("unknown-kind", 2)]
    for nothing in ({}, {"resourceMetrics": []}, {"resourceLogs": []}):
        assert load_trace(lines(*records, nothing)).events == refunds().events
        load_trace(lines(plain, nothing))


@pytest.mark.parametrize(
    "slots",
    ["[", "7", "[7]", "[{}]", '[{"n":2,"line":{"kind":"nope"}}]', '[{"n":2,"line":{"kind":"message"}}]',
     '[{"n":2,"line":{"kind":"request"},"held":{"tools":"tools"}}]'],
)  # fmt: skip
def test_slots_that_were_changed_are_reported(slots: str) -> None:
    records = exported(refunds())
    (span,) = spans([records[1]])
    attributes = [{"key": "bylaw.events", "value": {"stringValue": slots}}]
    span["attributes"] = [*attributes, {"key": "gen_ai.tool.definitions", "value": {"stringValue": "[broken"}}]
    assert problems(lines(*records)) == [("wrong-type", 2)]


def test_another_version_is_refused() -> None:
    text = lines(*exported(refunds())).replace(b'"trace/1"}', b'"trace/9"}')
    assert {code for code, _ in problems(text)} == {"unsupported-version"}
