"""`GuardSession`: one session of a guard as a context. Calls inside of it belong to it and need not name it.

A context variable holds the session, so that tasks and `asyncio.to_thread` inherit it. Other threads do not:
`session.bind(fn)` carries it there. A session that has ended stays ended for whoever still holds it, since a call that
began it anew would find all counters at zero.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar

from msgspec.structs import replace

from bylaw.guard.async_guard import AsyncGuard
from bylaw.guard.decide.attempts import Refused
from bylaw.guard.model import Attempt, Decision
from bylaw.model.verdict import Verdict

F = TypeVar("F", bound=Callable[..., Any])

_entered: ContextVar[tuple[GuardSession, ...]] = ContextVar("bylaw sessions", default=())
"""sessions of any guard, outermost first"""


class GuardSession:
    """`with guard.session("ticket-7", agent="support") as session:`, or `async with`. Leaving it ends the session,
    unless it was made with `end=False`; `broken` then holds the rules that only the end has broken."""

    def __init__(
        self,
        guard: AsyncGuard,
        key: str,
        agent: str | None = None,
        *,
        run: str | None = None,
        above: GuardSession | None = None,
        end: bool = True,
    ) -> None:
        self.guard, self.key, self.agent = guard, key, agent
        self.run = run
        self.broken: tuple[Verdict, ...] = ()
        self.ended = False
        self._above, self._ends = above, end
        self._token: Token[tuple[GuardSession, ...]] | None = None

    # -- calls ----------------------------------------------------------------------------------------------------

    def attempt(self, tool: str, arguments: Any = None, **more: Any) -> Attempt:
        """An attempt in this session. Raises RuntimeError after its end."""
        if self.is_over:
            raise RuntimeError(f"the session `{self.key}` has ended")
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
        return GuardSession(self.guard, self.key, agent, run=f"run-{uuid.uuid4().hex[:12]}", above=self, end=False)

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
    def is_over(self) -> bool:
        return self.ended or (self._above is not None and self._above.is_over)

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

    def _leave(self) -> bool:
        """Whether the session has to be ended."""
        token, self._token = self._token, None
        assert token is not None
        try:
            _entered.reset(token)
        except ValueError:  # left in another context than it was entered in, as by a fixture
            _entered.set(tuple(one for one in _entered.get() if one is not self))
        was_over, self.ended = self.is_over, True
        return self._ends and not was_over

    def __enter__(self) -> GuardSession:
        self._enter()
        self._announce()
        self._token = self._push()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._leave():
            self.broken = self.guard.end_session(self.key, complete=problem is None)

    async def __aenter__(self) -> GuardSession:
        self._enter()
        await self.guard.in_thread(self._announce)
        self._token = self._push()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._leave():
            self.broken = await self.guard.aend_session(self.key, complete=problem is None)


def in_current_session(guard: AsyncGuard, attempt: Attempt) -> Attempt:
    """The attempt in the innermost session of this guard that is entered here. Raises Refused if that has ended."""
    for session in reversed(_entered.get()):
        if session.guard is guard:
            if session.is_over:
                raise Refused(f"the session `{session.key}` has ended")
            return session.placed(attempt)
    return attempt
