"""One connection between a client and its server: `tools/call` is decided before the server sees it, and tools outside
the allowlist are hidden from `tools/list`.

Any other message is passed on byte for byte. A message that two readers could take for different ones (a name twice in
an object, names that differ in case, text that is not JSON, several messages at once) is never passed on: the client
gets an error instead of its request, or of the answer to it. Answers that nobody waits for are dropped.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import UNSET, Struct

from bylaw.guard.guard import Guard
from bylaw.guard.integrations.calls import Calls, keep_recent
from bylaw.guard.integrations.mcp.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    TOOL,
    Message,
    Send,
    ambiguity_of,
    ambiguity_of_arguments,
    error_of,
    is_answer,
    is_request,
    key_of,
    lenient_id,
    params_of,
    tool_error,
)
from bylaw.guard.integrations.mcp.pins import ToolCheck
from bylaw.guard.model import Attempt, Call, Decision, Denied
from bylaw.guard.tools import is_same_json
from bylaw.model.rule import Action

MOST_CONTINUED = 1_000
"""calls whose server waits for input; the oldest is forgotten, and decided again when it is continued"""
_MOST_PAGES = 100
_MOST_ASKED = 100_000
"""requests without an answer; the oldest is forgotten"""
_MOST_SCHEMAS = 10_000
"""of tools, which are remembered"""
_SPEAKING = (b"\\u", b"result", b"error", b"list_changed")
"""one of these is in every answer, and in what the proxy listens to"""
_LIST_CHANGED = "notifications/tools/list_changed"
_OWN = "bylaw-"
"""how the ids of the proxy's own requests begin"""
_log = logging.getLogger("bylaw")


