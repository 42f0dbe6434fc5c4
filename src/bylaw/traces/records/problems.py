"""What is wrong with a trace: collected, bounded, and raised at once where it must not be passed over."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic

MOST_ERRORS = 20
"""bad records that are shown before reading is given up"""
MOST_KEPT = 1000


class Problems:
    """The problems of one trace.

    A bad record makes the trace unusable, unless `skip_bad` passes over it and counts it. Warnings never stop anything.
    """

    def __init__(self, file: str, *, skip_bad: bool = False) -> None:
        self.file = file
        self.skip_bad = skip_bad
        self.skipped = 0
        self.unlisted = 0
        """problems past the number that is kept"""
        self._errors: list[Diagnostic] = []
        self._kept: list[Diagnostic] = []

    @property
    def failed(self) -> bool:
        """A bad record was met and is not passed over: from here on the file is read only for more of them."""
        return bool(self._errors)

    @property
    def listed(self) -> Sequence[Diagnostic]:
        return sorted(self._kept, key=Diagnostic.sort_key)

    def bad(self, problem: Diagnostic) -> None:
        if self.skip_bad:
            self.skipped += 1
            # passed over because the user said so, hence no error any more
            self.warn(replace(problem, severity="warning"))
            return
        self._errors.append(problem)
        if len(self._errors) == MOST_ERRORS:
            self.settle()

    def carry(self, problems: Sequence[Diagnostic], skipped: int) -> None:
        """What an earlier reading of the same trace met."""
        self.skipped += skipped
        for problem in problems:
            self.warn(problem)

    def warn(self, problem: Diagnostic) -> None:
        if len(self._kept) < MOST_KEPT:
            self._kept.append(problem)
        else:
            self.unlisted += 1

    def settle(self) -> None:
        if self._errors:
            raise InputError(self._errors)
