"""Plots as SVG, made on the server: pure functions from numbers to markup.

Positions on the time axis are percentages and heights are pixels. So a plot fills any width, and its text and marks
keep their size on a phone. Colours come from the style sheet, by class; nothing here needs an inline style or a script.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, tzinfo

from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.service.console.render import NO_TIME, moment

ACTIONS = ("allow", "pause", "block", "terminate_session")
"""from the mildest to the strictest: the order in which bars are stacked"""
NOTICED = "noticed"
"""what only the follow-up has found; it is stacked last"""
_STACK = (*ACTIONS, NOTICED)
_HEIGHT, _TOP, _FOOT = 132, 10, 22
_LANE = 34
_FARTHEST = 1e11
"""seconds: no time of an event is farther from 1970"""
_MARKS_A_LANE = 200
"""calls that are closer to each other than this part of the axis are one mark"""
_SHAPES = {
    "allow": '<circle class="mark allow" r="5"/>',
    "pause": '<rect class="mark pause" x="-5" y="-5" width="10" height="10" rx="1"/>',
    "block": '<path class="mark block" d="M0-7 7 0 0 7-7 0Z"/>',
    "terminate_session": '<path class="mark terminate_session" d="M0-7 7 6H-7Z"/>',
}
"""each action has a shape of its own, so that nobody has to tell the colours apart"""


class Bucket(Struct, frozen=True):
    """Decisions in one part of the time axis."""

    start: float
    counts: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class Lane(Struct, frozen=True):
    """One run on the time axis of a session."""

    label: str
    start: float
    end: float
    parent: int | None = None
    """the number of the lane that has started it"""


class Mark(Struct, frozen=True):
    """One call on a lane."""

    lane: int
    at: float
    action: str
    label: str
    href: str = ""


def activity_plot(buckets: Sequence[Bucket], *, label: str, zone: tzinfo = UTC) -> Markup:
    """Decisions over time as stacked bars, by action. A bucket's title has its numbers."""
    if not buckets:
        return Markup()
    most = max(1, *(bucket.total for bucket in buckets))
    ceiling = _round_up(most)
    step = 100 / len(buckets)
    base = _HEIGHT - _FOOT
    parts = [_grid(ceiling, base)]
    for number, bucket in enumerate(buckets):
        parts.append(_bar(bucket, number * step, step, ceiling, base, zone))
    last = len(buckets) - 1
    for number in sorted({0, len(buckets) // 4, len(buckets) // 2, 3 * len(buckets) // 4, last}):
        part = number / max(1, last)
        parts.append(_text(100 * part, base + 16, clock_time(buckets[number].start, zone), part))
    totals = {action: sum(bucket.counts.get(action, 0) for bucket in buckets) for action in _STACK}
    summary = ", ".join(f"{count:,} {action}" for action, count in totals.items() if count) or "no decisions"
    return _svg("activity", _HEIGHT, f"{label}: {summary}", parts)


def small_plot(counts: Sequence[int], *, label: str, action: str = "block") -> Markup:
    """A row of small bars without axes, for a table."""
    most, step = max([1, *counts]), 100 / max(1, len(counts))
    parts = [Markup('<line class="base" x1="0" x2="100%" y1="23.5" y2="23.5"/>')]
    for number, count in enumerate(counts):
        if count:
            height = max(2.0, 22 * count / most)
            parts.append(
                Markup('<rect class="bar {}" x="{:.2f}%" y="{:.1f}" width="{:.2f}%" height="{:.1f}"/>').format(
                    action, number * step + step * 0.1, 23 - height, step * 0.8, height
                )
            )
    return _svg("small", 24, f"{label}: {sum(counts):,}", parts)


def timeline_plot(lanes: Sequence[Lane], marks: Sequence[Mark], *, label: str) -> Markup:
    """The calls of a tree of runs on one time axis, a lane for each run. Calls at nearly the same time share a mark,
    which shows the strictest of their actions."""
    if not lanes:
        return Markup()
    lanes = [replace(lane, start=_bounded(lane.start), end=_bounded(lane.end)) for lane in lanes]
    marks = [replace(mark, at=_bounded(mark.at)) for mark in marks]
    first = min([*(lane.start for lane in lanes), *(mark.at for mark in marks)])
    last = max([*(lane.end for lane in lanes), *(mark.at for mark in marks)])
    span = max(last - first, 1e-6)

    def place(at: float) -> float:
        return 2 + 96 * (at - first) / span

    height = _LANE * len(lanes) + _FOOT
    parts = [_lane(number, lane, place(lane.start), place(lane.end)) for number, lane in enumerate(lanes)]
    groups: dict[tuple[int, int], list[Mark]] = {}
    for mark in marks:
        groups.setdefault((mark.lane, int(_MARKS_A_LANE * (mark.at - first) / span)), []).append(mark)
    parts += [_mark(group, place(group[0].at)) for group in groups.values()]
    base = _LANE * len(lanes)
    parts.append(Markup('<line class="base" x1="0" x2="100%" y1="{0}" y2="{0}"/>').format(base))
    parts += [
        _text(place(first + span * part), height - 6, _offset(span * part), part) for part in (0, 0.25, 0.5, 0.75, 1)
    ]
    return _svg("timeline", height, label, parts, role="group")


def _svg(kind: str, height: int, label: str, parts: Sequence[Markup], role: str = "img") -> Markup:
    opening = Markup('<svg class="plot {}" width="100%" height="{}" role="{}" aria-label="{}">')
    return opening.format(kind, height, role, label) + Markup().join(parts) + Markup("</svg>")


def _grid(ceiling: int, base: int) -> Markup:
    lines = Markup()
    for part in (0.5, 1.0):
        y = base - (base - _TOP) * part
        lines += Markup('<line class="grid" x1="0" x2="100%" y1="{0:.1f}" y2="{0:.1f}"/>').format(y)
        lines += Markup('<text class="grid" x="2" y="{:.1f}">{}</text>').format(y - 3, f"{ceiling * part:,.0f}")
    return lines + Markup('<line class="base" x1="0" x2="100%" y1="{0}" y2="{0}"/>').format(base)


def _bar(bucket: Bucket, left: float, step: float, ceiling: int, base: int, zone: tzinfo) -> Markup:
    y, bars = float(base), Markup()
    for action in _STACK:
        count = bucket.counts.get(action, 0)
        if count:
            height = max(1.5, (base - _TOP) * count / ceiling)
            y -= height
            bars += Markup('<rect class="bar {}" x="{:.3f}%" y="{:.1f}" width="{:.3f}%" height="{:.1f}"/>').format(
                action, left + step * 0.1, y, step * 0.8, height
            )
    shown = ", ".join(f"{bucket.counts[action]:,} {action}" for action in _STACK if bucket.counts.get(action))
    title = f"{clock_time(bucket.start, zone)} {shown or 'no decisions'}"
    catch = Markup('<rect class="catch" x="{:.3f}%" y="0" width="{:.3f}%" height="{}"/>').format(left, step, base)
    return Markup("<g><title>{}</title>{}{}</g>").format(title, catch, bars)


def _text(x: float, y: float, text: str, part: float) -> Markup:
    """A label of the axis; the first and the last stay inside of the plot."""
    anchor = "start" if part <= 0 else "end" if part >= 1 else "middle"
    wide = "" if part in (0, 1) or abs(part - 0.5) < 0.2 else " wide"
    return Markup('<text class="tick{}" x="{:.2f}%" y="{:.0f}" text-anchor="{}">{}</text>').format(
        wide, min(max(x, 0.0), 100.0), y, anchor, text
    )


def _lane(number: int, lane: Lane, left: float, right: float) -> Markup:
    middle = _LANE * number + _LANE // 2
    band = Markup('<rect class="lane{}" x="0" y="{}" width="100%" height="{}"/>').format(
        " odd" if number % 2 else "", _LANE * number, _LANE
    )
    if lane.parent is not None:
        above = _LANE * lane.parent + _LANE // 2
        band += Markup('<line class="start" x1="{0:.3f}%" x2="{0:.3f}%" y1="{1}" y2="{2}"/>').format(
            left, above, middle
        )
    return band + Markup('<line class="run" x1="{:.3f}%" x2="{:.3f}%" y1="{}" y2="{}"><title>{}</title></line>').format(
        left, max(right, left + 0.3), middle, middle, lane.label
    )


def _mark(group: Sequence[Mark], left: float) -> Markup:
    shown = max(group, key=lambda mark: ACTIONS.index(mark.action) if mark.action in ACTIONS else 0)
    more = f" and {len(group) - 1:,} more" if len(group) > 1 else ""
    shape = Markup(_SHAPES.get(shown.action, _SHAPES["allow"]))  # a constant, never text of a user
    inner = Markup('<svg x="{:.3f}%" y="{}" overflow="visible">{}<title>{}</title></svg>').format(
        left, _LANE * shown.lane + _LANE // 2, shape, shown.label + more
    )
    if not shown.href:
        return inner
    return Markup('<a href="{}" aria-label="{}">{}</a>').format(shown.href, shown.label + more, inner)


def _round_up(most: int) -> int:
    """The next even number that reads well as the top of an axis, so that its half is a whole number."""
    size = 1
    while True:
        for step in (2, 4, 6, 8, 10, 12, 16, 20, 24, 30, 40, 50, 60, 80):
            if step * size >= most:
                return step * size
        size *= 10


def clock_time(at: float, zone: tzinfo) -> str:
    then = moment(at, zone)
    return NO_TIME if then is None else then.strftime("%H:%M")


def _bounded(at: float) -> float:
    """A number that an axis can hold, whatever was recorded as the time."""
    return min(max(at, -_FARTHEST), _FARTHEST) if at == at else 0.0


def _offset(seconds: float) -> str:
    """Time since the beginning of a session."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
