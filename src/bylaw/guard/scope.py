"""`GuardSession`: one session of a guard as a context. Calls inside of it belong to it and need not name it.

A context variable holds the session, so that tasks and `asyncio.to_thread` inherit it. Other threads do not:
`session.bind(fn)` carries it there. Blocks of one session may nest and overlap, as when a ticket has several requests
at a time: the last one that is left ends it. A session that has ended stays ended for whoever still holds it, since a
call that began it anew would find all counters at zero.
"""

from __future__ import annotations

import inspect
import logging
import os
import threading
import uuid
from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.json_values import RefusedAttempt
from bylaw.guard.model import Attempt, Decision
from bylaw.guard.stores import forks
from bylaw.guard.stores.ports import StoreUnavailable
from bylaw.model.verdict import Verdict

_log = logging.getLogger("bylaw")
F = TypeVar("F", bound=Callable[..., Any])

_entered: ContextVar[tuple[GuardSession, ...]] = ContextVar("bylaw sessions", default=())
"""sessions of any guard, outermost first"""


class OpenSession(Struct):
    """A session between its first block and its end, in one process."""

    process: int
    """a forked child inherits the blocks of its parent, and never ends their session"""
    blocks: int = 0
    """that are entered and not left"""
    to_end: bool = False
    """whether one of those that were left ends it"""
    complete: bool = True
    """whether none of them was left by an exception"""
    ended: bool = False


class OpenSessions:
    """The sessions of a guard with open blocks."""

    fork_rank = 0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lives: dict[str, OpenSession] = {}
        forks.add(self)

    def before_fork(self) -> None: ...

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self._lock = threading.Lock()

    def enter(self, key: str) -> OpenSession:
        with self._lock:
            life = self._lives.setdefault(key, OpenSession(os.getpid()))
            life.blocks += 1
            return life

    def leave(self, key: str, life: OpenSession, *, end: bool, complete: bool) -> bool:
        """A block was left. Returns whether the session has to be ended."""
        with self._lock:
            life.blocks -= 1
            is_own = life.process == os.getpid()
            life.to_end |= end and is_own
            life.complete &= complete or not is_own
            if life.blocks or life.ended:
                return False
            if not life.to_end:
                self._lives.pop(key, None)
            return life.to_end

    def is_over(self, key: str, life: OpenSession) -> bool:
        """Whether no block was entered meanwhile; then the session ends now."""
        with self._lock:
            if life.blocks or life.ended:
                return False
            life.ended = True
            self._lives.pop(key, None)
            return True

    def end(self, key: str) -> None:
        """The session ends, whoever is inside."""
        with self._lock:
            life = self._lives.pop(key, None)
            if life is not None:
                life.ended = True


