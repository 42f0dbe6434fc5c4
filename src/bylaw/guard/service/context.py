"""What one worker of the service holds: its operations, who may ask, its settings, and the updates that it sends.

Decisions that wait at the same time are one transaction: then they share the cost of its commit, and each is answered
after it. A decision that waits alone is made at once.

Updates come from one reader of the event log, with a queue for each who listens. The log is in the store, so every
worker sees what the others have written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeAlias, TypeVar

from msgspec import Struct

from bylaw.guard.model import Attempt, Decision
from bylaw.guard.service.auth import Credentials, People, SharedRateTable
from bylaw.guard.service.errors import TooMany
from bylaw.guard.service.operations import Operations
from bylaw.guard.service.operations.record import decision_view, encode_view
from bylaw.guard.service.operations.sessions import SessionOwners
from bylaw.guard.service.telemetry import Metrics, Spans
from bylaw.guard.stores.ports import StoreUnavailable
from bylaw.guard.stores.records import EventRow

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
        people: People | None = None,
        settings: Settings | None = None,
        metrics: Metrics | None = None,
        spans: Spans | None = None,
        moments: SharedRateTable | None = None,
    ) -> None:
        """`moments`: how often somebody has asked, if several workers share that."""
        self.operations = operations
        self.credentials = Credentials(operations.guard.store, operations.clock)
        self.people = people or People()
        self.settings = settings or Settings()
        self.sessions = SessionOwners(operations.sessions, operations.guard)
        self.metrics = metrics or Metrics()
        self.spans = spans or Spans()
        self.moments = moments
        self.oidc: Any = None
        """the identity provider, if there is one: `sign_in.Provider`"""
        self.jobs: dict[str, Callable[..., Any]] = {}
        """`check` and `check_compliance`, which another package hands in"""
        self.direct: dict[tuple[str, str], Any] = {}
        """method and path → ASGI application, for paths without names in them"""
        self.decisions = GroupCommit(
            operations.guard.decide_together,
            most=self.settings.together,
            running=tuple,  # the gate knows better
            took=self._took,
        )
        self.stopping = asyncio.Event()
        self.hub = Hub(self)
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
        self._decide, self._most, self.running, self._took = decide, most, running, took
        self._waiting: list[tuple[Attempt, str | None, asyncio.Future[Decision]]] = []

    async def decide(self, attempt: Attempt, review: str | None) -> Decision:
        if self._most < 2 or (not self._waiting and len(self.running()) < 2):
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


# -- updates -----------------------------------------------------------------------------------------------------------

POLL = 0.2
"""seconds between two looks at the log, while anybody listens"""
BEAT = 1.0
"""seconds of silence after which a stream shows that it is alive; then it is seen whether its key still holds"""
MOST_WAITING = 1_000
"""updates that wait for one listener; one who is slower is sent away, and reads on from where it was"""
MOST_MISSED = 1_000
"""updates that a listener who comes back is sent"""
KINDS = frozenset({"decision", "review", "incident", "session", "run", "result", "switch", "service"})


class Update(Struct, frozen=True, kw_only=True):
    seq: int
    kind: str
    at: float
    session: str
    data: Any


class Hub:
    def __init__(self, context: Context) -> None:
        self._context, self._store = context, context.operations.guard.store
        self._seen = 0
        self._queues: set[asyncio.Queue[Update | None]] = set()
        self._waiting: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()

    @property
    def listeners(self) -> int:
        return len(self._queues)

    def next_change(self) -> asyncio.Future[None]:
        """Done when the log grows, or the service stops."""
        if self._waiting is None or self._waiting.done():
            self._waiting = asyncio.get_running_loop().create_future()
        self._start()
        return asyncio.shield(self._waiting)

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._begun = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._follow())

    async def _follow(self) -> None:
        """Ends when nobody listens any more."""
        self._seen = await self._context.run(self._store.last_event)
        self._begun.set()
        quiet = 0
        while quiet < 10 and not self._context.stopping.is_set():
            await asyncio.sleep(POLL)
            quiet = 0 if self._queues or (self._waiting is not None and not self._waiting.done()) else quiet + 1
            try:
                rows = await self._context.run(self._read, self._seen)
            except StoreUnavailable:
                continue
            for row in rows:
                self._seen = row.seq
                self._send(row)
            if rows:
                self._wake()
        self._wake()
        for queue in self._queues:
            queue.put_nowait(None)

    def _read(self, after: int) -> list[EventRow]:
        return list(self._store.events(after=after, limit=500)) if self._store.last_event() > after else []

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _send(self, row: EventRow) -> None:
        update = update_of(row)
        for queue in list(self._queues) if update is not None else ():
            if queue.qsize() >= MOST_WAITING:
                self._queues.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(update)

    async def stream(self, after: int | None) -> AsyncGenerator[bytes, None]:
        """Server-sent events, after the one with this number if it is given. Raises TooMany."""
        settings = self._context.settings
        if len(self._queues) >= settings.most_streams:
            raise TooMany("too many listen already")
        queue: asyncio.Queue[Update | None] = asyncio.Queue()
        self._queues.add(queue)
        self._start()
        loop = asyncio.get_running_loop()
        until = loop.time() + settings.stream_seconds
        try:
            last = await self._context.run(self._store.last_event) if after is None else after
            yield b"retry: 2000\n\n"
            await self._begun.wait()  # so that whatever is not read here comes by the queue
            for row in await self._context.run(self._missed, last):
                if (missed := update_of(row)) is not None:
                    last = missed.seq
                    yield encode(missed)
            while loop.time() < until:
                try:
                    async with asyncio.timeout(BEAT):
                        update = await queue.get()
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if update is None:
                    return
                if update.seq > last:
                    last = update.seq
                    yield encode(update)
        finally:
            self._queues.discard(queue)

    def _missed(self, after: int) -> list[EventRow]:
        newest = self._store.last_event()
        return list(self._store.events(after=max(after, newest - MOST_MISSED), limit=MOST_MISSED))


def update_of(row: EventRow) -> Update | None:
    view = decision_view(row)
    if view is None and row.kind not in KINDS:
        return None
    kind, data = (row.kind, row.data) if view is None else ("decision", view)
    return Update(seq=row.seq, kind=kind, at=row.at, session=row.session, data=data)


def encode(update: Update) -> bytes:
    """One event; JSON has no line breaks, so nothing in it can begin another."""
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (update.seq, update.kind.encode(), encode_view(update))
