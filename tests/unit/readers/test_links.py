"""Results find their calls."""

from __future__ import annotations

from bylaw.model.events import Origin, SessionEnd, ToolCall, ToolResult
from bylaw.traces.assembly.session_buffer import MOST_CALLS, MOST_SESSIONS, CallLinks


def call(call_id: str, session: str = "1", turn: int = 0) -> ToolCall:
    return ToolCall(origin=Origin(session), turn=turn, name="pay", call_id=call_id)


def found(links: CallLinks, call_id: str | None, session: str = "1") -> ToolCall | None:
    event = links.linked(ToolResult(origin=Origin(session), call_id=call_id))
    assert isinstance(event, ToolResult)
    return event.call


def test_the_latest_call_of_the_session_with_that_id() -> None:
    links = CallLinks()
    first, second = call("c"), call("c", turn=1)
    assert found(links, "c") is None
    links.linked(first)
    assert found(links, "c") is first
    links.linked(second)
    assert found(links, "c") is second
    assert (found(links, None), found(links, "d"), found(links, "c", "2")) == (None, None, None)


def test_a_session_that_ended_is_forgotten() -> None:
    links = CallLinks()
    links.linked(call("c"))
    links.linked(SessionEnd(origin=Origin("1")))
    assert found(links, "c") is None


def test_memory_is_bounded() -> None:
    links = CallLinks()
    for number in range(MOST_CALLS + 1):
        links.linked(call(f"c{number}"))
    assert found(links, "c0") is None
    assert found(links, "c1") is not None
    for number in range(MOST_SESSIONS):
        links.linked(call("c", f"s{number}"))
    assert found(links, "c1") is None
    assert found(links, "c", "s0") is not None
