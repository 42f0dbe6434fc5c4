"""Messages of JSON-RPC as they travel: the bytes, and what is in them.

Bytes are passed on as they came. They are encoded again only if a reader could take them for something else: text that
is not one line for every reader, or several lines of JSON in an HTTP body.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType
from msgspec.json import decode

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


class _Parts(Struct):
    """A message whose parts are left as they are."""

    jsonrpc: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    method: Raw | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


def with_id(message: Message, id: Any) -> Message:
    """The message under another id; everything else in it stays byte for byte, as far as it is JSON-RPC."""
    body = {**message.body, "id": id}
    if not body.keys() <= set(_Parts.__struct_fields__):
        return Message.of(body, message.about)
    try:
        parts = decode(message.line, type=_Parts)
    except DecodeError:  # half a surrogate pair, which Python's reader takes
        return Message.of(body, message.about)
    given = [(name, getattr(parts, name)) for name in _Parts.__struct_fields__ if name != "id"]
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


def version_of(body: Mapping[str, Any]) -> str | None:
    """The protocol version that a request names, since 2026-07-28."""
    meta = params_of(body).get("_meta")
    version = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
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
        return json.loads(line.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def lenient_id(line: bytes) -> Any:
    """The id in a message that nobody may read otherwise, to say that it was not passed on; None if there is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found.get("id") if isinstance(found, dict) else None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a name twice")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"`{text}` is not JSON")
