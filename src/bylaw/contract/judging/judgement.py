"""What a check says of one run."""

from __future__ import annotations

from msgspec import Struct

from bylaw.contract.results import CellOutcome
from bylaw.model.verdict import EventRef


class Seen(Struct, frozen=True):
    """Whether the check's statement holds, and what was found: true whether or not the invariant is negated."""

    holds: bool
    found: str


class Judgement(Struct, frozen=True):
    outcome: CellOutcome
    found: str
    events: tuple[EventRef, ...] = ()


def judged(seen: Seen, *, negate: bool) -> Judgement:
    return Judgement(CellOutcome.VIOLATED if seen.holds is negate else CellOutcome.OK, seen.found)


def unjudged(why: str) -> Judgement:
    return Judgement(CellOutcome.ERROR, why)


def excerpt(text: str, longest: int = 160) -> str:
    """One line of a text, cut where it is long."""
    flat = " ".join(text.split())
    return flat if len(flat) <= longest else flat[: longest - 1] + "…"
