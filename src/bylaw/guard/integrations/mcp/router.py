"""Several servers behind one connection, which look like one server to the client.

A tool or a prompt of the server `shop` is called `shop__NAME`; resources keep their URIs. A request goes to the server
that its name, URI or task belongs to. A request for all of them, such as a list, goes to each, and the answers become
one: a page of a list holds a page of every server. Requests of servers to the client get ids that tell them apart.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Any

from bylaw.guard.integrations.mcp.messages import (
    CLOSED,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Message,
    Send,
    ambiguity_of,
    error_of,
    is_answer,
    is_request,
    key_of,
    lenient_id,
    meta_of,
    objects_in,
    params_of,
    replace_id,
)
from bylaw.guard.integrations.mcp.proxy import Server

LISTS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
    "tasks/list": ("tasks", "taskId"),
}
"""method → where its result has the list, and what tells the items apart"""
_log = logging.getLogger("bylaw")
_INFO_KEY = "io.modelcontextprotocol/serverInfo"
_INFO = {"name": "bylaw", "version": version("bylaw")}
SEPARATOR = "__"
PATIENCE = 30.0
"""seconds after which a list is answered without the servers that have not"""
_TO_ALL = frozenset(("initialize", "server/discover", "ping", "logging/setLevel", "subscriptions/listen", *LISTS))
_PATIENT = frozenset(("subscriptions/listen",))
"""requests that are not answered before they end"""
_MOST_KNOWN = 100_000
"""resources and tasks whose server is remembered"""


def split_name(name: str, servers: Iterable[str]) -> tuple[str, str] | None:
    """The server and the name there; None if it belongs to none of them."""
    server, mark, own = name.partition(SEPARATOR)
    return (server, own) if mark and server in servers else None


class _BroadcastRequest:
    """A request of the client that several servers answer."""

    def __init__(self, message: Message, waiting: Iterable[str]) -> None:
        self.message, self.waiting = message, set(waiting)
        self.answers: dict[str, dict[str, Any]] = {}
        self.timer: threading.Timer | None = None


class Router:
    """A `Server` that is several."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self.servers = dict(servers)
        self._alive = set(self.servers)
        self._receive: Send
        self._lock = threading.RLock()
        self._asked: dict[str, _BroadcastRequest] = {}
        self._routed: dict[str, tuple[str, Message, list[str]]] = {}
        """requests that one server answers: which, the message, and the servers to try if it does not know"""
        self._owners: dict[str, str] = {}
        """URIs of resources and ids of tasks → server"""
        self._prefixes: dict[str, str] = {}
        """the fixed beginnings of URI templates → server"""
        self._tokens: dict[str, str] = {}
        """progress tokens of requests to the client → server"""

    def start(self, receive: Send, ended: Callable[[], object]) -> None:
        self._receive = receive
        self._end = ended
        for name, server in self.servers.items():
            server.start(
                lambda message, name=name: self._receive_from(name, message),  # type: ignore[misc]
                lambda name=name: self._fail_pending(name),  # type: ignore[misc]
            )

    def close(self) -> int:
        return max([server.close() for server in self.servers.values()], default=0)

    # -- to the servers -------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        body = message.body
        method, params = body.get("method"), params_of(body)
        if is_answer(body):
            self._answer_to_server(message)
        elif method == "notifications/cancelled":
            self._cancel(message, key_of(params.get("requestId")))
        elif method == "notifications/progress" and key_of(params.get("progressToken")) in self._tokens:
            self.servers[self._tokens[key_of(params.get("progressToken"))]].send(message)
        elif not is_request(body):
            for name in sorted(self._alive):
                self.servers[name].send(message)
        elif method in _TO_ALL:
            self._send_to_all(message, method, params)
        else:
            self._send_to_one(message, method, params)

    def _send_to_all(self, message: Message, method: str, params: Mapping[str, Any]) -> None:
        cursors = _read_cursor(params["cursor"]) if method in LISTS and "cursor" in params else None
        if "cursor" in params and method in LISTS and cursors is None:
            return self._fail(message, INVALID_REQUEST, "the cursor is not one of this list")
        names = [name for name in self.servers if name in self._alive and (cursors is None or name in cursors)]
        if not names:
            return self._fail(message, CLOSED, "no server is running")
        asked = _BroadcastRequest(message, names)
        with self._lock:
            self._asked[key_of(message.body["id"])] = asked
        if method not in _PATIENT:
            asked.timer = threading.Timer(PATIENCE, self._stop_waiting, (key_of(message.body["id"]),))
            asked.timer.daemon = True
            asked.timer.start()
        for name in names:
            sent = message
            if cursors is not None:
                sent = Message.of({**message.body, "params": {**params, "cursor": cursors[name]}}, message.about)
            self.servers[name].send(sent)
        return None

    def _send_to_one(self, message: Message, method: Any, params: Mapping[str, Any]) -> None:
        ref = params.get("ref") if isinstance(params.get("ref"), dict) else None
        named = params if method in ("tools/call", "prompts/get") else ref if ref and "name" in ref else None
        if named is not None:
            split = split_name(named["name"], self.servers) if isinstance(named.get("name"), str) else None
            if split is None:
                text = f"`{named.get('name')}` belongs to no server: names begin with `SERVER{SEPARATOR}`"
                return self._fail(message, INVALID_REQUEST, text)
            server, own = split
            changed = {**params, "name": own} if ref is None else {**params, "ref": {**ref, "name": own}}
            return self._try(Message.of({**message.body, "params": changed}, message.about), [server])
        uri = (ref or params).get("uri")
        known = params.get("taskId", uri)
        owner = self._owners.get(known) if isinstance(known, str) else None
        if owner is None and isinstance(uri, str):
            owner = next((name for start, name in self._prefixes.items() if uri.startswith(start)), None)
        return self._try(message, [owner] if owner else [name for name in self.servers if name in self._alive])

    def _try(self, message: Message, names: list[str]) -> None:
        name, *others = [*names, ""]
        if name not in self._alive:
            return self._fail(message, CLOSED, f"the server `{name}` is not running")
        with self._lock:
            self._routed[key_of(message.body["id"])] = (name, message, [one for one in others if one])
        return self.servers[name].send(message)

    def _cancel(self, message: Message, key: str) -> None:
        with self._lock:
            routed, asked = self._routed.get(key), self._asked.get(key)
        names = [routed[0]] if routed is not None else sorted(asked.waiting) if asked is not None else []
        for name in names:
            self.servers[name].send(message)

    def _answer_to_server(self, message: Message) -> None:
        """Pass an answer of the client to the server that has asked, under the id that it knows."""
        name, mark, id = str(message.body["id"]).partition(SEPARATOR)
        try:
            own = json.loads(id) if mark and name in self._alive else None
        except ValueError:
            own = None
        if own is not None:
            self.servers[name].send(replace_id(message, own))

    # -- from the servers -----------------------------------------------------------------------------------------

    def _receive_from(self, name: str, message: Message) -> None:
        try:
            body = message.as_one_line().body
            ambiguous, id = ambiguity_of(body), body["id"] if is_answer(body) else None
        except ValueError as why:
            ambiguous, id = str(why), lenient_id(message.line)
        if ambiguous is not None:
            _log.warning("a message of the server `%s` was dropped: %s", name, ambiguous)
            if id is None:
                return
            body = error_of(id, INTERNAL_ERROR, f"the answer of the server was not passed on: {ambiguous}")
            message = Message.of(body, message.about)
        if is_answer(body):
            self._answered(name, message, body)
        elif is_request(body):
            meta = meta_of(body)
            if "progressToken" in meta and len(self._tokens) < _MOST_KNOWN:
                self._tokens[key_of(meta["progressToken"])] = name
            self._receive(replace_id(message, f"{name}{SEPARATOR}{key_of(body['id'])}"))
        else:
            self._receive(message)

    def _answered(self, name: str, message: Message, body: dict[str, Any]) -> None:
        key = key_of(body["id"])
        with self._lock:
            asked = self._asked.get(key)
            if asked is not None and name in asked.waiting:
                asked.waiting.discard(name)
                asked.answers[name] = body
                if asked.waiting:
                    return
                del self._asked[key]
            else:
                asked, routed = None, self._routed.pop(key, None)
        if asked is not None:
            return self._merge(asked)
        if routed is None or routed[0] != name:  # this server was not asked
            return None
        if "error" in body and routed[2]:
            return self._try(routed[1], routed[2])
        self._learn(name, body.get("result"), params_of(routed[1].body))
        return self._receive(Message(message.line, body, message.about or routed[1].about))

    def _merge(self, asked: _BroadcastRequest) -> None:
        if asked.timer is not None:
            asked.timer.cancel()
        body = asked.message.body
        results = {name: one["result"] for name, one in asked.answers.items() if isinstance(one.get("result"), dict)}
        for name, result in results.items():
            self._learn_list(name, result)
        if not results:
            error = next((one["error"] for one in asked.answers.values() if "error" in one), None)
            error = error or {"code": INTERNAL_ERROR, "message": "no server has answered"}
            return self._receive(Message.of({"jsonrpc": "2.0", "id": body["id"], "error": error}, asked.message.about))
        if body["method"] == "server/discover" and len(results) < len(asked.answers):
            # one of them is older, so the client has to begin with `initialize`
            return self._fail(asked.message, INVALID_REQUEST, "not every server knows this protocol version")
        merged = merge(body["method"], {name: results[name] for name in self.servers if name in results})
        cursors = {name: result["nextCursor"] for name, result in results.items() if result.get("nextCursor")}
        if cursors:
            merged["nextCursor"] = base64.urlsafe_b64encode(json.dumps(cursors).encode()).decode()
        return self._receive(Message.of({"jsonrpc": "2.0", "id": body["id"], "result": merged}, asked.message.about))

    def _stop_waiting(self, key: str) -> None:
        with self._lock:
            asked = self._asked.pop(key, None)
        if asked is not None:
            _log.warning("no answer to `%s`: %s", asked.message.body["method"], ", ".join(sorted(asked.waiting)))
            self._merge(asked)

    def _learn_list(self, name: str, result: Mapping[str, Any]) -> None:
        for item in objects_in(result.get("resources")):
            self._own(item.get("uri"), name)
        for item in objects_in(result.get("resourceTemplates")):
            template = item.get("uriTemplate")
            if isinstance(template, str) and len(self._prefixes) < _MOST_KNOWN:
                self._own(template, name)
                self._prefixes.setdefault(template.partition("{")[0], name)

    def _learn(self, name: str, result: Any, params: Mapping[str, Any]) -> None:
        if not isinstance(result, dict):
            return
        self._own(params.get("uri"), name)
        task = result.get("task")
        self._own(task.get("taskId") if isinstance(task, dict) else None, name)
        for block in objects_in(result.get("content")):
            if block.get("type") == "resource_link":
                self._own(block.get("uri"), name)

    def _own(self, key: Any, name: str) -> None:
        if isinstance(key, str) and len(self._owners) < _MOST_KNOWN:
            self._owners.setdefault(key, name)

    def _fail_pending(self, name: str) -> None:
        """A server has ended: whatever it was asked fails, and the others go on."""
        with self._lock:
            self._alive.discard(name)
            routed = {key: one for key, one in self._routed.items() if one[0] == name}
            for key in routed:
                del self._routed[key]
            waiting = [(key, asked) for key, asked in self._asked.items() if name in asked.waiting]
        for _, message, _ in routed.values():
            self._fail(message, CLOSED, f"the server `{name}` has ended")
        for key, asked in waiting:
            body = error_of(asked.message.body["id"], CLOSED, f"the server `{name}` has ended")
            self._answered(name, Message.of(body, key), body)
        if not self._alive:
            self._end()

    def _fail(self, message: Message, code: int, text: str) -> None:
        self._receive(Message.of(error_of(message.body["id"], code, text), message.about))


