"""What a trace holds in all, and the headings of its sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bylaw.inspect.model import Known, SessionEntry, Totals
from bylaw.inspect.report import figures
from bylaw.inspect.report.lines import BOLD, DIM, INDENT, PLAIN, YELLOW, Line, Style, labelled, line
from bylaw.inspect.report.text import cut, fit, fold, middle, width
from bylaw.inspect.report.values import preview
from bylaw.report.text import count

_NAMED = 8
"""names listed; the rest is counted"""


def title(name: str, format: str | None, columns: int) -> list[Line]:
    shown = middle(name, columns - 20)
    about = cut(f"  {format or 'no format'}", columns - width(shown))
    return [line((shown, BOLD), (about, DIM))]


def totals_lines(totals: Totals, *, complete: bool, skipped: int, warnings: int, columns: int) -> Iterator[Line]:
    room = max(10, columns - INDENT)
    held = [count(totals.sessions, "session"), count(totals.turns, "turn"), count(totals.calls, "call")]
    held += [f"{totals.failed:,} failed"] if totals.failed else []
    parts = [(cut(" · ".join(held), room), PLAIN)]
    parts.append((" · complete", DIM) if complete else (" · stopped early", YELLOW))
    yield _row("holds", parts)
    if totals.agents:
        yield from labelled("agents", DIM, _flowing(_names(totals.agents), room))
    yield from labelled("models", DIM, _flowing(_names(totals.models) or [figures.UNKNOWN], room))
    if totals.tools:
        yield from labelled("tools", DIM, _flowing(_names(totals.tools), room))
    yield from labelled("spent", DIM, _flowing(_spent(totals), room))
    if skipped:
        yield _row("skipped", [(count(skipped, "bad record"), YELLOW)])
    if warnings:
        yield _row("problems", [(f"{count(warnings, 'warning')}, shown at the end", YELLOW)])


def note_lines(notes: Sequence[str], columns: int) -> Iterator[Line]:
    for note in notes:
        yield from labelled("note", DIM, fold(note, max(10, columns - INDENT), 3), DIM)


def session_lines(entry: SessionEntry, columns: int) -> list[Line]:
    again = " (continued)" if entry.continued else ""
    name = middle(entry.session, max(10, columns - 14 - len(again)))
    start = f"━━ session {name}{again} "
    lines = [Line(""), line((start, BOLD), ("━" * max(0, columns - width(start)), DIM))]
    if entry.metadata:
        told = ", ".join(f"{key}={preview(value, columns)}" for key, value in list(entry.metadata.items())[:50])
        lines += [line((f"   {text}", DIM)) for text in fold(told, columns - 3, 1, sized=False)]
    return lines


def _row(label: str, parts: Sequence[tuple[str, Style]]) -> Line:
    (head,) = labelled(label, DIM, [""])
    rest = line(*parts)
    return Line(head.text + rest.text, head.width + rest.width)


def _flowing(parts: Sequence[str], columns: int) -> list[str]:
    """Parts beside each other, none broken where it fits a line."""
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
    shown = [f"{name[:80]} {number:,}" for name, number in most[:_NAMED]]
    return [*shown, *([f"and {len(most) - _NAMED:,} more"] if len(most) > _NAMED else ())]


def _spent(totals: Totals) -> list[str]:
    turns, cost, latency = totals.turns, totals.cost, totals.latency_ms
    span = None if totals.first is None or totals.last is None else totals.last - totals.first
    return [
        _tokens(totals),
        figures.money(_sum(cost)) + figures.share(cost, turns),
        f"latency {figures.UNKNOWN if not latency.turns else figures.latency(latency.total)}"
        + figures.share(latency, turns),
        f"lasted {figures.UNKNOWN if span is None else figures.clock(span)}",
    ]


def _tokens(totals: Totals) -> str:
    told, heard = totals.input_tokens, totals.output_tokens
    if not told.turns and not heard.turns:
        return f"{figures.number(_sum(totals.all_tokens))} tokens{figures.share(totals.all_tokens, totals.turns)}"
    cached = f" ({totals.cached_tokens.total:,.0f} cached)" if totals.cached_tokens.total else ""
    least = min(told, heard, key=lambda known: known.turns)
    both = f"{figures.number(_sum(told))}{cached} → {figures.number(_sum(heard))}"
    return f"{both} tokens{figures.share(least, totals.turns)}"


def _sum(known: Known) -> float | None:
    return known.total if known.turns else None
