"""`bylaw.record`: record the calls of an agent in this process to its models, with their answers.

Code carries its recordings in a context variable, which tasks inherit. Threads that it starts, and work that it submits
to a pool of threads, get them too. Of several recordings to one file only the innermost writes, so that a call is
written once. A call of code that carries none, as in a thread that was started before, belongs to the outermost
recording. If there are several of those, each file gets it, in the session `unassigned`.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from os import PathLike
from types import TracebackType
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from bylaw.model.canonical import prepared
from bylaw.record.frameworks import FRAMEWORKS, carried, mark_carried, set_writer
from bylaw.record.recording import Recording
from bylaw.record.turns import ModelCall
from bylaw.text.redaction.redactor import recording_redactor
from bylaw.wire.exchange import Exchange
from bylaw.wire.formats import model_call
from bylaw.wire.listeners import Listener, set_listeners
from bylaw.wire.patch_on_import import LIBRARIES

F = TypeVar("F", bound=Callable[..., Any])


class record:
    """Record every call to a model that is made inside, to a file that `bylaw check` reads.

        with bylaw.record("run.jsonl"):
            agent.run("refund order 17")

    Recorded are calls of the clients of OpenAI (chat completions and Responses) and Anthropic (messages), and calls to
    any server with the same API, through httpx, requests, urllib3, http.client or aiohttp. Works with `async with` too,
    and as `@bylaw.record(…)` on a function, which records each of its calls. Turns are appended to an existing
    recording; several processes may append at the same time.

    `session`: what the turns belong to, such as the id of a conversation; by default a new session. `agent`: the name
    of the agent. `redact=False` writes secrets and personal data too; `patterns` adds patterns to redact, each a name
    and an RE2 pattern. `durable` waits for the disk after every turn.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        session: str | None = None,
        agent: str | None = None,
        redact: bool = True,
        patterns: Mapping[str, str] | None = None,
        durable: bool = False,
    ) -> None:
        if patterns and not redact:
            raise ValueError("patterns=… has no effect with redact=False")
        for name, value in (("session", session), ("agent", agent)):
            if value == "" or not isinstance(value, str | None):
                raise ValueError(f"{name}={value!r}: expected text that is not empty")
        self.path = os.fspath(path)
        if not isinstance(self.path, str):
            raise TypeError(f"path={path!r}: expected text or a path")
        self._settings: dict[str, Any] = {
            "session": session,
            "agent": agent,
            "redact": recording_redactor(patterns) if redact else None,
            "durable": durable,
        }
        self._recording: Recording | None = None

    @property
    def session(self) -> str | None:
        """The session of the turns. If you gave none, it is known once the recording has begun."""
        session: str | None = self._settings["session"]
        return self._recording.session if self._recording is not None else session

    @property
    def turns(self) -> int:
        """How many turns were written."""
        return self._recording.turns if self._recording is not None else 0

    @property
    def errors(self) -> int:
        """How many requests to a model got no answer."""
        return self._recording.errors if self._recording is not None else 0

    @property
    def lost(self) -> int:
        """How many turns could not be written. If there are any, the file says that it is incomplete."""
        return self._recording.lost if self._recording is not None else 0

    def __enter__(self) -> record:
        if self._recording is not None and self._recording.is_open:
            raise RuntimeError("this recording has begun already; call `bylaw.record(…)` again for another")
        self._recording = Recording(self.path, **self._settings)
        begin_recording(self._recording)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._recording is not None
        _leave(self._recording)
        self._recording.close(complete=kind is None)

    async def __aenter__(self) -> record:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __call__(self, function: F) -> F:
        """Use it as a decorator: each call of the function is a recording of its own."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"`{function.__name__}` is a generator; use `with bylaw.record(…)` inside it")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def recorded_async(*args: Any, **kwargs: Any) -> Any:
                with self._copy():
                    return await function(*args, **kwargs)

            return recorded_async  # type: ignore[return-value]

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            with self._copy():
                return function(*args, **kwargs)

        return recorded  # type: ignore[return-value]

    def _copy(self) -> record:
        other = object.__new__(type(self))
        other.path, other._settings, other._recording = self.path, self._settings, None
        return other


# Which recordings observe a call

UNASSIGNED = "unassigned"
_scope: ContextVar[tuple[Recording, ...]] = ContextVar("bylaw_recordings", default=())
"""from the outermost to the innermost"""
_roots: list[Recording] = []
"""those that are not inside another"""
_open: list[Recording] = []
_lock = threading.Lock()


def begin_recording(recording: Recording) -> None:
    """Record the code from here on. If that fails, the recording is closed."""
    try:
        LIBRARIES.open()
        try:
            FRAMEWORKS.open()
        except BaseException:
            LIBRARIES.close()
            raise
    except BaseException:
        recording.close(complete=False)
        raise
    around = _current_recordings()
    with _lock:
        if not around:
            _roots.append(recording)
        _open.append(recording)
        set_listeners(_listeners, _wrap_for_thread)
        set_writer(_write)
    _scope.set((*around, recording))


def _leave(recording: Recording) -> None:
    """May be called in another context than `begin_recording`, where a closed recording is ignored."""
    _scope.set(tuple(one for one in _scope.get() if one is not recording))
    with _lock:
        if recording in _roots:
            _roots.remove(recording)
        _open.remove(recording)
        if not _open:
            set_listeners(None, None)
            set_writer(None)
        FRAMEWORKS.close()
        LIBRARIES.close()


def _current_recordings() -> tuple[Recording, ...]:
    return tuple(recording for recording in _scope.get() if recording.is_open)


def _recordings() -> list[tuple[Recording, str | None]]:
    """The recordings of the calling code, and the session if it is not that of the recording."""
    scope = _current_recordings()
    if scope:
        return [(one, None) for one in {recording.file.identity: recording for recording in scope}.values()]
    with _lock:
        roots = {recording.file.identity: recording for recording in _roots}
        return [(recording, None if len(_roots) <= 1 else UNASSIGNED) for recording in roots.values()]


def _listeners() -> Sequence[Listener]:
    return [functools.partial(recording.listen, session=session) for recording, session in _recordings()]


def _write(call: ModelCall | Exception) -> None:
    for recording, session in _recordings():
        recording.add(call, session=session)


def _wrap_for_thread(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the recordings of the calling code; also if there are none, because the thread may still carry
    those of earlier work."""
    scope, asking = _scope.get(), carried.get()

    @functools.wraps(function, updated=())
    def run(*args: Any, **kwargs: Any) -> Any:
        tokens = _scope.set(scope), carried.set(asking)
        try:
            return function(*args, **kwargs)
        finally:
            _scope.reset(tokens[0])
            carried.reset(tokens[1])

    return run


