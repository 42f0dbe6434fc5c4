"""One exchange with a model, listened to: nothing is changed or held back, and what passed is told when it is over."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from bylaw.record.turns import Call, is_ended
from bylaw.wire.bodies import is_stream, json_of, unpacked
from bylaw.wire.exchange import MOST_KEPT, Exchange, Incoming
from bylaw.wire.formats.base import Json, Wire
from bylaw.wire.formats.sse import read_events

_RETRIES = "x-stainless-retry-count"
"""the header in which the clients of both providers count"""
_COUNT = re.compile(r"[0-9]{1,9}")
_LAST = re.compile(rb"data: ?\[DONE\]|event: ?(?:message_stop|response\.(?:completed|incomplete|failed))\n")
"""how the event begins that ends a stream"""


class HeardExchange(Exchange):
    """Around whatever else happens to the exchange: all that a carrier asks is answered by `inner`."""

    def __init__(
        self, inner: Exchange, wire: Wire, asked: Json, over: Callable[[HeardExchange, str | None], None]
    ) -> None:
        # INVARIANT: the attributes of Exchange are those of `inner`, so they are not set here
        self._inner = inner
        self._wire = wire
        self._asked = asked
        self._over = deque([over])
        """whoever takes it tells that the exchange is over; without a lock, which a fork might leave held"""
        self._began = time.time()
        self._clock = time.perf_counter()
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._passed = bytearray()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def head(self, status: int, headers: dict[str, str]) -> None:
        self._inner.head(status, headers)
        self._status, self._headers = status, headers

    def answer(self, reply: Incoming) -> Incoming:
        answered = self._inner.answer(reply)
        self._status, self._headers = answered.status, answered.headers
        self._keep(answered.body[: self._inner.cut_after])
        return answered

    def chunk(self, data: bytes) -> None:
        self._inner.chunk(data)
        self._keep(data)
        if self._is_last(data):
            self.end()  # before its reader has it: who knows of an answer finds it in the file

    def _keep(self, data: bytes) -> None:
        if len(self._passed) <= MOST_KEPT:
            self._passed += data

    def end(self, *, error: str | None = None) -> None:
        self._inner.end(error=error)
        self.finish(error=error)

    def finish(self, *, error: str | None = None) -> None:
        """For whoever listens it is over, whatever the exchange itself still does."""
        try:
            over = self._over.pop()
        except IndexError:
            return
        over(self, error)

    def _is_last(self, data: bytes) -> bool:
        """Whether nothing can follow this piece, as far as that can be told from it."""
        length = self._headers.get("content-length", "")
        if length.isascii() and length.isdigit():
            return length == str(len(self._passed))  # a number of any size, as a server may send, is not read
        if not data.endswith(b"\n\n"):
            return False
        event = self._passed.rfind(b"\n\n", 0, -2)
        return _LAST.match(self._passed, 0 if event < 0 else event + 2) is not None

    # What was heard

    def heard(self, error: str | None) -> Call:
        """An answer may be of any shape, so reading it may raise anything."""
        given = self._inner.reply
        if self._status is None and given is not None:  # a fault answered instead of the server
            self._status, self._headers, self._passed = given.status, given.headers, bytearray(given.body)
        reply, is_whole, unread = self._read()
        retries = self._inner.request.headers.get(_RETRIES, "")
        return Call(
            wire=self._wire,
            asked=self._asked,
            reply=reply,
            began=self._began,
            ended=time.time(),
            latency_ms=(time.perf_counter() - self._clock) * 1000,
            is_whole=is_whole,
            status=self._status,
            error=error or unread,
            attempt=int(retries) + 1 if _COUNT.fullmatch(retries) else None,
        )

    def _read(self) -> tuple[Json | None, bool, str | None]:
        """The answer, whether it is whole, and else what was read instead of one."""
        if self._status is None:
            return None, False, None
        if len(self._passed) > MOST_KEPT:
            return None, False, f"the answer is larger than {MOST_KEPT >> 20} MB"
        body = unpacked(Incoming(self._status, self._headers, bytes(self._passed)))
        if body is None:
            encoding = self._headers.get("content-encoding", "")
            return None, False, f"the answer is packed in a way that cannot be read: `{encoding[:50]}`"
        if self._status >= 400:
            return None, False, _error_in(body)
        if is_stream(self._headers) or body.lstrip()[:6] in (b"data: ", b"event:"):
            return self._read_stream(body)
        reply = json_of(body)
        if isinstance(reply, dict) and "error" in reply and not _is_answer(reply):
            return None, False, _error_in(body)
        return (reply, True, None) if isinstance(reply, dict) else (None, False, None)

    def _read_stream(self, body: bytes) -> tuple[Json | None, bool, str | None]:
        events = read_events(body)
        reply = self._wire.collected(events)
        told = next((event.data for event in events if _tells_error(event.json)), None)
        error = None if told is None else _error_in(told.encode())
        if reply is None:
            return None, False, error
        return reply, error is None and is_ended(self._wire, reply), error


def _is_answer(reply: Json) -> bool:
    """OpenAI's Responses have an `error` in every answer, which is mostly null."""
    return any(key in reply for key in ("choices", "output", "content"))


def _tells_error(told: Any) -> bool:
    return isinstance(told, dict) and (told.get("type") == "error" or isinstance(told.get("error"), dict))


def _error_in(body: bytes) -> str | None:
    """What a provider says went wrong: `rate_limit_error: too many requests`."""
    told = json_of(body)
    error = told.get("error", told) if isinstance(told, dict) else None
    if isinstance(error, dict):
        parts = (error.get("type") or error.get("code"), error.get("message"))
        text = ": ".join(part for part in parts if isinstance(part, str) and part)
    else:
        text = error if isinstance(error, str) else body.decode("utf-8", "replace")
    return " ".join(text.split()) or None
