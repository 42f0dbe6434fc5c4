"""One exchange with a model that is observed: nothing is changed or delayed, and its end is reported."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from bylaw.record.turns import ModelCall, is_ended
from bylaw.wire.exchange import MOST_KEPT, Exchange, Incoming, decompress, is_stream, json_of
from bylaw.wire.formats.base import Json, WireFormat, read_events

_RETRIES = "x-stainless-retry-count"
"""the header in which the clients of both providers count retries"""
_COUNT = re.compile(r"[0-9]{1,9}")
_LAST = re.compile(rb"data: ?\[DONE\]|event: ?(?:message_stop|response\.(?:completed|incomplete|failed))\n")
"""the start of the event that ends a stream"""


class RecordedExchange(Exchange):
    """Wraps another exchange, which decides what happens."""

    def __init__(
        self, inner: Exchange, wire: WireFormat, request: Json, over: Callable[[RecordedExchange, str | None], None]
    ) -> None:
        # INVARIANT: the attributes of Exchange are read from `inner`, so they are not set here
        self._inner = inner
        self._wire = wire
        self._request = request
        self._over = deque([over])
        """whoever pops it reports the end; no lock, because a fork might leave it locked"""
        self._began = time.time()
        self._clock = time.perf_counter()
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._has_ended = False
        """the server has ended the body; else the agent stopped reading it, or the connection broke"""
        self._length: str | None = None
        """of a body in pieces, as the server announced it; as text, because it may be a number of any size"""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def head(self, status: int, headers: dict[str, str]) -> None:
        self._inner.head(status, headers)
        self._status, self._headers = status, headers
        length = headers.get("content-length", "")
        self._length = (length.lstrip("0") or "0") if length.isascii() and length.isdigit() else None

    def answer(self, reply: Incoming) -> Incoming:
        answered = self._inner.answer(reply)
        self._status, self._headers = answered.status, answered.headers
        self._store(answered.body[: self._inner.cut_after])
        self._has_ended = True
        return answered

    def chunk(self, data: bytes) -> None:
        self._inner.chunk(data)
        self._store(data)
        if self._is_last(data):
            self._has_ended = True
            self.end()  # before the reader gets it: whoever has an answer finds it in the file

    def body_end(self) -> None:
        self._inner.body_end()
        self._has_ended = True

    def _store(self, data: bytes) -> None:
        if len(self._body) <= MOST_KEPT:
            self._body += data

    def end(self, *, error: str | None = None) -> None:
        self._inner.end(error=error)
        self.finish(error=error)

    def finish(self, *, error: str | None = None) -> None:
        """Report the end to the recording, even if the exchange itself continues."""
        try:
            over = self._over.pop()
        except IndexError:
            return
        over(self, error)

    def _is_last(self, data: bytes) -> bool:
        """Whether this piece is known to be the last."""
        if self._length is not None:
            return self._length == str(len(self._body))
        if not data.endswith(b"\n\n"):
            return False
        event = self._body.rfind(b"\n\n", 0, -2)
        return _LAST.match(self._body, 0 if event < 0 else event + 2) is not None

    # The call

    def call(self, error: str | None) -> ModelCall:
        """What was observed. An answer may have any shape, so reading it may raise any exception."""
        injected = self._inner.reply
        if self._status is None and injected is not None:  # a fault answered instead of the server
            self._status, self._headers, self._body = injected.status, injected.headers, bytearray(injected.body)
        reply, is_whole, unread = self._read()
        retries = self._inner.request.headers.get(_RETRIES, "")
        return ModelCall(
            wire=self._wire,
            request=self._request,
            reply=reply,
            began=self._began,
            ended=time.time(),
            latency_ms=(time.perf_counter() - self._clock) * 1000,
            is_whole=is_whole and (error is None or is_stream(self._headers)),  # a stream has a mark at its end
            status=self._status,
            error=error or unread,
            attempt=int(retries) + 1 if _COUNT.fullmatch(retries) else None,
        )

    def _read(self) -> tuple[Json | None, bool, str | None]:
        """The answer, whether it is complete, and what was read instead of it."""
        if self._status is None:
            return None, False, None
        if len(self._body) > MOST_KEPT:
            return None, False, f"the answer is larger than {MOST_KEPT >> 20} MB"
        body = decompress(Incoming(self._status, self._headers, bytes(self._body)))
        if body is None:
            encoding = self._headers.get("content-encoding", "")
            return None, False, f"the answer is compressed in a way that cannot be read: `{encoding[:50]}`"
        if self._status >= 400:
            return None, False, _error_in(body)
        if is_stream(self._headers) or body.lstrip()[:6] in (b"data: ", b"event:"):
            return self._read_stream(body)
        reply = json_of(body)
        if isinstance(reply, dict) and "error" in reply and not _is_answer(reply):
            return None, False, _error_in(body)
        if not isinstance(reply, dict):
            return None, False, None
        # The client of a body that is shorter than announced gets an error, also if all of the JSON has come.
        is_short = self._length is not None and self._length != str(len(self._body))
        return reply, not is_short, "the connection was broken off" if is_short else None

    def _read_stream(self, body: bytes) -> tuple[Json | None, bool, str | None]:
        events = read_events(body)
        reply = self._wire.collect(events)
        failed = next((event.data for event in events if _is_error(event.json)), None)
        error = None if failed is None else _error_in(failed.encode())
        if reply is None:
            return None, False, error
        is_whole = is_ended(self._wire, reply) or any(event.data.strip() == "[DONE]" for event in events)
        if not is_whole and error is None and self._inner.cut_after is not None:
            error = "the connection was broken off"
        elif not is_whole and error is None and self._has_ended:
            error = "the server ended the stream before the answer was complete"
        return reply, error is None and is_whole, error


def _is_answer(reply: Json) -> bool:
    """OpenAI's Responses have an `error` in every answer, which is usually null."""
    return any(key in reply for key in ("choices", "output", "content"))


def _is_error(data: Any) -> bool:
    return isinstance(data, dict) and (data.get("type") == "error" or isinstance(data.get("error"), dict))


def _error_in(body: bytes) -> str | None:
    """The error that a provider reports, such as `rate_limit_error: too many requests`."""
    data = json_of(body)
    error = data.get("error", data) if isinstance(data, dict) else None
    if isinstance(error, dict):
        parts = (error.get("type") or error.get("code"), error.get("message"))
        text = ": ".join(part for part in parts if isinstance(part, str) and part)
    else:
        text = error if isinstance(error, str) else body.decode("utf-8", "replace")
    return " ".join(text.split()) or None