def _free_lock() -> None:
    """Release the lock in a forked child, where the thread that held it does not exist."""
    if _lock.locked():
        _lock.release()


os.register_at_fork(after_in_child=_free_lock)


# A process of a command that `bylaw record` runs: models of its frameworks, which no HTTP carries, are recorded here
#
# `startup_hook` begins it. The calls are appended to the file of `bylaw record`, as a part of its recording; a log
# beside it tells `bylaw record` how many there were.

SETTINGS, LOG = "BYLAW_RECORD_SETTINGS", "BYLAW_RECORD_LOG"


class Settings(Struct, frozen=True):
    """The environment variables by which the processes of a command find the recording."""

    path: str
    session: str
    recording: str
    agent: str | None = None
    redacts: bool = True
    patterns: dict[str, str] = {}
    durable: bool = False


def begin_part() -> Any:
    """Record the frameworks of this process until it ends. Returns the finder that patches them on import."""
    settings = msgspec.json.decode(os.environ[SETTINGS], type=prepared(Settings))
    begin_recording(_ChildRecording(settings, os.environ[LOG]))
    return FRAMEWORKS.finder


class _ChildRecording(Recording):
    """A part of the recording of `bylaw record`, whose proxy records what HTTP carries."""

    def __init__(self, settings: Settings, log: str) -> None:
        super().__init__(
            settings.path,
            session=settings.session,
            agent=settings.agent,
            redact=recording_redactor(settings.patterns) if settings.redacts else None,
            durable=settings.durable,
            part_of=settings.recording,
        )
        self._log = log

    def listen(self, exchange: Exchange, *, session: str | None = None) -> Exchange:
        if model_call(exchange.request) is not None:
            mark_carried()
        return exchange

    def add(self, call: ModelCall | Exception, *, session: str | None = None) -> None:
        """Nothing is written once `bylaw record` has ended: then the log is gone, and its recording has its end."""
        try:
            with self._lock, open(os.open(self._log, os.O_WRONLY | os.O_APPEND), "w") as log:
                before = self.turns, self.errors
                super().add(call, session=session)
                kind = "turn" if self.turns > before[0] else "error" if self.errors > before[1] else "lost"
                log.write(f"{kind}\n")
        except FileNotFoundError:
            pass
        except OSError as problem:
            self._report_failure(problem)
