"""Where the rules of a guard come from, so that they can be loaded again; and a watch on their files.

The watch needs no thread: before a decision, at most every half second, it looks at the files. So it works in a
process that was forked, and no decision uses rules that are much older than the file. A file counts as changed when it
looks the same twice: one that is being written could be cut off after any rule.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.policies import GuardRules, VersionChoice, load_policies, select_version, with_mode
from bylaw.model.guard_policy import GuardPolicy, GuardSet

_log = logging.getLogger("bylaw")

LOOK_EVERY = 0.5
"""seconds"""


class RuleSource(Struct, frozen=True):
    """The arguments of `Guard(…)` that say which rules it has."""

    rules: GuardRules
    mode: str | None = None
    version: VersionChoice = None
    inputs: Mapping[str, str] | None = None

    def load(self) -> Sequence[GuardPolicy]:
        """Raises InputError for rules that cannot be used."""
        return with_mode(select_version(load_policies(self.rules, inputs=self.inputs), self.version), self.mode)

    def replaced(self, rules: GuardRules) -> RuleSource:
        return replace(self, rules=rules)

    def files(self) -> list[str]:
        """The files that the rules are read from. Raises ValueError if there are none."""
        rules = self.rules
        if isinstance(rules, GuardSet):  # read before, so it cannot be read again
            named = []
        else:
            several = [rules] if isinstance(rules, str | PathLike | Mapping) else rules
            named = [fspath(one) for one in several if isinstance(one, str | PathLike)]
        if not named:
            raise ValueError("watch=True: the rules are no file that could be watched; pass its path")
        return named


class FileWatch:
    """Calls `reload` after a change of the files. If the new rules cannot be used, the old ones stay, and the log says
    why."""

    def __init__(self, files: Sequence[str], reload: Callable[[], object]) -> None:
        self._files, self._reload = files, reload
        self._loaded = self._seen = self._stamps()
        self._next = time.monotonic() + LOOK_EVERY
        self._lock, self._process = threading.Lock(), os.getpid()

    def look(self) -> None:
        if time.monotonic() < self._next:
            return
        if self._process != os.getpid():  # another thread may have held the lock when this process was forked
            self._lock, self._process = threading.Lock(), os.getpid()
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._next = time.monotonic() + LOOK_EVERY
            stamps = self._stamps()
            is_settled, self._seen = stamps == self._seen, stamps
            if not is_settled or stamps == self._loaded:
                return
            self._loaded = stamps
            self._reload()
        except Exception as problem:  # whoever asks for a decision gets one
            _log.error("the rules have changed and cannot be used, so the old ones stay in force: %s", problem)
        finally:
            self._lock.release()

    def _stamps(self) -> list[tuple[int, ...] | None]:
        return [_stamp(file) for file in self._files]


def _stamp(file: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