class McpProxy:
    """Passes on the messages of one connection, whose calls belong to one session."""

    def __init__(
        self, calls: Calls, *, to_server: Send, to_client: Send, wait: float = 0.0, check: ToolCheck | None = None
    ) -> None:
        """`wait`: seconds to wait for a person before a paused call is answered."""
        self.calls, self.wait, self.check = calls, wait, check
        self.to_server, self._to_client = to_server, to_client
        self._prefix = uuid.uuid4().hex[:12]
        self._asked: dict[str, None] = {}
        """requests that the server has not answered, by their key"""
        self._schemas: dict[str, Any] = {}
        """of the arguments of tools that were listed"""
        self._open: dict[str, tuple[Attempt, Decision]] = {}
        """calls that the server runs, by the key of their request"""
        self._continued: dict[str, tuple[Attempt, Decision]] = {}
        """calls whose server has asked for input, by the state that the client sends back with it"""
        self._listings: dict[str, str] = {}
        """lists that were asked for, by the key of the request: `tools`, or `own` if the proxy itself has asked"""
        self._list_params: dict[str, Any] | None = None
        """of the client's latest request for tools, without the page"""
        self._own_pages = 0
        self._refused: set[str] = set()
        """tools that have changed, of which calls were refused; only until 2025-11-25, when clients hear of changes"""
        self._waiting: set[str] = set()
        """calls that wait for a person and were not cancelled"""

    # -- from the client ------------------------------------------------------------------------------------------

    def from_client(self, message: Message) -> None:
        try:
            body = message.body
            message.as_one_line()
        except ValueError as why:
            return self._fail(message, None, PARSE_ERROR, f"the message was not passed on: {why}")
        if (ambiguous := ambiguity_of(body)) is not None:
            id = body.get("id") if isinstance(body, dict) else None
            id = id if isinstance(id, str | int) and not isinstance(id, bool) else None
            return self._fail(message, id, INVALID_REQUEST, f"the message was not passed on: {ambiguous}")
        method, id = body.get("method"), body.get("id")
        if method == "tools/list":
            self._listings[key_of(id)] = "tools"
            self._list_params = {name: value for name, value in params_of(body).items() if name != "cursor"}
        elif method == "notifications/cancelled":
            self._waiting.discard(key_of(params_of(body).get("requestId")))
            self._asked.pop(key_of(params_of(body).get("requestId")), None)
        if method != "tools/call":
            return self._pass_on(message)
        if isinstance(id, bool) or not isinstance(id, str | int) or not isinstance(body.get("params"), dict):
            return self._fail(message, id, INVALID_REQUEST, "a call needs an id and params")
        if not self.wait:
            return self._call(message, id)
        return threading.Thread(target=self._call, args=(message, id), daemon=True).start()

    def _pass_on(self, message: Message) -> None:
        if is_request(message.body):
            keep_recent(self._asked, key_of(message.body["id"]), None, _MOST_ASKED)
        self.to_server(message)

    def _call(self, message: Message, id: str | int) -> None:
        try:
            params = message.body["params"]
            schema = self._schemas.get(str(params.get("name")))
            if (ambiguous := ambiguity_of_arguments(params.get("arguments"), schema)) is not None:
                return self._fail(message, id, INVALID_REQUEST, f"the call was not passed on: {ambiguous}")
            attempt = self.calls.attempt(
                params.get("name", ""), params.get("arguments"), f"{self._prefix}-{key_of(id)}", params, None
            )
            if (problem := self._changed(attempt.tool)) is not None:
                return self._answer(message, id, problem)
            decision = self._continues(attempt, params) or self._decide(attempt, id)
            if decision is None:  # the client has cancelled it
                return
            if decision.call is None or not decision:
                return self._answer(message, id, self._denial(decision))
            sent = self._as_allowed(message, attempt, decision.call)
            if sent is not message and (problem := self._changed(decision.call.tool)) is not None:
                self.calls.guard.release(decision)
                return self._answer(message, id, problem)
        except Exception as problem:  # whatever fails here, the call does not run
            return self._answer(message, id, f"the guard failed: {type(problem).__name__}: {problem}")
        self._open[key_of(id)] = (attempt, decision)
        self._pass_on(sent)

    def _decide(self, attempt: Attempt, id: str | int) -> Decision | None:
        decision = self.calls.decide(attempt)
        if decision.action is not Action.PAUSE or not self.wait or decision.review is None:
            return decision
        self._waiting.add(key_of(id))
        self.calls.guard.reviews.wait(decision.review, timeout=self.wait)
        if key_of(id) not in self._waiting:
            return None
        self._waiting.discard(key_of(id))
        return self.calls.decide(attempt)

    def _continues(self, attempt: Attempt, params: dict[str, Any]) -> Decision | None:
        """The decision on a call that the server has answered with a question, if this is that call with the reply."""
        state = params.get("requestState")
        first, decision = self._continued.pop(state, (None, None)) if isinstance(state, str) else (None, None)
        if first is None or decision is None or decision.call is None:
            return None
        call = decision.call
        same = call.tool == attempt.tool and is_same_json(call.arguments, attempt.arguments or {})
        return decision if same and first.session == attempt.session else None

    def _as_allowed(self, message: Message, attempt: Attempt, call: Call) -> Message:
        """The message itself, unless a person has changed the call."""
        if call.tool == attempt.tool and is_same_json(call.arguments, attempt.arguments or {}):
            return message
        params = {**message.body["params"], "name": call.tool, "arguments": call.arguments}
        return Message.of({**message.body, "params": params}, message.about)

    def _denial(self, decision: Decision) -> str:
        if decision.action is not Action.PAUSE or decision.review is None:
            return str(Denied(decision))
        advice = "the same call can be made again once the review is approved"
        return f"waiting for a person: {decision.review}: {decision.reason}; {advice}"

    def _changed(self, tool: Any) -> str | None:
        """Why the tool cannot be called before a person has looked at it."""
        if self.check is None or not isinstance(tool, str):
            return None
        problem = self.check.problem(tool, wait=self.wait)
        if problem is None:
            if tool in self._refused:  # approved by now, so the client may see what it looks like
                self._refused.discard(tool)
                self._to_client(Message.of({"jsonrpc": "2.0", "method": _LIST_CHANGED}))
            return None
        if self._list_params is not None and "_meta" not in self._list_params and len(self._refused) < MOST_CONTINUED:
            self._refused.add(tool)
        return f"waiting for a person: {problem}" if self.check.pins.can_wait else problem

    # -- from the server ------------------------------------------------------------------------------------------

    def from_server(self, message: Message) -> None:
        """Forwards a message of the server, without hidden tools, and records results."""
        try:
            message.as_one_line()
            if self._may_concern_us(message.line):
                seen = self._filter_message(message)
                if seen is None:
                    return
                message = seen
        except ValueError as why:
            return self._drop(message, lenient_id(message.line), str(why))
        self._to_client(message)

    def _may_concern_us(self, line: bytes) -> bool:
        """False only for what is neither an answer nor several messages, whoever reads it; without parsing it."""
        if self._asked or self._open or not line.startswith(b"{") or not line.isascii():
            return True
        lower = line.lower()
        return any(mark in lower for mark in _SPEAKING)

    def _drop(self, message: Message, id: Any, why: str) -> None:
        """Who waits for an answer gets an error."""
        _log.warning("a message of the server was dropped: %s", why)
        key, text = key_of(id), f"the answer of the server was not passed on: {why}"
        is_awaited = self._asked.pop(key, UNSET) is not UNSET
        self._record(key, error_of(id, INTERNAL_ERROR, text), None)
        if self._listings.pop(key, None) != "own" and is_awaited:
            self._fail(message, id, INTERNAL_ERROR, text)

    def _filter_message(self, message: Message) -> Message | None:
        """The message for the client; None if it is only for the proxy."""
        body = message.body
        if (ambiguous := ambiguity_of(body)) is not None:
            self._drop(message, body["id"] if is_answer(body) else None, ambiguous)
            return None
        if not is_answer(body):
            if body["method"] == _LIST_CHANGED:
                self._list_again()
            return message
        key, result = key_of(body["id"]), body.get("result")
        self._record(key, body, result)
        whose = self._listings.pop(key, None)
        if self._asked.pop(key, UNSET) is UNSET and (body["id"] is not None or result is not None):
            _log.warning("an answer of the server was dropped: no request with the id %s is open", key[:100])
            return None
        if not isinstance(result, dict) or not isinstance(tools := result.get("tools"), list):
            return None if whose == "own" else message
        if whose is None:
            return message
        try:
            clear = [tool for tool in tools if not _is_ambiguous(tool)]
            shown = clear if self.check is None else self.check.listed(clear)
        except Exception as problem:
            _log.warning("the tools cannot be compared with those approved: %s", problem)
            text = f"the guard failed: {type(problem).__name__}: {problem}"
            return None if whose == "own" else Message.of(error_of(body["id"], INTERNAL_ERROR, text), message.about)
        if whose == "own":
            self._ask_for_page(result.get("nextCursor"))
            return None
        shown = [tool for tool in shown if self.calls.is_listed(tool["name"])]
        for tool in shown:
            if tool["name"] in self._schemas or len(self._schemas) < _MOST_SCHEMAS:
                self._schemas[tool["name"]] = tool.get("inputSchema")
        if shown == tools:
            return message
        return Message.of({**body, "result": {**result, "tools": shown}}, message.about)

    def _record(self, key: str, body: dict[str, Any], result: Any) -> None:
        attempt, decision = self._open.pop(key, (None, None))
        if attempt is None or decision is None:
            return
        if isinstance(result, dict) and result.get("resultType") == "input_required":
            state = result.get("requestState")
            if isinstance(state, str):  # the call goes on when the client repeats it with its answer
                return keep_recent(self._continued, state, (attempt, decision), MOST_CONTINUED)
        is_error = result is None or (isinstance(result, dict) and result.get("isError") is True)
        try:
            self.calls.record(decision, body.get("error") if result is None else result, is_error)
        except Exception as problem:  # the call has been made, so the client gets its result
            _log.warning("the result of `%s` was not recorded: %s: %s", attempt.tool, type(problem).__name__, problem)

    # -- tools that change while the connection is open -----------------------------------------------------------

    def _list_again(self) -> None:
        """Ask for the tools, so that calls of changed ones wait even if the client does not ask."""
        if self.check is not None and self._list_params is not None and "own" not in self._listings.values():
            self._own_pages = 0
            self._ask_for_page("")

    def _ask_for_page(self, cursor: Any) -> None:
        self._own_pages += 1
        if not isinstance(cursor, str) or self._own_pages > _MOST_PAGES:
            return
        id = f"{_OWN}{uuid.uuid4().hex}"
        params = {**(self._list_params or {}), **({"cursor": cursor} if cursor else {})}
        self._listings[key_of(id)] = "own"
        self._pass_on(Message.of({"jsonrpc": "2.0", "id": id, "method": "tools/list", "params": params}))

    # -- answers of the proxy itself ------------------------------------------------------------------------------

    def close(self) -> None:
        """The connection is over: calls that have not been answered have failed, as far as anybody knows."""
        while self._open:
            _, (_, decision) = self._open.popitem()
            self.calls.record(decision, "the connection ended before the tool answered", True)

    def _answer(self, message: Message, id: str | int, text: str) -> None:
        self._to_client(Message.of(tool_error(id, text), message.about))

    def _fail(self, message: Message, id: Any, code: int, text: str) -> None:
        self._to_client(Message.of(error_of(id, code, text), message.about))


