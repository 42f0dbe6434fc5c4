"""Messages of JSON-RPC as they travel: the bytes, what is in them, and the headers that repeat it.

Bytes are passed on as they came. They are encoded again only if a reader could take them for something else: text that
is not one line for every reader, or several lines of JSON in an HTTP body.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType
from msgspec.json import decode

from bylaw.text.repeated_keys import loads_strictly

MOST_BYTES = 64 << 20
"""of one message"""
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INTERNAL_ERROR = -32700, -32600, -32601, -32603
CLOSED = -32000
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
"""in the `_meta` of every request since 2026-07-28"""
HANDSHAKE_VERSIONS = frozenset(("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"))
"""protocol versions that begin with `initialize`; in later ones every request stands alone"""
_ASCII_BREAKS = (b"\r", b"\n")
_BREAKS = (*_ASCII_BREAKS, b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9")
"""after which some readers begin a new line, as Python's text files do"""


class Message:
    """One message. `about` is the key of the client's request that it belongs to, where the transport knows it."""

    __slots__ = ("_body", "about", "line")

    def __init__(self, line: bytes, body: Any = UNSET, about: str | None = None) -> None:
        self.line, self._body, self.about = line, body, about

    @classmethod
    def of(cls, body: Mapping[str, Any], about: str | None = None) -> Message:
        return cls(encode(body), body, about)

    @property
    def body(self) -> Any:
        """Raises ValueError for anything that another reader could take for something else."""
        if self._body is UNSET:
            self._body = parse(self.line)
        return self._body

    def as_one_line(self) -> Message:
        """Itself, unless a reader could see several lines in it, and another message in one of them."""
        self.line = self.line.strip(b"\r\n\t ")
        if any(mark in self.line for mark in (_ASCII_BREAKS if self.line.isascii() else _BREAKS)):
            self.line = encode(self.body)
        return self


Send: TypeAlias = Callable[[Message], None]


class _RawMessage(Struct):
    """A message whose parts are left as they are."""

    jsonrpc: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


def replace_id(message: Message, id: Any) -> Message:
    """The message under another id; everything else in it stays byte for byte, as far as it is JSON-RPC."""
    body = {**message.body, "id": id}
    if not body.keys() <= set(_RawMessage.__struct_fields__):
        return Message.of(body, message.about)
    try:
        parts = decode(message.line, type=_RawMessage)
    except DecodeError:  # half a surrogate pair, which Python's reader takes
        return Message.of(body, message.about)
    given = [(name, getattr(parts, name)) for name in _RawMessage.__struct_fields__ if name != "id"]
    fields = [b'"%b":%b' % (name.encode(), bytes(raw)) for name, raw in given if raw is not UNSET]
    fields.insert(1, b'"id":' + json.dumps(id).encode())
    return Message(b"{" + b",".join(fields) + b"}", body, message.about)


def is_request(body: Any) -> bool:
    return isinstance(body, dict) and "method" in body and "id" in body and not is_answer(body)


def is_answer(body: Any) -> bool:
    """Whatever its `method` is: readers that look for a result first take it for an answer."""
    return isinstance(body, dict) and "id" in body and ("method" not in body or "result" in body or "error" in body)


def params_of(body: Mapping[str, Any]) -> dict[str, Any]:
    params = body.get("params")
    return params if isinstance(params, dict) else {}


def meta_of(body: Mapping[str, Any]) -> dict[str, Any]:
    meta = params_of(body).get("_meta")
    return meta if isinstance(meta, dict) else {}


def objects_in(items: Any) -> list[dict[str, Any]]:
    """The objects of a list; none if it is no list."""
    return [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []


def version_of(body: Mapping[str, Any]) -> str | None:
    """The protocol version that a request names, since 2026-07-28."""
    version = meta_of(body).get(VERSION_KEY)
    return version if isinstance(version, str) else None


def key_of(id: Any) -> str:
    """`1` and `"1"` are different ids."""
    return json.dumps(id)


def error_of(id: Any, code: int, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}}


def tool_error(id: Any, text: str) -> dict[str, Any]:
    """The result of a call that was not made, as the model reads it."""
    result = {"content": [{"type": "text", "text": text}], "isError": True, "resultType": "complete"}
    return {"jsonrpc": "2.0", "id": id, "result": result}


