"""Locks, connections and ids of a guard across a fork.

A forked child inherits the memory of its parent, but none of its other threads: a lock that one of them held is never
released, and a state that it was changing stays half changed. SQLite also inherits the belief that it holds locks on
the file, which only the parent holds. So everything of a guard is brought to rest before the fork: its locks are taken
and its connections closed. Afterwards both processes continue, each with connections of its own.

This costs a fork a few milliseconds. It waits for decisions that are being made, up to a few seconds. What did not come
to rest is refused in the child.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

PATIENCE = 5.0
"""seconds that a fork waits for one lock"""


class Forkable(Protocol):
    fork_rank: int
    """members with a lower rank are locked first: a decision locks its session before it locks the store"""

    def before_fork(self) -> None:
        """Called in the parent. Must not raise, and must not wait without limit."""
        ...

    def after_fork(self, *, in_child: bool) -> None:
        """Called in both processes. `before_fork` has not run if code outside Python has forked."""
        ...


_members: weakref.WeakSet[Forkable] = weakref.WeakSet()
_resting: list[Forkable] = []
"""the members that are locked during a fork"""
opening = threading.RLock()
"""held during a fork, and while a connection is opened that is not a member yet"""


def add(member: Forkable) -> None:
    """It takes part in every fork from now on."""
    with opening:
        _members.add(member)


def _before() -> None:
    opening.acquire()
    for member in sorted(_members, key=lambda one: one.fork_rank):
        _resting.append(member)
        member.before_fork()


def _after_in_parent() -> None:
    for member in reversed(_resting):
        member.after_fork(in_child=False)
    _resting.clear()
    opening.release()


def _after_in_child() -> None:
    global opening  # noqa: PLW0603
    opening = threading.RLock()
    for member in sorted(_members, key=lambda one: -one.fork_rank):
        member.after_fork(in_child=True)
    _resting.clear()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
