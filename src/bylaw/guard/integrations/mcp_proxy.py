"""MCP over standard streams: a proxy between a client and its server, which decides `tools/call` before the server sees
it and hides tools outside the allowlist from `tools/list`.

Any other line is passed on byte for byte; line breaks of other kinds in it are escaped. A line that two readers could
take for different messages (a name twice in an object, text that is not JSON, several messages in one line) is answered
with an error and never passed on.
"""

from __future__ import annotations

import json
import subprocess
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import IO, Any, TypeAlias

from bylaw.guard.integrations.calls import Calls
from bylaw.guard.model import Attempt, Call, Decision, Denied
from bylaw.guard.tools import same_json
from bylaw.model.guard_policy import Action

MOST_BYTES = 64 << 20
"""of one line; a longer one ends the connection"""
_PATIENCE = 5.0
"""seconds that a server has to exit after its last line"""
_BREAKS = (b"\r", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
"""after which some readers begin a new line, as Python's text files do"""
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600
Send: TypeAlias = Callable[[bytes], None]


class McpProxy:
    """One connection, whose calls belong to one session."""

    def __init__(self, calls: Calls, *, to_server: Send, to_client: Send, wait: float = 0.0) -> None:
        """`wait`: seconds to wait for a person before a paused call is answered."""
        self.calls, self.wait = calls, wait
        self._to_server, self._to_client = to_server, to_client
        self._prefix = uuid.uuid4().hex[:12]
        self._open: dict[str, Decision] = {}
        """calls that the server runs, by the id of their request"""
        self._listings: set[str] = set()
        self._waiting: set[str] = set()
        """calls that wait for a person and were not cancelled"""

    # -- from the client ------------------------------------------------------------------------------------------

    def from_client(self, line: bytes) -> None:
        try:
            message = _parse(line)
        except ValueError as why:
            return self._fail(None, _PARSE_ERROR, f"the line was not passed on: {why}")
        if not isinstance(message, dict):
            return self._fail(None, _INVALID_REQUEST, "the line was not passed on: send one message in each line")
        method, id = message.get("method"), message.get("id")
        if method == "tools/list":
            self._listings.add(_key(id))
        if method == "notifications/cancelled" and isinstance(message.get("params"), dict):
            self._waiting.discard(_key(message["params"].get("requestId")))
        if method != "tools/call":
            return self._to_server(_one_line(line, message))
        params = message.get("params")
        if isinstance(id, bool) or not isinstance(id, str | int) or not isinstance(params, dict):
            return self._fail(id, _INVALID_REQUEST, "a call needs an id and params")
        if not self.wait:
            return self._call(line, message, id, params)
        return threading.Thread(target=self._call, args=(line, message, id, params), daemon=True).start()

    def _call(self, line: bytes, message: dict[str, Any], id: str | int, params: dict[str, Any]) -> None:
        try:
            attempt = self.calls.attempt(
                params.get("name", ""), params.get("arguments"), f"{self._prefix}-{_key(id)}", params.get("_meta"), None
            )
            decision = self.calls.decide(attempt)
            if decision.action is Action.PAUSE and self.wait and decision.review is not None:
                self._waiting.add(_key(id))
                self.calls.guard.reviews.wait(decision.review, timeout=self.wait)
                if _key(id) not in self._waiting:  # the client has cancelled it
                    return None
                self._waiting.discard(_key(id))
                decision = self.calls.decide(attempt)
            if decision.call is None or not decision:
                return self._deny(id, decision)
        except Exception as problem:  # whatever fails here, the call does not run
            return self._answer(id, f"the guard failed: {type(problem).__name__}: {problem}")
        self._open[_key(id)] = decision
        return self._to_server(self._line(line, message, attempt, decision.call))

    def _line(self, line: bytes, message: dict[str, Any], attempt: Attempt, call: Call) -> bytes:
        """The line itself, unless a person has changed the call."""
        if call.tool == attempt.tool and same_json(call.arguments, attempt.arguments or {}):
            return _one_line(line, message)
        params = {**message["params"], "name": call.tool, "arguments": call.arguments}
        return _encode({**message, "params": params})

    def _deny(self, id: str | int, decision: Decision) -> None:
        denied = str(Denied(decision))
        waiting = decision.action is Action.PAUSE and decision.review is not None
        self._answer(id, f"waiting for a person: {decision.review} ({denied})" if waiting else denied)

    # -- from the server ------------------------------------------------------------------------------------------

    def from_server(self, line: bytes) -> None:
        """Passes on what the server says, without hidden tools, and records results."""
        if self._open or self._listings:
            try:
                message = _parse(line)
            except ValueError:  # not an answer that could be read; the client has to deal with it
                message = None
            if isinstance(message, dict) and "method" not in message:
                line = self._answered(line, message)
        self._to_client(line)

    def _answered(self, line: bytes, message: dict[str, Any]) -> bytes:
        key, result = _key(message.get("id")), message.get("result")
        decision = self._open.pop(key, None)
        if decision is not None:
            is_error = "error" in message or (isinstance(result, dict) and result.get("isError") is True)
            self.calls.record(decision, message.get("error") if result is None else result, is_error)
        if key not in self._listings:
            return line
        self._listings.discard(key)
        if not isinstance(result, dict) or not isinstance(tools := result.get("tools"), list):
            return line
        shown = [tool for tool in tools if isinstance(tool, dict) and self.is_listed(tool.get("name"))]
        return line if len(shown) == len(tools) else _encode({**message, "result": {**result, "tools": shown}})

    def is_listed(self, tool: Any) -> bool:
        guard = self.calls.guard
        attempt = Attempt(tool=str(tool), agent=guard.policies.named(self.calls.agent))
        chain = guard.policies.chain(attempt, {})
        return chain.admits_all or all(attempt.tool in allowed for allowed in chain.allowed)

    # -- answers of the proxy itself ------------------------------------------------------------------------------

    def _answer(self, id: str | int, text: str) -> None:
        result = {"content": [{"type": "text", "text": text}], "isError": True, "resultType": "complete"}
        self._to_client(_encode({"jsonrpc": "2.0", "id": id, "result": result}))

    def _fail(self, id: Any, code: int, text: str) -> None:
        self._to_client(_encode({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}))


def run_proxy(calls: Calls, command: Sequence[str], client: IO[bytes], out: IO[bytes], *, wait: float = 0.0) -> int:
    """Run the server, and pass on lines until one side is done. Returns the exit code of the server."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        proxy = McpProxy(calls, to_server=_sender(server.stdin), to_client=_sender(out), wait=wait)
        threading.Thread(target=_pump, args=(client, proxy.from_client, server.stdin), daemon=True).start()
        _pump(server.stdout, proxy.from_server, None)
        try:
            return server.wait(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            server.kill()
            return server.wait()


def _pump(source: IO[bytes], take: Send, then_close: IO[bytes] | None) -> None:
    try:
        while line := source.readline(MOST_BYTES + 1):
            if len(line) > MOST_BYTES:
                break
            if line.strip():
                take(line)
    except (OSError, ValueError):  # the other side has closed its end
        pass
    finally:
        if then_close is not None:
            then_close.close()


def _sender(stream: IO[bytes]) -> Send:
    lock = threading.Lock()

    def send(line: bytes) -> None:
        with lock:
            stream.write(line if line.endswith(b"\n") else line + b"\n")
            stream.flush()

    return send


def _key(id: Any) -> str:
    """`1` and `"1"` are different ids."""
    return json.dumps(id)


def _one_line(line: bytes, message: dict[str, Any]) -> bytes:
    """The line itself, unless a server could read several lines in it, and a call in one of them."""
    return line if not any(one in line for one in _BREAKS) else _encode(message)


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def _parse(line: bytes) -> Any:
    """Raises ValueError for anything that another parser could read as something else."""
    try:
        return json.loads(line.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a name twice")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"`{text}` is not JSON")
