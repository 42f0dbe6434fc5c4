"""What the recording of one session has held so far, and what it therefore lacks at a call."""

from __future__ import annotations

from bylaw.guard.backtest.model import Lack
from bylaw.guard.backtest.needs import Needs
from bylaw.model.events import Event, Message, Request, Response, ToolCall, ToolResult

MOST_OPEN = 1_024
"""calls without a result that are kept in mind"""


class Recorded:
    __slots__ = ("_heard", "_open", "_said", "_untold", "announced", "matched", "stopped")

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, int | None]] = {}
        """calls without a result: tool and turn"""
        self._untold: set[str] = set()
        """tools with a result that does not say whether the call failed"""
        self._heard = self._said = False
        self.announced: set[str] = set()
        """runs that the guard was told of"""
        self.matched: set[str] = set()
        """rules that had something against a call"""
        self.stopped = False

    def tell(self, event: Event) -> None:
        if isinstance(event, ToolResult):
            self._open.pop(call_id_of(event), None)
            if event.is_error is None and len(self._untold) < MOST_OPEN:
                self._untold.add((event.call.name if event.call is not None else event.name) or "")
        elif isinstance(event, Response):
            self._said = event.text is not None
            self._heard = self._heard or (event.request is not None and event.request.held_messages is not None)
        elif isinstance(event, Request):
            self._heard = self._heard or event.held_messages is not None
        elif isinstance(event, Message):
            self._heard = True

    def called(self, call: ToolCall) -> None:
        self._open[call.call_id] = (call.name, call.turn)
        if len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]

    def lacks(self, call: ToolCall, needs: Needs) -> list[Lack]:
        found: list[Lack] = []
        if needs.arguments and call.arguments is None:
            found.append("arguments")
        if needs.results is not None and self._owes(call, needs):
            found.append("results")
        if needs.errors is not None and any(map(needs.errors, self._untold)):
            found.append("errors")
        if needs.responses and not self._said:
            found.append("responses")
        if needs.messages and not self._heard:
            found.append("messages")
        if needs.times and call.time is None:
            found.append("times")
        if needs.agents and call.origin.agent is None:
            found.append("agents")
        return found

    def _owes(self, call: ToolCall, needs: Needs) -> bool:
        """Whether a call of an earlier turn has no result. One of the same turn has none yet, as it was live."""
        wanted = needs.results
        assert wanted is not None
        return any(wanted(tool) for tool, turn in self._open.values() if turn is None or turn != call.turn)


def call_id_of(result: ToolResult) -> str:
    if result.call is not None:
        return result.call.call_id
    return result.call_id or ""
