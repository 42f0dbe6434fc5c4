"""One recording, from its first line to its last.

INVARIANT: nothing that goes wrong here reaches the agent. What could not be written is logged, counted, and the end of
the recording says that it is not complete; where even that cannot be written, its absence says so.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
import weakref
from collections.abc import Callable
from typing import Any

import msgspec

from bylaw.errors import BylawError
from bylaw.record.exchange import HeardExchange
from bylaw.record.file import RecordFile
from bylaw.record.ids import hide_ids
from bylaw.record.turns import Call, lines_of
from bylaw.traces.formats.bylaw.wire import Line, SessionEndLine, TraceEndLine, TraceStartLine
from bylaw.wire.exchange import Exchange
from bylaw.wire.formats import model_call
from bylaw.wire.values import one_line

_log = logging.getLogger("bylaw")
_MOST_KNOWN = 10_000
_MOST_SESSIONS = 1_000
_PATIENCE = 10.0
"""seconds that the end of a recording waits for turns that other threads are writing"""
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
        self._known: dict[str, set[str]] = {}
        """by session: the calls whose results were told"""
        self._is_closing = False
        self._ends: set[str] = set()
        """sessions that end with the recording"""
        self._start()
        self.file = RecordFile(path, durable=durable)
        try:
            self.file.append([TraceStartLine(recording=self.id, redacted=redact is not None)])
        except BaseException:
            self.file.close()
            raise
        _all.add(self)

    def _start(self) -> None:
        # One lock, and re-entrant: a reply that is thrown away may be ended by the garbage collector, anywhere.
        self._lock = threading.Condition(threading.RLock())
        self._under_way: set[HeardExchange] = set()
        """until what was heard is written"""

    def begin_in_child(self) -> None:
        """Called in a forked child, by its only thread; what was under way is the parent's to write."""
        self._start()
        self.file.reopen()

    def listen(self, exchange: Exchange, *, session: str | None = None) -> Exchange:
        """The exchange, heard where it is one with a model; `session`: other than that of the recording."""
        try:
            asked = model_call(exchange.request)
        except Exception as error:  # a body that no provider would understand either
            self._failed(error)
            return exchange
        if asked is None:
            return exchange
        heard = HeardExchange(exchange, *asked, lambda one, error: self._over(one, error, session or self.session))
        self._under_way.add(heard)
        if not self._is_closing:  # asked after it was added: whoever closes sees it, or is seen here
            return heard
        with self._lock:
            self._settled(heard)
        return exchange

    def close(self, *, complete: bool = True) -> None:
        """End it; calls still under way are written as far as they came."""
        self._is_closing = True
        for heard in list(self._under_way):
            heard.finish(error="the recording ended first")
        with self._lock:
            self._lock.wait_for(lambda: not self._under_way, timeout=_PATIENCE)
            self.is_open = False
            self.lost += len(self._under_way)
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

    def _over(self, heard: HeardExchange, error: str | None, session: str) -> None:
        if heard not in self._under_way:
            return  # begun before a fork
        try:
            call = heard.heard(error)
            with self._lock:
                if self.is_open:
                    self._write(call, session)
                self._settled(heard)
        except BaseException as problem:
            with self._lock:
                self._failed(problem)
                self._settled(heard)
            if not isinstance(problem, Exception):
                raise

    def _settled(self, heard: HeardExchange) -> None:
        """INVARIANT: under the lock in which it was counted; the end counts as lost what is still under way."""
        self._under_way.discard(heard)
        self._lock.notify_all()

    def _write(self, call: Call, session: str) -> None:
        lines = lines_of(self._shortened(call), self._known_in(session))
        for line in lines:
            line.session, line.agent = session, self._agent
        self.file.append(lines if self._redact is None else [self._redacted(line) for line in lines])
        if self._owns_session and session == self.session:
            self._ends.add(session)
        if call.reply is None:
            self.errors += 1
        else:
            self.turns += 1

    def _known_in(self, session: str) -> set[str]:
        known = self._known[session] = self._known.pop(session, set())  # the last used is the last to go
        if len(self._known) > _MOST_SESSIONS:
            del self._known[next(iter(self._known))]
        if len(known) > _MOST_KNOWN:
            known.clear()
        return known

    def _shortened(self, call: Call) -> Call:
        """What must not be written goes before the rest is cut: half of a key is not known as one."""
        if call.error is None:
            return call
        error: str = call.error if self._redact is None else self._redact(call.error)
        return msgspec.structs.replace(call, error=error[:MOST_OF_ERROR])

    def _redacted(self, line: Line) -> Any:
        assert self._redact is not None
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(line))
        hide_ids(plain, self._redact)
        kept = {key: plain[key] for key in _OURS if key in plain}
        return {**self._redact(plain), **kept}

    def _failed(self, error: BaseException) -> None:
        with self._lock:
            if not self.is_open:
                return  # its end has counted it
            self.lost += 1
            is_first = self.lost == 1
        if is_first:
            _log.error(
                "a turn cannot be recorded in `%s`, and the recording will say that it is not complete: %s",
                self.file.path,
                one_line(error),
            )


_all: weakref.WeakSet[Recording] = weakref.WeakSet()


def _begin_in_child() -> None:
    for recording in list(_all):
        if recording.is_open:
            recording.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)


def _is_text(value: str) -> bool:
    """Not what a command line becomes that is no UTF-8: every line would fail."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