def encode(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def parse(line: bytes) -> Any:
    """Raises ValueError."""
    try:
        return loads_strictly(line.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def lenient_id(line: bytes) -> Any:
    """The id in a message that nobody may read otherwise, to say that it was not passed on; None if there is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found.get("id") if isinstance(found, dict) else None


def _no_constant(text: str) -> Any:
    raise ValueError(f"`{text}` is not JSON")


# -- messages that are JSON, but that two readers could take for different ones ---------------------------------------
# Some readers ignore case, as Go's does: they find `method` in `Method`, and `arguments` where its last letter is a
# long s. A server that reads so would run a call that nobody has decided. So a name that only looks like one of the
# protocol is refused.

_NOISE = re.compile(r"[^\w/]+")
"""blanks, signs that are not shown, and punctuation that lenient readers leave out"""


def _fold_case(text: str) -> str:
    return _NOISE.sub("", unicodedata.normalize("NFKC", text).casefold())


class Names:
    """Names that have one spelling."""

    def __init__(self, *names: str) -> None:
        self._exact = frozenset(names)
        self._folded = {_fold_case(name): name for name in names}

    def mistaken(self, found: Iterable[str]) -> str | None:
        """Why one of these could be read as a name that it is not."""
        for name in found:
            if name not in self._exact and (meant := self._folded.get(_fold_case(name))) is not None:
                return f"`{name}` could be read as `{meant}`"
        return None


_ENVELOPE = Names("jsonrpc", "id", "method", "params", "result", "error")
_PARAMS = Names(
    "name", "arguments", "_meta", "cursor", "uri", "task", "taskId", "requestId", "requestState", "inputResponses",
    "progressToken", "protocolVersion",
)  # fmt: skip
_RESULT = Names(
    "tools", "nextCursor", "content", "structuredContent", "isError", "resultType", "requestState", "task", "_meta",
)  # fmt: skip
_METHODS = Names(
    "tools/call", "tools/list", "initialize", "server/discover", "notifications/cancelled", "notifications/initialized",
    "notifications/tools/list_changed",
)  # fmt: skip
"""that the proxy treats in their own way"""
TOOL = Names(
    "name", "title", "description", "inputSchema", "outputSchema", "annotations", "execution", "icons", "_meta"
)  # fmt: skip


def ambiguity_of(body: Any) -> str | None:
    """Why a message could be taken for another one; None if it could not."""
    if not isinstance(body, dict):
        return "send one message at a time"
    if (why := _ENVELOPE.mistaken(body)) is not None:
        return why
    is_answer = "result" in body or "error" in body
    if "method" in body:
        method = body["method"]
        if is_answer:
            return "it is a request and an answer"
        if not isinstance(method, str):
            return "its method is not a text"
        why = _METHODS.mistaken((method,))
    elif "id" not in body or not is_answer:
        return "it is neither a request nor an answer"
    elif body.get("result") is not None and body.get("error") is not None:
        return "it has a result and an error"
    for names, part in ((_PARAMS, body.get("params")), (_RESULT, body.get("result"))):
        if why is None and isinstance(part, dict):
            why = names.mistaken(part)
    return why


def ambiguity_of_arguments(arguments: Any, schema: Any = None) -> str | None:
    """Why a tool could read the arguments of a call differently than the rules do. `schema`: of the arguments."""
    left = [(arguments, schema)]
    while left:
        value, schema = left.pop()
        if isinstance(value, list):
            items = schema.get("items") if isinstance(schema, dict) else None
            left += [(item, items) for item in value if isinstance(item, dict | list)]
        elif isinstance(value, dict):
            properties = schema.get("properties") if isinstance(schema, dict) else None
            known: Mapping[str, Any] = properties if isinstance(properties, dict) else {}
            if (why := _same_names(value, known)) is not None:
                return why
            left += [(inner, known.get(name)) for name, inner in value.items() if isinstance(inner, dict | list)]
    return None


def _same_names(value: Mapping[str, Any], known: Mapping[str, Any]) -> str | None:
    seen = {name.casefold(): name for name in known}
    for name in value:
        other = seen.setdefault(name.casefold(), name)
        if other != name and not (name in known and other not in value):
            return f"the argument `{name}` could be read as `{other}`"
    return None


# -- HTTP headers that repeat parts of a message ----------------------------------------------------------------------
# Since 2026-07-28: the method, the name, and arguments that a tool marks. They are made from the message itself and
# never copied from a client: a server, or a gateway before it, may look only at the headers, and must not see another
# tool there than the one that was decided.

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""which parameter a method repeats"""
_SAFE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?|")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_MOST_LEVELS = 16


def routing_headers(body: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, str]:
    """`schemas`: of the arguments of tools, as far as they are known."""
    method, version, params = body.get("method"), version_of(body), params_of(body)
    if not isinstance(method, str) or version is None or version in HANDSHAKE_VERSIONS:
        return {}
    headers = {"mcp-protocol-version": version, "mcp-method": method}
    name = params.get(NAMED_BY.get(method, ""))
    if isinstance(name, str):
        headers["mcp-name"] = encode_value(name)
        if method == "tools/call":
            arguments = params.get("arguments")
            headers |= dict(_argument_headers(schemas.get(name), arguments if isinstance(arguments, dict) else {}))
    return headers


def _argument_headers(schema: Any, arguments: Mapping[str, Any], level: int = 0) -> Iterator[tuple[str, str]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or level > _MOST_LEVELS:
        return
    for name, inner in properties.items():
        value = arguments.get(name)
        if value is None or not isinstance(inner, dict):
            continue
        header = inner.get("x-mcp-header")
        if isinstance(header, str) and _TOKEN.fullmatch(header) and isinstance(value, str | int):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            yield f"mcp-param-{header.lower()}", encode_value(text)
        elif isinstance(value, dict):
            yield from _argument_headers(inner, value, level + 1)


def encode_value(text: str) -> str:
    """The text as it is if a header can hold it, else in Base64."""
    if _SAFE.fullmatch(text) and not _ENCODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


def decode_value(text: str) -> str | None:
    """None if it is not what `encode_value` writes."""
    if not _ENCODED.fullmatch(text):
        return text
    try:
        found = base64.b64decode(text[9:-2], validate=True).decode("utf-8")
    except ValueError:
        return None
    return found if encode_value(found) == text else None
