"""Which call a result answers: by any recorded id, by equal arguments, else in their order, reported as a guess."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bylaw.model.events import Trace
from bylaw.traces import load_trace
from tests.importers.support import calls, export, lines, read, results, span
from tests.importers.test_unread import codes, outcomes

CITIES = ("Berlin", "Oslo")
RULE = [{"id": "r", "kind": "no_call", "scope": "session", "params": {"tool": "wipe"}}]
FITS = [
    {"id": id, "kind": "temporal", "scope": "session", "params": {"formula": f"G !result(weather{tests})"}}
    for id, tests in (
        ("wrong", ', args.city = "Berlin", result = "snow"'),
        ("right", ', args.city = "Oslo", result = "snow"'),
        ("any", ""),
    )
]
ABOUT = [{"id": "r", "kind": "must_call_once", "scope": "session", "params": {"tool": "weather"}}]


def chat(id: str, start: float, *uses: dict[str, Any], **values: Any) -> dict[str, Any]:
    message = [{"role": "assistant", "parts": [{"type": "tool_call", **use} for use in uses]}]
    return span(id, start, start + 1, {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(message)})


def tool(id: str, start: float, result: Any, values: dict[str, Any], **rest: Any) -> dict[str, Any]:
    own = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather", "gen_ai.tool.call.result": result}
    return span(id, start, start + 1, {**own, **values}, **rest)


def use(city: str, id: str | None = None) -> dict[str, Any]:
    return {"name": "weather", "arguments": {"city": city}} | ({} if id is None else {"id": id})


def pairs(trace: Trace) -> list[tuple[str, Any]]:
    return [(result.call.arguments["city"], result.content) for result in results(trace) if result.call is not None]


WRAPPED = {
    "plain": lambda city: {"gen_ai.tool.call.arguments": json.dumps({"city": city})},
    "input": lambda city: {"gen_ai.tool.call.arguments": json.dumps({"input": {"city": city}})},
    "text": lambda city: {"gen_ai.tool.call.arguments": json.dumps({"input": json.dumps({"city": city})})},
    "langchain": lambda city: {"traceloop.entity.input": json.dumps({"input_str": "x", "inputs": {"city": city}})},
    "kwargs": lambda city: {"input.value": json.dumps({"args": [], "kwargs": {"city": city}})},
    "only": lambda city: {"input.value": city},
}


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_equal_arguments_join_a_span_without_an_id(wrap: Any) -> None:
    spans = [tool(city, 5 - 2 * number, city, wrap(city)) for number, city in enumerate(CITIES)]
    trace = read(export(chat("a", 0, *map(use, CITIES)), *spans))
    assert sorted(pairs(trace)) == [(city, city) for city in CITIES]
    assert (codes(trace), len(calls(trace))) == ([], 2)


def test_calls_that_are_spread_over_two_spans_of_one_answer() -> None:
    spans = [tool(city, 7 - 2 * number, city, WRAPPED["input"](city)) for number, city in enumerate(CITIES)]
    trace = read(export(chat("a", 0, use("Berlin")), chat("b", 1, use("Oslo")), *spans))
    assert sorted(pairs(trace)) == [(city, city) for city in CITIES]
    assert codes(trace) == []


TOOL_MESSAGES = [
    lambda id: {"type": "tool", "data": {"content": "rain", "tool_call_id": id, "name": "weather"}},
    lambda id: {"output": {"lc": 1, "id": ["ToolMessage"], "kwargs": {"content": "rain", "tool_call_id": id}}},
    lambda id: {"content": "rain", "type": "tool", "tool_call_id": id},
    lambda id: {"id": id, "name": "weather", "response": "rain"},
    lambda id: {"type": "tool_result", "tool_use_id": id, "content": "rain"},
]


@pytest.mark.parametrize("message", TOOL_MESSAGES)
def test_the_id_inside_a_recorded_tool_message_joins(message: Any) -> None:
    recorded = json.dumps(message("c2"))
    trace = read(export(chat("a", 0, use("Berlin", "c1"), use("Oslo", "c2")), tool("t", 2, recorded, {})))
    assert (pairs(trace), codes(trace)) == ([("Oslo", "rain")], [])


def test_a_link_to_the_span_of_the_model_joins() -> None:
    link = {"links": [{"traceId": "t1", "spanId": "a"}]}
    spans = chat("a", 0, use("Berlin")), chat("b", 1, use("Oslo"))
    trace = read(export(*spans, tool("t", 4, "rain", {}, **link), tool("u", 6, "snow", {})))
    assert (pairs(trace), codes(trace)) == ([("Berlin", "rain"), ("Oslo", "snow")], [])


def test_first_in_first_out_is_reported_as_a_guess() -> None:
    trace = read(export(chat("a", 0, *map(use, CITIES)), tool("t", 2, "rain", {}), tool("u", 4, "snow", {})))
    assert pairs(trace) == [("Berlin", "rain"), ("Oslo", "snow")]
    assert codes(trace) == ["guessed-call"]
    assert outcomes(trace, ABOUT) == {"r": "violated"}  # called twice, whichever result is whose
    assert outcomes(trace, RULE) == {"r": "ok"}
    assert trace.turns[0].response.unread == ("weather",)
    assert outcomes(trace, FITS) == {"wrong": "inconclusive", "right": "inconclusive", "any": "violated"}


def test_spans_of_calls_that_share_an_id_are_distinguished_by_their_arguments() -> None:
    values = [{"gen_ai.tool.call.id": "x", **WRAPPED["plain"](city)} for city in reversed(CITIES)]
    spans = [tool(str(number), 2 + 2 * number, city, one) for number, (city, one) in enumerate(zip(
        reversed(CITIES), values, strict=True))]  # fmt: skip
    trace = read(export(chat("a", 0, use("Berlin", "x"), use("Oslo", "x")), *spans))
    assert sorted(pairs(trace)) == [(city, city) for city in CITIES]
    assert len(calls(trace)) == 2


def messages(*results: dict[str, Any], cities: tuple[str, ...] = CITIES) -> Trace:
    issued = [{"function": {"name": "weather", "arguments": json.dumps({"city": city})}} for city in cities]
    listed = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": issued}, *results]
    return load_trace(json.dumps([*listed, {"role": "assistant", "content": "done"}]).encode())


def test_messages_without_ids() -> None:
    reported = messages({"role": "tool", "name": "weather", "content": "rain"}, {"role": "tool", "content": "snow"})
    assert (pairs(reported), codes(reported)) == ([("Berlin", "rain"), ("Oslo", "snow")], ["guessed-call"])
    assert reported.turns[0].response.unread == ("weather",)
    alike = messages({"role": "tool", "content": "rain"}, cities=("Oslo", "Oslo"))
    assert (pairs(alike), codes(alike)) == ([("Oslo", "rain")], [])


def test_an_answer_without_ids_and_a_span_with_one() -> None:
    values = {"gen_ai.tool.call.id": "x1"}
    trace = read(export(chat("a", 0, use("Berlin")), tool("t", 2, "rain", values)))
    assert [(call.call_id, call.arguments) for call in calls(trace)] == [("x1", {"city": "Berlin"})]
    assert codes(trace) == []


def test_a_result_without_an_id_may_answer_a_call_that_was_dropped() -> None:
    uses = [{"id": f"c{n}", "function": {"name": "f", "arguments": "{}"}} for n in range(300)]
    lost = {"role": "assistant", "content": None, "tool_calls": uses}
    asked = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "x", "function": {"name": "g", "arguments": "{}"}}],
    }
    trace = load_trace([lost, asked, {"role": "tool", "name": "g", "content": "x"}], format="openai")
    assert [problem.code for problem in trace.problems] == ["guessed-call"]
    assert trace.turns[1].response.unread == ("g",)


def test_a_handwritten_line_without_a_run_belongs_to_the_run_of_its_call() -> None:
    use = {"type": "tool_use", "id": "c1", "name": "b", "input": {}}
    trace = read(
        {"bylaw": "trace/1"},
        {"kind": "response", "session": "s", "run": "r2", "agent": "a", "content": [use]},
        {"kind": "tool_result", "session": "s", "call_id": "c1", "content": "x"},
        {"kind": "tool_call", "session": "s", "name": "late", "call_id": "c3"},
        {"kind": "tool_result", "session": "s", "run": "r9", "call_id": "c3", "content": "x"},
        {"kind": "tool_result", "session": "s", "call_id": "zzz", "content": "y"},
    )
    assert [(event.kind, event.origin.run, event.origin.agent) for event in trace.events] == [
        ("response", "r2", "a"),
        ("tool_call", "r2", "a"),
        ("tool_result", "r2", "a"),
        ("tool_call", "r2", "a"),
        ("tool_result", "r9", None),
        ("tool_result", None, None),
    ]


# Messages, and requests that repeat them

USER = {"role": "user", "content": "q"}
DONE = {"role": "assistant", "content": "done"}
GUESSED = [("Berlin", "rain"), ("Oslo", "snow")], ["guessed-call"]
UNSURE = {"wrong": "inconclusive", "right": "inconclusive", "any": "violated"}
CERTAIN = {"wrong": "ok", "right": "violated", "any": "violated"}


def asks(*ids: Any, cities: tuple[str, ...] = CITIES, name: str = "weather") -> dict[str, Any]:
    uses = [
        {"function": {"name": name, "arguments": json.dumps({"city": city})}} | ({} if id is None else {"id": id})
        for id, city in zip(ids, cities, strict=True)
    ]
    return {"role": "assistant", "content": None, "tool_calls": uses}


def shows(id: Any, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, **({} if id is None else {"tool_call_id": id}), **more}


def as_chat(answer: dict[str, Any], *since: Any, before: tuple[Any, ...] | None = None) -> bytes:
    return json.dumps([USER, answer, *since, DONE]).encode()


def as_pairs(answer: dict[str, Any], *since: Any, before: tuple[Any, ...] | None = None) -> bytes:
    exchanges = ([USER], answer), ([USER, *((answer,) if before is None else before), *since], DONE)
    return lines(*({"request": {"messages": asked}, "response": {"choices": [{"message": got}]}}
                   for asked, got in exchanges))  # fmt: skip


def blocks_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for call in answer.get("tool_calls", ()):
        function = call["function"]
        block = {"type": "tool_use", "name": function["name"], "input": json.loads(function["arguments"])}
        found.append(block | ({"id": call["id"]} if "id" in call else {}))
    return found or [{"type": "text", "text": answer["content"]}]


def as_agentlog(answer: dict[str, Any], *since: Any, before: tuple[Any, ...] | None = None) -> bytes:
    exchanges = ([USER], answer), ([USER, *((answer,) if before is None else before), *since], DONE)
    return lines(*(record for asked, got in exchanges for record in (
        {"kind": "chat_request", "payload": {"messages": asked}},
        {"kind": "chat_response", "payload": {"content": blocks_of(got)}})))  # fmt: skip


def as_bylaw(answer: dict[str, Any], *since: Any, before: tuple[Any, ...] | None = None) -> bytes:
    exchanges = ([USER], answer), ([USER, *((answer,) if before is None else before), *since], DONE)
    return lines({"bylaw": "trace/1"}, *(line for asked, got in exchanges for line in (
        {"kind": "request", "messages": asked}, {"kind": "response", "content": blocks_of(got)})))  # fmt: skip


REQUESTS = [as_pairs, as_agentlog, as_bylaw]
ALL = [as_chat, *REQUESTS]
RESULTS = shows("x1", "rain"), shows("x2", "snow")


@pytest.mark.parametrize("written", ALL)
@pytest.mark.parametrize(("first", "second"), [("x1", "x2"), (1, 2), (0, 1)])
def test_ids_join_whatever_their_type_and_order(written: Any, first: Any, second: Any) -> None:
    trace = load_trace(written(asks(first, second), shows(second, "snow"), shows(first, "rain")))
    assert (sorted(pairs(trace)), codes(trace)) == ([("Berlin", "rain"), ("Oslo", "snow")], [])
    assert outcomes(trace, FITS) == CERTAIN


@pytest.mark.parametrize("written", ALL)
@pytest.mark.parametrize(
    ("ids", "results"),
    [
        (("", ""), (shows("", "rain"), shows("", "snow"))),
        ((None, None), RESULTS),
        (("c1", "c2"), (shows("", "rain"), shows(None, "snow"))),
    ],
)
def test_results_whose_ids_match_no_call_are_paired_in_their_order(
    written: Any, ids: tuple[Any, Any], results: tuple[Any, ...]
) -> None:
    trace = load_trace(written(asks(*ids), *results))
    assert (pairs(trace), codes(trace)) == GUESSED
    assert outcomes(trace, FITS) == UNSURE


@pytest.mark.parametrize("written", ALL)
def test_results_with_other_ids_than_the_calls_may_be_of_any_tool(written: Any) -> None:
    trace = load_trace(written(asks("c1", "c2"), *RESULTS))
    assert (pairs(trace), codes(trace)) == GUESSED
    assert outcomes(trace, FITS) == dict.fromkeys(UNSURE, "inconclusive")


@pytest.mark.parametrize("written", REQUESTS)
def test_the_repeated_answer_says_which_call_has_an_id_there(written: Any) -> None:
    again = asks("x2", "x1", cities=("Oslo", "Berlin"))
    trace = load_trace(written(asks("c1", "c2"), *reversed(RESULTS), before=(again,)))
    assert (sorted(pairs(trace)), "guessed-call" in codes(trace)) == ([("Berlin", "rain"), ("Oslo", "snow")], False)
    assert outcomes(trace, FITS) == CERTAIN


@pytest.mark.parametrize("written", ALL)
def test_calls_of_one_answer_that_share_an_id_are_answered_in_their_order(written: Any) -> None:
    trace = load_trace(written(asks("x", "x"), shows("x", "rain"), shows("x", "snow")))
    assert (pairs(trace), sorted(codes(trace))) == (GUESSED[0], ["duplicate-call-id", "guessed-call"])
    assert outcomes(trace, FITS) == UNSURE
    tools = asks("x", cities=("Berlin",))["tool_calls"] + asks("x", cities=("Oslo",), name="map")["tool_calls"]
    named = {"role": "assistant", "content": None, "tool_calls": tools}
    trace = load_trace(written(named, shows("x", "Oslo", name="map"), shows("x", "Berlin", name="weather")))
    assert (sorted(pairs(trace)), codes(trace)) == ([(city, city) for city in CITIES], ["duplicate-call-id"])


@pytest.mark.parametrize("written", ALL)
def test_several_results_of_one_call_all_stay(written: Any) -> None:
    trace = load_trace(written(asks("x", cities=("Oslo",)), shows("x", "rain"), shows("x", "snow"), shows("x", None)))
    assert pairs(trace) == [("Oslo", "rain"), ("Oslo", "snow"), ("Oslo", None)]


@pytest.mark.parametrize("written", ALL)
def test_a_result_of_no_call_stays_and_is_reported(written: Any) -> None:
    for tool, outcome in ((None, "inconclusive"), ("look", "ok"), ("wipe", "inconclusive")):
        more = {} if tool is None else {"name": tool}
        trace = load_trace(written({"role": "assistant", "content": "hm"}, shows("x", "rain", **more)))
        assert [(result.call, result.content) for result in results(trace)] == [(None, "rain")], more
        assert codes(trace) == ["result-without-call"]
        assert outcomes(trace, RULE) == {"r": outcome}
    first = load_trace(json.dumps([USER, shows("x", "rain"), DONE]).encode())
    assert (codes(first), outcomes(first, RULE)) == (["result-without-call"], {"r": "inconclusive"})


def repeat(data: bytes, count: int) -> bytes:
    """A log whose latest exchange was made several times."""
    records = data.splitlines(keepends=True)
    last = records[-1:] if b'"response":' in records[-1] else records[-2:]
    return data + b"".join(last) * count


@pytest.mark.parametrize("written", REQUESTS)
@pytest.mark.parametrize("ids", [("x1", "x2"), (None, None), ("x", "x"), ("c1", "c2")])
def test_a_result_that_several_requests_repeat_is_read_once(written: Any, ids: Any) -> None:
    shared = (shows("x", "rain"), shows("x", "snow")) if ids[0] == "x" else RESULTS
    once = written(asks(*ids), *shared)
    assert [one.content for one in results(load_trace(repeat(once, 2)))] == ["rain", "snow"]


@pytest.mark.parametrize("written", REQUESTS)
def test_ids_that_every_answer_uses_again(written: Any) -> None:
    first, second = asks("x", cities=("Berlin",)), asks("x", cities=("Oslo",))
    head = written(first, shows("x", "rain")).splitlines(keepends=True)
    whole = written(second, shows("x", "snow"), before=(first, shows("x", "rain"), second)).splitlines(keepends=True)
    middle = json.loads(head[-1] if written is as_pairs else head[-2])
    start = head[: -1 if written is as_pairs else -2]
    answered = whole[0] if written is as_pairs else whole[-3]
    if written is as_pairs:
        middle["response"] = json.loads(answered)["response"]
        data = b"".join(start) + lines(middle) + whole[-1]
    else:
        data = b"".join(start) + lines(middle) + answered + b"".join(whole[-2:])
    trace = load_trace(data)
    assert (pairs(trace), codes(trace)) == ([("Berlin", "rain"), ("Oslo", "snow")], [])


@pytest.mark.parametrize("written", REQUESTS)
def test_results_before_answers_that_were_not_recorded_are_read(written: Any) -> None:
    issued, lost = asks("x", cities=("Oslo",)), asks("y", cities=("Berlin",), name="map")
    trace = load_trace(written(issued, shows("y", "m"), before=(issued, shows("x", "rain"), lost)))
    assert [(result.call_id, result.name, result.content) for result in results(trace)] == [
        ("x", "weather", "rain"),
        ("y", "map", "m"),
    ]
    assert "result-without-call" in codes(trace)


@pytest.mark.parametrize("written", REQUESTS)
def test_a_recording_that_begins_amid_a_conversation_has_none_of_its_results(written: Any) -> None:
    trace = load_trace(b"".join(written(asks("x", "y"), shows("x", "rain")).splitlines(keepends=True)[
        slice(1, None) if written is as_pairs else slice(-2, None)]), format={
        as_pairs: "pairs", as_agentlog: "agentlog", as_bylaw: "bylaw"}[written])  # fmt: skip
    assert (results(trace), codes(trace)) == ([], [])


def test_a_result_with_a_record_is_not_read_from_the_next_request_too() -> None:
    whole = as_agentlog(asks("x", "y"), shows("x", "rain"), shows("y", "snow"))
    asked, answered, later, end = whole.splitlines(keepends=True)
    record = {"kind": "tool_result", "payload": {"tool_call_id": "x", "output": "rain"}}
    for data in (asked + answered + lines(record) + later + end, asked + answered + later + lines(record) + end):
        trace = load_trace(data)
        assert (sorted(pairs(trace)), codes(trace)) == ([("Berlin", "rain"), ("Oslo", "snow")], [])


@pytest.mark.parametrize("written", ALL)
def test_a_result_that_names_another_tool_than_its_call_is_reported(written: Any) -> None:
    asked = asks("x", cities=("Berlin",))
    trace = load_trace(written(asked, shows("x", "snow", name="map")))
    assert ([(one.name, one.is_guessed) for one in results(trace)], codes(trace)) == (
        [("map", True)],
        ["disagreeing-call"],
    )
    assert trace.turns[0].response.unread == ("map", "weather")
    assert set(outcomes(trace, FITS).values()) == {"inconclusive"}
    qualified = load_trace(written(asked, shows("x", "snow", name="geo__weather")))
    assert (pairs(qualified), codes(qualified)) == ([("Berlin", "snow")], [])


@pytest.mark.parametrize("written", REQUESTS)
def test_a_result_that_comes_some_answers_later_is_read(written: Any) -> None:
    asked, waiting = asks("x", cities=("Oslo",)), {"role": "assistant", "content": "Please wait."}
    trace = load_trace(written(asked, shows("x", "rain"), before=(asked, USER, waiting)))
    assert (pairs(trace), codes(trace)) == ([("Oslo", "rain")], [])
