"""A timeline for people: the totals, then one entry at a time, so that a trace may have any length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from bylaw.inspect.model import Entry, EventEntry, Known, RequestEntry, SessionEntry, SessionTotals, Totals, TurnEntry
from bylaw.inspect.report.layout import (
    BOLD,
    DIM,
    INDENT,
    PLAIN,
    UNKNOWN,
    YELLOW,
    Line,
    Style,
    cut,
    fit,
    fold,
    format_cost,
    format_duration,
    format_latency,
    format_number,
    labelled,
    line,
    middle,
    preview,
    share_of_turns,
    width,
)
from bylaw.inspect.report.turns import View, entry_lines, request_lines, turn_blocks
from bylaw.model.ports import TraceSource
from bylaw.report.text import NARROWEST, count

_MOST_NAMED = 8
"""names listed; the others are counted"""


def title(name: str, format: str | None, columns: int) -> list[Line]:
    shown = middle(name, columns - 20)
    about = cut(f"  {format or 'no format'}", columns - width(shown))
    return [line((shown, BOLD), (about, DIM))]


def totals_lines(totals: Totals, source: TraceSource, columns: int) -> Iterator[Line]:
    room = max(10, columns - INDENT)
    sizes = [count(totals.sessions, "session"), count(totals.turns, "turn"), count(totals.calls, "call")]
    sizes += [f"{totals.failed:,} failed"] if totals.failed else []
    parts = [(cut(" · ".join(sizes), room), PLAIN)]
    parts.append((" · complete", DIM) if source.complete else (" · stopped early", YELLOW))
    yield _row("holds", parts)
    if totals.agents:
        yield from labelled("agents", DIM, _flowing(_names(totals.agents), room))
    yield from labelled("models", DIM, _flowing(_names(totals.models) or [UNKNOWN], room))
    if totals.tools:
        yield from labelled("tools", DIM, _flowing(_names(totals.tools), room))
    yield from labelled("spent", DIM, _flowing(_spent(totals), room))
    if source.skipped:
        yield _row("skipped", [(count(source.skipped, "bad record"), YELLOW)])
    if source.problems:
        yield _row("problems", [(f"{count(len(source.problems), 'warning')}, shown at the end", YELLOW)])


def note_lines(notes: Sequence[str], columns: int) -> Iterator[Line]:
    for note in notes:
        yield from labelled("note", DIM, fold(note, max(10, columns - INDENT), 3), DIM)


def session_lines(entry: SessionEntry, columns: int) -> list[Line]:
    again = " (continued)" if entry.continued else ""
    name = middle(entry.session, max(10, columns - 14 - len(again)))
    start, spent = f"━━ session {name}{again} ", _session_spent(entry.totals)
    rest = max(0, columns - width(start) - width(spent))
    lines = [Line(""), line((start, BOLD), ("━" * rest, DIM), (spent if rest else "", DIM))]
    if entry.metadata:
        metadata = ", ".join(f"{key}={preview(value, columns)}" for key, value in list(entry.metadata.items())[:50])
        lines += [line((f"   {text}", DIM)) for text in fold(metadata, columns - 3, 1, sized=False)]
    return lines


def _session_spent(totals: SessionTotals | None) -> str:
    """What a session cost and how long it lasted, as far as that was recorded."""
    if totals is None or (not totals.cost.turns and not totals.lasted):
        return ""
    parts = (
        [f"{format_cost(totals.cost.total)}{share_of_turns(totals.cost, totals.turns)}"] if totals.cost.turns else []
    )
    parts += [f"lasted {format_duration(totals.lasted)}"] if totals.lasted else []
    return f" {count(totals.turns, 'turn')} · {' · '.join(parts)}"


def _row(label: str, parts: Sequence[tuple[str, Style]]) -> Line:
    (head,) = labelled(label, DIM, [""])
    rest = line(*parts)
    return Line(head.text + rest.text, head.width + rest.width)


def _flowing(parts: Sequence[str], columns: int) -> list[str]:
    """Lines of parts; a part is broken only where it is longer than a line."""
    lines = [""]
    for part in (fit(part, columns) for part in parts):
        joined = f"{lines[-1]} · {part}" if lines[-1] else part
        if width(joined) <= columns:
            lines[-1] = joined
        else:
            lines.append(part)
    return lines


def _names(counted: dict[str, int]) -> list[str]:
    most = sorted(counted.items(), key=lambda item: -item[1])
    shown = [f"{name[:80]} {number:,}" for name, number in most[:_MOST_NAMED]]
    return [*shown, *([f"and {len(most) - _MOST_NAMED:,} more"] if len(most) > _MOST_NAMED else ())]


def _spent(totals: Totals) -> list[str]:
    turns, cost, latency = totals.turns, totals.cost, totals.latency_ms
    span = None if totals.first is None or totals.last is None else totals.last - totals.first
    return [
        _tokens(totals),
        format_cost(_sum(cost)) + share_of_turns(cost, turns),
        f"latency {UNKNOWN if not latency.turns else format_latency(latency.total)}" + share_of_turns(latency, turns),
        f"lasted {UNKNOWN if span is None else format_duration(span)}",
    ]


def _tokens(totals: Totals) -> str:
    sent, received = totals.input_tokens, totals.output_tokens
    if not sent.turns and not received.turns:
        return f"{format_number(_sum(totals.all_tokens))} tokens{share_of_turns(totals.all_tokens, totals.turns)}"
    cached = f" ({totals.cached_tokens.total:,.0f} cached)" if totals.cached_tokens.total else ""
    least = min(sent, received, key=lambda known: known.turns)
    both = f"{format_number(_sum(sent))}{cached} → {format_number(_sum(received))}"
    return f"{both} tokens{share_of_turns(least, totals.turns)}"


def _sum(known: Known) -> float | None:
    return known.total if known.turns else None


class Page:
    """Renders entries in their order; a model is named only where it changes."""

    def __init__(self, *, width: int, full: bool = False) -> None:
        self._view = View(max(width, NARROWEST), full)
        self._model: str | None = None

    def title(self, name: str, format: str | None) -> str:
        return _text(title(name, format, self._view.width))

    def totals_follow(self) -> str:
        """In place of the totals, where a trace is too long to know them yet."""
        return _text(labelled("holds", DIM, ["many events; the totals follow at the end"], DIM))

    def totals(self, totals: Totals, source: TraceSource) -> str:
        return _text([*totals_lines(totals, source, self._view.width), *note_lines(source.notes, self._view.width)])

    def entry(self, entry: Entry) -> str:
        return _text(self._lines(entry))

    def _lines(self, entry: Entry) -> Iterable[Line]:
        if isinstance(entry, SessionEntry):
            return session_lines(entry, self._view.width)
        if isinstance(entry, TurnEntry):
            return [
                line
                for block in turn_blocks(entry, self._view, model=self._is_new_model(entry))
                for line in block.lines
            ]
        if isinstance(entry, RequestEntry):
            return request_lines(entry, self._view)
        assert isinstance(entry, EventEntry)
        return entry_lines(entry, self._view)

    def _is_new_model(self, entry: TurnEntry) -> bool:
        changed = entry.model is not None and entry.model != self._model
        self._model = entry.model or self._model
        return changed


def _text(lines: Iterable[Line]) -> str:
    return "".join(f"{line.text}\n" for line in lines)
