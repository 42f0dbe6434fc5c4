"""One recording, from its first line to its last, and its file.

INVARIANT: nothing that goes wrong here reaches the agent. A turn that cannot be written is logged and counted, and the
end of the recording says that it is incomplete. If even that cannot be written, the missing end says so.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from bylaw.errors import BylawError
from bylaw.model.canonical import prepared
from bylaw.record.frameworks import mark_carried
from bylaw.record.turns import ModelCall, RecordedExchange, lines_of
from bylaw.traces.formats.bylaw.lines import VERSION, Header, Line, SessionEndLine, TraceEndLine, TraceStartLine
from bylaw.wire.exchange import Exchange, Incoming, Outgoing, decompress
from bylaw.wire.formats import is_unread_call, model_call
from bylaw.wire.values import one_line

_log = logging.getLogger("bylaw")
_MOST_KNOWN = 10_000
_MOST_SESSIONS = 1_000
_PATIENCE = 10.0
"""seconds that the end of a recording waits for turns that other threads are writing"""
MOST_OF_ERROR = 500
"""characters of an error message"""
_UNREDACTED = ("kind", "at", "session", "agent")
"""fields that are written as they are, because they come from neither a model nor a tool"""


class Recording:
    """Thread-safe. Raises OSError or BylawError if the file cannot be recorded to."""

    def __init__(
        self,
        path: str,
        *,
        session: str | None = None,
        agent: str | None = None,
        redact: Callable[[Any], Any] | None = None,
        durable: bool = False,
        part_of: str | None = None,
    ) -> None:
        """`part_of`: the id of the recording in another process that begins and ends for this one as well."""
        for name, value in (("session", session), ("agent", agent)):
            if value is not None and not _is_text(value):
                raise BylawError(f"the name of the {name} is not valid text: {value!r}")
        self.id = part_of or str(uuid.uuid4())
        self._is_part = part_of is not None
        self.session = session or self.id
        self.turns = 0
        self.errors = 0
        """attempts to ask a model that got no answer"""
        self.lost = 0
        """turns and errors that could not be written"""
        self.is_open = True
        self._owns_session = session is None
        self._agent = agent
        self._redact = redact
        self._known: dict[str, set[str]] = {}
        """for each session: the calls whose results were written"""
        self._is_closing = False
        self._ends: set[str] = set()
        """sessions that end with the recording"""
        self._start()
        self.file = RecordFile(path, durable=durable)
        try:
            if not self._is_part:
                self.file.append([TraceStartLine(recording=self.id, redacted=redact is not None)])
        except BaseException:
            self.file.close()
            raise
        _all.add(self)

    def _start(self) -> None:
        # Re-entrant, because the garbage collector may end a discarded reply anywhere.
        self._lock = threading.Condition(threading.RLock())
        self._unfinished: set[RecordedExchange] = set()
        """exchanges that are not written yet"""

    def begin_in_child(self) -> None:
        """Called in a forked child, by its only thread. The parent writes what was unfinished at the fork."""
        self._start()
        self.file.reopen()

    def listen(self, exchange: Exchange, *, session: str | None = None) -> Exchange:
        """The exchange, which is recorded if it asks a model. `session`: if it is not that of the recording."""
        try:
            model_request = model_call(_decompress_request(exchange.request))
        except Exception as error:  # a body that no provider would accept either
            self._report_failure(error)
            return exchange
        if model_request is None:
            if is_unread_call(exchange.request):
                self._report_failure(ValueError("the request to the model cannot be read as JSON"))
            return exchange
        mark_carried()
        recorded = RecordedExchange(
            exchange, *model_request, lambda one, error: self._finish(one, error, session or self.session)
        )
        self._unfinished.add(recorded)
        if not self._is_closing:  # checked after it was added: either `close` sees it, or this sees `close`
            return recorded
        with self._lock:
            self._discard(recorded)
        return exchange

    def add(self, call: ModelCall | Exception, *, session: str | None = None) -> None:
        """A call that no HTTP carried, or why it cannot be recorded."""
        try:
            if isinstance(call, Exception):
                raise call
            with self._lock:
                if self.is_open:
                    self._write(call, session or self.session)
        except Exception as problem:
            self._report_failure(problem)

    def add_counts(self, turns: int, errors: int, lost: int) -> None:
        """Count what parts of it in other processes wrote, or lost."""
        with self._lock:
            self.turns += turns
            self.errors += errors
            self.lost += lost
            if self._owns_session and turns + errors:
                self._ends.add(self.session)

    def close(self, *, complete: bool = True) -> None:
        """End it. Unfinished calls are written as far as they came."""
        self._is_closing = True
        for exchange in list(self._unfinished):
            exchange.finish(error="the recording ended first")
        with self._lock:
            self._lock.wait_for(lambda: not self._unfinished, timeout=_PATIENCE)
            self.is_open = False
            self.lost += len(self._unfinished)
        if self._is_part:
            self.file.close()
            return
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

    def _finish(self, exchange: RecordedExchange, error: str | None, session: str) -> None:
        if exchange not in self._unfinished:
            return  # begun before a fork
        try:
            call = exchange.call(error)
            with self._lock:
                if self.is_open:
                    self._write(call, session)
                self._discard(exchange)
        except BaseException as problem:
            with self._lock:
                self._report_failure(problem)
                self._discard(exchange)
            if not isinstance(problem, Exception):
                raise

    def _discard(self, exchange: RecordedExchange) -> None:
        """INVARIANT: under the lock in which it was counted, because `close` counts unfinished exchanges as lost."""
        self._unfinished.discard(exchange)
        self._lock.notify_all()

    def _write(self, call: ModelCall, session: str) -> None:
        lines = lines_of(self._shorten_call(call), self._known_calls(session))
        for line in lines:
            line.session, line.agent = session, self._agent
        self.file.append(lines if self._redact is None else [self._redact_line(line) for line in lines])
        if self._owns_session and session == self.session:
            self._ends.add(session)
        if call.reply is None:
            self.errors += 1
        else:
            self.turns += 1

    def _known_calls(self, session: str) -> set[str]:
        known = self._known[session] = self._known.pop(session, set())  # the most recently used is dropped last
        if len(self._known) > _MOST_SESSIONS:
            del self._known[next(iter(self._known))]
        if len(known) > _MOST_KNOWN:
            known.clear()
        return known

    def _shorten_call(self, call: ModelCall) -> ModelCall:
        """Redact before cutting, because half of a key is not recognised as one."""
        if call.error is None:
            return call
        error: str = call.error if self._redact is None else self._redact(call.error)
        return msgspec.structs.replace(call, error=error[:MOST_OF_ERROR])

    def _redact_line(self, line: Line) -> Any:
        assert self._redact is not None
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(line))
        redact_ids(plain, self._redact)
        unredacted = {key: plain[key] for key in _UNREDACTED if key in plain}
        return {**self._redact(plain), **unredacted}

    def _report_failure(self, error: BaseException) -> None:
        with self._lock:
            if not self.is_open:
                return  # `close` has counted it
            self.lost += 1
            is_first = self.lost == 1
        if is_first:
            _log.error(
                "a turn cannot be recorded in `%s`, so the recording will be marked as incomplete: %s",
                self.file.path,
                one_line(error),
            )


def _decompress_request(request: Outgoing) -> Outgoing:
    """Some clients compress their requests."""
    if not request.headers.get("content-encoding"):
        return request
    body = decompress(Incoming(0, request.headers, request.body))
    return Outgoing(request.method, request.url, request.headers, request.body if body is None else body)


_all: weakref.WeakSet[Recording] = weakref.WeakSet()


def _begin_in_child() -> None:
    for recording in list(_all):
        if recording.is_open:
            recording.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)


def _is_text(value: str) -> bool:
    """Whether it can be encoded. A command line that is not UTF-8 cannot, and every line would fail."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


