"""One HTTP exchange of an agent, and the bodies of its messages.

The carrier of an exchange (a patched library or the proxy) follows these steps. It waits `delay` seconds. Then it
fails as `fails` says, or answers `reply`, or sends `request`. If `buffers` is set it reads the whole reply and calls
`answer`, which may set `fails`; otherwise it calls `head` once, `chunk` for each piece, and `body_end` if the server
has ended the body. It lets the body take `body_seconds`, breaks the connection after `cut_after` bytes of it, and
always calls `end`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from bylaw.wire.values import without_surrogates

MOST_KEPT = 10 * 1024 * 1024
"""bytes of a body that are recorded at most"""


Breakdown: TypeAlias = Literal["timeout", "cut", "reset", "dns"]
"""no reply in time, a connection that ends, one that is reset, a name that is not found"""


class Outgoing(Struct, frozen=True):
    """A request of the agent. Header names are in lower case."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes


class Incoming(Struct, frozen=True):
    """A reply to the agent. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Exchange:
    """Passes everything on unchanged. Subclasses observe or change it."""

    def __init__(self, request: Outgoing) -> None:
        self.request = request
        """the request to send, which may differ from the agent's own"""
        self.delay = 0.0
        """seconds to wait before anything is sent or answered"""
        self.fails: Breakdown | None = None
        """after the delay, or once `answer` has set it: fail like this"""
        self.late = Incoming(504, {"content-type": "application/json"}, b'{"error":"gateway timeout"}')
        """the reply that stands for a timeout where none can be raised"""
        self.reply: Incoming | None = None
        """answer this without asking the server"""
        self.buffers = False
        """the whole reply must be read and passed to `answer`"""
        self.first_byte_delay = 0.0
        """seconds to wait before the first byte of the reply's body"""
        self.cut_after: int | None = None
        """break the connection after this many bytes of the answered body; final once `answer` was called"""
        self.body_seconds = 0.0
        """seconds over which the answered body arrives in pieces; final once `answer` was called"""

    def head(self, status: int, headers: dict[str, str]) -> None:
        """Not buffered: the reply has begun."""

    def answer(self, reply: Incoming) -> Incoming:
        """Buffered: the reply to give instead of the server's."""
        return reply

    def chunk(self, data: bytes) -> None:
        """Not buffered: a piece of the reply's body has passed."""

    def body_end(self) -> None:
        """Not buffered: the server has ended the body, and all of it has passed."""

    def end(self, *, error: str | None = None) -> None:
        """The exchange is over, with or without an error. Only the first call counts."""


