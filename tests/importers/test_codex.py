"""Codex's rollouts: two logs in one, counts that sum up, outputs that are recorded twice."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import ANY

import pytest

from bylaw.errors import InputError
from bylaw.traces import load_trace
from bylaw.traces.formats import codex_scripts
from tests.importers.support import calls, lines, read, requests, responses, results, story
from tests.support.timing import cpu_seconds


def at(second: int, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    return {"timestamp": f"2026-01-01T00:00:{second:02}.000Z", "type": kind, "payload": payload}


def item(second: int, kind: str, **rest: Any) -> dict[str, Any]:
    return at(second, "response_item", {"type": kind, **rest})


def said(second: int, role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item(second, "message", role=role, content=[{"type": kind, "text": text}])


def counted(second: int, total: int, **last: int) -> dict[str, Any]:
    info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": last}
    return at(second, "event_msg", {"type": "token_count", "info": info, "rate_limits": {}})


def call(second: int, id: str, name: str = "shell", **given: Any) -> dict[str, Any]:
    return item(second, "function_call", call_id=id, name=name, arguments=json.dumps(given))


def output(second: int, id: str, text: Any) -> dict[str, Any]:
    return item(second, "function_call_output", call_id=id, output=text)


META = at(0, "session_meta", {"id": "s1", "cli_version": "0.1", "base_instructions": {"text": "be kind"}})
RUN = [
    META,
    at(0, "event_msg", {"type": "task_started"}),
    at(0, "turn_context", {"model": "m1"}),
    said(1, "user", "go"),
    at(1, "event_msg", {"type": "user_message", "message": "go"}),
    at(1, "event_msg", {"type": "token_count", "info": None}),
    item(2, "reasoning", summary=[{"type": "summary_text", "text": "hm"}], encrypted_content="x"),
    call(3, "c1", command="ls"),
    call(3, "c2", command="rm"),
    counted(3, 15, input_tokens=10, cached_input_tokens=4, output_tokens=5, reasoning_output_tokens=2),
    output(5, "c1", json.dumps({"output": "a", "metadata": {"exit_code": 0}})),
    output(6, "c2", json.dumps({"output": "no", "metadata": {"exit_code": 1}})),
    item(6, "custom_tool_call_output", call_id="c2", output="no"),
    counted(6, 15, input_tokens=10, output_tokens=5),
    said(8, "assistant", "Done."),
    at(8, "event_msg", {"type": "agent_message", "message": "Done."}),
    counted(8, 40, input_tokens=20, output_tokens=5),
    at(9, "event_msg", {"type": "task_complete"}),
]


def test_one_of_the_two_logs_is_read() -> None:
    trace = read(*RUN)
    assert (trace.format, trace.sessions, trace.complete, trace.notes) == ("codex", ("s1",), True, ())
    assert story(trace) == [
        "None session_start",
        "0 request system user",
        "0 response",
        '0 tool_call shell {"command": "ls"}',
        '0 tool_call shell {"command": "rm"}',
        '0 tool_result shell "a"',
        '0 tool_result shell "no" failed',
        "1 request system user assistant tool tool",
        "1 response Done.",
    ]
    first, second = responses(trace)
    assert first.usage is not None
    assert second.usage is not None
    assert (first.usage.input_tokens, first.usage.cached_input_tokens, first.usage.reasoning_tokens) == (10, 4, 2)
    assert (second.usage.total, second.model, first.latency_ms) == (25, "m1", 2000)
    assert [result.latency_ms for result in results(trace)] == [2000, 3000]
    assert [one.group for one in calls(trace)] == [0, 0]
    assert [result.is_error for result in results(trace)] == [False, True]


def test_lines_that_were_written_twice_count_once() -> None:
    once = story(read(*RUN))
    assert story(read(*(line for line in RUN for _ in range(2)))) == once
    assert story(read(*RUN, *RUN)) == once
    again = read(META, call(2, "c1"), output(3, "c1", "x"), call(4, "c1"), output(5, "c1", "x"))
    assert (len(calls(again)), len(results(again))) == (2, 2)  # the id was used again


def test_a_count_after_the_outputs_is_of_the_same_response() -> None:
    trace = read(META, said(1, "user", "go"), call(2, "c1"), output(3, "c1", "x"), counted(3, 9, output_tokens=9))
    assert [response.usage and response.usage.output_tokens for response in responses(trace)] == [9]
    assert len(results(trace)) == 1


def test_two_answers_in_a_row_are_separated_by_their_token_counts() -> None:
    said_twice = [said(1, "assistant", "a"), counted(1, 5, output_tokens=5), said(2, "assistant", "b")]
    assert [response.text for response in responses(read(META, *said_twice))] == ["a", "b"]
    assert [response.text for response in responses(read(META, said_twice[0], said_twice[2]))] == ["a\nb"]


def test_a_task_that_never_ended() -> None:
    assert read(META, at(1, "event_msg", {"type": "task_started"}), said(2, "assistant", "x")).complete is False
    aborted = at(3, "event_msg", {"type": "turn_aborted", "reason": "interrupted"})
    trace = read(META, at(1, "event_msg", {"type": "task_started"}), said(2, "assistant", "x"), aborted)
    assert (trace.complete, "None annotation turn_aborted" in story(trace)) == (True, True)


def test_after_a_compaction_requests_show_what_is_left() -> None:
    kept = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "so far"}]}]
    trace = read(
        META,
        said(1, "user", "go"),
        said(2, "assistant", "one"),
        at(3, "compacted", {"message": "", "replacement_history": kept}),
        said(4, "user", "on"),
        said(5, "assistant", "two"),
    )
    assert [len(request.messages or ()) for request in requests(trace)] == [2, 2]


def test_a_subagent_belongs_to_the_session_of_its_parent() -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "s1", "depth": 1}}}
    meta = at(0, "session_meta", {"id": "s2", "source": source, "agent_role": "scout"})
    trace = read(meta, META, said(1, "assistant", "x"))
    origin = responses(trace)[0].origin
    assert (origin.session, origin.run, origin.parent_run, origin.agent) == ("s1", "s2", "s1", "scout")
    assert trace.notes == ("only the part of a subagent is here: session `s1` has a file of its own",)


def test_unknown_items_and_broken_lines() -> None:
    odd = [item(1, "ghost_snapshot", ghost_commit={}), at(1, "world_state", {"x": 1}), output(2, "gone", [{"a": 1}])]
    bad: list[Any] = [
        7,
        {"type": "response_item"},
        at(3, "response_item", {"x": 1}),
        item(3, "function_call", call_id="c"),
    ]
    with pytest.raises(InputError) as error:
        load_trace(lines(META, *odd, *bad))
    assert [p.span.line for p in error.value.diagnostics if p.span] == [5, 6, 7, 8]
    for kind in ([], {}, None):
        assert read({"type": kind, "payload": {}}, META, format=None, skip_bad=True).format == "codex"
    trace = read(META, *odd, *bad, said(4, "assistant", "x"), skip_bad=True)
    assert (trace.skipped, len(trace.turns), len(results(trace))) == (4, 1, 1)


# The event log


def event(second: int, kind: str, **rest: Any) -> dict[str, Any]:
    return at(second, "event_msg", {"type": kind, **rest})


def completed(second: int, kind: str, id: str, **rest: Any) -> dict[str, Any]:
    return event(second, "item_completed", item={"type": kind, "id": id, **rest})


def took(seconds: int) -> dict[str, int]:
    return {"secs": seconds, "nanos": 0}


def mcp(second: int, id: str, tool: str, result: Any, given: Any = None, seconds: int = 0) -> dict[str, Any]:
    invocation = {"server": "shop", "tool": tool, "arguments": given}
    return event(second, "mcp_tool_call_end", call_id=id, invocation=invocation, duration=took(seconds), result=result)


def script(second: int, id: str, text: str) -> dict[str, Any]:
    return item(second, "custom_tool_call", call_id=id, name="exec", input=text)


def printed(second: int, id: str, status: str = "Script completed", **rest: Any) -> dict[str, Any]:
    texts = [{"type": "input_text", "text": f"{status}\nWall time 0.1 seconds\nOutput:\n"}]
    return item(second, "custom_tool_call_output", call_id=id, output=texts, **rest)


def wait(second: int, id: str, cell: str) -> dict[str, Any]:
    return call(second, id, "wait", cell_id=cell)


OK = {"Ok": {"content": [{"type": "text", "text": "done"}]}}
DONE = said(50, "assistant", "Done.")


def unread(trace: Any) -> list[tuple[str, ...]]:
    return [response.unread for response in responses(trace)]


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ({"Ok": {"content": [], "isError": True}}, True),
        ({"Ok": {"content": [], "is_error": True}}, True),
        ({"Err": "boom"}, True),
        (OK, False),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_the_event_log_says_whether_a_call_failed(result: Any, failed: bool, is_first: bool) -> None:
    ends = [mcp(3, "c1", "pay", result), output(3, "c1", "text")]
    trace = read(META, call(2, "c1", "pay", n=1), *(ends if is_first else reversed(ends)), DONE)
    assert [one.name for one in calls(trace)] == ["pay"]
    assert [(one.content, one.is_error) for one in results(trace)] == [("text", failed)]


def test_a_call_without_an_output_has_the_result_of_its_event() -> None:
    ended = event(3, "exec_command_end", call_id="c1", command=["ls"], aggregated_output="a", exit_code=2)
    trace = read(META, call(2, "c1", "exec_command", cmd="ls"), ended, event(4, "turn_aborted"), DONE)
    assert [(one.content, one.is_error) for one in results(trace)] == [("a", True)]


NESTED = [
    (mcp(3, "exec-1", "pay", OK, {"n": 1}), "pay", {"n": 1}, "shop", False),
    (mcp(3, "exec-1", "pay", {"Err": "no"}, {"n": 1}), "pay", {"n": 1}, "shop", True),
    (
        event(3, "exec_command_end", call_id="exec-1", command=["/bin/zsh", "-lc", "rm x"], cwd="/w", exit_code=1),
        "exec_command",
        {"cmd": "rm x", "workdir": "/w"},
        None,
        True,
    ),
    (
        event(3, "patch_apply_end", call_id="exec-1", success=False, stderr="no", changes={"/a": {"type": "delete"}}),
        "apply_patch",
        {"changes": {"/a": {"type": "delete"}}},
        None,
        True,
    ),
    (
        event(3, "web_search_end", call_id="exec-1", query="q", action={"type": "search", "query": "q"}, results=[]),
        "web_search",
        {"type": "search", "query": "q"},
        None,
        None,
    ),
    (
        event(3, "dynamic_tool_call_response", call_id="exec-1", tool="mail", arguments={"to": "a"}, success=True),
        "mail",
        {"to": "a"},
        None,
        False,
    ),
    (
        completed(3, "CommandExecution", "exec-1", command=["rm", "a b"], status="completed", exit_code=0),
        "exec_command",
        {"cmd": "rm 'a b'"},
        None,
        False,
    ),
    (
        completed(3, "CommandExecution", "exec-1", command=["rm"], status="declined", cwd="file:///a%20b"),
        "exec_command",
        {"cmd": "rm", "workdir": "/a b"},
        None,
        True,
    ),
    (completed(3, "FileChange", "exec-1", changes={"/a": {}}, status="completed"), "apply_patch", ANY, None, False),
    (
        completed(3, "McpToolCall", "exec-1", server="shop", tool="pay", arguments={}, error={"message": "no"}),
        "pay",
        {},
        "shop",
        True,
    ),
    (completed(3, "DynamicToolCall", "exec-1", tool="mail", arguments={}, success=False), "mail", {}, None, True),
    (completed(3, "CollabAgentToolCall", "exec-1", tool="spawnAgent", status="failed"), "spawn_agent", {}, None, True),
]


@pytest.mark.parametrize(("line", "tool", "given", "server", "failed"), NESTED)
def test_calls_of_a_script_are_read_from_the_event_log(
    line: Any, tool: str, given: Any, server: str | None, failed: bool | None
) -> None:
    trace = read(META, script(2, "c1", f"await tools.{tool}({{}})"), line, printed(4, "c1"), DONE)
    outer, nested = calls(trace)
    assert (outer.name, nested.name, nested.arguments, nested.namespace) == ("exec", tool, given, server)
    assert [(one.call_id, one.is_error) for one in results(trace)] == [("exec-1", failed), ("c1", False)]
    assert (nested.turn, unread(trace), trace.problems) == (0, [(), ()], ())


def test_a_call_is_read_once_however_many_events_tell_its_end() -> None:
    asked = event(3, "dynamic_tool_call_request", callId="exec-1", tool="mail", arguments={"to": "a"})
    ends = [
        event(4, "dynamic_tool_call_response", call_id="exec-1", tool="mail", success=True),
        completed(4, "DynamicToolCall", "exec-1", tool="mail", arguments={"to": "a"}, status="completed"),
    ]
    trace = read(META, script(2, "c1", "tools.mail()"), asked, *ends, *ends, printed(5, "c1"), DONE)
    assert ([one.name for one in calls(trace)], len(results(trace))) == (["exec", "mail"], 2)


def test_arguments_that_are_text() -> None:
    trace = read(META, script(2, "c1", "tools.pay()"), mcp(3, "exec-1", "pay", OK, "{"), printed(4, "c1"), DONE)
    assert [(one.arguments, one.raw_arguments) for one in calls(trace)][1:] == [(None, "{")]


@pytest.mark.parametrize("odd", [None, 7, [], {}, "x", [[]], {"Err": []}, {"Ok": 7}])
def test_odd_values_in_the_event_log_do_no_harm(odd: Any) -> None:
    about = {"executed_tool_calls": odd if odd else [odd], "tool_calls_complete": True}
    lines = [
        event(3, "mcp_tool_call_end", call_id=odd, invocation=odd, duration=odd, result=odd, error=odd),
        event(3, "mcp_tool_call_end", call_id="exec-1", invocation=odd, duration={"secs": 10**400}, result=odd),
        event(3, "exec_command_end", call_id="exec-2", command=odd, cwd=odd, source=odd, exit_code=odd),
        event(3, "dynamic_tool_call_response", call_id="exec-3", tool=odd, arguments=odd, success=odd, error=odd),
        event(3, "item_completed", item=odd),
        completed(3, "CollabAgentToolCall", "exec-4", tool=odd, status=odd),
        printed(4, "c1", internal_chat_message_metadata_passthrough=about),
    ]
    trace = read(META, script(2, "c1", "tools.pay()"), *lines, DONE)
    assert "exec_command" in [one.name for one in calls(trace)]
    assert unread(trace)[0] == ("*",)


def test_what_the_user_ran_is_no_call() -> None:
    mine = event(2, "exec_command_end", call_id="u1", command=["rm"], exit_code=0, source="user_shell")
    item_of_mine = completed(2, "CommandExecution", "u2", command=["rm"], exit_code=0, source="userShell")
    assert calls(read(META, said(1, "user", "go"), mine, item_of_mine, DONE)) == []


def test_a_search_of_the_provider_has_an_item_and_an_event() -> None:
    action = {"type": "search", "query": "q"}
    ended, found = event(2, "web_search_end", call_id="ws_1", action=action), item(2, "web_search_call", action=action)
    for both in ([ended, found], [found, ended], [found, counted(3, 5, output_tokens=5), ended]):
        trace = read(META, *both, DONE, event(51, "task_complete"))
        assert [one.arguments for one in calls(trace)] == [action]
    tasks = [said(1, "assistant", "hm"), event(1, "task_complete"), event(2, "task_started"), said(2, "user", "go")]
    assert len(calls(read(META, *tasks, ended, found, DONE, event(51, "task_complete")))) == 1
    alone = read(META, said(1, "assistant", "hm"), ended, event(3, "task_complete"))
    assert [one.arguments for one in calls(alone)] == [action]


@pytest.mark.parametrize(
    "text",
    [
        "await tools.exec_command({cmd: 'rm'})",
        "tools['exec_command']({})",
        "const t = tools; t.rm()",
        "globalThis.x()",
        r"t\u006fols.rm()",
        "names[0]()",
        "await codex.tool('rm')",
    ],
)
def test_a_script_whose_calls_are_not_recorded_leaves_rules_undecided(text: str) -> None:
    trace = read(META, script(2, "c1", text), printed(3, "c1"), DONE)
    assert unread(trace) == [("*",), ()]
    assert [(one.code, one.message) for one in trace.problems] == [
        ("unread-content", "calls that a script of `exec` may have made are not recorded")
    ]


def test_a_script_that_calls_nothing_is_read() -> None:
    assert unread(read(META, script(2, "c1", "text('a' + 1)"), printed(3, "c1"), DONE)) == [(), ()]


def test_each_tool_that_a_script_names_needs_a_recorded_call() -> None:
    text = "await tools.mcp__shop__pay({}); await tools.exec_command({cmd: 'rm'})"
    paid = mcp(3, "exec-1", "pay", OK)
    ran = completed(3, "CommandExecution", "exec-2", command=["rm"], exit_code=0, duration=took(0))
    assert unread(read(META, script(2, "c1", text), paid, printed(4, "c1"), DONE)) == [("*",), ()]
    assert unread(read(META, script(2, "c1", text), paid, ran, printed(4, "c1"), DONE)) == [(), ()]


def listing(*listed: tuple[str, Any], complete: bool = True) -> dict[str, Any]:
    """What an output says of the calls of its script."""
    found = [{"name": name, "arguments": given} for name, given in listed]
    about = {"executed_tool_calls": found, "tool_calls_complete": complete}
    return {"internal_chat_message_metadata_passthrough": about}


def test_calls_that_the_output_of_a_script_lists() -> None:
    both = listing(("mcp__shop__pay", {"n": 1}), ("exec_command", {"cmd": "rm"}))
    opaque = script(2, "c1", "const t = tools; await go(t)")
    trace = read(META, opaque, mcp(3, "exec-1", "pay", OK, {"n": 1}), printed(4, "c1", **both), DONE)
    assert [(one.name, one.arguments) for one in calls(trace)[1:]] == [
        ("pay", {"n": 1}),
        ("exec_command", {"cmd": "rm"}),
    ]
    assert (unread(trace), len(results(trace))) == ([(), ()], 2)
    other = read(META, opaque, mcp(3, "exec-1", "pay", OK, {"n": 2}), printed(4, "c1", **both), DONE)
    assert [one.arguments for one in calls(other) if one.name == "pay"] == [{"n": 2}, {"n": 1}]
    partial = listing(("exec_command", {"_codex_executed_tool_call_truncated": {"original_bytes": 9}}), complete=False)
    cut = read(META, opaque, printed(4, "c1", **partial), DONE)
    assert ([(one.name, one.arguments) for one in calls(cut)][1:], unread(cut)[0]) == ([("exec_command", None)], ("*",))
    own = read(META, call(2, "c1", "pay", n=1), item(3, "function_call_output", call_id="c1", output="x", **both), DONE)
    assert [one.name for one in calls(own)] == ["pay"]  # a call that no script made lists itself


@pytest.mark.parametrize(
    ("events", "listed", "expected"),
    [
        ([1, 2, 1], [1, 1, 2], [1, 2, 1]),
        ([1, 2, 1], [2, 3], [1, 2, 1, 3]),
        ([1, 2], [None, None, None], [1, 2, None]),  # a list without arguments may mean either
        ([None, 2], [2, 1], [None, 2]),
        ([None, 2], [1, 2], [None, 2]),
        ([1], [1.0], [1]),
        ([], [1, 1], [1, 1]),
    ],
)
def test_a_listed_call_is_the_one_of_the_event_log(events: list[Any], listed: list[Any], expected: list[Any]) -> None:
    def given(n: Any) -> Any:
        return "[1]" if n is None else {"n": n}

    ends = [mcp(3, f"exec-{k}", "pay", OK, given(n)) for k, n in enumerate(events)]
    output = printed(4, "c1", **listing(*(("mcp__shop__pay", given(n)) for n in listed)))
    found = [one.arguments for one in calls(read(META, script(2, "c1", "1"), *ends, output, DONE))[1:]]
    assert [one.get("n") if isinstance(one, dict) else None for one in found] == expected


def test_a_call_that_is_listed_before_its_event_is_not_doubled() -> None:
    running = printed(
        3, "c1", "Script running with cell ID 7", **listing(*(("mcp__shop__pay", {"n": n}) for n in (1, 2)))
    )
    ends = [mcp(5, f"exec-{n}", "pay", OK, {"n": n}) for n in (2, 1, 3)]
    trace = read(META, script(2, "c1", "1"), running, wait(4, "w", "7"), *ends, printed(6, "w"), DONE)
    found = [one for one in calls(trace) if one.name == "pay"]
    assert [one.arguments for one in found] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert {one.call_id for one in found} <= {one.call_id for one in results(trace)}


def test_the_oldest_of_many_open_scripts_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codex_scripts, "_MOST_OPEN", 8)
    opened = [line for k in range(9) for line in (script(2, f"c{k}", "1"), counted(3, k + 1, output_tokens=1))]
    end = printed(4, "c0", **listing(("pay", {})))
    assert [one for one in unread(read(META, *opened[:-2], end, DONE)) if one] == []
    assert [one for one in unread(read(META, *opened, printed(4, "c0"), DONE)) if one] == []  # it names no tool
    trace = read(META, *opened, end, DONE)
    assert [one for one in unread(trace) if one] == [("*",)]
    assert ["too many scripts" in one.message for one in trace.problems if one.code == "unread-content"] == [True]


def test_scripts_that_are_given_up_lack_no_call_that_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codex_scripts, "_MOST_OPEN", 8)
    rows: list[dict[str, Any]] = []
    for k in range(20):
        rows += [script(2, f"c{k}", "await tools.pay({})"), mcp(3, f"exec-{k}", "pay", OK, {"n": k})]
        rows += [printed(3, f"c{k}", f"Script running with cell ID {k}"), counted(3, k + 1, output_tokens=1)]
    for k in range(20):
        rows += [wait(4, f"w{k}", str(k)), printed(5, f"w{k}"), counted(5, 21 + k, output_tokens=1)]
    trace = read(META, *rows, DONE)
    assert [one.arguments for one in calls(trace) if one.name == "pay"] == [{"n": k} for k in range(20)]
    assert [one for one in unread(trace) if one] == []
    assert "unread-content" not in [one.code for one in trace.problems]


@pytest.mark.parametrize("kind", ["scripts", "calls", "waits", "searches"])
def test_scripts_without_an_end_take_linear_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codex_scripts, "_MOST_OPEN", 32)

    def cost(count: int) -> float:
        rows: list[dict[str, Any]] = [META, script(1, "c", "1")]
        for k in range(count):
            rows += {
                "scripts": [
                    script(2, f"c{k}", "1"),
                    mcp(2, f"exec-{k}", "pay", OK),
                    counted(3, k + 1, output_tokens=1),
                ],
                "calls": [mcp(2, f"exec-{k}", "pay", OK, {"n": k})],
                "waits": [printed(2, f"w{k - 1}", "Script running with cell ID 7"), wait(2, f"w{k}", "7")],
                "searches": [event(2, "web_search_end", call_id=f"s{k}", query="x")],
            }[kind]
        return cpu_seconds(lambda: read(*rows, DONE))

    cost(10)
    assert cost(1500) < 10 * cost(300) + 0.2


def test_a_script_that_goes_on_is_judged_when_it_ends() -> None:
    text, running = "await tools.exec_command({cmd: 'make'})", printed(3, "c1", "Script running with cell ID 7")
    ran = completed(6, "CommandExecution", "exec-1", command=["make"], exit_code=0, duration=took(5))
    trace = read(META, script(1, "c1", text), running, wait(4, "w1", "7"), ran, printed(7, "w1"), DONE)
    assert [(one.turn, one.name) for one in calls(trace)] == [(0, "exec"), (1, "wait"), (1, "exec_command")]
    assert unread(trace) == [(), (), ()]
    late = read(META, script(1, "c1", text), running, wait(4, "w1", "7"), printed(7, "w1"), DONE)
    assert unread(late) == [(), ("*",), ()]
    assert unread(read(META, script(1, "c1", text), running, DONE)) == [(), ("*",)]
    assert unread(read(META, wait(4, "w1", "9"), printed(7, "w1"), DONE)) == [("*",), ()]


def test_a_notice_of_a_script_is_not_its_output() -> None:
    notice = item(3, "custom_tool_call_output", call_id="c1", name="exec", output="so far")
    trace = read(META, script(2, "c1", "notify('so far')"), notice, printed(4, "c1", "Script failed"), DONE)
    assert [one.is_error for one in results(trace)] == [True]


def test_the_order_of_calls_in_a_script_is_known_from_their_durations() -> None:
    text = "tools.look(); tools.pay()"

    def second(seconds: int) -> Any:
        trace = read(
            META,
            script(1, "c1", text),
            mcp(4, "exec-1", "look", OK, seconds=1),
            mcp(6, "exec-2", "pay", OK, seconds=seconds),
            printed(7, "c1"),
            DONE,
        )
        return calls(trace)[2].unordered, [one.code for one in trace.problems], story(trace)[3:7]

    names = ["exec", "look", "look", "pay"]
    for seconds, expected in ((1, ((), [])), (3, (("look",), ["unknown-order"]))):
        *found, reported = second(seconds)
        assert (tuple(found), [line.split()[2] for line in reported]) == (expected, names)


def test_an_event_about_an_unknown_kind_of_call_is_reported() -> None:
    for odd in (completed(3, "TeleportCall", "exec-1"), event(3, "teleport_end", call_id="exec-1")):
        trace = read(META, script(2, "c1", "1"), odd, printed(4, "c1"), DONE)
        assert (unread(trace)[0], [one.code for one in trace.problems]) == (("*",), ["unread-content"])
    for known in (completed(3, "Plan", "p1"), completed(3, "TeleportCall", "c1")):
        assert unread(read(META, script(2, "c1", "1"), known, printed(4, "c1"), DONE)) == [(), ()]
