"""The guard for asyncio: the functions of `BaseGuard` that may wait, without blocking the event loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from bylaw.guard.decide.attempts import is_time
from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.model import Attempt, Decision
from bylaw.guard.stores.ports import StoreUnavailable
from bylaw.model.guard_policy import Action
from bylaw.model.verdict import Verdict

T = TypeVar("T")
_POLL = 0.05
"""seconds between two looks at a review"""


class AsyncGuard(BaseGuard):
    """With a store, work is done in a thread, since the store may wait for the disk or for other processes."""

    async def aask(self, attempt: Attempt, *, timeout: float) -> Decision:
        """`ask` for asyncio."""
        if not is_time(timeout):
            raise ValueError(f"timeout={timeout!r}: expected a finite number of seconds")
        decision = await self.adecide(attempt)
        if decision.action is not Action.PAUSE or decision.review is None:
            return decision
        from asyncio import sleep  # not imported by programs that do without

        until = time.monotonic() + timeout
        while True:
            try:
                review = await self.in_thread(self.reviews.get, decision.review)
            except StoreUnavailable as problem:  # whatever was answered, it cannot be read
                return replace(decision, reason=f"{decision.reason} ({problem})")
            if review is None or review.status != "pending" or time.monotonic() >= until:
                return await self.in_thread(self._after_answer, attempt, decision, review)
            await sleep(min(_POLL, max(0.0, until - time.monotonic())))

    async def arecord(self, decision: Decision | str, content: Any = None, **more: Any) -> tuple[Verdict, ...]:
        return await self.in_thread(partial(self.record, decision, content, **more))

    async def arelease(self, decision: Decision | str, *, session: str | None = None) -> bool:
        return await self.in_thread(partial(self.release, decision, session=session))

    async def aend_session(self, session: str, *, complete: bool = True) -> tuple[Verdict, ...]:
        return await self.in_thread(partial(self.end_session, session, complete=complete))

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        if not self._sessions.durable:
            return function(*args)
        from asyncio import to_thread

        return await to_thread(function, *args)
