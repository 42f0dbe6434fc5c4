"""Messages of requests: their parts, in any recorded shape, and which of them a request adds to the one before.

A request holds the whole conversation; people want to read it once. `Histories` leaves out the messages of the request
before, the model's own last answer, and results that are shown with their calls. An answer that comes back changed is
shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field

from bylaw.inspect.model import Input, InputMessage, Part
from bylaw.model.events import Origin, Request, Response, ToolResult
from bylaw.model.messages import shared_count

MOST_RUNS = 256
"""runs whose latest request is remembered, where runs interleave"""
_MOST_DROPPED = 64
"""oldest messages that may be missing for the rest to count as repeated"""
_RESULT_ROLES = ("tool", "function")
_CALL_TYPES = ("tool_use", "server_tool_use", "mcp_tool_use", "function_call")
_TEXT_TYPES = ("text", "input_text", "output_text")


# -- parts -------------------------------------------------------------------------------------------------------------


def read_message(message: Any) -> InputMessage:
    """A message as recorded. Never fails: an unknown shape becomes a part of kind `other`."""
    if not isinstance(message, dict):
        return InputMessage("unknown", tuple(_read_parts(message)))
    role = _text(message, "role") or "unknown"
    if role in _RESULT_ROLES:
        return InputMessage("tool", (_result(message, "tool_call_id"),))
    return InputMessage(role, (*_read_parts(message.get("content")), *_calls(message)))


def thoughts(response: Response) -> tuple[Part, ...]:
    """The parts of an answer that are neither its text nor its calls."""
    return tuple(part for part in _read_parts(response.content) if part.kind in ("thinking", "other"))


def _read_parts(content: Any) -> Iterator[Part]:
    if isinstance(content, str):
        content = [content]
    if isinstance(content, list):
        yield from (part for block in content if (part := _read_part(block)) is not None)
    elif content is not None:
        yield Part(kind="other", value=content)


def _read_part(block: Any) -> Part | None:
    if isinstance(block, str):
        return Part(kind="text", text=block) if block else None
    if not isinstance(block, dict):
        return Part(kind="other", value=block)
    kind = block.get("type")
    if kind in _TEXT_TYPES and isinstance(block.get("text"), str):
        return Part(kind="text", text=block["text"]) if block["text"] else None
    if kind == "thinking":
        text = block.get("text", block.get("thinking"))
        return Part(kind="thinking", text=text) if isinstance(text, str) and text else None
    if kind in _CALL_TYPES:
        return Part(kind="call", name=_text(block, "name"), call_id=_text(block, "id"), value=block.get("input"))
    if isinstance(kind, str) and kind.endswith("tool_result"):
        return _result(block, "tool_use_id")
    if kind == "refusal" and isinstance(block.get("refusal"), str):
        return Part(kind="other", name="refusal", text=block["refusal"], value=block)
    return Part(kind="other", name=kind if isinstance(kind, str) else None, value=block)


def _calls(message: dict[str, Any]) -> Iterator[Part]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            yield Part(kind="call", name=_text(function, "name"), call_id=_text(call, "id"), value=arguments)


def _result(message: dict[str, Any], id_key: str) -> Part:
    flag = message.get("is_error")
    return Part(
        kind="result",
        name=_text(message, "name"),
        call_id=_text(message, id_key),
        value=message.get("content"),
        is_error=flag if isinstance(flag, bool) else None,
    )


def _text(fields: dict[str, Any], key: str) -> str | None:
    value = fields.get(key)
    return value if isinstance(value, str) else None


# -- histories ---------------------------------------------------------------------------------------------------------


class _Run(Struct):
    """The latest turn of a run."""

    request: Request | None = None
    response: Response | None = None
    results: list[ToolResult] = field(default_factory=list)


class Histories:
    """The latest turn of each run."""

    def __init__(self) -> None:
        self._runs: dict[Origin, _Run] = {}

    def new_input(self, request: Request | None, *, all: bool = False) -> Input:
        """The messages a request adds, or all of them. Decodes messages, so call it only for what is shown."""
        now = None if request is None else request.message_slice
        if request is None or now is None or now[1] == now[2]:
            return Input()
        messages, start, end = now
        run = self._runs.get(request.origin, _Run())
        before = (None if all or run.request is None else run.request.message_slice) or ([], 0, 0)
        shared = shared_count(before, now)
        rest = before[0][before[1] + shared : before[2]]
        repeated = shared + _count_repeated(rest, messages[start + shared : end]) if rest else shared
        added = [read_message(message) for message in messages[start + repeated : end]]
        shown = added if all else _drop_echoes(added, run)
        dropped = before[2] - before[1] - repeated if repeated else 0  # nothing repeated: another conversation began
        return Input(messages=tuple(shown), repeated=end - start - len(shown), dropped=dropped)

    def add_request(self, request: Request) -> None:
        self._run(request.origin).request = request

    def add_response(self, response: Response) -> None:
        run = self._run(response.origin)
        run.request = response.request or run.request
        run.response = response
        run.results = []

    def add_result(self, result: ToolResult) -> None:
        self._run(result.origin).results.append(result)

    def forget(self, session: str) -> None:
        for origin in [origin for origin in self._runs if origin.session == session]:
            del self._runs[origin]

    def _run(self, origin: Origin) -> _Run:
        run = self._runs.pop(origin, None) or _Run()
        if len(self._runs) >= MOST_RUNS:
            del self._runs[next(iter(self._runs))]
        self._runs[origin] = run
        return run


def _count_repeated(before: list[Any], now: list[Any]) -> int:
    """How many messages at the start of `now` repeat `before`, of which a few of the oldest may be missing."""
    if now[: len(before)] == before:
        return len(before)  # the usual case, and fast where both share one list
    head = 0
    for old, new in zip(before, now, strict=False):
        if old != new and read_message(old) != read_message(new):  # recorders move marks such as `cache_control`
            break
        head += 1
    for dropped in range(1, min(_MOST_DROPPED, len(before) - head) + 1):
        rest = before[head + dropped :]
        if rest and now[head : head + len(rest)] == rest:
            return head + len(rest)
    return head


def _drop_echoes(added: list[InputMessage], run: _Run) -> list[InputMessage]:
    """Leave out the model's own last answer and the results that are events of their own."""
    shown = []
    for number, message in enumerate(added):
        if number == 0 and message.role == "assistant" and run.response and _echoes(message, run.response):
            continue
        parts = tuple(part for part in message.parts if not _is_event(part, run))
        if parts or not message.parts:
            shown.append(InputMessage(message.role, parts))
    return shown


def _echoes(message: InputMessage, response: Response) -> bool:
    text = "\n".join(part.text or "" for part in message.parts if part.kind == "text").strip()
    if text and response.text is not None and text != response.text.strip():
        return False
    ids = {call.call_id for call in response.tool_calls}
    calls = [part for part in message.parts if part.kind == "call"]
    return all(part.call_id in ids for part in calls if part.call_id is not None) and len(calls) <= len(ids)


def _is_event(part: Part, run: _Run) -> bool:
    return part.kind == "result" and any(
        result.call_id == part.call_id if part.call_id is not None else result.name == part.name
        for result in run.results
    )
