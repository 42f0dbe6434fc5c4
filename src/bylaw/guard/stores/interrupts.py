"""Locks and `with` blocks that a signal handler that raises (Ctrl-C) cannot leave taken or open.

Python calls such a handler at the start of a function and after a call, also after a call of `acquire`, before the next
line has noted that the lock is taken, and at the start of an `__exit__` that is written in Python, which then does
nothing. `with lock:` has no such gap, since the lock is written in C.

So a lock is taken, and given back, by one call into C that also notes who has it, and a block is known to be over when
nothing refers to its `__exit__` any more: the interpreter drops it whichever way the block ends. The traceback of the
error may keep everything else alive, as in an interactive session. It does not refer to a callable that is written in
C.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, _GeneratorContextManager, suppress
from functools import partial, wraps
from itertools import compress
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_LOOK_EVERY = 0.5
"""seconds after which a waiting thread looks whether the block that has the turn is over"""


class Hold(weakref.ref[Any]):
    """A block, as long as it is not over."""

    __slots__ = ("thread",)
    __eq__, __hash__ = object.__eq__, object.__hash__  # those of a reference are those of the block
    thread: int


def hold_for(block: object, over: Callable[[Hold], None] | None = None) -> Hold:
    hold = Hold(block, over)
    hold.thread = threading.get_ident()
    return hold


class _Exit:
    def __get__(self, block: Any, kind: type[Any]) -> Callable[..., Any]:
        if block is None:  # as `ExitStack` asks for it
            return kind.leave  # type: ignore[no-any-return]
        leave = partial(kind.leave, block)
        if block.hold is None or block.hold() is None:
            hold = block.hold = Hold(leave, block.abandoned)
            hold.thread = threading.get_ident()
        return leave


class Block:
    """A context manager. `hold` is set before `__enter__`."""

    hold: Hold | None = None
    __exit__ = _Exit()

    def leave(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> Any:
        raise NotImplementedError

    def abandoned(self, hold: Hold) -> None:
        """Called when the block is over, unless `leave` has deleted `hold`."""
        raise NotImplementedError

    def entered(self) -> Hold:
        """`hold`, also if `__enter__` was not called by a `with` statement."""
        if (hold := self.hold) is None or hold() is None:
            hold = self.hold = hold_for(self, self.abandoned)
        return hold


class _GeneratorBlock(_GeneratorContextManager[Any]):
    hold: Hold | None = None
    __exit__ = _Exit()

    def leave(self, *raised: Any) -> bool | None:
        try:
            return _GeneratorContextManager.__exit__(self, *raised)
        finally:
            if getattr(self.gen, "gi_frame", None) is None:  # else an interrupt was faster
                self.hold = None

    def abandoned(self, hold: Hold) -> None:
        self.gen.close()


def block(function: Callable[P, Generator[T, None, None]]) -> Callable[P, AbstractContextManager[T]]:
    """`contextlib.contextmanager`, for blocks that hold something."""

    @wraps(function)
    def enter(*args: P.args, **named: P.kwargs) -> AbstractContextManager[T]:
        return _GeneratorBlock(function, args, named)

    return enter


def try_lock(lock: threading.Lock | threading.RLock, taken: list[bool], *, blocking: bool = False) -> None:
    """Take the lock, and then add to `taken`. To be called in a `try` that releases what was taken."""
    taken.extend(filter(None, map(lock.acquire, (blocking,))))


class Turn:
    """One block at a time; the others of this process wait for it."""

    def __init__(self, clean_up: Callable[[], None]) -> None:
        """`clean_up`: what the end of an abandoned block would have done."""
        self._clean_up = clean_up
        self._holders: deque[Hold] = deque()
        """the one that has the lock"""
        self.reset()

    def reset(self) -> None:
        """It is nobody's turn, such as in a forked process, which has none of the other threads."""
        self._holders.clear()
        self._lock, self._recovering = threading.Lock(), threading.RLock()
        self._unlock: Callable[..., None] = self._lock.__exit__  # ignores what it is passed

    @property
    def holder(self) -> Hold | None:
        with suppress(IndexError):
            return self._holders[0]
        return None

    @property
    def is_own(self) -> bool:
        """Whether this thread is in a block that has the turn."""
        holder = self.holder
        return holder is not None and holder.thread == threading.get_ident() and holder() is not None

    def take(self, hold: Hold, *, timeout: float) -> bool:
        """Raises RuntimeError if this thread has the turn already."""
        holders, give_up = self._holders, None
        if not holders:
            holders.extend(compress((hold,), map(self._lock.acquire, (False,))))
        while hold not in holders:
            if (holder := self.holder) is not None:
                if holder() is None:
                    self.recover(holder)
                elif holder.thread == hold.thread:
                    raise RuntimeError("this thread is in a transaction already")
                give_up = give_up or time.monotonic() + timeout
                timeout = max(0.0, give_up - time.monotonic())
            locked = map(self._lock.acquire, (True,), (min(timeout, _LOOK_EVERY),))
            holders.extend(compress((hold,), locked))
            if hold not in holders and give_up is not None and time.monotonic() >= give_up:
                return False
        return True

    def give(self, hold: Any) -> None:
        """Does nothing if it is not the turn of this one, so that it may be called again after an interrupt."""
        try:
            next(map(self._unlock, map(self._holders.remove, (hold,))))
        except ValueError:
            return

    def recover(self, hold: Hold) -> None:
        """The block is over; if it still has the turn, it was interrupted."""
        if self.holder is hold:
            with self._recovering:
                if self.holder is hold:  # else another thread was faster
                    self._clean_up()
                    self.give(hold)


class Holding(Block):
    """A block that has the turn, or None if it was not its turn in time."""

    def __init__(self, turn: Turn, *, timeout: float) -> None:
        self._turn, self._timeout = turn, timeout

    def __enter__(self) -> Holding | None:
        return self if self._turn.take(self.entered(), timeout=self._timeout) else None

    def leave(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._turn.give(self.hold)
        self.hold = None

    def abandoned(self, hold: Hold) -> None:
        self._turn.recover(hold)
