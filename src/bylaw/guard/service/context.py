"""What one worker of the service holds: its operations, who may ask, its settings, and the updates that it sends.

Decisions that wait at the same time are one transaction: then they share the cost of its commit, and each is answered
after it. A decision that waits alone is made at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from msgspec import Struct

from bylaw.guard.model import Attempt, Decision
from bylaw.guard.service.auth import Credentials, People, SharedMoments
from bylaw.guard.service.connection import Connection
from bylaw.guard.service.operations import Operations
from bylaw.guard.service.session_owners import SessionOwners
from bylaw.guard.service.telemetry import Metrics, Spans

if TYPE_CHECKING:
    pass

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
SLOW = 0.02
"""seconds: operations that take longer on average must not hold up the event loop"""


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of the service. Times are seconds."""

    largest_body: int = 2 << 20
    body_seconds: float = 10.0
    """within which a request has to arrive as a whole"""
    rate: float = 500.0
    """requests a second of one key, person or unknown address, on average, over all workers"""
    burst: float = 1000.0
    """requests at once"""
    stream_seconds: float = 3600.0
    """after which a stream of updates ends; clients connect again"""
    most_streams: int = 100
    longest_wait: float = 60.0
    """for the answer to a review"""
    clock_skew: float = 300.0
    """by which the times that agents state may differ from the service's clock, which is the one that counts"""
    past_calls: bool = False
    """whether agents may have calls counted that ran without being judged: such a call is judged afterwards, and
    fulfils rules that ask for it"""
    together: int = 32
    """decisions that wait at the same time and share one transaction of the store"""
    threads: int = 8
    title: str = "Bylaw guard"


class Context:
    """`request.app.state.context`"""

    def __init__(
        self,
        operations: Operations,
        *,
        credentials: Credentials | None = None,
        people: People | None = None,
        settings: Settings | None = None,
        metrics: Metrics | None = None,
        spans: Spans | None = None,
        moments: SharedMoments | None = None,
    ) -> None:
        """`moments`: how often somebody has asked, if several workers share that."""
        self.operations = operations
        self.credentials = credentials or Credentials(operations.guard.store, operations.clock)
        self.people = people or People()
        self.settings = settings or Settings()
        self.sessions = SessionOwners(operations.sessions, operations.guard)
        self.metrics = metrics or Metrics()
        self.spans = spans or Spans()
        self.moments = moments
        self.oidc: Any = None
        """the identity provider, if there is one: `service.oidc.Provider`"""
        self.hub: Any = None
        """updates: `service.updates.Hub`"""
        self.jobs: dict[str, Callable[..., Any]] = {}
        """`check` and `check_compliance`, which another package hands in"""
        self.direct: dict[tuple[str, str], Any] = {}
        """method and path → ASGI application, for paths without names in them"""
        self.decisions = GroupCommit(
            operations.guard.decide_together,
            most=self.settings.together,
            running=lambda: Connection.running,
            took=self._took,
        )
        self.stopping = asyncio.Event()
        is_remote = getattr(operations.guard.store, "waits_for_network", False)
        self._usual, self._fastest = 0.0, SLOW if is_remote else 0.0
        """seconds that a quick operation takes, on average; and what is taken for it at least"""
        self._threads = ThreadPoolExecutor(self.settings.threads, thread_name_prefix="bylaw-service")
        self._heavy = ThreadPoolExecutor(1, thread_name_prefix="bylaw-heavy")

    async def run(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Call an operation in a thread, since it waits for the store."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *args, **named))

    async def run_heavy(self, function: Callable[[T], R], given: T) -> R:
        """Call an operation that reads much of the record. One at a time: decisions go on beside it."""
        return await asyncio.get_running_loop().run_in_executor(self._heavy, function, given)

    @property
    def is_store_slow(self) -> bool:
        return max(self._usual, self._fastest) >= SLOW

    async def run_quick(self, function: Callable[[T], R], given: T) -> R:
        """Call an operation that is over in a fraction of a millisecond unless the store is slow, or is reached over
        the network (`waits_for_network`). Then it runs in a thread; else handing it over would cost as much as the
        operation itself."""
        started = time.perf_counter()
        try:
            if self.is_store_slow:
                return await self.run(function, given)
            return function(given)
        finally:
            self._took(time.perf_counter() - started)

    def _took(self, seconds: float) -> None:
        self._usual += (seconds - self._usual) / 8

    def close(self) -> None:
        self._threads.shutdown(wait=True)
        self._heavy.shutdown(wait=True, cancel_futures=True)
        self.spans.close()


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
