"""One recording, from its first line to its last.

INVARIANT: nothing that goes wrong here reaches the agent. What could not be written is logged, counted, and the end of
the recording says that it is not complete; where even that cannot be written, its absence says so.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from bylaw.adapters.importers.formats.bylaw.wire import Line, SessionEndLine, TraceEndLine, TraceStartLine
from bylaw.adapters.live.exchanges.base import Exchange
from bylaw.adapters.live.values import one_line
from bylaw.adapters.live.wire import model_call
from bylaw.adapters.record.exchange import HeardExchange
from bylaw.adapters.record.file import RecordFile
from bylaw.adapters.record.turns import Call, lines_of
from bylaw.errors import BylawError

_log = logging.getLogger("bylaw")
_MOST_KNOWN = 10_000
MOST_OF_ERROR = 500
"""characters of what an error says"""
_OURS = ("kind", "at", "session", "agent")
"""what is written as it is: no model and no tool has said it"""


class Recording:
    """Safe to use from several threads. Raises OSError or BylawError where the file cannot be recorded to."""

    def __init__(
        self,
        path: str,
        *,
        session: str | None = None,
        agent: str | None = None,
        redact: Callable[[Any], Any] | None = None,
        durable: bool = False,
    ) -> None:
        for name, value in (("session", session), ("agent", agent)):
            if value is not None and not _is_text(value):
                raise BylawError(f"the name of the {name} is not valid text: {value!r}")
        self.id = str(uuid.uuid4())
        self.session = session or self.id
        self.turns = 0
        self.errors = 0
        """attempts to ask a model that brought no answer"""
        self.lost = 0
        """turns and errors that could not be written"""
        self.is_open = True
        self._owns_session = session is None
        self._agent = agent
        self._redact = redact
        self._lock = threading.RLock()  # a reply that is thrown away may be ended by the garbage collector, anywhere
        self._listing = threading.Lock()
        self._known: dict[str, set[str]] = {}
        """by session: the calls whose results were told"""
        self._under_way: set[HeardExchange] = set()
        self._ends: set[str] = set()
        """sessions that end with the recording"""
        self.file = RecordFile(path, durable=durable)
        try:
            self.file.append([TraceStartLine(recording=self.id, redacted=redact is not None)])
        except BaseException:
            self.file.close()
            raise

    def listen(self, exchange: Exchange, *, session: str | None = None) -> Exchange:
        """The exchange, heard where it is one with a model; `session`: other than that of the recording."""
        try:
            asked = model_call(exchange.request)
        except Exception as error:  # a body that no provider would understand either
            self._failed(error)
            return exchange
        if asked is None:
            return exchange
        heard = HeardExchange(exchange, *asked, lambda one, call: self._over(one, call, session or self.session))
        with self._listing:
            self._under_way.add(heard)
        return heard

    def close(self, *, complete: bool = True) -> None:
        """End it; calls still under way are written as far as they came."""
        with self._listing:
            waiting = list(self._under_way)
        for heard in waiting:
            heard.end(error="the recording ended first")
        with self._lock:
            self.is_open = False
        whole = complete and not self.lost
        notes = [f"{self.lost} turns could not be written"] if self.lost else []
        ends: list[Line] = [SessionEndLine(session=session, complete=whole) for session in sorted(self._ends)]
        try:
            self.file.append([*ends, TraceEndLine(recording=self.id, complete=whole, notes=notes)])
        except OSError as error:
            _log.error("the end of the recording cannot be written to `%s`: %s", self.file.path, error)
        if self.lost:
            _log.error("%d turns are missing from the recording `%s`", self.lost, self.file.path)
        self.file.close()

    def _over(self, heard: HeardExchange, call: Call, session: str) -> None:
        with self._listing:
            self._under_way.discard(heard)
        with self._lock:
            if not self.is_open:
                return
            try:
                self._write(call, session)
            except Exception as error:
                self._failed(error)

    def _write(self, call: Call, session: str) -> None:
        known = self._known.setdefault(session, set())
        if len(known) > _MOST_KNOWN:
            known.clear()
        lines = lines_of(self._shortened(call), known)
        for line in lines:
            line.session, line.agent = session, self._agent
        self.file.append(lines if self._redact is None else [self._redacted(line) for line in lines])
        if self._owns_session and session == self.session:
            self._ends.add(session)
        if call.reply is None:
            self.errors += 1
        else:
            self.turns += 1

    def _shortened(self, call: Call) -> Call:
        """What must not be written goes before the rest is cut: half of a key is not known as one."""
        if call.error is None:
            return call
        error: str = call.error if self._redact is None else self._redact(call.error)
        return msgspec.structs.replace(call, error=error[:MOST_OF_ERROR])

    def _redacted(self, line: Line) -> Any:
        assert self._redact is not None
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(line))
        kept = {key: plain[key] for key in _OURS if key in plain}
        return {**self._redact(plain), **kept}

    def _failed(self, error: Exception) -> None:
        self.lost += 1
        if self.lost == 1:
            _log.error(
                "a turn cannot be recorded in `%s`, and the recording will say that it is not complete: %s",
                self.file.path,
                one_line(error),
            )


def _is_text(value: str) -> bool:
    """Not what a command line becomes that is no UTF-8: every line would fail."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
