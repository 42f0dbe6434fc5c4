"""inspect_ai's logs: samples as sessions, whatever a log holds only once put back in its places."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.model.events import Trace
from bylaw.traces import load_trace
from bylaw.traces.formats import inspect_sample as attachments
from bylaw.traces.formats import inspect_sample as chunks
from bylaw.traces.records import archive
from tests.importers.support import calls, requests, responses, results, story

HEADER = {"version": 2, "status": "success", "eval": {"task": "t"}, "plan": {}}
HASH = "d" * 32


def at(second: float) -> str:
    return f"2026-01-01T00:00:{second:09.6f}+00:00"


def model(second: float, inputs: Any, message: Any, **rest: Any) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", **message}, "stop_reason": rest.pop("stop", "stop")}
    output = {"model": "m", "choices": [choice], "usage": rest.pop("usage", None)}
    event = {"event": "model", "timestamp": at(second), "completed": at(second + 1), "model": "p/m"}
    return {**event, "input": inputs, "output": output, **rest}


def tool(second: float, id: str, result: Any, **rest: Any) -> dict[str, Any]:
    event = {"event": "tool", "timestamp": at(second), "completed": at(second + 1), "id": id}
    return {**event, "function": "bash", "arguments": {"cmd": "ls"}, "result": result, **rest}


def asks(*ids: str) -> dict[str, Any]:
    return {"content": "", "tool_calls": [{"id": id, "function": "bash", "arguments": {"cmd": "ls"}} for id in ids]}


def sample(*events: Any, id: Any = 1, **rest: Any) -> dict[str, Any]:
    return {"id": id, "epoch": 1, "messages": [], "events": list(events), **rest}


def packed(*samples: dict[str, Any], method: int = zipfile.ZIP_DEFLATED, header: Any = HEADER) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", method) as file:
        file.writestr("_journal/start.json", json.dumps(HEADER))
        for one in samples:
            file.writestr(f"samples/{one.get('id')}_epoch_1.json", json.dumps(one))
        file.writestr("summaries.json", "[]")
        file.writestr("header.json", json.dumps(header))
    return held.getvalue()


def read(*samples: dict[str, Any], **options: Any) -> Trace:
    """Both kinds of file, which must tell the same."""
    whole = load_trace(json.dumps({**HEADER, "samples": samples}).encode(), **options)
    trace = load_trace(packed(*samples), **options)
    assert story(trace) == story(whole)
    assert trace.format == whole.format == "inspect"
    return trace


USER = {"role": "user", "content": "go"}


def test_a_sample_is_a_session() -> None:
    trace = read(
        sample(
            {"event": "span_begin", "id": "s", "type": "agent", "name": "react", "parent_id": None, "timestamp": at(0)},
            model(1, [USER], asks("c1", "c2"), span_id="s", usage={"input_tokens": 5, "output_tokens": 2}),
            tool(3, "c1", "a b", span_id="s"),
            tool(4.5, "c2", "", span_id="s", error={"type": "timeout", "message": "too slow"}),
            model(6, [USER], {"content": "done"}, span_id="s"),
            {"event": "score", "timestamp": at(9), "score": {"value": "C"}},
            scores={"m": {"value": "C"}},
        ),
        sample(model(1, [USER], {"content": "x"}), id="b"),
    )
    assert story(trace) == [
        "None session_start",
        "0 request user",
        "0 response",
        '0 tool_call bash {"cmd": "ls"}',
        '0 tool_result bash "a b"',
        '0 tool_call bash {"cmd": "ls"}',
        '0 tool_result bash "too slow" failed',
        "1 request user",
        "1 response done",
        "None annotation score",
        "None session_end",
        "None session_start",
        "2 request user",
        "2 response x",
        "None session_end",
    ]
    assert trace.sessions == ("sample 1 epoch 1", "sample b epoch 1")
    assert [call.group for call in calls(trace)] == [0, 0]
    first = responses(trace)[0]
    assert (first.origin.agent, first.latency_ms, first.stop_reason) == ("react", 1000, "stop")
    assert [result.is_error for result in results(trace)] == [False, True]
    assert trace.header["eval"] == {"task": "t"}


def test_attachments_and_pools_are_put_back() -> None:
    message = {"role": "user", "content": f"attachment://{HASH}"}
    event = model(1, [], {"content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "ok"}]})
    event["input_refs"] = [[0, 1], [2, 3]]
    trace = read(
        sample(
            event,
            tool(3, "c1", f"attachment://{HASH}"),
            attachments={HASH: "a long text"},
            events_data={"messages": [message, {"role": "user", "content": "not me"}, USER], "calls": []},
        )
    )
    assert [message["content"] for message in requests(trace)[0].messages or ()] == ["a long text", "go"]
    assert [result.content for result in results(trace)] == ["a long text"]
    assert (responses(trace)[0].text, responses(trace)[0].content) == (
        "ok",
        [{"type": "thinking", "reasoning": "hm", "text": "hm"}, {"type": "text", "text": "ok"}],
    )


def test_attachments_are_put_back_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "MOST", 5_000)
    name, text = f"attachment://{HASH}", "x" * 1000
    reported = [name, name, name, f"{name} {name} {name}", name, {"deep": [name]}, name]
    asked = [{"role": "user", "content": name}, {"role": "user", "content": f"{name} {name}"}]
    one = sample(
        *(model(second, asked, {"content": "x"}) for second in range(1, 9)),
        *(tool(2 * number, f"c{number}", content) for number, content in enumerate(reported, start=5)),
        attachments={HASH: text},
    )
    trace = read(one, {**one, "id": 2})
    expected = [text, text, text, f"{name} {name} {name}", text, {"deep": [text]}, name]
    assert [result.content for result in results(trace)] == expected * 2
    assert [(problem.code, problem.severity) for problem in trace.problems] == [("too-long", "warning")] * 2
    # requests repeat what was said before: that counts once
    contents = [[message["content"] for message in request.messages or ()] for request in requests(trace)]
    assert contents == [[text, f"{text} {text}"]] * 16


def test_references_out_of_range_and_attachments_that_are_gone() -> None:
    event = {**model(1, [], {"content": "attachment://" + "e" * 32}), "input_refs": [[0, 10**12], [-5, 2], "x", [7, 9]]}
    trace = read(sample(event, events_data={"messages": [USER], "calls": []}, attachments={HASH: "x"}))
    assert len(requests(trace)[0].messages or ()) == 1
    assert responses(trace)[0].text == "attachment://" + "e" * 32


@pytest.mark.parametrize("old", [True, False])
def test_a_judge_is_not_the_agent(old: bool) -> None:
    begin = {"event": "step", "action": "begin", "type": "scorer", "name": "x", "timestamp": at(5)}
    if not old:
        begin = {"event": "span_begin", "id": "j", "type": "scorer", "name": "x", "timestamp": at(5)}
    grade = model(6, [USER], {"content": "grade: C"}, **({} if old else {"span_id": "j"}))
    trace = read(sample(model(1, [USER], {"content": "x"}), begin, grade))
    assert [response.text for response in responses(trace)] == ["x"]


def test_usage_beside_the_cache() -> None:
    usage = {"input_tokens": 5, "output_tokens": 1, "input_tokens_cache_read": 3, "total_tokens": 9}
    (response,) = responses(read(sample(model(1, [USER], {"content": "x"}, usage=usage))))
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.cached_input_tokens) == (8, 3)


def test_a_sample_without_events_has_its_messages() -> None:
    talk = [USER, {"role": "assistant", **asks("c1")}]
    talk.append({"role": "tool", "tool_call_id": "c1", "function": "bash", "content": "", "error": {"message": "no"}})
    trace = read({"id": 1, "epoch": 2, "messages": talk})
    assert story(trace)[1:5] == [
        "0 request user",
        "0 response",
        '0 tool_call bash {"cmd": "ls"}',
        '0 tool_result bash "no" failed',
    ]


def test_a_run_that_was_stopped_is_not_complete() -> None:
    assert (
        load_trace(
            packed(sample(model(1, [USER], {"content": "x"})), header={**HEADER, "status": "cancelled"})
        ).complete
        is False
    )


def test_a_failed_call_of_a_model_is_no_turn() -> None:
    event = {**model(1, [USER], {"content": "x"}), "error": "overloaded", "output": {"choices": []}}
    assert story(read(sample(event)))[1:] == ["0 request user", "None annotation error", "None session_end"]


def test_what_is_broken_is_reported() -> None:
    data = {**HEADER, "samples": [5, {"epoch": 1}, sample(7, model(1, [USER], {"content": "x"}))]}
    with pytest.raises(InputError) as error:
        load_trace(json.dumps(data).encode())
    assert [p.code for p in error.value.diagnostics] == ["wrong-type", "wrong-type"]
    assert len(load_trace(json.dumps(data).encode(), skip_bad=True).turns) == 1
    whole = packed(sample(model(1, [USER], {"content": "x"})))
    for broken in (whole[:-40], whole[:30] + bytes(20) + whole[50:]):
        with pytest.raises(InputError):
            load_trace(broken)


# Archives that mean no good


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_SUSPECT", 1 << 16)
    bomb = {**sample(model(1, [USER], {"content": "x"})), "padding": " " * (1 << 20)}
    with pytest.raises(InputError) as error:
        load_trace(packed(bomb))
    assert [(p.code, "far more" in p.message) for p in error.value.diagnostics] == [("bad-compression", True)]


def test_an_entry_that_is_too_long_is_refused_whatever_the_archive_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_ENTRY", 1 << 12)
    big = {**sample(model(1, [USER], {"content": "x"})), "noise": [n * 7919 % 10007 for n in range(5000)]}
    with pytest.raises(InputError) as error:
        load_trace(packed(big))
    assert "too-long" in [p.code for p in error.value.diagnostics]


def test_entries_that_overlap_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = packed(sample(model(1, [USER], {"content": "x"})))
    problems = archive.Problems("x", skip_bad=True)
    assert list(archive.archive_blocks(io.BytesIO(data), 100, problems)) == []
    assert [p.code for p in problems.listed] == ["bad-compression"]


def test_the_last_of_two_entries_with_one_name_counts() -> None:
    held = io.BytesIO(packed(sample(model(1, [USER], {"content": "old"}))))
    with zipfile.ZipFile(held, "a") as file, pytest.warns(UserWarning):
        file.writestr("samples/1_epoch_1.json", json.dumps(sample(model(1, [USER], {"content": "new"}))))
    assert [response.text for response in responses(load_trace(held.getvalue()))] == ["new"]


def test_zstd_inside_of_the_archive() -> None:
    import zstandard

    plain = packed(sample(model(1, [USER], {"content": "x"})), method=zipfile.ZIP_STORED)
    source, held = zipfile.ZipFile(io.BytesIO(plain)), io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        for name in source.namelist():
            file.writestr(name, zstandard.compress(source.read(name)))
        for info in file.infolist():
            info.compress_type = 93
    assert [response.text for response in responses(load_trace(held.getvalue()))] == ["x"]


# Giant samples


def chunked(one: dict[str, Any], *, size: int = 1, drop: str = "", order: int = 1) -> bytes:
    """As inspect_ai divides a sample: the rest, and its parts in numbered pieces."""
    name = f"samples/{one['id']}_epoch_1"
    rest = {key: value for key, value in one.items() if key not in ("events", "events_data", "attachments", "messages")}
    parts = {
        "messages": one.get("events_data", {}).get("messages", []),
        "events": one["events"],
        "calls": [{"raw": 1}],
        "attachments": list(one.get("attachments", {}).values()),
    }
    entries = {f"{name}/sample.json": {**rest, "message_refs": one.get("message_refs", [])}}
    entries |= {f"{name}/skeleton.json": {}, f"{name}/events/stats.json": {}, f"{name}/events/uuids.json": []}
    for kind, items in parts.items():
        for start in range(0, len(items), size):
            entries[f"{name}/{kind}/{start}.json"] = items[start : start + size]
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        file.writestr("header.json", json.dumps(HEADER))
        for entry, value in list(entries.items())[::order]:
            file.writestr(entry, "{broken" if drop and entry.endswith(drop) else json.dumps(value))
    return held.getvalue()


GIANT = sample(
    {**model(1, [], asks("c1")), "input_refs": [[0, 1]], "call": {"request": {"big": 1}}},
    {"event": "approval", "timestamp": at(2), "call": {"id": "c1"}, "decision": "approve"},
    tool(3, "c1", "see attachment://1 and attachment://7"),
    {**model(5, [], {"content": "attachment://0"}), "input_refs": [[0, 1], [2, 3]]},
    id="a/b",
    events_data={"messages": [USER, {"role": "user", "content": "no"}, {"role": "user", "content": "attachment://1"}]},
    attachments={"x": "zero", "y": "one"},
)


@pytest.mark.parametrize(("size", "order"), [(1, 1), (1, -1), (2, 1), (1000, 1)])
def test_a_sample_in_chunks(size: int, order: int) -> None:
    trace = load_trace(chunked(GIANT, size=size, order=order))
    assert (trace.complete, trace.sessions, trace.problems) == (True, ("sample a/b epoch 1",), ())
    assert story(trace) == [
        "None session_start",
        "0 request user",
        "0 response",
        '0 tool_call bash {"cmd": "ls"}',
        "None annotation approval",
        '0 tool_result bash "see one and attachment://7"',
        "1 request user user",
        "1 response zero",
        "None session_end",
    ]
    assert [message["content"] for message in requests(trace)[1].messages or ()] == ["go", "one"]
    approval = next(event for event in trace.events if event.kind == "annotation")
    assert approval.data == {"call": {"id": "c1"}, "decision": "approve"}  # type: ignore[attr-defined]


def test_a_piece_that_cannot_be_read_is_reported_and_shifts_nothing() -> None:
    broken = chunked(GIANT, drop="messages/0.json")
    with pytest.raises(InputError) as error:
        load_trace(broken)
    assert [p.code for p in error.value.diagnostics] == ["bad-json"]
    trace = load_trace(broken, skip_bad=True)
    assert (trace.skipped, len(trace.turns)) == (1, 2)
    assert [message["content"] for message in requests(trace)[1].messages or ()] == ["one"]
    (end,) = (event for event in trace.events if event.kind == "session_end")
    assert end.complete is False  # type: ignore[attr-defined]
    with pytest.raises(InputError) as error:
        load_trace(chunked({**GIANT, "id": None}, drop="sample.json"))
    assert sorted(p.code for p in error.value.diagnostics) == ["bad-json", "wrong-type"]


def test_a_sample_in_chunks_without_events_has_its_messages() -> None:
    said = [USER, {"role": "assistant", "content": "x"}, {"role": "user", "content": "left"}]
    one = {**sample(id=3, message_refs=[[0, 2]]), "events_data": {"messages": said}}
    assert [(len(requests(t)[0].messages or ()), responses(t)[0].text) for t in [load_trace(chunked(one))]] == [
        (1, "x")
    ]


def test_pieces_that_are_no_lists_and_too_many_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    held = io.BytesIO(chunked(GIANT))
    with zipfile.ZipFile(held, "a") as file:
        file.writestr("samples/a/b_epoch_1/events/999.json", "{}")
        file.writestr("samples/a/b_epoch_1/messages/999999999999.json", '["far"]')
    trace = load_trace(held.getvalue(), skip_bad=True)
    assert [(p.code, p.message) for p in trace.problems] == [
        ("wrong-type", "this piece of a sample must be a list, not an object")
    ]
    assert len(trace.turns) == 2
    monkeypatch.setattr(chunks, "MOST_HELD", 100)
    assert {p.code for p in load_trace(chunked(GIANT), skip_bad=True).problems} == {"too-long"}


# What a log may hold besides


def test_numbers_that_json_does_not_have_are_text() -> None:
    event = tool(3, "c1", "NUMBER")
    one = sample(model(1, [USER], asks("c1")), event, scores={"s": {"value": "NUMBER"}})
    for token in ("NaN", "Infinity", "-Infinity"):
        text = json.dumps({**HEADER, "samples": [one]}, indent=1).replace('"NUMBER"', token)
        trace = load_trace(text.encode())
        assert (trace.format, trace.problems) == ("inspect", ())
        start = trace.events[0]
        assert start.metadata["scores"] == {"s": {"value": token}}  # type: ignore[attr-defined]
        assert [result.content for result in results(trace)] == [token]
        with pytest.raises(InputError):
            load_trace(text.encode(), format="agentdojo")


@pytest.mark.parametrize("rest", [{"error": {"message": "x"}}, {"limit": {"type": "message", "limit": 4}}, {}])
def test_a_sample_that_was_cut_short_is_not_complete(rest: dict[str, Any]) -> None:
    trace = read(sample(model(1, [USER], {"content": "x"}), **rest))
    (end,) = (event for event in trace.events if event.kind == "session_end")
    assert end.complete is not bool(rest)  # type: ignore[attr-defined]
    assert trace.complete is True
    marks = [line for line in story(trace) if "annotation" in line]
    assert marks == {"error": ["None annotation error"], "limit": ["None annotation sample_limit"]}.get(
        next(iter(rest), ""), []
    )


def test_a_limit_is_reported_once() -> None:
    event = {"event": "sample_limit", "type": "message", "message": "x", "limit": 4, "timestamp": at(3)}
    trace = read(sample(model(1, [USER], {"content": "x"}), event, limit={"type": "message", "limit": 4}))
    assert story(trace).count("None annotation sample_limit") == 1


def test_calls_that_were_never_finished() -> None:
    empty = {"choices": [{"message": {"role": "assistant", "content": ""}, "stop_reason": "stop"}]}
    trace = read(
        sample(
            model(1, [USER], asks("c1")),
            tool(2, "c1", "", pending=True, completed=None),
            {**model(3, [USER], {}), "output": empty, "error": "Cancelled by operator"},
            {**model(5, [USER], {}), "output": {"choices": []}, "pending": True},
        )
    )
    assert (len(trace.turns), len(results(trace)), len(requests(trace))) == (1, 0, 3)
    assert trace.notes == ("2 requests have no response",)


def test_a_run_that_was_killed_is_not_complete() -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as file:
        file.writestr("_journal/start.json", json.dumps(HEADER))
        file.writestr("samples/1_epoch_1.json", json.dumps(sample(model(1, [USER], {"content": "x"}))))
    trace = load_trace(held.getvalue())
    assert (trace.complete, len(trace.turns), trace.header["eval"]) == (False, 1, {"task": "t"})


def test_older_logs_hold_events_inside_of_events() -> None:
    inner = [model(2, [USER], asks("k1")), tool(3, "k1", "deep")]
    nested = {"event": "subtask", "name": "s", "timestamp": at(1), "events": inner}
    trace = read(sample(model(0, [USER], asks("c1")), tool(1, "c1", "x", events=[nested], completed=at(9))))
    assert [call.call_id for call in calls(trace)] == ["c1", "k1"]
    assert [result.content for result in results(trace)] == ["deep", "x"]


def test_agents_by_their_spans() -> None:
    def agent(id: str, parent: str | None, second: float) -> dict[str, Any]:
        begin = {"event": "span_begin", "id": id, "span_id": id, "type": "agent", "name": id, "timestamp": at(second)}
        return {**begin, "parent_id": parent}

    between = {"event": "span_begin", "id": "t", "parent_id": "boss", "type": "tool", "name": "t", "timestamp": at(2)}
    trace = read(
        sample(
            agent("boss", None, 0),
            model(1, [USER], asks("c1"), span_id="boss"),
            tool(2, "c1", "x", span_id="boss", agent="helper", completed=at(8)),
            between,
            agent("helper", "t", 3),
            model(4, [USER], {"content": "inner"}, span_id="helper"),
        )
    )
    inner = responses(trace)[1].origin
    assert (inner.run, inner.parent_run, inner.agent, inner.parent_agent) == ("helper", "boss", "helper", "boss")
    assert [result.turn for result in results(trace)] == [0]


def ran(tool_type: str, name: str, given: str, result: str = "", **rest: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "tool_type": tool_type, "id": f"id {name}", "name": name, "arguments": given}
    return {**block, "context": None, "result": result, "error": None, **rest}


@pytest.mark.parametrize("has_events", [True, False])
def test_calls_that_the_provider_ran_have_arguments_and_results(has_events: bool) -> None:
    blocks = [
        ran("mcp_call", "mcp_list_tools", "", "[]", context="shop"),
        ran("mcp_call", "refund", '{"n": 1}', "sent", context="shop"),
        ran("mcp_call", "cancel", '{"n": 2}', error="refused", context="shop"),
        ran("web_search", "open_page", '{"url": "u"}'),
        ran("code_execution", "python", "print(1)", "1\n", id=""),
        ran("code_execution", "python", "print(2)", "2\n", id=""),
        {"type": "text", "text": "done"},
    ]
    answer = {"content": blocks}
    whole = {"role": "assistant", **answer}
    trace = read(sample(model(1, [USER], answer)) if has_events else sample(messages=[USER, whole]))
    assert [(call.name, call.namespace, call.arguments, call.raw_arguments) for call in calls(trace)] == [
        ("refund", "shop", {"n": 1}, '{"n": 1}'),
        ("cancel", "shop", {"n": 2}, '{"n": 2}'),
        ("web_search", None, {"url": "u"}, '{"url": "u"}'),
        ("python", None, None, "print(1)"),
        ("python", None, None, "print(2)"),
    ]
    assert [(result.name, result.content, result.is_error) for result in results(trace)] == [
        ("refund", "sent", False),
        ("cancel", "refused", True),
        ("web_search", "", False),
        ("python", "1\n", False),
        ("python", "2\n", False),
    ]
    assert (responses(trace)[0].text, responses(trace)[0].unread, trace.problems) == ("done", (), ())
