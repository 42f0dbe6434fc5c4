"""Formats are distinguished by their content, and what is not ours is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.traces import FORMATS, load_trace, open_trace
from bylaw.traces.formats.catalogue import CATALOGUE
from bylaw.traces.formats.detect import detect
from tests.unit.readers.shapes import lines, problems_of, record, request, write

USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("value", "format"),
    [
        ({"bylaw": "trace/1"}, "bylaw"),
        ({"kind": "request", "session": "a"}, "bylaw"),
        (request(), "agentlog"),
        (record("chat_reqest", {}), None),
        (USER, "openai"),
        ({"role": "assistant", "tool_calls": []}, "openai"),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "a", "input": {}}]}, "anthropic"),
        ({"type": "message", "role": "assistant", "content": [], "stop_reason": None}, "anthropic"),
        ({"messages": [USER]}, "openai"),
        ({"messages": [USER], "system": "x"}, "anthropic"),
        ({"messages": []}, "openai"),
        ({"choices": [{"message": {"role": "assistant", "content": "x"}}]}, "openai"),
        ({"type": "user_message", "content": "x"}, "events"),
        ({"type": "agent_message", "message": "x"}, "events"),
        ({"id": "x", "events": [{"type": "tool_call", "name": "a"}]}, "events"),
        ({"trace_events": []}, "events"),
        ({"task_id": 3, "traj": []}, "tau"),
        ({"resourceSpans": []}, "otlp"),
        ({"resourceLogs": []}, "otlp"),
        ({"context": {"trace_id": "t", "span_id": "s"}, "attributes": {}}, "openinference"),
        ({"trace_id": "x", "spans": [{"span_id": "s", "span_attributes": {}}]}, "openinference"),
        ({"type": "user", "message": USER, "uuid": "x"}, "claude-code"),
        ({"version": 2, "status": "success", "eval": {}, "samples": []}, "inspect"),
        ({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, "mcp"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, "responses"),
        ({"object": "response", "output": []}, "responses"),
        ({"object": "trace.span", "id": "s", "span_data": {}}, "agents-sdk"),
        ({"id": "r", "run_type": "llm", "trace_id": "t", "events": []}, "langsmith"),
        ({"id": "o", "type": "GENERATION", "traceId": "t"}, "langfuse"),
        ({"suite_name": "slack", "pipeline_name": "gt", "messages": [USER]}, "agentdojo"),
        ({"schema_version": "ATIF-v1.8", "steps": []}, "atif"),
    ],
)
def test_formats_by_their_records(value: Any, format: str | None) -> None:
    trace = load_trace(lines(value).encode(), skip_bad=True)
    assert trace.format == (format or "agentlog")
    assert load_trace([value], skip_bad=True).format == (format or "agentlog")


@pytest.mark.parametrize(
    "value",
    [
        {"jsonrpc": "2.0", "id": 1},
        {"suite_name": "slack", "pipeline_name": "gt"},
        {"type": "user", "message": USER},
        {"type": "summary", "summary": "x"},
        {"trace_id": "x", "spans": []},
        {"resourceMetrics": []},
        {"version": 2, "samples": []},
        {"object": "response", "output": "x"},
        {"type": "GENERATION", "id": "o"},
        {"steps": []},
        {"trajectory": [], "history": [USER], "info": {}},
        {"messages": ["not", "messages"]},
        {"messages": [{"type": "human", "data": {}}]},
        {"events": [{"event": "model"}]},
        {"traj": []},
        {"a": 1},
        [],
        5,
        "text",
        None,
    ],
)
def test_what_is_not_ours_is_refused(value: Any) -> None:
    (problem,) = problems_of(lines(value, value).encode())
    assert problem.code == "unknown-format"
    assert problem.help is not None
    assert "--from" not in problem.help  # no reader finds a turn in it
    assert "it looks like" in problem.message or "its records" in problem.message
    assert str(problem.span) == "trace:1:1"


def test_a_format_that_can_be_forced_is_suggested() -> None:
    values = [{"note": "x"}, {"items": [USER, {"role": "assistant", "content": "hi"}]}]
    (problem,) = problems_of(lines(*values[1:]).encode())
    assert problem.help == "`--from responses` finds turns in it; check what it reads with `bylaw inspect`"
    (metrics,) = problems_of(lines({"resourceMetrics": []}).encode())
    assert metrics.message.endswith("it looks like OpenTelemetry metrics")
    assert metrics.help == "export traces (`resourceSpans`), not metrics"


def test_a_bad_first_line_does_not_hide_the_format() -> None:
    trace = load_trace(b'{"broken\n' + lines(USER, {"role": "assistant", "content": "x"}).encode(), skip_bad=True)
    assert (trace.format, trace.skipped, len(trace.turns)) == ("openai", 1, 1)


@pytest.mark.parametrize(
    ("content", "noun"),
    [
        (b"hello\nworld\n", "plain text"),
        (b"import os\nprint(1)\n", "plain text"),
        (b"rules:\n  - id: a\n    kind: no_call\n", "a rule file"),
        (b"# ours\n- id: a\n  kind: no_call\n", "a rule file"),
        (b"apiVersion: x/v1\nguard:\n  rules: []\n", "a rule file"),
        (b'{"rules": [{"id": "a", "kind": "no_call", "params": {"tool": "x"}}]}', "a rule file"),
        (b'[{"id": "a", "when": {"tool_name_in": ["x"]}, "then": "block"}]', "a rule file"),
        (b"name: x\nservices:\n  - y\n", "YAML"),
        (b"a,b,c\n1,2,3\n", "a table"),
        (b"a;b\n1;2\n", "a table"),
        (b"<!DOCTYPE html><html></html>", "an HTML page"),
        (b"<?xml version='1.0'?><a/>", "XML"),
        (b"\x7fELF\x02\x01\x01\0" + b"\xd0\n" * 50, "a program"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "an image"),
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF document"),
        (b"SQLite format 3\0\x10\0", "a SQLite database"),
        ('{"role": "user"}'.encode("utf-16"), "text in UTF-16"),
        (b"\xff\xfb\0\x01" * 40, "binary data"),
        (b'{"schema": "bylaw.check/1", "exit_code": 0}', "a report of `bylaw check`"),
        (b'{"$schema": "https://json-schema.org/draft/2020-12/schema"}', "a JSON Schema"),
    ],
)
def test_a_file_that_is_no_trace_is_one_problem_with_what_it_looks_like(content: bytes, noun: str) -> None:
    (problem,) = problems_of(content)
    assert (problem.code, problem.message) == ("not-a-trace", f"`trace` is not a trace: it looks like {noun}")
    if noun != "a table" and content[:1] not in (b"{", b"["):
        with pytest.raises(InputError, match="not-a-trace"):
            load_trace(content, format="openai")


def test_the_suffix_helps_where_the_content_does_not(tmp_path: Path) -> None:
    path = write(tmp_path, '{"kind": \n' * 3, "t.agentlog")
    assert open_trace(path).format == "agentlog"


def test_a_format_can_be_forced() -> None:
    value = {"suite_name": "slack", "messages": [USER, {"role": "assistant", "content": "x"}]}
    assert len(load_trace([value], format="openai").turns) == 1
    with pytest.raises(ValueError, match="expected one of bylaw, agentlog"):
        load_trace([value], format="csv")


def test_a_chat_of_both_kinds_is_read_whole() -> None:
    talk = [
        USER,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "a", "input": {}}]},
        {"role": "tool", "tool_call_id": "1", "content": "x"},
        {"role": "assistant", "tool_calls": [{"id": "2", "function": {"name": "b", "arguments": "{}"}}]},
    ]
    for format in ("openai", "anthropic", None):
        trace = load_trace(json.dumps(talk).encode(), format=format)
        assert [c.name for turn in trace.turns for c in turn.tool_calls] == ["a", "b"]


def test_every_format_is_described() -> None:
    assert list(FORMATS)[:6] == ["bylaw", "agentlog", "openai", "anthropic", "bedrock", "events"]
    assert list(FORMATS) == list(CATALOGUE)
    assert all(FORMATS.values())


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_format_of_the_catalogue_can_be_loaded(name: str) -> None:
    format = CATALOGUE[name]
    assert load_trace(b"", format=name).events == ()
    assert not format.has_claims or format.claims({}) is False


def test_a_message_among_items_is_not_taken_for_a_chat() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    assert load_trace(lines({"type": "message", **USER}, call).encode()).format == "responses"


def test_no_more_records_are_looked_at_than_show_the_format() -> None:
    record = {"type": "user", "message": USER, "uuid": "x"}
    looked_at = iter([{"type": "summary", "other": 1}, record, *[record] * 8])
    assert detect(looked_at) == "claude-code"
    assert len(list(looked_at)) == 8


@pytest.mark.parametrize("system", [{}, {"system": [{"text": "Be brief."}]}])
def test_messages_of_bedrock_with_and_without_a_system_prompt(system: dict[str, Any]) -> None:
    used = {"toolUse": {"toolUseId": "c1", "name": "look", "input": {}}}
    messages = [{"role": "user", "content": [{"text": "q"}]}, {"role": "assistant", "content": [used]}]
    assert detect([{**system, "messages": messages}]) == "bedrock"
    blocks = [{"role": "user", "content": [{"type": "text", "text": "q"}]}, {"role": "assistant", "content": "a"}]
    assert detect([{**system, "messages": blocks}]) == ("anthropic" if system else "openai")
