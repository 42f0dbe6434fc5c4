"""Bodies of replies: unpacked where they came compressed, and put back so that the headers still tell the truth."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from bylaw.wire.exchange import MOST_KEPT, Incoming, Outgoing

_UNTRUE = ("content-encoding", "content-length", "transfer-encoding", "etag", "content-md5", "digest")
"""headers that are about the bytes of a body and do not hold for other bytes"""
_PIECE = 64 * 1024
_WINDOWS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


def asking_plainly(request: Outgoing) -> Outgoing:
    """The request with the wish for a reply that is not compressed."""
    return Outgoing(request.method, request.url, {**request.headers, "accept-encoding": "identity"}, request.body)


def unpacked(reply: Incoming) -> bytes | None:
    """The body as it was before compression; None where that is unknown, broken or too large."""
    encoding = reply.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return reply.body
    if encoding == "zstd":
        return _from_zstd(reply.body)
    if encoding == "br":
        return _from_brotli(reply.body)
    if encoding not in _WINDOWS:
        return None
    try:
        unpacker = zlib.decompressobj(_WINDOWS[encoding])
        body = unpacker.decompress(reply.body, MOST_KEPT)
    except zlib.error:
        return None
    return None if unpacker.unconsumed_tail else body


def _from_zstd(body: bytes) -> bytes | None:
    import zstandard

    unpacked = bytearray()
    try:
        with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
            while len(unpacked) <= MOST_KEPT and (piece := reader.read(_PIECE)):
                unpacked += piece
    except zstandard.ZstdError:
        return None
    return bytes(unpacked) if len(unpacked) <= MOST_KEPT else None


def _from_brotli(body: bytes) -> bytes | None:
    """Only an agent that has one of the two libraries asks for it."""
    try:
        import brotli
    except ModuleNotFoundError:
        try:
            import brotlicffi as brotli
        except ModuleNotFoundError:
            return None
    try:
        unpacked: bytes = brotli.Decompressor().process(body)
    except brotli.error:
        return None
    return unpacked if len(unpacked) <= MOST_KEPT else None


def with_body(reply: Incoming, body: bytes, *, content_type: str | None = None) -> Incoming:
    headers = {name: value for name, value in reply.headers.items() if name not in _UNTRUE}
    if content_type is not None:
        headers["content-type"] = content_type
    return Incoming(reply.status, {**headers, "content-length": str(len(body))}, body)


def is_stream(headers: dict[str, str]) -> bool:
    return headers.get("content-type", "").lower().startswith("text/event-stream")


def json_of(body: bytes) -> Any:
    """The body as JSON; `msgspec.UNSET` where it is none."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.UNSET
