"""Tokens, times and money in few characters. What is unknown is `–`, never 0."""

from __future__ import annotations

from bylaw.inspect.model import Known
from bylaw.model.events import Usage

UNKNOWN = "–"


def tokens(usage: Usage | None) -> str:
    if usage is None or usage.total is None:
        return f"{UNKNOWN} tok"
    if usage.input_tokens is None and usage.output_tokens is None:
        return f"{usage.total:,} tok"
    return f"{number(usage.input_tokens)} → {number(usage.output_tokens)} tok"


def number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def latency(milliseconds: float | None) -> str:
    if milliseconds is None:
        return f"{UNKNOWN} s"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms" if milliseconds >= 1 or milliseconds == 0 else "<1 ms"
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 60_000 else clock(milliseconds / 1000)


def clock(seconds: float) -> str:
    """`2m 13s`, `3h 05m`, `4d 02h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3_600}h {whole % 3_600 // 60:02}m"
    return f"{whole // 86_400:,}d {whole % 86_400 // 3_600:02}h"


def money(dollars: float | None) -> str:
    if dollars is None:
        return f"$ {UNKNOWN}"
    if dollars == 0:
        return "$0"
    if dollars < 0.0001:
        return "<$0.0001"
    return f"${dollars:,.2f}" if dollars >= 1 else f"${dollars:.4f}"


def share(known: Known, turns: int) -> str:
    """Of how many turns a sum speaks, where that is neither all of them nor none."""
    return "" if known.turns >= turns or not known.turns else f" (of {known.turns:,} of {turns:,} turns)"