class GuardSession:
    """`with guard.session("ticket-7", agent="support") as session:`, or `async with`. Leaving the last block of a
    session ends it, unless all were made with `end=False`; `broken` then holds the rules that only the end has
    broken."""

    def __init__(
        self,
        guard: BaseGuard,
        lives: OpenSessions,
        key: str,
        agent: str | None = None,
        *,
        run: str | None = None,
        above: GuardSession | None = None,
        end: bool = True,
    ) -> None:
        if not isinstance(end, bool):
            raise ValueError(f"end={end!r}: expected True or False")
        self.guard, self.key, self.agent = guard, key, agent
        self.run = run
        self.broken: tuple[Verdict, ...] = ()
        self._lives, self._life = lives, OpenSession(0)
        self._left = False
        self._above, self._ends = above, end
        self._token: Token[tuple[GuardSession, ...]] | None = None

    # -- calls ----------------------------------------------------------------------------------------------------

    def attempt(self, tool: str, arguments: Any = None, **more: Any) -> Attempt:
        """An attempt in this session. Raises RuntimeError after its end."""
        if self.is_over:
            raise RuntimeError(self.why_over)
        return self.placed(Attempt(tool=tool, arguments=arguments, **more))

    def decide(self, tool: str, arguments: Any = None, *, review: str | None = None, **more: Any) -> Decision:
        return self.guard.decide(self.attempt(tool, arguments, **more), review=review)

    def record(self, decision: Decision, content: Any = None, **more: Any) -> tuple[Verdict, ...]:
        return self.guard.record(decision, content, **more)

    def release(self, decision: Decision) -> bool:
        return self.guard.release(decision)

    def placed(self, attempt: Attempt) -> Attempt:
        """The attempt with this session, and unless it names an agent or a run of its own, with those as well."""
        if attempt.agent not in (None, self.agent) or attempt.run is not None or attempt.ancestors:
            return replace(attempt, session=self.key)
        return replace(
            attempt,
            session=self.key,
            agent=self.agent,
            run=self.run,
            parent_run=attempt.parent_run or (None if self._above is None else self._above.run),
        )

    # -- the tree of agents ---------------------------------------------------------------------------------------

    def sub_agent(self, agent: str) -> GuardSession:
        """A context for the calls of an agent that this one starts. The rules of both apply to it."""
        if self.agent is None:
            raise ValueError("a session with sub-agents needs the name of its own agent: guard.session(…, agent=…)")
        run = f"run-{uuid.uuid4().hex[:12]}"
        return GuardSession(self.guard, self._lives, self.key, agent, run=run, above=self, end=False)

    def _announce(self) -> None:
        """Announce the run of a sub-agent, and those above it."""
        above = self._above
        if above is None:
            return
        if above.run is None:
            above.run = f"run-{uuid.uuid4().hex[:12]}"
            self.guard.start_run(self.key, above.run, agent=above.agent)
        assert self.run is not None
        self.guard.start_run(self.key, self.run, agent=self.agent, parent_run=above.run)

    # -- the context ----------------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether the session has ended, and not only this block of it."""
        return self._life.ended or (self._above is not None and self._above.ended)

    @property
    def is_over(self) -> bool:
        return self._left or self.ended

    @property
    def why_over(self) -> str:
        if self.ended:
            return f"the session `{self.key}` has ended"
        who = "" if self._above is None else f" of the sub-agent `{self.agent}`"
        return f"the block{who} in the session `{self.key}` was left"

    def bind(self, function: F) -> F:
        """The function, or coroutine function, as it runs in this session wherever it is called, in any thread."""
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def abound(*args: Any, **named: Any) -> Any:
                token = self._push()
                try:
                    return await function(*args, **named)
                finally:
                    _entered.reset(token)

            return abound  # type: ignore[return-value]

        @wraps(function)
        def bound(*args: Any, **named: Any) -> Any:
            token = self._push()
            try:
                return function(*args, **named)
            finally:
                _entered.reset(token)

        return bound  # type: ignore[return-value]

    def _push(self) -> Token[tuple[GuardSession, ...]]:
        return _entered.set((*_entered.get(), self))

    def _enter(self) -> None:
        if self._token is not None or self.is_over:
            raise RuntimeError("a session is entered once; ask the guard for another: guard.session(…)")
        key = self.guard.session_key(self.key)
        self._life = self._lives.enter(key)
        try:
            self._announce()
        except BaseException:
            self._lives.leave(key, self._life, end=False, complete=True)
            raise

    def _leave(self, problem: BaseException | None) -> bool:
        """Whether the session has to be ended."""
        token, self._token = self._token, None
        assert token is not None
        try:
            _entered.reset(token)
        except ValueError:  # left in another context than it was entered in, as by a fixture
            _entered.set(tuple(one for one in _entered.get() if one is not self))
        self._left, key = True, self.guard.session_key(self.key)
        return self._lives.leave(key, self._life, end=self._ends, complete=problem is None)

    def _end(self, problem: BaseException | None) -> None:
        """An exception that leaves the block is never replaced by one of the store."""
        key, life = self.guard.session_key(self.key), self._life
        try:
            self.broken = self.guard.end_if(lambda: self._lives.is_over(key, life), self.key, complete=life.complete)
        except Exception as why:
            if problem is None and not isinstance(why, StoreUnavailable):
                raise
            _log.warning("the session `%s` was left, and its end could not be written: %s", self.key, why)

    def __enter__(self) -> GuardSession:
        self._enter()
        self._token = self._push()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._leave(problem):
            self._end(problem)

    async def __aenter__(self) -> GuardSession:
        await self.guard.in_thread(self._enter)
        self._token = self._push()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._leave(problem):
            await self.guard.in_thread(self._end, problem)


def in_current_session(guard: BaseGuard, attempt: Attempt) -> Attempt:
    """The attempt in the innermost session of this guard that is entered here. Raises Refused if that has ended."""
    for session in reversed(_entered.get()):
        if session.guard is guard:
            if session.is_over:
                raise RefusedAttempt(session.why_over)
            return session.placed(attempt)
    return attempt
