"""Two traces for people: in two columns where there is room, else one below the other with `-` and `+`.

Turns that agree take one line; `full` shows them whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from os.path import basename

from msgspec.structs import replace

from bylaw.inspect.model import Difference, PairEntry, SessionPair, SideBySide, TurnEntry
from bylaw.inspect.report.layout import (
    BOLD,
    DIM,
    GREEN,
    PLAIN,
    RED,
    Block,
    Line,
    Style,
    call_preview,
    fit,
    fold,
    line,
    middle,
    one_line,
    text_of,
)
from bylaw.inspect.report.terminal import View, join_lines, note_lines, turn_blocks
from bylaw.report.text import NARROWEST, count, width

_QUOTED = 40
"""characters of a value that a line quotes"""


def headline(report: SideBySide) -> str:
    """The first difference that is shown. Differences in the rest of the traces are only counted."""
    for session in report.sessions:
        for pair in session.pairs:
            if pair.differences:
                return _first_line(session, pair, report)
    if not report.pairs:
        return "nothing to compare"
    if report.shown and not report.differing:
        return "no difference"
    rest = f"; {_count_differing(report.differing, report.pairs)} in the whole traces" if report.differing else ""
    return f"{'no difference in what is shown' if report.shown else 'nothing to show'}{rest}"


def _first_line(session: SessionPair, pair: PairEntry, report: SideBySide) -> str:
    which = "first difference" if pair.first else "first shown difference"
    turn = "–" if pair.turn is None else pair.turn
    name = session.candidate if session.baseline is None else session.baseline
    where = f" of session {name}" if report.totals[0].sessions > 1 and name else ""
    return f"{which} at turn {turn}{where}: {difference_line(pair.differences[0])}"


def size(report: SideBySide) -> str:
    pairs = shown_pairs(report)
    differing = sum(bool(pair.differences) for pair in pairs)
    start, turns = _count_differing(differing, report.pairs), [count(one.turns, "turn") for one in report.totals]
    if report.shown < report.pairs:
        whole = f"{report.differing:,} of {report.pairs:,} in the whole traces"
        start = f"{_count_differing(differing, report.shown, 'shown pair')}, {whole}"
        shown = (sum(pair.baseline is not None for pair in pairs), sum(pair.candidate is not None for pair in pairs))
        turns = [f"{number:,} of {turn} shown" for number, turn in zip(shown, turns, strict=True)]
    names = (f"{name}: {turn}" for name, turn in zip(trace_names(report), turns, strict=True))
    return " · ".join([*([start] if differing else []), *names])


def _count_differing(differing: int, pairs: int, what: str = "pair") -> str:
    return f"{differing:,} of {count(pairs, what)} of turns differ{'s' if differing == 1 else ''}"


def shown_pairs(report: SideBySide) -> list[PairEntry]:
    return [pair for session in report.sessions for pair in session.pairs]


def trace_names(report: SideBySide) -> tuple[str, str]:
    """File names, with their folders only where the names are equal."""
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
        return f"{difference.what}: {_shorten_value(before if after is None else after)}"
    left, right = _shorten_value(before), _shorten_value(after)
    if isinstance(before, str) and isinstance(after, str):
        left, right = _excerpt_differences(before, after)
    return f"{difference.what} {left} → {right}"


def differing_blocks(pair: PairEntry) -> set[str]:
    """Keys of the blocks that show the differences."""
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


def _shorten_value(value: object) -> str:
    text, _ = text_of(value, _QUOTED)
    text = " ".join(text[: 4 * _QUOTED].split())
    return text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…"


def _excerpt_differences(before: str, after: str) -> tuple[str, str]:
    """Two texts from shortly before their first difference."""
    part = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    start = max(0, part - 12) if max(len(before), len(after)) > _QUOTED else 0
    return _quote(before, start), _quote(after, start)


def _quote(text: str, start: int) -> str:
    piece = " ".join(text[start : start + _QUOTED].split())
    return f'"{"…" if start else ""}{piece}{"…" if start + _QUOTED < len(text) else ""}"'


BESIDE = 100
"""least width for two columns"""
_GAP = 3


class Columns:
    def __init__(self, *, width: int, full: bool = False) -> None:
        self._width = max(width, NARROWEST)
        self._full = full
        self._beside = self._width >= BESIDE
        self._column = (self._width - _GAP) // 2 if self._beside else self._width - 2

    def render(self, report: SideBySide) -> Iterator[str]:
        """The page in pieces."""
        yield join_lines(self._top(report))
        for session in report.sessions:
            yield join_lines(self._session(session, report))
            for pair in session.pairs:
                yield join_lines(self._pair(pair))

    def _top(self, report: SideBySide) -> Iterator[Line]:
        pairs = shown_pairs(report)
        mark, style = ("≠", RED) if any(pair.differences for pair in pairs) else ("=", Style(fg="green", bold=True))
        if not pairs or (mark == "=" and report.differing):
            mark, style = ("=" if pairs else "∅"), Style(fg="yellow", bold=True)
        yield from _rows(f"{mark} {headline(report)}", self._width, 3, style)
        yield from _rows(size(report), self._width, 4, DIM)
        if report.input_differs_at is not None:
            first = next((pair for pair in pairs if pair.other_input), None)
            which = "the requests" if first else "requests that are not shown"
            at = first.turn if first else report.input_differs_at
            yield from note_lines([f"{which} hold different messages, first at turn {at}"], self._width)
        yield from note_lines(report.notes, self._width)

    def _session(self, session: SessionPair, report: SideBySide) -> Iterator[Line]:
        both = [session.baseline, session.candidate]
        names = dict.fromkeys(middle(one, 40) if one is not None else "–" for one in both)
        start = f"━━ session {' ↔ '.join(names)} "
        yield Line("")
        yield line((start, BOLD), ("━" * max(0, self._width - width(start)), DIM))
        if self._beside and (self._full or any(pair.differences for pair in session.pairs)):
            left, right = (line((fit(name, self._column), DIM)) for name in trace_names(report))
            yield self._join_columns(left, " │ ", DIM, right)

    # Pairs

    def _pair(self, pair: PairEntry) -> Iterator[Line]:
        if not pair.differences and not (self._full or pair.whole):
            yield self._summarize_equal(pair)
            return
        if pair.differences:
            mark = "≠≠ first difference: " if pair.first else "≠ "
            yield from _rows(mark + pair_line(pair), self._width, 3, RED)
        lay = self._rows_beside if self._beside else self._rows_below
        yield from lay(pair)

    def _summarize_equal(self, pair: PairEntry) -> Line:
        entry = pair.baseline
        assert entry is not None
        turns = dict.fromkeys(str(one.turn) for one in (pair.baseline, pair.candidate) if one)
        start = f"= turn {' ↔ '.join(turns)}  "
        return line((start, DIM), (one_line(_summary(entry, self._width), self._width - width(start)), DIM))

    def _blocks(self, entry: TurnEntry | None, pair: PairEntry, side: int) -> dict[str, list[Line]]:
        """Blocks by key; the key of a call is its place in the pair."""
        if entry is None:
            return {"head": [line(("(no turn)", DIM))]} if self._beside else {}
        shown = replace(entry, whole=pair.whole, input=replace(entry.input, repeated=0))
        places = {
            f"{what} {calls[side]}": f"{what} {place}"
            for place, calls in enumerate(pair.calls)
            for what in ("call", "result")
        }
        blocks = turn_blocks(shown, View(self._column, self._full))
        return {places.get(block.key, block.key): block.lines for block in blocks}

    def _match_blocks(self, pair: PairEntry) -> Iterator[tuple[bool, Block, Block]]:
        """Whether the blocks differ, the baseline's block, and the candidate's, in the order of a turn."""
        left = self._blocks(pair.baseline, pair, 0)
        right = self._blocks(pair.candidate, pair, 1)
        calls = [f"{what} {place}" for place in range(len(pair.calls)) for what in ("call", "result")]
        differing = differing_blocks(pair)
        alone = pair.baseline is None or pair.candidate is None
        for key in ("head", "input", "thoughts", "text", *calls, "beside"):
            if key in left or key in right:
                yield alone or key in differing, Block(key, left.get(key, [])), Block(key, right.get(key, []))

    def _rows_beside(self, pair: PairEntry) -> Iterator[Line]:
        for differs, left, right in self._match_blocks(pair):
            for row in range(max(len(left.lines), len(right.lines))):
                one = left.lines[row] if row < len(left.lines) else Line("")
                other = right.lines[row] if row < len(right.lines) else Line("")
                yield self._join_columns(one, " ≠ " if differs else " │ ", RED if differs else DIM, other)

    def _join_columns(self, left: Line, mark: str, style: Style, right: Line) -> Line:
        shown = mark if right.text else mark.rstrip()
        return Line(left.padded(self._column) + style.on(shown) + right.text, self._column + _GAP + right.width)

    def _rows_below(self, pair: PairEntry) -> Iterator[Line]:
        for differs, left, right in self._match_blocks(pair):
            # Figures, ids and times differ from run to run and are ignored; input, thoughts and events are compared.
            if not differs and (left.lines == right.lines or left.key not in ("input", "thoughts", "beside")):
                yield from _mark_lines(left.lines or right.lines, " ", PLAIN)
            else:
                yield from _mark_lines(left.lines, "-", Style(fg="red", bold=True))
                yield from _mark_lines(right.lines, "+", GREEN)


def _mark_lines(lines: list[Line], mark: str, style: Style) -> Iterator[Line]:
    head = line((f"{mark} ", style))
    yield from (Line(head.text + one.text, 2 + one.width) for one in lines)


def _rows(text: str, columns: int, lines: int, style: Style) -> Iterator[Line]:
    yield from (line((piece, style)) for piece in fold(text, columns, lines, sized=False))


def _summary(entry: TurnEntry, limit: int) -> str:
    """A turn in one line: its calls, then its text."""
    calls = [
        f"{one.call.name}({call_preview(one.call.arguments, one.call.raw_arguments, limit)})" for one in entry.calls[:8]
    ]
    text = " ".join((entry.response.text or "")[:limit].split())
    return " ".join([*(f"→ {call}" for call in calls), *([f'"{text}"'] if text else [])]) or "–"
