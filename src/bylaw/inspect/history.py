"""What a request adds to the one before. A request holds the whole conversation; people want to read it once.

Left out are the messages that the request before held too, the model's own last answer, and results that are shown with
their calls. What was *changed* on the way is shown: an answer that comes back with other words is not an echo.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from bylaw.inspect.model import Heard, Input, Part
from bylaw.inspect.parts import heard
from bylaw.model.events import Origin, Request, Response, ToolResult

MOST_RUNS = 256
"""runs whose latest request is kept in mind, where they interleave"""
_MOST_DROPPED = 64
"""oldest messages that may be missing for what follows to count as repeated"""


class _Run(Struct):
    request: Request | None = None
    response: Response | None = None
    results: list[ToolResult] = field(default_factory=list)
    """of the latest turn"""


class Histories:
    """The latest request of each run."""

    def __init__(self) -> None:
        self._runs: dict[Origin, _Run] = {}

    def look(self, request: Request | None, *, all: bool = False) -> Input:
        """What a request adds; with `all`, everything it holds. Decodes messages: ask only for what is shown."""
        messages = None if request is None else request.messages
        if request is None or not messages:
            return Input()
        run = self._runs.get(request.origin, _Run())
        before = [] if all or run.request is None else run.request.messages or []
        kept = _kept(before, messages)
        added = [heard(message) for message in messages[kept:]]
        shown = added if all else _unseen(added, run)
        dropped = len(before) - kept if kept else 0  # where nothing was kept, another conversation began
        return Input(heard=tuple(shown), repeated=len(messages) - len(shown), dropped=dropped)

    def asked(self, request: Request) -> None:
        self._run(request.origin).request = request

    def answered(self, response: Response) -> None:
        run = self._run(response.origin)
        run.request = response.request or run.request
        run.response = response
        run.results = []

    def returned(self, result: ToolResult) -> None:
        self._run(result.origin).results.append(result)

    def ended(self, session: str) -> None:
        """Nothing of this session follows."""
        for origin in [origin for origin in self._runs if origin.session == session]:
            del self._runs[origin]

    def _run(self, origin: Origin) -> _Run:
        run = self._runs.pop(origin, None) or _Run()
        if len(self._runs) >= MOST_RUNS:
            del self._runs[next(iter(self._runs))]
        self._runs[origin] = run
        return run


def _kept(before: list[Any], now: list[Any]) -> int:
    """How many messages at the start of `now` were in `before`, in its order, be the oldest of those gone or not."""
    if now[: len(before)] == before:
        return len(before)  # nearly always, and quick where both share one list
    head = 0
    for old, new in zip(before, now, strict=False):
        if old != new and heard(old) != heard(new):  # recorders move marks such as `cache_control` about
            break
        head += 1
    for dropped in range(1, min(_MOST_DROPPED, len(before) - head) + 1):
        rest = before[head + dropped :]
        if rest and now[head : head + len(rest)] == rest:
            return head + len(rest)
    return head


def _unseen(added: list[Heard], run: _Run) -> list[Heard]:
    """Without the model's own last answer and the results that are told by events."""
    shown = []
    for number, message in enumerate(added):
        if number == 0 and message.role == "assistant" and run.response and _echoes(message, run.response):
            continue
        parts = tuple(part for part in message.parts if not _is_told(part, run))
        if parts or not message.parts:
            shown.append(Heard(message.role, parts))
    return shown


def _echoes(message: Heard, response: Response) -> bool:
    said = "\n".join(part.text or "" for part in message.parts if part.kind == "text").strip()
    if said and response.text is not None and said != response.text.strip():
        return False
    ids = {call.call_id for call in response.tool_calls}
    calls = [part for part in message.parts if part.kind == "call"]
    return all(part.call_id in ids for part in calls if part.call_id is not None) and len(calls) <= len(ids)


def _is_told(part: Part, run: _Run) -> bool:
    if part.kind != "result":
        return False
    return any(
        result.call_id == part.call_id if part.call_id is not None else result.name == part.name
        for result in run.results
    )