def origin_of(url: str) -> str:
    """Scheme, host and port, without a user and a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


# Bodies

_BODY_HEADERS = ("content-encoding", "content-length", "transfer-encoding", "etag", "content-md5", "digest")
"""headers that describe the bytes of a body, and are wrong for other bytes"""
_PIECE = 64 * 1024
_BROTLI_PIECE = 64
"""bytes that are expanded at once: a few of them may stand for megabytes, and not every version takes a bound"""
_ZLIB_WINDOWS = {"gzip": (31,), "x-gzip": (31,), "deflate": (15, -15)}


def refuse_compression(request: Outgoing) -> Outgoing:
    """The request, asking for a reply that is not compressed."""
    return Outgoing(request.method, request.url, {**request.headers, "accept-encoding": "identity"}, request.body)


def decompress(reply: Incoming, *, whole: bool = False) -> bytes | None:
    """The body before compression; None if the encoding is unknown, the data is broken or the result is too large.

    `whole`: also None if the data is cut off.
    """
    body: bytes | None = reply.body
    names = [name.strip() for name in reply.headers.get("content-encoding", "").lower().split(",")]
    for name in reversed(names[:_MOST_ENCODINGS]):  # the last one was applied last
        body = None if body is None else _decompress(name, body, whole=whole)
    return body if len(names) <= _MOST_ENCODINGS else None


_MOST_ENCODINGS = 3


def _decompress(encoding: str, data: bytes, *, whole: bool) -> bytes | None:
    if encoding in ("", "identity"):
        return data
    if encoding == "zstd":
        return _decompress_zstd(data, whole=whole)
    if encoding == "br":
        return _decompress_brotli(data, whole=whole)
    for window in _ZLIB_WINDOWS.get(encoding, ()):
        try:
            decompressor = zlib.decompressobj(window)
            body = decompressor.decompress(data, MOST_KEPT)
        except zlib.error:
            continue
        return None if decompressor.unconsumed_tail or (whole and not decompressor.eof) else body
    return None


def _decompress_zstd(data: bytes, *, whole: bool) -> bytes | None:
    import zstandard

    body = bytearray()
    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
            while len(body) <= MOST_KEPT and (piece := reader.read(_PIECE)):
                body += piece
    except zstandard.ZstdError:
        return None
    return None if len(body) > MOST_KEPT or (whole and not _is_whole_zstd(data)) else bytes(body)


def _is_whole_zstd(data: bytes) -> bool:
    """Whether the last frame is complete. INVARIANT: the data is known to be small, because all of it is expanded."""
    import zstandard

    try:
        while data:
            frame = zstandard.ZstdDecompressor().decompressobj()
            for at in range(0, len(data), _PIECE):
                frame.decompress(data[at : at + _PIECE])
                if frame.eof:
                    data = frame.unused_data + data[at + _PIECE :]
                    break
            else:
                return False
    except zstandard.ZstdError:
        return False
    return True


def _decompress_brotli(data: bytes, *, whole: bool) -> bytes | None:
    """An agent asks for Brotli only if it has one of the two libraries installed."""
    try:
        import brotli
    except ModuleNotFoundError:
        try:
            import brotlicffi as brotli
        except ModuleNotFoundError:
            return None
    decompressor = brotli.Decompressor()
    body = bytearray()
    try:
        for at in range(0, len(data), _BROTLI_PIECE):
            body += decompressor.process(data[at : at + _BROTLI_PIECE])
            if len(body) > MOST_KEPT:
                return None
    except brotli.error:
        return None
    return bytes(body) if decompressor.is_finished() or not whole else None


def replace_body(reply: Incoming, body: bytes, *, content_type: str | None = None) -> Incoming:
    """The reply with another body and headers that fit it."""
    headers = {name: value for name, value in reply.headers.items() if name not in _BODY_HEADERS}
    if content_type is not None:
        headers["content-type"] = content_type
    return Incoming(reply.status, {**headers, "content-length": str(len(body))}, body)


def json_reply(status: int, body: Any, headers: dict[str, str] | None = None) -> Incoming:
    return Incoming(status, {"content-type": "application/json", **(headers or {})}, msgspec.json.encode(body))


def is_stream(headers: dict[str, str]) -> bool:
    return headers.get("content-type", "").lower().startswith("text/event-stream")


def json_of(body: bytes | str) -> Any:
    """The body as JSON; `msgspec.UNSET` if it is not JSON. Half an escaped surrogate pair becomes U+FFFD.

    Clients also read a mark of the byte order, UTF-16 and `NaN`, so these are JSON here too.
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        # Providers and agents cut texts in the middle of a pair, and send what msgspec refuses.
        data = (body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body).lstrip()
    if not data.startswith(_JSON_STARTS):
        return msgspec.UNSET  # most texts that are no JSON, without the work
    try:
        return without_surrogates(json.loads(data))
    except (ValueError, RecursionError):
        return msgspec.UNSET


_JSON_STARTS = (b"{", b"[", b'"', b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x00")
"""the others are marks of the byte order, and UTF-16 without one"""


# Bodies that arrive slowly: in pieces, with a pause before each

_PIECES = 10


class BodyPace:
    """How slowly a body arrives, and what its reader does if a pause is longer than the reader waits."""

    def __init__(self, seconds: float, read_timeout: float | None, late: Callable[[], Exception]) -> None:
        self._seconds = seconds
        self._read_timeout = read_timeout
        self._late = late

    def pieces(self, body: bytes, wait: Callable[[float], None]) -> Iterator[bytes]:
        for pause, piece in self._schedule_pieces(body):
            wait(pause)
            yield self._in_time(piece)

    async def apieces(self, body: bytes) -> AsyncIterator[bytes]:
        import asyncio

        for pause, piece in self._schedule_pieces(body):
            await asyncio.sleep(pause)
            yield self._in_time(piece)

    def _schedule_pieces(self, body: bytes) -> Iterator[tuple[float, bytes | None]]:
        """Each piece with the pause before it; None for the one that the reader does not wait for."""
        size = max(1, -(-len(body) // _PIECES))
        starts = range(0, len(body), size)
        pause = self._seconds / max(1, len(starts))
        if self._read_timeout is not None and pause > self._read_timeout:
            yield self._read_timeout, None
            return
        yield from ((pause, body[start : start + size]) for start in starts)

    def _in_time(self, piece: bytes | None) -> bytes:
        if piece is None:
            raise self._late()
        return piece
