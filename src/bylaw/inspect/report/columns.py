"""Two traces for people: beside each other where there is room, else one below the other with `-` and `+`.

Turns that agree take one line; `full` shows them whole.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from bylaw.inspect.model import PairEntry, SessionPair, SideBySide, TurnEntry
from bylaw.inspect.report import wording
from bylaw.inspect.report.heading import note_lines
from bylaw.inspect.report.lines import BOLD, DIM, GREEN, PLAIN, RED, Block, Line, Style, line
from bylaw.inspect.report.terminal import NARROWEST
from bylaw.inspect.report.text import fit, fold, middle, one_line, width
from bylaw.inspect.report.turns import View, turn_blocks
from bylaw.inspect.report.values import call_preview

BESIDE = 100
"""columns from which two traces stand beside each other"""
_GAP = 3


class Columns:
    def __init__(self, *, width: int, full: bool = False) -> None:
        self._width = max(width, NARROWEST)
        self._full = full
        self._beside = self._width >= BESIDE
        self._column = (self._width - _GAP) // 2 if self._beside else self._width - 2

    def render(self, report: SideBySide) -> Iterator[str]:
        """Piece by piece."""
        yield _text(self._top(report))
        for session in report.sessions:
            yield _text(self._session(session, report))
            for pair in session.pairs:
                yield _text(self._pair(pair))

    def _top(self, report: SideBySide) -> Iterator[Line]:
        mark, style = ("=", Style(fg="green", bold=True)) if report.first is None else ("≠", RED)
        if not report.pairs:
            mark, style = "∅", Style(fg="yellow", bold=True)
        yield from _rows(f"{mark} {wording.headline(report)}", self._width, 3, style)
        yield from _rows(wording.size(report), self._width, 2, DIM)
        if report.input_differs_at is not None:
            told = f"the agents were told different things, first at turn {report.input_differs_at}"
            yield from note_lines([told], self._width)
        yield from note_lines(report.notes, self._width)

    def _session(self, session: SessionPair, report: SideBySide) -> Iterator[Line]:
        both = [session.baseline, session.candidate]
        names = dict.fromkeys(middle(one, 40) if one is not None else "–" for one in both)
        start = f"━━ session {' ↔ '.join(names)} "
        yield Line("")
        yield line((start, BOLD), ("━" * max(0, self._width - width(start)), DIM))
        if self._beside and (self._full or any(pair.differences for pair in session.pairs)):
            left, right = (line((fit(name, self._column), DIM)) for name in wording.names(report))
            yield self._joined(left, " │ ", DIM, right)

    # Pairs

    def _pair(self, pair: PairEntry) -> Iterator[Line]:
        if not pair.differences and not (self._full or pair.whole):
            yield self._agreed(pair)
            return
        if pair.differences:
            mark = "≠≠ first difference: " if pair.first else "≠ "
            yield from _rows(mark + wording.pair_line(pair), self._width, 3, RED)
        lay = self._rows_beside if self._beside else self._rows_below
        yield from lay(pair)

    def _agreed(self, pair: PairEntry) -> Line:
        entry = pair.baseline
        assert entry is not None
        turns = dict.fromkeys(str(one.turn) for one in (pair.baseline, pair.candidate) if one)
        start = f"= turn {' ↔ '.join(turns)}  "
        return line((start, DIM), (one_line(_summary(entry, self._width), self._width - width(start)), DIM))

    def _blocks(self, entry: TurnEntry | None, pair: PairEntry, side: int) -> dict[str, list[Line]]:
        """Blocks by key; a call has the key of its place in the pair."""
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

    def _matched(self, pair: PairEntry) -> Iterator[tuple[bool, Block, Block]]:
        """(whether they differ, the one side's block, the other's), in the order of a turn."""
        left = self._blocks(pair.baseline, pair, 0)
        right = self._blocks(pair.candidate, pair, 1)
        calls = [f"{what} {place}" for place in range(len(pair.calls)) for what in ("call", "result")]
        differing = wording.keys(pair)
        alone = pair.baseline is None or pair.candidate is None
        for key in ("head", "input", "thoughts", "text", *calls, "beside"):
            if key in left or key in right:
                yield alone or key in differing, Block(key, left.get(key, [])), Block(key, right.get(key, []))

    def _rows_beside(self, pair: PairEntry) -> Iterator[Line]:
        for differs, left, right in self._matched(pair):
            for row in range(max(len(left.lines), len(right.lines))):
                one = left.lines[row] if row < len(left.lines) else Line("")
                other = right.lines[row] if row < len(right.lines) else Line("")
                yield self._joined(one, " ≠ " if differs else " │ ", RED if differs else DIM, other)

    def _joined(self, left: Line, mark: str, style: Style, right: Line) -> Line:
        shown = mark if right.text else mark.rstrip()
        return Line(left.padded(self._column) + style.on(shown) + right.text, self._column + _GAP + right.width)

    def _rows_below(self, pair: PairEntry) -> Iterator[Line]:
        for differs, left, right in self._matched(pair):
            if not differs and _alike(left, right):
                yield from _marked(left.lines or right.lines, " ", PLAIN)
            else:
                yield from _marked(left.lines, "-", Style(fg="red", bold=True))
                yield from _marked(right.lines, "+", GREEN)


def _alike(left: Block, right: Block) -> bool:
    """Figures, ids and times differ from run to run; what the model was told is another matter."""
    return left.lines == right.lines or left.key not in ("input", "thoughts", "beside")


def _marked(lines: list[Line], mark: str, style: Style) -> Iterator[Line]:
    head = line((f"{mark} ", style))
    yield from (Line(head.text + one.text, 2 + one.width) for one in lines)


def _rows(text: str, columns: int, lines: int, style: Style) -> Iterator[Line]:
    yield from (line((piece, style)) for piece in fold(text, columns, lines, sized=False))


def _summary(entry: TurnEntry, limit: int) -> str:
    """A turn in one line: its calls, then its words."""
    calls = [
        f"{one.call.name}({call_preview(one.call.arguments, one.call.raw_arguments, limit)})" for one in entry.calls[:8]
    ]
    text = " ".join((entry.response.text or "")[:limit].split())
    return " ".join([*(f"→ {call}" for call in calls), *([f'"{text}"'] if text else [])]) or "–"


def _text(lines: Iterator[Line]) -> str:
    return "".join(f"{one.text}\n" for one in lines)
