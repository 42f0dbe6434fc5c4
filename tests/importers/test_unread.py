"""What was recorded and could not be read for certain is never green: a warning, and rules that it may decide are
inconclusive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.engine.compile import compile_rules
from bylaw.engine.evaluation import Evaluation
from bylaw.model.events import Trace
from bylaw.traces import load_trace
from bylaw.traces.export import export_trace
from tests.importers.support import export, lines, span
from tests.twin.behaviour import reference_check

RULES: list[dict[str, Any]] = [
    {"id": "wipe", "kind": "no_call", "scope": "session", "params": {"tool": "wipe"}},
    {"id": "text", "kind": "forbidden_text", "scope": "session", "params": {"text": "pw"}},
    {"id": "must", "kind": "must_call_once", "scope": "session", "params": {"tool": "save"}},
    {"id": "turns", "kind": "max_turns", "scope": "session", "params": {"n": 9}},
]
CALLS: list[dict[str, Any]] = [
    {"type": "function_call", "name": "wipe", "id": "x", "call_id": "1", "arguments": '{"a": 1}'},
    {"type": "tool_call", "id": "1", "name": "wipe", "arguments": {"a": 1}},
    {"type": "tool-call", "toolName": "wipe", "toolCallId": "1", "args": {"a": 1}},
    {"type": "toolUse", "name": "wipe", "id": "1", "input": {"a": 1}},
    {"type": "server_tool_call", "name": "wipe", "id": "1", "args": {"a": 1}},
    {"toolUse": {"name": "wipe", "toolUseId": "1", "input": {"a": 1}}},
    {"functionCall": {"name": "wipe", "id": "1", "args": {"a": 1}}},
]
UNREAD: list[Any] = [
    {"type": "zzz", "text": "pw"},
    {"type": "Text", "text": "pw"},
    {"type": "function_call", "arguments": "{}"},
    {"type": "tool_call", "name": "look", "toolName": "wipe"},
    {"toolUse": {"input": {}}},
    {"toolUse": {"name": "look"}, "functionCall": {"name": "wipe"}},
    {"speech": "pw"},
    {"citationsContent": {"content": "pw"}},
    {"guardContent": {"text": "pw"}},
    {"type": "data", "text": "pw"},
    {},
    {"type": 5},
    7,
]


def as_bylaw(block: Any) -> bytes:
    return lines({"bylaw": "trace/1"}, {"kind": "request"}, {"kind": "response", "content": ["hi", block]})


def as_messages(block: Any) -> bytes:
    answer = {"role": "assistant", "content": [{"type": "text", "text": "hi"}, block]}
    return json.dumps([{"role": "user", "content": "q"}, answer]).encode()


def as_agentlog(block: Any) -> bytes:
    asked = {"kind": "chat_request", "payload": {"messages": [{"role": "user", "content": "q"}]}}
    return lines(asked, {"kind": "chat_response", "payload": {"content": [{"type": "text", "text": "hi"}, block]}})


FORMATS = pytest.mark.parametrize("write", [as_bylaw, as_messages, as_agentlog])


def outcomes(trace: Trace, rules: list[dict[str, Any]] = RULES) -> dict[str, str]:
    loaded = bylaw.load_rules(rules)
    report = bylaw.check(trace, loaded)
    found = {rule.id: report.worst(rule.id).value for rule in loaded}
    whole = Evaluation(compile_rules(list(loaded)))
    for event in trace.events:
        whole.step(event)
        whole = Evaluation.restore(whole._program, whole.snapshot())
    whole.end(complete=trace.complete)
    assert {rule: outcome.value for rule, outcome in whole.outcomes().items()} == found
    return found


def written(trace: Trace, folder: Path) -> Trace:
    export_trace(trace, folder / "again.jsonl", to="bylaw")
    return load_trace(folder / "again.jsonl")


def codes(trace: Trace) -> list[str]:
    return [problem.code for problem in trace.problems]


@FORMATS
@pytest.mark.parametrize("block", CALLS)
def test_a_call_in_the_words_of_another_api_is_a_call(write: Any, block: Any) -> None:
    trace = load_trace(write(block))
    (call,) = trace.turns[0].tool_calls
    assert (call.name, call.call_id, call.arguments) == ("wipe", "1", {"a": 1})
    assert (codes(trace), trace.turns[0].response.unread, trace.turns[0].response.text) == ([], (), "hi")
    assert outcomes(trace) == {"wipe": "violated", "text": "ok", "must": "violated", "turns": "ok"}


@FORMATS
@pytest.mark.parametrize("block", UNREAD)
def test_a_block_that_is_not_understood_leaves_rules_inconclusive(write: Any, block: Any, tmp_path: Path) -> None:
    trace = load_trace(write(block))
    assert codes(trace) == ["unread-content"]
    want = {"wipe": "inconclusive", "text": "inconclusive", "must": "inconclusive", "turns": "ok"}
    assert outcomes(trace) == want
    twin = reference_check(bylaw.load_rules(RULES), trace.events)
    assert {rule: outcome.value for rule, (outcome, _) in twin.items()} == want
    again = written(trace, tmp_path)
    assert (outcomes(again), again.turns[0].response.unread) == (want, ("*",))


KNOWN: list[Any] = [
    {"text": "x"},
    {"reasoningContent": {}},
    {"type": "image"},
    "plain",
    *({"type": kind} for kind in ("source", "source-url", "source-document", "data-weather")),  # Vercel's AI SDK
    {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "aa"},  # OpenTelemetry
    {"type": "uri", "modality": "image", "uri": "u"},
    {"type": "container_upload", "file_id": "f"},  # Anthropic
    {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
    {"type": "mcp_tool_listing", "server_name": "s", "tools": []},
    {"searchResult": {"source": "s", "title": "t", "content": []}},  # Bedrock
    {"guardContent": {"image": {"format": "png"}}},
    {"audio": {"format": "mp3"}},
    {"type": "video", "url": "u"},  # LangChain
    {"type": "output_image", "image_url": "u"},
    {"type": "reference", "reference_ids": [1]},  # Mistral
    {"type": "document_url", "document_url": "u"},
    *({"type": f"reasoning.{kind}"} for kind in ("text", "summary", "encrypted")),  # OpenRouter
]
TEXTS: list[Any] = [
    {"type": "text-plain", "text": "the pw", "mime_type": "text/plain"},
    {"citationsContent": {"content": [{"text": "the "}, {"text": "pw"}], "citations": []}},
    {"guardContent": {"text": {"text": "the pw", "qualifiers": ["query"]}}},
]


@FORMATS
@pytest.mark.parametrize("block", KNOWN, ids=str)
def test_known_blocks_are_not_warned_about(write: Any, block: Any) -> None:
    trace = load_trace(write(block))
    assert (codes(trace), trace.turns[0].response.unread) == ([], ())


@FORMATS
@pytest.mark.parametrize("block", TEXTS, ids=str)
def test_text_in_blocks_of_other_types_is_text(write: Any, block: Any) -> None:
    trace = load_trace(write(block))
    assert (codes(trace), trace.turns[0].response.text) == ([], "hi\nthe pw")
    assert outcomes(trace)["text"] == "violated"


def test_a_violation_beside_it_stays_one() -> None:
    trace = load_trace(as_bylaw({"type": "zzz"}) + lines({"kind": "tool_call", "name": "wipe"}))
    assert outcomes(trace)["wipe"] == "violated"


def test_only_the_session_with_it_is_in_doubt_and_a_trace_is_as_its_worst_part() -> None:
    reported = [{"bylaw": "trace/1"}, {"kind": "response", "session": "a", "content": [{"type": "zzz"}]}]
    reported += [{"kind": "response", "session": "b", "content": "fine"}]
    loaded = bylaw.load_rules(RULES[:2])
    report = bylaw.check(load_trace(lines(*reported)), loaded)
    assert {(f.verdict.rule.id, f.verdict.session) for f in report.findings} == {("wipe", "a"), ("text", "a")}


def test_other_choices_may_hold_anything() -> None:
    choice = {"message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    trace = load_trace(json.dumps([{"role": "user", "content": "q"}, {"choices": [choice, choice]}]).encode())
    assert (codes(trace), outcomes(trace)["wipe"]) == (["unread-content"], "inconclusive")


# Two records of one call

PAY: list[dict[str, Any]] = [
    {"id": "pay", "kind": "no_call", "scope": "session", "params": {"tool": "pay"}},
    {"id": "look", "kind": "must_call_once", "scope": "session", "params": {"tool": "look"}},
    {"id": "other", "kind": "no_call", "scope": "session", "params": {"tool": "send"}},
    {"id": "when", "kind": "temporal", "scope": "session", "params": {"before": "pay", "require": "send"}},
]


def test_a_call_that_is_recorded_twice_differently_decides_nothing(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
    reported = [{"bylaw": "trace/1"}, {"kind": "response", "content": [use]}]
    reported += [{"kind": "tool_call", "call_id": "1", "name": "pay", "arguments": {"amount": 900}}]
    trace = load_trace(lines(*reported))
    assert (codes(trace), trace.turns[0].response.unread) == (["disagreeing-call"], ("look", "pay"))
    want = {"pay": "inconclusive", "look": "inconclusive", "other": "ok", "when": "inconclusive"}
    assert outcomes(trace, PAY) == want
    assert outcomes(written(trace, tmp_path), PAY) == want


def test_a_span_that_names_another_tool_than_the_answer_decides_nothing() -> None:
    parts = [{"type": "tool_call", "id": "1", "name": "look", "arguments": {}}]
    answer = {"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}])}
    chat = span("1", 1, 2, {"gen_ai.operation.name": "chat", **answer})
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay", "gen_ai.tool.call.id": "1"}
    trace = load_trace(lines(export(chat, span("2", 3, 4, ran))))
    assert codes(trace) == ["disagreeing-call"]
    assert outcomes(trace, PAY)["pay"] == "inconclusive"


# Calls that an answer announces

STOPS = ("tool_use", "tool_calls", "function_call", "tool-calls", "tool_call", "toolUse", "TOOL_CALLS")


def as_stopped(stop: str, *later: Any) -> dict[str, bytes]:
    """An answer that ends in calls and shows none, as several formats write it."""
    body = {"choices": [{"finish_reason": stop, "message": {"role": "assistant", "content": None}}]}
    answer = {"role": "assistant", "parts": [{"type": "text", "content": "hm"}], "finish_reason": stop}
    chat: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps([answer])}
    chat["gen_ai.response.finish_reasons"] = [stop]
    return {
        "bylaw": lines({"bylaw": "trace/1"}, {"kind": "response", "content": "hm", "stop_reason": stop}, *later),
        "pairs": lines({"request": {"messages": [{"role": "user", "content": "q"}]}, "response": body}),
        "otlp": lines(export(span("1", 1, 2, chat))),
        "otlp-without-content": lines(
            export(span("1", 1, 2, {key: chat[key] for key in chat if key != "gen_ai.output.messages"}))
        ),
    }


@pytest.mark.parametrize("stop", STOPS)
def test_an_answer_that_ends_in_calls_and_shows_none_decides_nothing(stop: str) -> None:
    for name, recorded in as_stopped(stop).items():
        trace = load_trace(recorded)
        assert (name, codes(trace), outcomes(trace)["wipe"]) == (name, ["unread-content"], "inconclusive")


def test_calls_that_are_recorded_after_their_answer_are_not_missing() -> None:
    call = {"kind": "tool_call", "call_id": "1", "name": "look", "arguments": {}}
    trace = load_trace(as_stopped("tool_use", call)["bylaw"])
    assert (codes(trace), outcomes(trace)["wipe"]) == ([], "ok")
    chat = span("1", 1, 2, {"gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": ["tool_calls"]})
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look", "gen_ai.tool.call.id": "1"}
    trace = load_trace(lines(export(chat, span("2", 3, 4, ran))))
    assert (codes(trace), outcomes(trace)["wipe"]) == ([], "ok")


def nameless(function: dict[str, Any]) -> list[dict[str, Any]]:
    data = [{"type": "response", "response_id": "r"}, {"type": "function", "input": "{}", **function}]
    return [{"object": "trace.span", "id": f"s{n}", "trace_id": "t", "started_at": f"2026-01-01T00:00:0{n}Z",
             "ended_at": f"2026-01-01T00:00:0{n}Z", "span_data": one} for n, one in enumerate(data)]  # fmt: skip


@pytest.mark.parametrize("function", [{}, {"output": "x"}, {"name": None}, {"name": ""}])
def test_a_span_of_a_tool_without_a_name_is_reported(function: dict[str, Any]) -> None:
    trace = load_trace(lines(*nameless(function)))
    assert (trace.format, trace.turns[0].response.unread) == ("agents-sdk", ("*",))
    assert "unread-content" in codes(trace)
    assert outcomes(trace) == {"wipe": "inconclusive", "text": "inconclusive", "must": "inconclusive", "turns": "ok"}


def test_a_span_of_a_tool_takes_its_name_from_the_call_that_it_answers() -> None:
    message = [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "wipe", "arguments": {}}]}]
    chat = span("a", 0, 1, {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(message)})
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.id": "c", "gen_ai.tool.call.result": "x"}
    trace = load_trace(lines(export(chat, span("b", 2, 3, ran, name=""))))
    assert [(event.kind, getattr(event, "name", None)) for event in trace.events][-2:] == [
        ("tool_call", "wipe"),
        ("tool_result", "wipe"),
    ]
    assert codes(trace) == []
