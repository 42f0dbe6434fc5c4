"""Random small traces, for properties: every kind of event, every field present, empty or absent.

`traces()` are well formed, as readers make them: a response's request and calls are events too, a call may follow the
result of another, and a result has its call. Names and ids come from few values, so that they meet each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from bylaw.model.diagnostic import Diagnostic, Span
from bylaw.model.events import (
    Annotation,
    Event,
    Locator,
    Message,
    Origin,
    Request,
    Response,
    SessionEnd,
    SessionStart,
    ToolCall,
    ToolResult,
    Trace,
    Usage,
)
from bylaw.traces.assembly.session_buffer import CallLinks

words = st.sampled_from(["a", "b", "", "tool_use", "é\n\u2028", '"\\', "\U0001f600", "x" * 200])
names = st.sampled_from(["look_up", "refund", "send", "größe"])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | words
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.just(10**30)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)
times = st.none() | st.just("2026-01-01T00:00:00Z") | st.floats(0, 2e9)
origins = st.builds(
    Origin,
    st.sampled_from(["1", "2", "s é"]),
    run=st.none() | words,
    parent_run=st.none() | words,
    agent=st.none() | words,
    parent_agent=st.none() | words,
)
locators = st.none() | st.builds(
    Locator, texts, st.none() | st.integers(1, 9), st.none() | st.sampled_from(["[0]", "messages[3]", ""])
)
common: dict[str, st.SearchStrategy[Any]] = {
    "origin": origins,
    "turn": st.none() | st.integers(0, 9),
    "at": times,
    "source": locators,
}
maybe = st.none() | texts
durations = st.none() | st.floats(0, 1e9)

requests = st.builds(
    Request,
    **common,
    model=maybe,
    held_messages=st.none() | st.lists(json_values, max_size=3),
    params=st.none() | json_objects,
    held_tools=st.none() | st.lists(json_values, max_size=2),
    metadata=st.none() | json_objects,
)
calls = st.builds(
    ToolCall,
    **common,
    name=names,
    namespace=maybe,
    call_id=words,
    arguments=json_values,
    raw_arguments=maybe,
    group=st.none() | st.integers(0, 9) | words,
    unordered=st.just(()) | st.lists(names, min_size=1, max_size=2).map(tuple),
)
usages = st.builds(Usage, *[st.none() | st.integers(0, 2**40) for _ in range(5)], recorded=st.none() | json_objects)
blocks = (
    st.builds(lambda text: {"type": "text", "text": text}, texts)
    | st.builds(lambda name, input: {"type": "tool_use", "id": "1", "name": name, "input": input}, names, json_values)
    | json_values
)
responses = st.builds(
    Response,
    **common,
    model=maybe,
    content=st.none() | st.lists(blocks, max_size=3),
    text=maybe,
    stop_reason=maybe,
    latency_ms=durations,
    usage=st.none() | usages,
)
results = st.builds(
    ToolResult,
    **common,
    call_id=maybe,
    name=maybe,
    content=json_values,
    is_error=st.none() | st.booleans(),
    latency_ms=durations,
    is_guessed=st.booleans(),
)
others: st.SearchStrategy[Event] = st.one_of(
    st.builds(SessionStart, **common, metadata=st.none() | json_objects),
    st.builds(SessionEnd, **common, complete=st.booleans()),
    results,
    st.builds(Message, **common, role=texts, content=json_values),
    st.builds(Annotation, **common, label=texts, data=json_values),
)


@st.composite
def turns(draw: st.DrawFn) -> list[Event]:
    """A request with its response and its calls; either of the first two may be missing."""
    from msgspec.structs import replace

    request = draw(st.none() | requests)
    if request is not None and draw(st.booleans()) and draw(st.booleans()):
        return [request]
    issued = tuple(draw(st.lists(calls, max_size=3)))
    response = replace(draw(responses), request=request, tool_calls=issued)
    ran: list[Event] = []
    for call in issued:  # the next call may follow the result of this one
        ran.append(call)
        if draw(st.booleans()):
            ran.append(replace(draw(results), origin=call.origin, call_id=call.call_id))
    return [*([] if request is None else [request]), response, *ran]


@st.composite
def events(draw: st.DrawFn) -> tuple[Event, ...]:
    parts = draw(st.lists(turns() | others.map(lambda event: [event]), max_size=6))
    return linked(event for part in parts for event in part)


def linked(found: Iterable[Event]) -> tuple[Event, ...]:
    """Results with the calls they answer, as readers link them."""
    return tuple(map(CallLinks().linked, found))


problems = st.builds(
    Diagnostic,
    code=st.sampled_from(["bad-usage", "bad-json"]),
    message=texts,
    severity=st.just("warning"),
    file=st.just("f"),
    span=st.none() | st.builds(Span, st.just("f"), *[st.integers(1, 9)] * 4),
    excerpt=maybe,
    help=maybe,
)
traces = st.builds(
    Trace,
    name=st.sampled_from(["trace", "run é.jsonl"]),
    format=st.sampled_from([None, "bylaw", "agentlog", "openai"]),
    header=json_objects,
    events=events(),
    complete=st.booleans(),
    notes=st.lists(texts, max_size=2).map(tuple),
    problems=st.lists(problems, max_size=2).map(lambda found: tuple(sorted(found, key=Diagnostic.sort_key))),
    skipped=st.integers(0, 5),
)
