"""The nodes of one formula while it is read: where each stands, and how many and how deep there are."""

from __future__ import annotations

from typing import TypeVar

from bylaw.model.temporal import Formula, Test, Variable, children
from bylaw.rules.temporal.report import Report
from bylaw.rules.temporal.tokens import Spot

MAX_DEPTH = 64
MAX_NODES = 500

_Part = TypeVar("_Part", bound=Formula | Test | Variable)


class Nodes:
    def __init__(self, report: Report) -> None:
        self.report = report
        self._spots: dict[int, Spot] = {}
        self._parts: list[Formula | Test | Variable] = []  # kept, so that no identity is used twice
        self._depths: dict[int, int] = {}

    def keep(self, part: _Part, spot: Spot) -> _Part:
        """Note where it stands."""
        if len(self._parts) >= MAX_NODES:
            self.report.stop(
                spot,
                code="formula-too-large",
                message=f"the formula has more than {MAX_NODES} parts",
                help="split it into several rules",
            )
        self._parts.append(part)
        self._spots[id(part)] = spot
        if not isinstance(part, Test | Variable):
            self._depths[id(part)] = 1 + max((self._depths[id(child)] for child in children(part)), default=0)
            self.check_depth(self._depths[id(part)], spot)
        return part

    def spot(self, part: Formula | Test | Variable) -> Spot:
        return self._spots[id(part)]

    def check_depth(self, depth: int, spot: Spot) -> None:
        if depth > MAX_DEPTH:
            self.report.stop(
                spot,
                code="formula-too-deep",
                message=f"the formula is nested more than {MAX_DEPTH} levels deep",
                help="split it into several rules; several tools fit into one `tool(a | b)`",
            )