def _is_ambiguous(tool: Any) -> bool:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        return True
    why = TOOL.mistaken(tool)
    if why is not None:
        _log.warning("a tool is hidden: %s", why)
    return why is not None


# -- the proxy, the server behind it, and the session that its calls belong to ----------------------------------------


class Server(Protocol):
    """A server, wherever it runs."""

    def start(self, receive: Send, ended: Callable[[], object]) -> None:
        """Begin. `receive` gets each of its messages, `ended` is called when there will be no more. Raises OSError."""
        ...

    def send(self, message: Message) -> None: ...

    def close(self) -> int:
        """End it. The exit code."""
        ...


class Settings(Struct, frozen=True, kw_only=True):
    """What all connections of one command share."""

    guard: Guard
    make_server: Callable[[], Server]
    """a server for one connection"""
    agent: str | None = None
    session: str | None = None
    """None: each connection is a session of its own"""
    wait: float = 0.0
    check: ToolCheck | None = None


class Connection:
    def __init__(self, settings: Settings, to_client: Send, *, session: str | None = None) -> None:
        """`session`: if the settings name none."""
        self._settings, self._server = settings, settings.make_server()
        named = settings.session or session
        self._ends = None if named else f"mcp-{uuid.uuid4().hex[:12]}"
        """the session that ends with the connection"""
        calls = Calls(settings.guard, agent=settings.agent, session=named or self._ends)
        self._proxy = McpProxy(
            calls, to_server=self._server.send, to_client=to_client, wait=settings.wait, check=settings.check
        )
        self.from_client = self._proxy.from_client

    def start(self, ended: Callable[[], object]) -> None:
        """Raises OSError if the server cannot be started."""
        self._server.start(self._proxy.from_server, ended)

    def close(self) -> int:
        """The exit code of the server."""
        code = self._server.close()
        self._proxy.close()
        if self._ends is not None:
            broken = self._settings.guard.end_session(self._ends)
            if broken:
                _log.warning("broken: %s", "; ".join(f"{one.rule.id}: {one.message}" for one in broken))
            self._ends = None
        return code