# Ids of calls that contain something to redact

_DIGEST_SIZE = 4
"""bytes; enough to distinguish the calls of a session, too few to find out the redacted value"""
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
"""digits could look like a number that must be redacted"""


def redact_ids(line: dict[str, Any], redact: Callable[[Any], Any]) -> None:
    """Replace each id that would be redacted by a digest, in place, so that results still refer to their calls."""
    for holder, key in _id_places(line):
        found = holder.get(key)
        if isinstance(found, str) and redact(found) != found:
            digest = blake2b(found.encode(), digest_size=_DIGEST_SIZE).hexdigest()
            holder[key] = f"redacted_{digest.translate(_LETTERS)}"


def _id_places(line: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    yield line, "call_id"
    yield from _ids_in_blocks(line.get("content"))
    for message in _objects(line.get("messages")):
        yield message, "tool_call_id"
        for call in _objects(message.get("tool_calls")):
            yield call, "id"
        yield from _ids_in_blocks([message])
        yield from _ids_in_blocks(message.get("content"))


def _ids_in_blocks(blocks: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Ids deeper inside belong to a tool's own data and are not ids of calls."""
    for block in _objects(blocks):
        yield block, "call_id"
        yield block, "tool_use_id"
        if "name" in block:
            yield block, "id"


def _objects(values: Any) -> Iterator[dict[str, Any]]:
    return (one for one in values if isinstance(one, dict)) if isinstance(values, list) else iter(())


# The file of a recording: complete lines, appended by any number of processes
#
# Lines that belong together are one `write` on a descriptor in append mode. So writers do not mix their lines, and a
# kill leaves at most one torn line, at the end. Every writer holds a shared lock. A process that gets the lock
# exclusively knows that no other process writes, and removes a torn line. The first one to get it writes the header.

_HEADER = msgspec.json.encode(Header(VERSION, complete="marked")) + b"\n"
BLOCK = 64 * 1024
_PRIVATE = 0o600
"""only the owner may read a recording"""
_TRIES = 1000
"""attempts to begin a file, a millisecond apart"""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class NotARecording(BylawError):
    """The file holds something else, which must not be overwritten."""


class RecordFile:
    """Raises OSError if the file cannot be opened, NotARecording if it must not be written."""

    def __init__(self, path: str, *, durable: bool = False) -> None:
        if path.endswith((".gz", ".zst")):
            raise NotARecording(f"a recording is written as plain JSON lines, not compressed: `{path}`")
        self.path = path
        self._durable = durable
        self._place = os.path.abspath(path)
        self._lock = threading.RLock()
        self._torn = False
        """whether the last write stopped in the middle of a line"""
        self._descriptor = os.open(path, _FLAGS | os.O_CREAT, _PRIVATE)
        try:
            found = os.fstat(self._descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise NotARecording(f"`{path}` is not a regular file")
            self.identity = (found.st_dev, found.st_ino)
            """identifies the file under any name"""
            self._prepare()
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, lines: Sequence[Struct | dict[str, Any]]) -> None:
        """Append all lines or, as far as the operating system reports, none. Raises OSError."""
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        with self._lock:
            self._write(b"\n" + data if self._torn else data)
            if self._durable:
                os.fsync(self._descriptor)

    def reopen(self) -> None:
        """Open the file again in a forked child, which must share neither position nor lock with its parent. A file
        that was deleted stays shared."""
        self._lock = threading.RLock()
        try:
            own = os.open(self._place, _FLAGS)
        except OSError:
            return
        found = os.fstat(own)
        if (found.st_dev, found.st_ino) == self.identity:
            os.dup2(own, self._descriptor, inheritable=False)
            try_lock(self._descriptor, fcntl.LOCK_SH)
        os.close(own)

    def close(self) -> None:
        with self._lock:
            os.close(self._descriptor)

    def _write(self, data: bytes) -> None:
        written = os.write(self._descriptor, data)
        if written == len(data):
            self._torn = False
            return
        self._torn = not self._take_back(written)
        raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes could be written", self.path)

    def _take_back(self, written: int) -> bool:
        """Remove a torn line, but only if no other process can have written after it."""
        end = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        alone = try_lock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        alone = alone and os.fstat(self._descriptor).st_size == end  # another process may have written and ended
        if alone:
            os.ftruncate(self._descriptor, end - written)
        try_lock(self._descriptor, fcntl.LOCK_SH)
        return alone

    # Opening

    def _prepare(self) -> None:
        for _ in range(_TRIES):
            if self._is_begun():
                break
            if try_lock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
                self._mend()
                if os.fstat(self._descriptor).st_size == 0:
                    os.write(self._descriptor, _HEADER)
            if not try_lock(self._descriptor, fcntl.LOCK_SH) and os.fstat(self._descriptor).st_size == 0:
                os.write(self._descriptor, _HEADER)  # a file system without locks
            time.sleep(0.001)
        else:
            raise NotARecording(f"`{self.path}` is torn in its first line; record to another file")
        if try_lock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
            self._mend()
        try_lock(self._descriptor, fcntl.LOCK_SH)
        size = os.fstat(self._descriptor).st_size
        self._torn = os.pread(self._descriptor, 1, size - 1) != b"\n"

    def _is_begun(self) -> bool:
        """Whether it starts with the header of a recording. Raises NotARecording if it starts with anything else."""
        first, newline, _ = os.pread(self._descriptor, BLOCK, 0).partition(b"\n")
        if not newline and _HEADER.startswith(first):
            return False  # empty, or the process was killed in the first line
        try:
            header = msgspec.json.decode(first, type=prepared(Header))
        except (msgspec.DecodeError, UnicodeDecodeError):
            header = None
        if header is None or header.bylaw != VERSION:
            raise NotARecording(f"`{self.path}` exists and is not a recording of Bylaw; record to another file")
        if header.resolved or header.complete != "marked":
            raise NotARecording(f"`{self.path}` is a finished trace; record to another file")
        return True

    def _mend(self) -> None:
        """Remove a line that a killed process left torn. INVARIANT: nobody else has the file open for writing."""
        end = size = os.fstat(self._descriptor).st_size
        while end:
            start = max(0, end - BLOCK)
            at = os.pread(self._descriptor, end - start, start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            os.ftruncate(self._descriptor, end)


def try_lock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES, *_NO_LOCKS):
            return False
        raise
    return True
