"""A reply written out as HTTP/1.1 has it, for libraries whose own parser makes the response object of it."""

from __future__ import annotations

from http.client import responses

from bylaw.wire.exchange import Incoming
from bylaw.wire.patches.carrying import UNKEPT


def raw_head(status: int, headers: list[tuple[str, str]], length: int | None) -> bytes:
    """The status line and headers; without a length the body follows in chunks."""
    kept = [(name, value) for name, value in headers if name.lower() not in UNKEPT]
    kept.append(("content-length", str(length)) if length is not None else ("transfer-encoding", "chunked"))
    lines = [f"HTTP/1.1 {status} {responses.get(status, '')}", *(f"{name}: {_one_line(value)}" for name, value in kept)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


def raw_reply(reply: Incoming, headers: list[tuple[str, str]] | None = None) -> bytes:
    return raw_head(reply.status, headers or list(reply.headers.items()), len(reply.body)) + reply.body


def raw_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _one_line(value: str) -> str:
    return " ".join(value.splitlines())