def _read_cursor(text: Any) -> dict[str, str] | None:
    try:
        found = json.loads(base64.urlsafe_b64decode(text)) if isinstance(text, str) else None
    except (ValueError, binascii.Error, RecursionError):
        return None
    return found if isinstance(found, dict) and all(isinstance(one, str) for one in found.values()) else None


# -- the answers of several servers to one request, as one answer -----------------------------------------------------


def merge(method: str, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """`results` by server; there is at least one. A cursor is left to the caller."""
    first = dict(next(iter(results.values())))
    first.pop("nextCursor", None)
    if method in LISTS:
        return {**first, **_list(*LISTS[method], results), **_cache(results)}
    if method in ("initialize", "server/discover"):
        return {**first, **_introduction(method, results)}
    return first


def _list(where: str, key: str, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    for server, result in results.items():
        for item in objects_in(result.get(where)):
            if not isinstance(item.get(key), str):
                continue
            name = f"{server}{SEPARATOR}{item[key]}" if key == "name" else item[key]
            if key == "name" and (name in found or name.partition(SEPARATOR)[0] != server):
                _log.warning("`%s` of the server `%s` is hidden: something else has this name", name, server)
                continue
            found.setdefault(name, {**item, key: name})
    return {where: list(found.values())}


def _cache(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """How long the list may be cached: as long as each of its parts may be."""
    lives = [result.get("ttlMs") for result in results.values()]
    if not any(isinstance(one, int | float) for one in lives):
        return {}
    scopes = {result.get("cacheScope") for result in results.values()}
    ttl = min((one if isinstance(one, int | float) and not isinstance(one, bool) else 0) for one in lives)
    return {"ttlMs": ttl, "cacheScope": "public" if scopes == {"public"} else "private"}


def _introduction(method: str, results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    capabilities: dict[str, Any] = {}
    for result in results.values():
        _add(capabilities, result.get("capabilities"))
    merged: dict[str, Any] = {"capabilities": capabilities}
    instructions = [
        f"{server}: {result['instructions']}"
        for server, result in results.items()
        if isinstance(result.get("instructions"), str)
    ]
    if instructions:
        merged["instructions"] = "\n\n".join(instructions)
    if method == "initialize":
        versions = [result["protocolVersion"] for result in results.values() if "protocolVersion" in result]
        return {**merged, "protocolVersion": min(map(str, versions)) if versions else None, "serverInfo": _INFO}
    known = [set(result.get("supportedVersions") or ()) for result in results.values()]
    first = next(iter(results.values()))
    meta: dict[str, Any] = first["_meta"] if isinstance(first.get("_meta"), dict) else {}
    shared = [version for version in first.get("supportedVersions") or () if all(version in one for one in known)]
    return {**merged, **_cache(results), "supportedVersions": shared, "_meta": {**meta, _INFO_KEY: _INFO}}


def _add(to: dict[str, Any], more: Any) -> None:
    """What any of the servers can do."""
    for name, value in more.items() if isinstance(more, dict) else ():
        if isinstance(value, dict) and isinstance(to.get(name, {}), dict):
            _add(to.setdefault(name, {}), value)
        else:
            to[name] = bool(to.get(name)) or value
