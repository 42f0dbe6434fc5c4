"""How often one key, person or address may ask: `rate` requests a second on average, `burst` at once.

For each there is one number, the moment at which its requests would have been answered if they had come evenly (the
generic cell rate algorithm). Workers of one machine share these numbers in a file that all of them map into memory, so
that the limit is the same with any number of workers. Whoever was silent longest is forgotten.
"""

from __future__ import annotations

import mmap
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from bylaw.guard.service.errors import TooMany

MOST_ASKING = 10_000
BUCKETS, WIDTH = 2048, 8
"""of the file. A bucket has this many slots, each for a digest of who asks, and a moment"""
_SLOT = 16
"""bytes"""


class Moments(Protocol):
    def get(self, who: str) -> float: ...

    def change(self, who: str, change: Callable[[float], float]) -> None:
        """Nobody else changes it meanwhile."""
        ...


class OwnMoments:
    """Of one process."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, float] = OrderedDict()

    def get(self, who: str) -> float:
        return self._known.get(who, 0.0)

    def change(self, who: str, change: Callable[[float], float]) -> None:
        self._known[who] = change(self._known.pop(who, 0.0))
        if len(self._known) > MOST_ASKING:
            self._known.popitem(last=False)


class SharedMoments:
    """Of all processes that have opened this file. Their clocks are the same: monotonic, of one machine."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        size = BUCKETS * WIDTH * _SLOT
        os.ftruncate(self._file, size)
        content = memoryview(mmap.mmap(self._file, size))
        self._digests, self._moments = content.cast("Q")[0::2], content.cast("d")[1::2]

    def get(self, who: str) -> float:
        digest, slots = _place(who)
        return next((self._moments[slot] for slot in slots if self._digests[slot] == digest), 0.0)

    def change(self, who: str, change: Callable[[float], float]) -> None:
        digest, slots = _place(who)
        with self._locked(slots):
            slot = next((one for one in slots if self._digests[one] == digest), None)
            if slot is None:
                slot = min(slots, key=self._moments.__getitem__)
                self._digests[slot], self._moments[slot] = digest, 0.0
            self._moments[slot] = change(self._moments[slot])

    @contextmanager
    def _locked(self, slots: range) -> Iterator[None]:
        """By a lock that the system releases if this process dies."""
        import fcntl  # not on Windows, where there is one worker

        place = (self._file, fcntl.LOCK_EX, WIDTH * _SLOT, slots.start * _SLOT)
        fcntl.lockf(*place)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, *place[2:])


def _place(who: str) -> tuple[int, range]:
    """A digest, and the slots in which it may be. If all are taken, the one that was silent longest is forgotten."""
    digest = int.from_bytes(blake2b(who.encode("utf-8", "replace"), digest_size=8).digest()) or 1
    first = digest % BUCKETS * WIDTH
    return digest, range(first, first + WIDTH)


class Rates:
    def __init__(self, rate: float, burst: float, moments: Moments | None = None) -> None:
        self._step, self._most = 1.0 / rate, burst / rate
        self._moments = moments or OwnMoments()

    def has_left(self, who: str) -> bool:
        return self._after(self._moments.get(who)) is not None

    def spend(self, who: str) -> None:
        """Raises TooMany if nothing is left."""
        is_over = False

        def spend(moment: float) -> float:
            nonlocal is_over
            after = self._after(moment)
            is_over = after is None
            return moment if after is None else after

        self._moments.change(who, spend)
        if is_over:
            raise TooMany("too many requests; wait a moment", retry_after=1)

    def _after(self, moment: float) -> float | None:
        """The moment after one more request; None if it is one too many."""
        now = time.monotonic()
        after = max(moment, now) + self._step
        return after if after - now <= self._most + 1e-6 else None
