"""Spans and log records as recorders name them: the run of a tool is read, or reported as unread, and never dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest

import bylaw
from bylaw.model.events import Trace
from bylaw.traces.assembly import assembler
from tests.importers.support import attributes, calls, export, log, read, responses, results, span, story

SAID = {"role": "assistant", "parts": [{"type": "text", "content": "I do it."}]}
CHAT = span("a", 0, 1, {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps([SAID])})
ARGS, DONE = '{"order": 7}', '"done"'
WHERE = [{"path": "order", "op": "==", "value": 7}]
LOADED = bylaw.load_rules(
    [
        {"id": "call", "kind": "no_call", "scope": "session", "params": {"tool": "refund"}},
        {"id": "where", "kind": "no_call", "scope": "session", "params": {"tool": "refund", "where": WHERE}},
        {"id": "other", "kind": "no_call", "scope": "session", "params": {"tool": "mail"}},
        {"id": "turns", "kind": "max_turns", "scope": "session", "params": {"n": 9}},
    ]
)
FOUND = {"call": "violated", "where": "violated", "other": "ok", "turns": "ok"}
UNREAD = {"call": "inconclusive", "where": "inconclusive", "other": "ok", "turns": "ok"}
ANY = {**UNREAD, "other": "inconclusive"}


def outcomes(trace: Trace) -> dict[str, str]:
    report = bylaw.check(trace, LOADED)
    return {rule.id: report.worst(rule.id).value for rule in LOADED}


def codes(trace: Trace) -> list[str]:
    return [problem.code for problem in trace.problems]


# Vocabularies that are read


READ: dict[str, tuple[str, dict[str, Any]]] = {
    "spring": ("tool_call refund", {
        "gen_ai.operation.name": "framework", "spring.ai.kind": "tool_call", "spring.ai.tool.definition.name": "refund",
        "spring.ai.tool.call.arguments": ARGS, "spring.ai.tool.call.result": "done"}),
    "mlflow": ("refund", {"mlflow.spanType": '"TOOL"', "mlflow.spanInputs": ARGS, "mlflow.spanOutputs": DONE}),
    "mlflow-numbered": ("refund_2", {
        "mlflow.spanType": '"TOOL"', "mlflow.spanFunctionName": '"refund"', "mlflow.spanInputs": ARGS,
        "mlflow.spanOutputs": DONE}),
    "langwatch": ("refund", {
        "langwatch.span.type": "tool", "langwatch.input": '{"type": "json", "value": {"order": 7}}',
        "langwatch.output": '{"type": "text", "value": "done"}'}),
    "langwatch-plain": ("refund", {
        "langwatch.span.type": "tool", "langwatch.input": ARGS, "langwatch.output": "done"}),
    "agentops": ("refund.tool", {
        "agentops.span.kind": "tool", "operation.name": "refund",
        "agentops.entity.input": '{"args": [], "kwargs": {"order": 7}}', "agentops.entity.output": DONE}),
    "agentops-callback": ("refund", {
        "agentops.span.kind": "tool", "tool.name": "refund", "tool.parameters": ARGS, "tool.result": "done"}),
    "braintrust": ("refund", {
        "braintrust.span_attributes": '{"type": "tool"}', "braintrust.input_json": ARGS,
        "braintrust.output_json": DONE}),
    "braintrust-flat": ("refund", {
        "braintrust.span_attributes.type": "tool", "braintrust.input": ARGS, "braintrust.output": DONE}),
    "opik": ("refund", {"opik.span.type": "tool", "opik.input": ARGS, "opik.output": "done"}),
    "haystack": ("haystack.agent.step.tool", {
        "haystack.tool.name": "refund", "haystack.agent.step.tool.input": ARGS,
        "haystack.agent.step.tool.output": DONE}),
    "mcp": ("mcp.tool.refund", {"mcp.tool.name": "refund", "mcp.tool.arguments": ARGS, "mcp.tool.result": "done"}),
    "mastra": ("tool: 'refund'", {
        "mastra.span.type": "tool_call", "gen_ai.tool.name": "refund", "mastra.tool_call.input": ARGS,
        "mastra.tool_call.output": "done"}),
    "sentry": ("execute_tool refund", {
        "gen_ai.tool.name": "refund", "gen_ai.tool.input": ARGS, "gen_ai.tool.output": "done"}),
    "operation": ("x", {
        "gen_ai.operation.name": "tool", "tool.name": "refund", "gen_ai.prompt": ARGS, "gen_ai.completion": DONE}),
    "langsmith": ("refund", {"langsmith.span.kind": "tool", "gen_ai.prompt": ARGS, "gen_ai.completion": DONE}),
    "langsmith-text": ("refund", {
        "langsmith.span.kind": "tool", "gen_ai.operation.name": "execute_tool",
        "gen_ai.prompt": json.dumps({"input": "{'order': 7}"}), "gen_ai.completion": '{"output": "done"}'}),
    "openllmetry-mcp": ("refund.tool", {
        "traceloop.span.kind": "tool", "traceloop.entity.name": "refund",
        "traceloop.entity.input": '{"tool_name": "refund", "arguments": {"order": 7}}',
        "traceloop.entity.output": '{"result": "done"}'}),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_a_tool_in_the_words_of_a_recorder_is_a_call(name: str) -> None:
    own, values = READ[name]
    trace = read(export(CHAT, span("t", 2, 3, values, name=own)))
    assert [(call.name, call.arguments) for call in calls(trace)] == [("refund", {"order": 7})]
    assert [result.content for result in results(trace)] == ["done"]
    assert (outcomes(trace), codes(trace)) == (FOUND, [])


MESSAGES = [{"role": "user", "content": "hi"}]
USE = {"id": "c", "function": {"name": "refund", "arguments": ARGS}}
ANSWER = {"role": "assistant", "content": None, "tool_calls": [USE]}
MODELS: dict[str, dict[str, Any]] = {
    "mlflow": {
        "mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanInputs": json.dumps({"messages": MESSAGES}),
        "mlflow.spanOutputs": json.dumps({"choices": [{"message": ANSWER}]}), "mlflow.llm.model": '"m"',
        "mlflow.chat.tokenUsage": '{"input_tokens": 5, "output_tokens": 2}'},
    "braintrust": {
        "braintrust.span_attributes": '{"type": "llm"}', "braintrust.input_json": json.dumps(MESSAGES),
        "braintrust.output_json": json.dumps([{"message": ANSWER}]), "braintrust.metadata": '{"model": "m"}',
        "braintrust.metrics": '{"prompt_tokens": 5, "completion_tokens": 2}'},
    "langwatch": {
        "langwatch.span.type": "llm", "langwatch.input": json.dumps({"type": "chat_messages", "value": MESSAGES}),
        "langwatch.output": json.dumps({"type": "chat_messages", "value": [ANSWER]}), "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 5, "gen_ai.usage.output_tokens": 2},
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_model_in_the_words_of_a_recorder_is_a_turn(name: str) -> None:
    trace = read(export(span("a", 0, 1, MODELS[name])))
    assert story(trace) == ["0 request user", "0 response", '0 tool_call refund {"order": 7}']
    (turn,) = responses(trace)
    assert (turn.model, turn.usage and (turn.usage.input_tokens, turn.usage.output_tokens)) == ("m", (5, 2))


@pytest.mark.parametrize("operation", ["completion", "response", "llm_call"])
def test_operations_of_models_under_other_names_are_turns(operation: str) -> None:
    values = {"gen_ai.operation.name": operation, "gen_ai.output.messages": json.dumps([SAID])}
    assert story(read(export(span("a", 0, 1, values)))) == ["0 request", "0 response I do it."]


def claude(**last: Any) -> list[dict[str, Any]]:
    kinds: list[tuple[str, str, dict[str, Any]]] = [
        ("llm_request", "", {"gen_ai.request.model": "m", "response.has_tool_call": True, "input_tokens": 10,
                             "cache_read_tokens": 3, "output_tokens": 5}),
        ("tool", "", {"tool_name": "refund", "tool_use_id": "c1"}),
        ("tool.blocked_on_user", "1", {}),
        ("tool.execution", "1", {"tool_use_id": "c1", **last}),
    ]  # fmt: skip
    return [
        span(str(n), 2 * n, 2 * n + 1, {"session.id": "s", "span.type": kind, **values}, parent=parent,
             name=f"claude_code.{kind}")
        for n, (kind, parent, values) in enumerate(kinds)
    ]  # fmt: skip


def test_spans_of_claude_code() -> None:
    trace = read(export(*claude(success=False, error="no such order")))
    assert [(call.name, call.call_id, call.turn) for call in calls(trace)] == [("refund", "c1", 0)]
    assert [result.is_error for result in results(trace)] == [True]
    (turn,) = responses(trace)
    assert turn.usage and (turn.usage.input_tokens, turn.usage.output_tokens) == (13, 5)
    assert (codes(trace), outcomes(trace)) == ([], {**FOUND, "where": "inconclusive"})
    assert [result.is_error for result in results(read(export(*claude(success=True))))] == [False]


def test_calls_that_claude_code_tells_of_and_that_have_no_span_are_unread() -> None:
    trace = read(export(claude()[0]))
    assert (codes(trace), outcomes(trace)["call"]) == (["unread-content"], "inconclusive")
    orphan = read(export(claude()[0], claude(success=True)[3]))
    assert outcomes(orphan)["call"] == "inconclusive"


# Any other words


SIGNS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("x", {"au.span.kind": "tool", "au.tool.name": "refund"}, UNREAD),
    ("x", {"acme.tool_name": "refund"}, UNREAD),
    ("x", {"acme.toolCall.name": "refund"}, UNREAD),
    ("execute_tool refund", {"acme": "1"}, UNREAD),
    ("x", {"gen_ai.operation.name": "plan", "gen_ai.tool.name": "refund"}, UNREAD),
    ("x", {"acme.observation.type": "TOOL"}, ANY),
    ("x", {"acme.kind": "tool_call"}, ANY),
    ("x", {"type": "tool"}, ANY),
    ("x", {"gen_ai.operation.name": "tool"}, ANY),
    ("haystack.component.run", {"haystack.component.type": "ToolInvoker"}, ANY),
]


@pytest.mark.parametrize(("name", "values", "want"), SIGNS)
def test_a_span_that_looks_like_a_run_of_a_tool_leaves_rules_inconclusive(
    name: str, values: dict[str, Any], want: dict[str, str]
) -> None:
    run = span("t", 2, 3, values, name=name)
    trace = read(export(CHAT, run, {**run, "spanId": "u"}))
    assert (calls(trace), codes(trace), outcomes(trace)) == ([], ["unread-content"], want)
    other = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    apart = read(export(span("t", 2, 3, values, name=name), span("l", 4, 5, other)))
    assert outcomes(apart)["call"] == "inconclusive"


@pytest.mark.parametrize(("name", "values"), [
    ("GET /tools", {"http.request.method": "GET", "url.path": "/tools", "server.address": "tool.example"}),
    ("SELECT", {"db.system": "postgresql", "db.query.text": "select name from tool"}),
    ("load", {"code.function.name": "load_tool", "code.namespace": "toolbox", "thread.name": "tool"}),
    ("tools/list", {"mcp.method.name": "tools/list"}),
    ("embed", {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "e"}),
    ("build", {"tool": "make", "build.tool.version": "1", "tool.poetry": "x", "span.kind": "internal", "type": "http"}),
    ("plan", {"traceloop.span.kind": "workflow", "traceloop.entity.name": "refund"}),
])  # fmt: skip
def test_a_span_of_plain_code_is_no_sign_of_a_tool(name: str, values: dict[str, Any]) -> None:
    trace = read(export(CHAT, span("x", 2, 3, values, name=name)))
    assert (codes(trace), outcomes(trace)["call"]) == ([], "ok")


def test_a_sign_of_a_call_that_is_known_says_nothing_new() -> None:
    asked = [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "look", "arguments": {}}]}]
    chat = span("a", 0, 1, {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(asked)})
    sign = {"acme.span.kind": "tool", "acme.tool.name": "look"}
    once = read(export(chat, span("t", 2, 3, sign), span("u", 4, 5, {"acme.span.kind": "tool"})))
    assert (codes(once), responses(once)[0].unread) == ([], ())
    twice = read(export(chat, span("t", 2, 3, sign), span("u", 4, 5, sign)))
    assert (codes(twice), responses(twice)[0].unread) == (["unread-content"], ("look",))
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    inside = span("t", 2, 9, ran), span("u", 3, 4, sign, parent="t"), span("v", 3, 4, sign, parent="u")
    around = span("t", 2, 9, sign), span("u", 3, 4, ran, parent="t")
    for spans in (inside, around):
        trace = read(export(CHAT, *spans))
        assert (codes(trace), [call.name for call in calls(trace)]) == ([], ["look"])


def test_a_sign_under_an_agent_without_answers_is_reported_by_the_session() -> None:
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
    trace = read(export(span("g", 2, 9, agent), span("t", 3, 4, {"acme.tool.name": "refund"}, parent="g"), CHAT))
    assert (outcomes(trace), len(responses(trace))) == (UNREAD, 1)


def test_a_sign_that_no_answer_can_tell_any_more_leaves_the_session_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler, "MOST_WAITING", 4)
    ran = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    looks = [span(f"l{n}", 2 + n, 2.5 + n, ran) for n in range(6)]
    trace = read(export(CHAT, *looks, span("t", 9, 10, {"acme.tool.name": "refund"})))
    assert outcomes(trace)["call"] == "inconclusive"


# Log records of coding agents


EVENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "claude": ("tool_result", {"session.id": "s", "tool_name": "refund", "success": "true"}),
    "claude-refused": ("claude_code.tool_decision", {"session.id": "s", "tool_name": "refund", "decision": "reject"}),
    "codex": ("codex.tool_result", {"conversation.id": "s", "tool_name": "refund", "arguments": ARGS}),
    "gemini": ("gemini_cli.tool_call", {"session.id": "s", "function_name": "refund", "function_args": ARGS}),
}


@pytest.mark.parametrize("name", EVENTS)
def test_a_log_record_of_a_tool_is_reported_as_unread(name: str) -> None:
    event, values = EVENTS[name]
    other: dict[str, Any] = {"session.id": "s", "tool_name": "pip"}
    alone = read(log(event, "", **values), log("acme.installed", "", **other))
    everything = dict.fromkeys(FOUND, "inconclusive")
    assert (codes(alone), outcomes(alone)) == (["unread-content"], everything)
    details: dict[str, Any] = {"gen_ai.conversation.id": "s", "gen_ai.output.messages": json.dumps([SAID])}
    said = log("gen_ai.client.inference.operation.details", "", at=-1, **details)
    mixed = read(said, log(event, "", **values), log(event, "", at=1, **values))
    assert (codes(mixed), outcomes(mixed)) == (["unread-content"], UNREAD)


def test_log_records_beside_spans_say_nothing_new() -> None:
    values: dict[str, Any] = {"tool_name": "refund", "session.id": "s"}
    logs = log("tool_decision", "1", at=3, **values), log("tool_result", "", at=5, **values)
    trace = read(export(*claude(success=True)), *logs)
    assert (codes(trace), len(calls(trace))) == ([], 1)


# Arguments and results inside of wrappers


def run(**values: Any) -> dict[str, Any]:
    named = {"traceloop.span.kind": "tool", "traceloop.entity.name": "refund"}
    given = {f"traceloop.entity.{key}": json.dumps(value) for key, value in values.items()}
    return span(values.get("id", "t"), 2, 3, {**named, **given})


@pytest.mark.parametrize("given", [
    {"args": [7], "kwargs": {}},
    {"args": [7], "kwargs": {"x": 1}},
    {"args": [{"order": 8}], "sanitize_inputs_outputs": True, "kwargs": {}},
    {"input": "{'order': 7, broken"},
    {"input": "{'order': {1, 2}}"},
    {"input": "{'order': 7, 'order': 8}"},
    {"input": '{"order": 7, "order": 8}'},
    {"input": "{7: 'order'}"},
    {"input": "{'order': b'7'}"},
    {"input": "{'order': '\\ud800'}"},
    {"input": "{**{'order': 7}}"},
    {"input": "{'order': '\\d'}"},
    {"input": "{'order': __import__('os')}"},
    {"input": "{" * 300 + "}" * 300},
    {"input": "{'order': " + "-" * 50_000 + "7}"},
    {"input": "{'order': '" + "x" * 70_000 + "'}"},
    {"input_str": "{'order': (7,)}", "inputs": None},
    {"input_str": "seven", "inputs": None},
])  # fmt: skip
def test_arguments_whose_names_are_not_known_are_kept_as_text(given: Any) -> None:
    trace = read(export(CHAT, run(input=given)))
    (call,) = calls(trace)
    assert not isinstance(call.arguments, dict)
    assert call.raw_arguments or call.arguments
    assert outcomes(trace) == {**FOUND, "where": "inconclusive"}


@pytest.mark.parametrize("given", [
    {"input": "{'order': 7, 'why': [None, True, 1.5, 'it\\'s']}"},
    {"input_str": "{'order': 7}"},
    {"args": [], "kwargs": {"order": 7}},
    "{'order': 7}",
])  # fmt: skip
def test_arguments_in_the_notation_of_python_are_read(given: Any) -> None:
    assert outcomes(read(export(CHAT, run(input=given)))) == FOUND


def test_a_tool_whose_parameters_look_like_a_wrapper_keeps_them() -> None:
    given = {"tool_name": "mail", "arguments": {"order": 7}}
    assert calls(read(export(CHAT, run(input=given))))[0].arguments == given
    assert calls(read(export(CHAT, run(input={"input": "some text"}))))[0].arguments == {"input": "some text"}


def test_parallel_calls_in_a_wrapper_are_joined_with_their_results_and_errors() -> None:
    parts = [{"type": "tool_call", "id": f"c{n}", "name": "refund", "arguments": {"order": n}} for n in (1, 2)]
    answer = json.dumps([{"role": "assistant", "parts": parts}])
    chat = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": answer}
    for wrap in (lambda n: {"tool_name": "refund", "arguments": {"order": n}}, lambda n: {"args": [n], "kwargs": {}}):
        spans = [
            run(input=wrap(2), output={"result": "too late", "is_error": True}),
            {**run(input=wrap(1), output={"result": "done", "is_error": False}), "spanId": "u"},
        ]
        trace = read(export(span("a", 0, 1, chat), *spans))
        reported = {result.call_id: (result.content, result.is_error) for result in results(trace)}
        assert (reported, codes(trace)) == ({"c1": ("done", False), "c2": ("too late", True)}, [])


# Failures


TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay", "gen_ai.tool.call.id": "c1"}


def test_a_failed_attempt_does_not_show_the_result_of_the_next_one() -> None:
    asked = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "pay", "arguments": {}}]}
    reported = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "paid"}]}
    chats = [
        span("a", 0, 1, {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps([asked])}),
        span("b", 8, 9, {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps([asked, reported])}),
    ]
    failed = {"status": {"code": 2, "message": "timeout"}}
    for last in ({**TOOL, "gen_ai.tool.call.result": "paid"}, TOOL):
        trace = read(export(*chats, span("t", 2, 3, TOOL, **failed), span("u", 4, 5, last)))
        assert [(one.content, bool(one.is_error)) for one in results(trace)] == [("timeout", True), ("paid", False)]
    alone = read(export(*chats, span("t", 2, 3, TOOL)))
    assert [one.content for one in results(alone)] == ["paid"]


def test_the_status_of_a_tool_is_its_error_flag() -> None:
    for status, flag in (("error", True), ("success", False), ("unknown", None)):
        trace = read(export(CHAT, span("t", 2, 3, {**TOOL, "gen_ai.tool.status": status})))
        assert [result.is_error for result in results(trace)] == [flag]


def test_the_status_of_a_result_in_the_next_request_is_its_error_flag() -> None:
    used = [{"toolUse": {"toolUseId": "c1", "name": "pay", "input": {}}}]
    shown = [{"toolResult": {"toolUseId": "c1", "status": "error", "content": [{"text": "bad"}]}}]
    chat = {"gen_ai.operation.name": "chat"}
    chats = [
        span("a", 0, 1, chat, events=[event("gen_ai.choice", message=json.dumps(used))]),
        span("b", 8, 9, chat, events=[event("gen_ai.tool.message", content=json.dumps(shown))]),
    ]
    trace = read(export(*chats))
    assert [(result.content, result.is_error) for result in results(trace)] == [("bad", True)]


def event(name: str, **values: Any) -> dict[str, Any]:
    return {"name": name, "attributes": attributes(values)}


def test_a_failure_without_a_message_is_reported_by_its_exception() -> None:
    raised = [event("exception", **{"exception.type": "ValueError", "exception.message": "no money"})]
    trace = read(export(CHAT, span("t", 2, 3, TOOL, status={"code": 2}, events=raised)))
    assert [(result.content, result.is_error) for result in results(trace)] == [("no money", True)]
