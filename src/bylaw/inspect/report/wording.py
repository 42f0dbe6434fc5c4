"""How a difference is told in one line, and which part of a turn shows it."""

from __future__ import annotations

from os.path import basename

from bylaw.inspect.model import Difference, PairEntry, SideBySide
from bylaw.inspect.report.values import text_of
from bylaw.report.text import count

_QUOTED = 40
"""characters of a value that a line quotes"""


def headline(report: SideBySide) -> str:
    if report.first is None:
        return "no difference" if report.pairs else "nothing to compare"
    turn = "–" if report.first.turn is None else report.first.turn
    where = f" of session {report.first_session}" if report.totals[0].sessions > 1 and report.first_session else ""
    return f"first difference at turn {turn}{where}: {difference_line(report.first.differences[0])}"


def size(report: SideBySide) -> str:
    left, right = (count(totals.turns, "turn") for totals in report.totals)
    differing = f"{report.differing:,} of {count(report.pairs, 'pair')} of turns differ · " if report.differing else ""
    one, other = names(report)
    return f"{differing}{one}: {left} · {other}: {right}"


def names(report: SideBySide) -> tuple[str, str]:
    """Without their folders, where that tells them apart."""
    short = (basename(report.names[0]), basename(report.names[1]))
    return short if short[0] != short[1] else report.names


def pair_line(pair: PairEntry) -> str:
    turn = "–" if pair.turn is None else pair.turn
    return f"turn {turn}: {'; '.join(difference_line(one) for one in pair.differences[:4])}" + (
        f"; and {len(pair.differences) - 4} more" if len(pair.differences) > 4 else ""
    )


def difference_line(difference: Difference) -> str:
    before, after = difference.baseline, difference.candidate
    if difference.aspect in ("turn", "call") and (before is None or after is None):
        return difference.what
    if before is None or after is None:
        return f"{difference.what}: {_short(before if after is None else after)}"
    left, right = _short(before), _short(after)
    if isinstance(before, str) and isinstance(after, str):
        left, right = _around(before, after)
    return f"{difference.what} {left} → {right}"


def keys(pair: PairEntry) -> set[str]:
    """The blocks of a turn in which the differences show."""
    found: set[str] = set()
    for one in pair.differences:
        if one.aspect in ("turn", "stop"):
            found.add("head")
        elif one.aspect == "text":
            found.add("text")
        else:
            found |= {f"call {one.call}"} if one.aspect == "arguments" else {f"result {one.call}"}
            found |= {f"call {one.call}"} if one.aspect == "call" else set()
    return found


def _short(value: object) -> str:
    text, _ = text_of(value, _QUOTED)
    text = " ".join(text[: 4 * _QUOTED].split())
    return text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…"


def _around(before: str, after: str) -> tuple[str, str]:
    """Two texts from a little before where they part."""
    part = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    start = max(0, part - 12) if max(len(before), len(after)) > _QUOTED else 0
    return _quote(before, start), _quote(after, start)


def _quote(text: str, start: int) -> str:
    piece = " ".join(text[start : start + _QUOTED].split())
    return f'"{"…" if start else ""}{piece}{"…" if start + _QUOTED < len(text) else ""}"'
