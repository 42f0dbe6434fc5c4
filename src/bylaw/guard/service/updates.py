"""Updates as they happen: one reader of the event log for each worker, and a queue for each who listens.

The log is in the store, so every worker sees what the others have written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct

from bylaw.guard.service.context import Context
from bylaw.guard.service.errors import TooMany
from bylaw.guard.service.operations.record import decision_view, encode_view
from bylaw.guard.stores.ports import StoreUnavailable
from bylaw.guard.stores.records import EventRow

_log = logging.getLogger("bylaw")
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

    async def stream(self, after: int | None) -> AsyncIterator[bytes]:
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
