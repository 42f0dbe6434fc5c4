"""What logs of agents have besides plain turns: subagents, calls without ids, what was taken back, late arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.model.events import Annotation, Trace
from tests.importers.support import calls, read, results, story
from tests.importers.test_unread import codes


def pairs(trace: Trace) -> list[tuple[str, Any, Any]]:
    """Each call with what it returned."""
    found = {id(result.call): result.content for result in results(trace)}
    return [(call.name, call.arguments, found.get(id(call))) for call in calls(trace)]


def test_gemini_results_answer_calls_of_their_name_in_order() -> None:
    parts = [{"functionCall": {"name": name, "args": {"n": n}}} for name, n in (("a", 1), ("b", 2), ("a", 3))]
    returned = [{"functionResponse": {"name": name, "response": n}} for name, n in (("b", 20), ("a", 10), ("a", 30))]
    trace = read({"contents": [{"role": "model", "parts": parts}, {"role": "user", "parts": returned}]})
    assert pairs(trace) == [("a", {"n": 1}, 10), ("b", {"n": 2}, 20), ("a", {"n": 3}, 30)]
    assert codes(trace) == []


def test_adk_agents_that_work_at_the_same_time() -> None:
    def event(author: str, **part: Any) -> dict[str, Any]:
        return {"invocationId": "i", "author": author, "branch": f"both.{author}", "content": {"parts": [part]}}

    def call(author: str) -> dict[str, Any]:
        return event(author, functionCall={"id": f"c{author}", "name": "look", "args": {"at": author}})

    def answer(author: str) -> dict[str, Any]:
        return event(author, functionResponse={"id": f"c{author}", "name": "look", "response": author})

    trace = read(call("a"), call("b"), answer("a"), answer("b"), event("b", text="Done."))
    assert pairs(trace) == [("look", {"at": "a"}, "a"), ("look", {"at": "b"}, "b")]
    assert [turn.response.origin.agent for turn in trace.turns] == ["a", "b", "b"]
    assert trace.sessions == ("1",)


def test_adk_an_event_that_was_logged_twice_counts_once() -> None:
    def event(id: str, **part: Any) -> dict[str, Any]:
        return {"invocationId": "i", "id": id, "author": "a", "content": {"parts": [part]}}

    call = event("1", functionCall={"name": "look", "args": {}})
    events = call, event("2", functionResponse={"name": "look", "response": "x"}), event("3", text="Done.")
    for data in ([*events, *events], [one for one in events for _ in range(2)]):
        trace = read(*data)
        assert (pairs(trace), len(trace.turns), codes(trace)) == ([("look", {}, "x")], 2, [])
    other = read(call, event("1", functionCall={"name": "wipe", "args": {}}), *events[1:])
    assert ([one.name for one in calls(other)], codes(other)) == (["look"], ["unread-content"])
    assert other.turns[0].response.unread == ("*",)


def test_autogen_a_team_is_one_session_if_its_thread_has_the_calls() -> None:
    issued = {
        "type": "ToolCallRequestEvent",
        "source": "a",
        "content": [{"id": "c", "name": "look", "arguments": "{}"}],
    }
    context = [{"type": "AssistantMessage", "source": "a", "content": issued["content"]}]
    states: dict[str, Any] = {
        "a": {"agent_state": {"llm_context": {"messages": context}}},
        "b": {"agent_state": {"llm_context": {"messages": [{"type": "UserMessage", "source": "a", "content": "x"}]}}},
        "Manager": {"message_thread": [issued, {"type": "TextMessage", "source": "b", "content": "Done."}]},
    }
    trace = read({"type": "TeamState", "agent_states": states})
    assert (trace.sessions, [turn.response.origin.agent for turn in trace.turns]) == (("1",), ["a", "b"])
    nested = {"team": {"agent_state": {"inner_team_state": {"agent_states": {**states}}}}}
    assert [call.name for call in calls(read({"type": "TeamState", "agent_states": nested}))] == ["look"]
    del states["Manager"]["message_thread"][0]
    assert [call.name for call in calls(read({"type": "TeamState", "agent_states": states}))] == ["look"]


CALLED = [{"id": "c", "name": "refund", "arguments": "{}"}]


@pytest.mark.parametrize(
    ("event", "unread"),
    [
        ({"type": "FutureToolCallEvent", "content": CALLED}, ["*"]),
        ({"type": "FutureMessage", "content": "x", "tool_calls": CALLED}, ["*"]),
        ({"type": "FutureEvent", "content": {"name": "refund"}}, ["*"]),
        ({"type": "FutureEvent", "content": ["a", "b"]}, []),
        ({"type": "ToolCallSummaryMessage", "content": "x"}, []),
        ({"type": "MemoryQueryEvent", "content": [{"content": "x", "mime_type": "text/plain"}]}, []),
        ({"type": "SelectSpeakerEvent", "content": ["a"]}, []),
    ],
)
def test_autogen_events_of_unknown_types_that_may_hold_calls_are_reported(
    event: dict[str, Any], unread: list[str]
) -> None:
    said = {"type": "TextMessage", "source": "a", "content": "Done."}
    trace = read({"messages": [{**said, "source": "user"}, {**event, "source": "a"}, said], "stop_reason": None})
    assert [one for turn in trace.turns for one in turn.response.unread] == unread
    assert (trace.format, codes(trace)) == ("autogen", ["unread-content"] * len(unread))


def test_autogen_code_that_ran_is_a_call_and_structured_answers_are_text() -> None:
    code = [{"code": "print(1)", "language": "python"}]
    trace = read(
        {"type": "CodeGenerationEvent", "source": "a", "content": "I run it.", "code_blocks": code},
        {"type": "CodeExecutionEvent", "source": "a", "result": {"exit_code": 1, "output": "no"}},
        {"type": "StructuredMessage[Reply]", "source": "a", "content": {"total": 7}},
    )
    assert story(trace) == [
        "0 request",
        "0 response I run it.",
        f'0 tool_call code_execution {{"code_blocks": {json.dumps(code)}}}',
        '0 tool_result code_execution "no" failed',
        "1 request assistant tool",
        '1 response {"total":7}',
    ]
    assert codes(trace) == []


def test_opencode_keeps_calls_that_were_taken_back_and_reads_subagents() -> None:
    def updated(session: str, message: str, part: dict[str, Any]) -> list[dict[str, Any]]:
        info = {"id": message, "role": "assistant", "sessionID": session, "agent": "sub"}
        whole = {"messageID": message, "sessionID": session, **part}
        return [
            {"type": "message.updated", "properties": {"info": info}},
            {"type": "message.part.updated", "properties": {"part": whole}},
        ]

    state = {"status": "error", "input": {"n": 1}, "error": "no"}
    delta = {"messageID": "m3", "partID": "p3", "sessionID": "s1", "field": "text", "delta": "Done."}
    trace = read(
        {"type": "session.created", "properties": {"info": {"id": "s2", "parentID": "s1"}}},
        *updated("s1", "m1", {"id": "p1", "type": "tool", "callID": "c1", "tool": "wipe", "state": state}),
        *updated("s2", "m2", {"id": "p2", "type": "text", "text": "below"}),
        {"type": "message.removed", "properties": {"messageID": "m1", "sessionID": "s1"}},
        {"type": "message.part.delta", "properties": delta},
    )
    assert pairs(trace) == [("wipe", {"n": 1}, "no")]
    assert [(turn.response.text, turn.response.origin.run) for turn in trace.turns[1:]] == [
        ("below", "s2"), ("Done.", None),
    ]  # fmt: skip
    assert trace.sessions == ("s1",)


def test_openhands_events_without_ids() -> None:
    old = [
        {"id": 1, "timestamp": "t", "source": "agent", "action": "run", "args": {"command": "ls", "thought": "Look."}},
        {
            "id": 2,
            "timestamp": "t",
            "source": "agent",
            "observation": "error",
            "cause": 1,
            "content": "no",
            "extras": {},
        },
    ]
    new = [
        {"kind": "ActionEvent", "id": "e1", "tool_name": "run", "action": {"kind": "Run", "command": "ls"}},
        {"kind": "ObservationEvent", "action_id": "e1", "observation": {"content": "no", "is_error": True}},
    ]
    for events in (old, new):
        trace = read(*events)
        assert trace.format == "openhands"
        assert pairs(trace) == [("run", {"command": "ls"}, "no")]
        assert [result.is_error for result in results(trace)] == [True]


def test_copilot_cli_subagents_and_arguments_that_come_late() -> None:
    def event(type: str, **data: Any) -> dict[str, Any]:
        return {"type": type, "data": data, "timestamp": "2026-01-02T03:04:05Z"}

    trace = read(
        event("session.start", sessionId="s1"),
        event("user.message", content="q"),
        event("assistant.message", content="", toolRequests=[{"toolCallId": "c1", "name": "task"}]),
        event("tool.execution_start", toolCallId="c1", toolName="task", arguments={"n": 1}),
        event("subagent.started", toolCallId="c1", agentName="scout"),
        event("tool.execution_start", toolCallId="c2", toolName="look", arguments={"n": 2}, parentToolCallId="c1"),
        event("tool.execution_complete", toolCallId="c2", success=True, result="seen"),
        event("tool.execution_complete", toolCallId="c1", success=False, error={"message": "late"}),
        {"type": "result", "sessionId": "s1", "exitCode": 0},
    )
    assert pairs(trace) == [("task", {"n": 1}, "late"), ("look", {"n": 2}, "seen")]
    assert [(call.origin.agent, call.origin.run) for call in calls(trace)] == [(None, None), ("scout", "c1")]
    assert [result.is_error for result in results(trace)] == [False, True]
    assert codes(trace) == []


def test_tau2_calls_of_the_user_are_input() -> None:
    call = {"id": "u1", "name": "restart", "arguments": {}, "requestor": "user"}
    returned = [{"id": f"c{n}", "role": "tool", "content": str(n), "requestor": "assistant"} for n in (1, 2)]
    issued = [{"id": f"c{n}", "name": "look", "arguments": {"n": n}, "requestor": "assistant"} for n in (1, 2)]
    messages = [
        {"role": "user", "content": None, "tool_calls": [call]},
        {"role": "tool", "id": "u1", "content": "restarted", "requestor": "user"},
        {"role": "assistant", "content": None, "tool_calls": issued},
        {"role": "tool", "tool_messages": returned},
    ]
    trace = read({"task_id": "a", "trial": 1, "termination_reason": "max_steps", "messages": messages})
    assert pairs(trace) == [("look", {"n": 1}, "1"), ("look", {"n": 2}, "2")]
    assert (codes(trace), story(trace)[1]) == ([], "0 request user user")


def test_what_newer_versions_add_is_reported() -> None:
    messages = [{"id": "1", "type": "future", "content": "x"}, {"id": "2", "type": "gemini", "content": "Hi."}]
    trace = read({"sessionId": "s", "projectHash": "h", "messages": messages})
    assert (codes(trace), [turn.response.text for turn in trace.turns]) == (["unread-content"], ["Hi."])
    code = {"executableCode": {"code": "1+1"}}, {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "no"}}
    trace = read({"contents": [{"role": "model", "parts": list(code)}]})
    assert [(result.name, result.is_error) for result in results(trace)] == [("code_execution", True)]


def test_gemini_texts_in_pieces() -> None:
    def event(type: str, **fields: Any) -> dict[str, Any]:
        return {"type": type, "timestamp": "2026-01-02T03:04:05Z", **fields}

    trace = read(
        event("init", session_id="s1", model="g"),
        *(event("message", role="assistant", content=text, delta=True) for text in ("At ", "once.")),
        *(event("tool_use", tool_name="look", tool_id=f"c{n}", parameters={"n": n}) for n in (1, 2)),
        *(event("tool_result", tool_id=f"c{n}", status="success", output=str(n)) for n in (2, 1)),
    )
    assert [turn.response.text for turn in trace.turns] == ["At once."]
    assert pairs(trace) == [("look", {"n": 1}, "1"), ("look", {"n": 2}, "2")]
    assert (trace.format, trace.sessions, trace.turns[0].response.model) == ("gemini-cli", ("s1",), "g")


def test_other_wrappers_of_the_same_steps() -> None:
    """ADK's API, older evaluations of OpenHands, several attempts of SWE-agent, MLflow's spans without their trace."""
    use = {"id": None, "name": "look", "args": {"n": 1}}
    said = {"role": "user", "parts": [{"text": "q"}]}
    invocation = {"userContent": said, "intermediateData": {"toolUses": [use], "toolResponses": []}}
    case = {"evalId": "a", "evalMetricResultPerInvocation": [{"actualInvocation": invocation}]}
    action = {"id": 1, "timestamp": "t", "source": "agent", "action": "look", "args": {"n": 1}}
    seen = {
        "id": 2,
        "timestamp": "t",
        "source": "agent",
        "observation": "look",
        "cause": 1,
        "content": "1",
        "extras": {},
    }
    call = {"id": "c", "function": {"name": "look", "arguments": '{"n": 1}'}}
    step = {"action": "look 1", "observation": "1", "response": "", "tool_calls": [call]}
    attributes = {"mlflow.spanType": '"TOOL"', "mlflow.spanInputs": '{"n": 1}', "mlflow.spanOutputs": '"1"'}
    span = {"name": "look", "context": {"span_id": "s", "trace_id": "t"}, "attributes": attributes}
    for format, count, value in (
        ("adk", 1, {"evalCases": [{"evalId": "a", "conversation": [invocation]}]}),
        ("adk", 1, {"evalCaseResults": [case]}),
        ("openhands", 1, {"instance_id": "a", "history": [[action, seen]]}),
        ("swe-agent", 2, {"attempts": [{"trajectory": [step]}] * 2, "trajectory": [step]}),
        ("mlflow", 1, {"spans": [span], "request": "q", "response": "1"}),
    ):
        trace = read(value)
        assert (trace.format, [(call.name, call.arguments) for call in calls(trace)]) == (
            format, [("look", {"n": 1})] * count,
        )  # fmt: skip


def test_sessions_of_agents_end_where_the_next_begins() -> None:
    def session(name: str) -> dict[str, Any]:
        said = {"invocationId": "i", "author": "user", "content": {"parts": [{"text": "q"}]}}
        answers = [{**said, "author": author, "content": {"parts": [{"text": author}]}} for author in ("a", "b")]
        return {"id": name, "appName": "x", "events": [said, *answers]}

    trace = read(session("s1"), session("s2"))
    kinds = [(event.kind, event.origin.session) for event in trace.events]
    assert kinds == [
        ("session_start", "s1"), *[("request", "s1"), ("response", "s1")] * 2, ("session_end", "s1"),
        ("session_start", "s2"), *[("request", "s2"), ("response", "s2")] * 2,
    ]  # fmt: skip


def test_opencode_lists_of_events_that_begin_with_those_of_the_server() -> None:
    def events(session: str) -> list[dict[str, Any]]:
        info = {"id": f"m{session}", "sessionID": session, "role": "assistant"}
        state = {"status": "completed", "input": {}, "output": "x"}
        part = {"id": f"p{session}", "messageID": info["id"], "sessionID": session, "type": "tool", "tool": "look",
                "callID": f"c{session}", "state": state}  # fmt: skip
        return [
            {"type": "server.connected", "properties": {}},
            {"type": "message.updated", "properties": {"info": info}},
            {"type": "message.part.updated", "properties": {"part": part}},
        ]

    trace = read(events("s1"), events("s2"))
    assert (trace.format, trace.sessions, len(calls(trace))) == ("opencode", ("s1", "s2"), 2)


def mlflow(*spans: tuple[str, str, Any, Any]) -> dict[str, Any]:
    """A trace of spans with a name, a type, inputs and outputs."""

    def span(number: int, name: str, kind: str, given: Any, returned: Any) -> dict[str, Any]:
        values = {"mlflow.spanType": kind, "mlflow.spanInputs": given, "mlflow.spanOutputs": returned}
        ids = {"trace_id": "t", "span_id": str(number), "parent_span_id": None if number == 0 else "0"}
        times = {"start_time_unix_nano": number * 10**9, "end_time_unix_nano": (number + 1) * 10**9}
        return {**ids, **times, "name": name, "attributes": {key: json.dumps(one) for key, one in values.items()}}

    whole = ("run", "AGENT", {}, {})
    return {"info": {"trace_id": "t"}, "data": {"spans": [span(*one) for one in numbered([whole, *spans])]}}


def numbered(spans: list[tuple[str, str, Any, Any]]) -> list[tuple[int, str, str, Any, Any]]:
    return [(number, *span) for number, span in enumerate(spans)]


def asking(*names: str, tools: tuple[str, ...] = ()) -> tuple[str, str, Any, Any]:
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps({"n": at})}}
        for at, name in enumerate(names)
    ]
    offered = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in tools]
    given = {"messages": [{"role": "user", "content": "q"}], "tools": offered}
    answer = {"role": "assistant", "content": "", "tool_calls": calls}
    return "chat", "CHAT_MODEL", given, {"choices": [{"message": answer}]}


@pytest.mark.parametrize(
    "spans, names",
    [
        ([asking("pay", "pay"), ("pay_1", "TOOL", {"n": 1}, "b"), ("pay_2", "TOOL", {"n": 0}, "a")], ["pay", "pay"]),
        ([("pay_1", "TOOL", {"n": 1}, "b"), ("pay_2", "TOOL", {"n": 0}, "a")], ["pay", "pay"]),
        ([asking("pay_1"), ("pay_1", "TOOL", {"n": 0}, "a"), ("pay_2", "TOOL", {"n": 5}, "b")], ["pay_1", "pay_2"]),
        ([asking(tools=("pay_1",)), ("pay_1", "TOOL", {}, "a"), ("pay_2", "TOOL", {}, "b")], ["pay_1", "pay_2"]),
        ([("log", "TOOL", {}, ""), ("log", "TOOL", {}, ""), ("pay_1", "TOOL", {}, ""), ("pay_2", "TOOL", {}, "")],
         ["log", "log", "pay_1", "pay_2"]),
        ([("pay_3", "TOOL", {}, "a"), ("top_10", "TOOL", {}, "b")], ["pay_3", "top_10"]),
    ],
)  # fmt: skip
def test_numbers_that_mlflow_adds_to_names_are_no_part_of_them(spans: list[Any], names: list[str]) -> None:
    assert [call.name for call in calls(read(mlflow(*spans)))] == names


def test_a_summary_of_autogen_holds_calls_that_stand_nowhere_else() -> None:
    def message(kind: str, content: Any, **rest: Any) -> dict[str, Any]:
        return {"type": kind, "source": "bob", "content": content, "models_usage": None, **rest}

    def both(id: str) -> tuple[dict[str, Any], dict[str, Any]]:
        returned = {"content": id, "name": "pay", "call_id": id, "is_error": id == "c2"}
        return {"id": id, "name": "pay", "arguments": json.dumps({"n": id})}, returned

    def summary(*ids: str) -> dict[str, Any]:
        given, returned = zip(*map(both, ids), strict=True)
        return message("ToolCallSummaryMessage", "\n".join(ids), tool_calls=list(given), results=list(returned))

    (one, first), (three, _) = both("c1"), both("c3")
    asked, ran = message("ToolCallRequestEvent", [one]), message("ToolCallExecutionEvent", [first])
    trace = read({"messages": [asked, ran, summary("c1"), summary("c2")]})
    assert pairs(trace) == [("pay", {"n": "c1"}, "c1"), ("pay", {"n": "c2"}, "c2")]
    assert [result.is_error for result in results(trace)] == [False, True]
    waiting = message("ToolCallRequestEvent", [three])
    assert pairs(read({"messages": [waiting, summary("c3")]})) == [("pay", {"n": "c3"}, "c3")]


def test_an_event_of_adk_that_is_an_error_is_reported() -> None:
    about = {"invocationId": "i", "timestamp": 1.0}
    asked = {**about, "author": "user", "content": {"role": "user", "parts": [{"text": "q"}]}}
    failed = {**about, "id": "e", "author": "a", "errorCode": "MALFORMED_FUNCTION_CALL", "errorMessage": "bad"}
    state = {**about, "author": "a", "actions": {"stateDelta": {"n": 1}}}
    said = {**about, "author": "a", "content": {"role": "model", "parts": [{"text": "hi"}]}}
    trace = read({"id": "s", "appName": "x", "events": [asked, failed, failed, state, said]})
    reported = [
        (event.label, event.data, event.origin.agent) for event in trace.events if isinstance(event, Annotation)
    ]
    assert reported == [("error", {"errorCode": "MALFORMED_FUNCTION_CALL", "errorMessage": "bad"}, "a")]
    assert [turn.response.text for turn in trace.turns] == ["hi"]
