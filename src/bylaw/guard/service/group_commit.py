"""Decisions that wait at the same time are one transaction: then they share the cost of its commit, and each is
answered after it. A decision that waits alone is made at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from bylaw.guard.model import Attempt, Decision

DecideTogether: TypeAlias = Callable[[Sequence[tuple[Attempt, str | None]]], Sequence[Decision]]


class GroupCommit:
    def __init__(
        self,
        decide: DecideTogether,
        *,
        most: int,
        running: Callable[[], Collection[object]],
        took: Callable[[float], None],
    ) -> None:
        """`most`: decisions of one transaction. `running`: the requests that are being answered; one that has only
        begun may be about to ask for a decision too. `took` is told how many seconds a decision has taken."""
        self._decide, self._most, self._running, self._took = decide, most, running, took
        self._waiting: list[tuple[Attempt, str | None, asyncio.Future[Decision]]] = []

    async def decide(self, attempt: Attempt, review: str | None) -> Decision:
        if self._most < 2 or (not self._waiting and len(self._running()) < 2):
            return self._timed([(attempt, review)])[0]
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._decide_waiting)  # after the requests that have arrived until now
        future: asyncio.Future[Decision] = loop.create_future()
        self._waiting.append((attempt, review, future))
        return await future

    def _decide_waiting(self) -> None:
        group, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        if self._waiting:  # other requests are read in between
            asyncio.get_running_loop().call_soon(self._decide_waiting)
        try:
            decisions = self._timed([(attempt, review) for attempt, review, _ in group])
        except BaseException as problem:
            for _, _, future in group:
                if not future.done():
                    future.set_exception(problem)
            return
        for (_, _, future), decision in zip(group, decisions, strict=True):
            if not future.done():  # else whoever asked is gone
                future.set_result(decision)

    def _timed(self, asked: Sequence[tuple[Attempt, str | None]]) -> Sequence[Decision]:
        started = time.perf_counter()
        try:
            return self._decide(asked)
        finally:
            self._took((time.perf_counter() - started) / len(asked))
