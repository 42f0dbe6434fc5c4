"""Problems of one formula, each at its characters."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from bylaw.rules.problems import Place, Problems
from bylaw.rules.temporal.tokens import Spot


class Stop(Exception):
    """The formula cannot be read further. Why has been reported already."""


class Report:
    def __init__(self, problems: Problems, place: Callable[[Spot], Place]) -> None:
        self.problems = problems
        self.place = place
        """where a stretch of the formula stands in the file"""
        self.failed = False

    def error(self, at: Spot, *, code: str, message: str, help: str | None = None, first: Spot | None = None) -> None:
        """`first` is the place of what this one disagrees with."""
        related = (self.problems.related(self.place(first), "first fixed here"),) if first else ()
        self.failed = True
        self.problems.error(code=code, message=message, at=self.place(at), help=help, related=related)

    def stop(self, at: Spot, *, code: str = "formula-syntax", message: str, help: str | None = None) -> NoReturn:
        self.error(at, code=code, message=message, help=help)
        raise Stop
