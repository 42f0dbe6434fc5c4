"""Logs of the Model Context Protocol: its JSON-RPC messages, bare or inside an object with a time.

They do not record the model, so each call of a tool, or several before any was answered, is a turn without a recorded
response. Up to 2025 a session begins with `initialize`. Since 2026 the protocol has no sessions: every request carries
its trace context, and a server that needs more answers `input_required`, after which the client sends the call again.
That is the same call, and is emitted once.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.model.events import Event, Origin, SessionStart, ToolCall, ToolResult
from bylaw.traces.assembly.content import read_arguments
from bylaw.traces.assembly.session_buffer import SessionBuffer, is_same_value
from bylaw.traces.formats.reader import AssemblingReader, OpenedFile
from bylaw.traces.formats.record import Record, object_field, records_of, text_field, type_name
from bylaw.traces.formats.spans.attributes import first, latency_ms, moment
from bylaw.traces.records.lines import Block

_WRAPPERS = ("message", "payload", "data", "body", "msg", "rpc")
_TIMES = ("ts", "timestamp", "time", "at")
_SESSIONS = ("session_id", "sessionId", "mcp-session-id", "Mcp-Session-Id", "session")
_META = "io.modelcontextprotocol/"
_SILENT = frozenset(("ping", "tools/list", "server/discover", "initialize"))
"""requests that do not show what an agent does; the answers to some of them do"""
_SIGNS = {
    "roots": "roots/list",
    "action": "elicitation/create",
    "role": "sampling/createMessage",
    "tools": "tools/list",
    "protocolVersion": "initialize",
}
"""the requests whose results have these keys"""
_MOST_OPEN = 10_000
_MOST_ALIKE = 100
"""requests with the same id that wait at the same time"""


def claims(value: Any) -> bool:
    found = _message_in(value)
    return found is not None and bool({"method", "result", "error"} & found.keys())


def _message_in(value: Any) -> dict[str, Any] | None:
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return None
    if "jsonrpc" in value:
        return value
    for key in _WRAPPERS:
        wrapped = value.get(key)
        if isinstance(wrapped, dict) and "jsonrpc" in wrapped:
            return wrapped
    return None


class _OpenRequest(Struct, eq=False):
    """A request without an answer so far."""

    method: str
    session: str
    call: ToolCall | None = None
    when: float | None = None


class McpReader(AssemblingReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._open: dict[str, list[_OpenRequest]] = {}
        """by their ids, which are not unique across sessions"""
        self._incomplete: list[_OpenRequest] = []
        """calls that the server answered with `input_required`"""
        self._handshakes = 0
        self._current = "1"
        self._servers: dict[str, str] = {}
        self._unmatched = 0
        self._batch: str | None = None
        """the group of the calls of one batch"""

    def read(self, block: Block) -> list[Event]:
        for record in records_of(block, self._problems):
            if not isinstance(record.value, list):
                self._message(record, record.value)
                continue
            calls = sum(isinstance(one, dict) and one.get("method") == "tools/call" for one in record.value)
            self._batch = f"batch {record.line}" if calls > 1 else None
            for value in record.value:
                self._message(record, value)
            self._batch = None
        return self._assembler.take()

    def notes(self) -> list[str]:
        count = self._unmatched
        found = [f"{count} answers belong to no request of the file"] if count else []
        return [*super().notes(), *found]

    def _message(self, record: Record, value: Any) -> None:
        message = _message_in(value) if isinstance(value, dict) else None
        if message is None:
            what = "no JSON-RPC message" if isinstance(value, dict) else f"an object, not {type_name(value)}"
            record.bad("wrong-type", f"this is {what}" if isinstance(value, dict) else f"a message is {what}")
            return
        named = when = recorded = None
        if value is not message:
            named = text_field(value, *_SESSIONS)
            when, recorded = moment(first(value, *_TIMES))
        if isinstance(message.get("method"), str):
            self._request(record, message, named, when, recorded)
        elif "result" in message or "error" in message:
            self._answer(record, message, named, when, recorded)
        else:
            record.bad("wrong-type", "a message has no `method`, `result` or `error`")

    # Requests

    def _request(
        self, record: Record, message: dict[str, Any], named: str | None, when: float | None, at: str | float | None
    ) -> None:
        method, params = message["method"], object_field(message, "params")
        if method == "initialize":
            self._handshake(record, params, named, at)
        session = named or (_trace_id(params) if "_meta" in params else None) or self._current
        opened = _OpenRequest(method, session, None, when)
        if method == "tools/call":
            if not self._call(record, params, opened, message.get("id"), at):
                return
        elif method == "notifications/cancelled":
            self._mark(record, session, "cancelled", params, at)
        elif method not in _SILENT and not method.startswith("notifications/"):
            self._mark(record, session, method, params, at)
        if "id" in message:
            waiting = self._open.setdefault(str(message["id"]), [])
            waiting.append(opened)
            del waiting[:-_MOST_ALIKE]
            if len(self._open) > _MOST_OPEN:
                del self._open[next(iter(self._open))]

    def _handshake(self, record: Record, params: dict[str, Any], named: str | None, at: str | float | None) -> None:
        """Begin a session of the older protocol."""
        self._handshakes += 1
        self._current = named or str(self._handshakes)
        metadata: dict[str, Any] = {key: params[key] for key in ("protocolVersion", "clientInfo") if key in params}
        self._assembler.add(
            SessionStart(origin=Origin(self._current), at=at, source=record.locator(), metadata=metadata or None)
        )

    def _call(
        self, record: Record, params: dict[str, Any], opened: _OpenRequest, id: Any, at: str | float | None
    ) -> bool:
        name = params.get("name")
        if not isinstance(name, str):
            record.bad("wrong-type", "this call has no `name`", ("params",))
            return False
        recorded = params.get("arguments")
        arguments, raw = read_arguments({} if recorded is None else recorded)  # the protocol lets them be left out
        again = self._repeated_call(params, name, arguments, opened.session)
        if again is not None:
            opened.call, opened.when = again.call, again.when
            return True
        buffer = self._assembler.session(opened.session)
        opened.call = ToolCall(
            origin=buffer.origin,
            at=at,
            source=record.locator(),
            name=name,
            namespace=self._servers.get(opened.session),
            call_id="" if id is None else _unused_id(str(id), buffer),
            arguments=arguments,
            raw_arguments=raw,
            group=self._batch,
        )
        self._assembler.call(buffer, None, opened.call)
        return True

    def _repeated_call(self, params: dict[str, Any], name: str, arguments: Any, session: str) -> _OpenRequest | None:
        if "inputResponses" not in params and "requestState" not in params:
            return None
        for number, opened in enumerate(self._incomplete):
            call = opened.call
            same = call is not None and call.name == name and opened.session == session
            if same and call is not None and is_same_value(call.arguments, arguments):
                return self._incomplete.pop(number)
        return None

    # Answers

    def _answer(
        self, record: Record, message: dict[str, Any], named: str | None, when: float | None, at: str | float | None
    ) -> None:
        opened = self._take(message, named)
        if opened is None:
            self._unmatched += 1
            return
        result = object_field(message, "result")
        self._know_server(opened.session, result)
        if opened.call is None:
            if opened.method == "tools/list" and isinstance(result.get("tools"), list):
                self._mark(record, opened.session, "tools/list", result["tools"], at)
            elif "error" in message:
                self._mark(record, opened.session, "error", message["error"], at)
        elif result.get("resultType") == "input_required":
            self._incomplete.append(opened)
            del self._incomplete[:-_MOST_ALIKE]
            self._mark(record, opened.session, "input_required", result, at)
        else:
            self._result(record, opened, message, when, at)

    def _result(
        self, record: Record, opened: _OpenRequest, message: dict[str, Any], when: float | None, at: str | float | None
    ) -> None:
        call, result = opened.call, message.get("result")
        assert call is not None
        failed = "error" in message or (isinstance(result, dict) and result.get("isError") is True)
        self._assembler.result(
            self._assembler.session(opened.session),
            ToolResult(
                origin=call.origin,
                at=at,
                source=record.locator(),
                call_id=call.call_id or None,
                name=call.name,
                content=message["error"] if "error" in message else _content(result),
                is_error=failed,
                latency_ms=latency_ms(opened.when, when),
            ),
        )

    def _take(self, message: dict[str, Any], named: str | None) -> _OpenRequest | None:
        """The request that is answered. Both sides number their requests: if two share an id, the content decides."""
        id = str(message.get("id"))
        waiting = self._open.get(id, [])
        if len(waiting) == 1:
            return self._open.pop(id)[0]
        here = [one for one in waiting if one.session == (named or self._current)] or waiting
        if len({one.session for one in here}) != 1:
            return None
        method = _answered_method(message)
        fits = [one for one in here if one.method == method] or here
        waiting.remove(fits[0])
        if not waiting:
            del self._open[id]
        return fits[0]

    def _know_server(self, session: str, result: dict[str, Any]) -> None:
        if "serverInfo" not in result and "_meta" not in result:
            return
        meta = result.get("_meta")
        candidates = (result.get("serverInfo"), meta.get(f"{_META}serverInfo") if isinstance(meta, dict) else None)
        name = next(
            (one["name"] for one in candidates if isinstance(one, dict) and isinstance(one.get("name"), str)), None
        )
        if name is not None:
            self._servers[session] = name

    def _mark(self, record: Record, session: str, label: str, data: Any, at: str | float | None) -> None:
        self._annotate(self._assembler.session(session).origin, record.locator(), label, data, at)


def _trace_id(params: dict[str, Any]) -> str | None:
    """The trace id of a request, used as the session if the protocol has none."""
    meta = params.get("_meta")
    parent = meta.get("traceparent") if isinstance(meta, dict) else None
    parts = parent.split("-") if isinstance(parent, str) else ()
    return parts[1] if len(parts) == 4 and len(parts[1]) == 32 else None


def _unused_id(id: str, buffer: SessionBuffer) -> str:
    """The id of a call, made unique if an earlier one was answered: some clients use one id for all requests."""
    own, count = id, 1
    while (known := buffer.calls.get(own)) is not None and known.answered:
        count += 1
        own = f"{id}.{count}"
    return own


def _answered_method(message: dict[str, Any]) -> str:
    """What kind of request this answers, by its content."""
    result = message.get("result")
    if not isinstance(result, dict):
        return "tools/call"
    if not result:
        return "ping"
    is_call = "structuredContent" in result or "isError" in result
    if is_call or (isinstance(result.get("content"), list) and "role" not in result):
        return "tools/call"
    return next((method for key, method in _SIGNS.items() if key in result), "tools/call")


def _content(result: Any) -> Any:
    if not isinstance(result, dict):
        return result
    return result["content"] if result.get("content") else result.get("structuredContent", result.get("content"))
