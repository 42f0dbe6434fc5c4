"""Traffic in the short form: one list of steps a session."""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Event, Message, Origin, Response, SessionEnd, ToolCall, ToolResult, Trace

NO_RESULT = object()


class Session:
    """A recorded session, built step by step. Each call is a turn of its own unless it is `parallel`."""

    def __init__(self, name: str, *, agent: str | None = None, timed: bool = True, text: str | None = "") -> None:
        self._origin = Origin(name, agent=agent)
        self._timed, self._text = timed, text
        self._turn, self._clock = -1, 1_000.0
        self.events: list[Event] = []

    def user(self, text: str) -> Session:
        self.events.append(Message(origin=self._origin, role="user", content=text))
        return self

    def call(
        self, tool: str, arguments: Any = None, result: Any = "done", *, parallel: bool = False, **more: Any
    ) -> Session:
        self._clock += 1
        at = self._clock if self._timed else None
        if not parallel:
            self._turn += 1
            self.events.append(Response(origin=self._origin, turn=self._turn, at=at, text=self._text, content=[]))
        call = ToolCall(
            origin=self._origin,
            turn=self._turn,
            at=at,
            name=tool,
            call_id=f"c{len(self.events)}",
            arguments={} if arguments is None and "raw_arguments" not in more else arguments,
            **more,
        )
        self.events.append(call)
        if result is not NO_RESULT:
            self.events.append(
                ToolResult(
                    origin=self._origin,
                    turn=self._turn,
                    at=at,
                    name=tool,
                    call_id=call.call_id,
                    content=result,
                    call=call,
                )
            )
        return self

    def ended(self) -> list[Event]:
        return [*self.events, SessionEnd(origin=self._origin)]


def trace(*sessions: Session, name: str = "traffic") -> Trace:
    return Trace(name=name, events=tuple(event for session in sessions for event in session.ended()))


def interleaved(*sessions: Session, name: str = "traffic") -> Trace:
    """Event by event in turn, and no session says that it is over."""
    longest = max(len(session.events) for session in sessions)
    events = [s.events[i] for i in range(longest) for s in sessions if i < len(s.events)]
    return Trace(name=name, events=tuple(events))
