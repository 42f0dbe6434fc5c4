"""Phrases of a backtest and of a shadow report that the renderers for people share."""

from __future__ import annotations

from collections.abc import Iterator

from bylaw.guard.backtest.model import LACKS, OUTCOMES, BacktestReport, Example, RuleTally, ShadowReport, ShadowTally
from bylaw.report.text import count


def headline(report: BacktestReport) -> str:
    """Says what the exit code says."""
    if report.exit_code == 1:
        if report.fail_on == "flips":
            return f"FAILED: {count(report.flipped, 'decision')} flipped"
        return f"FAILED: {count(report.stops, 'call')} stopped"
    if report.exit_code == 3:
        return f"NOTHING JUDGED: {'no rule speaks of a call here' if report.calls else 'no call was recorded'}"
    return f"{report.stops:,} of {count(report.calls, 'call')} stopped"


def size(report: BacktestReport) -> str:
    parts = (count(len(report.traces), "trace"), count(report.sessions, "session"), count(report.calls, "call"))
    return ", ".join(parts)


def coverage(report: BacktestReport) -> str:
    """The figure that all others rest on."""
    share = report.coverage
    if share is None:
        return "coverage: no call that a rule speaks of"
    of = f"{report.covered:,} of {count(report.judged, 'call')} that rules speak of"
    return f"coverage: {percent(share)} ({of} are recorded with all that the rules need)"


def lacking(report: BacktestReport) -> Iterator[str]:
    for lack, calls in sorted(report.lacking.items(), key=lambda item: -item[1]):
        yield f"{LACKS[lack]}: {count(calls, 'call')}"


def actions(found: dict[str, int]) -> str:
    return " · ".join(f"{found[outcome]:,} {outcome}" for outcome in OUTCOMES if found[outcome] or outcome == "allow")


def rule_counts(tally: RuleTally) -> str:
    parts = (
        [f"{tally.matched:,} of {count(tally.concerned, 'call')}"]
        if tally.concerned
        else [count(tally.matched, "call")]
    )
    if tally.matched:
        parts.append(
            f"{count(tally.decided, 'call')} decided" if not tally.shadow else f"{tally.changed:,} would change"
        )
        parts.append(count(tally.sessions, "session"))
    if tally.doubtful:
        parts.append(f"{tally.doubtful:,} for values that cannot be compared")
    if tally.lacking:
        parts.append(f"{tally.lacking:,} not judged")
    if tally.afterwards:
        parts.append(f"broken {tally.afterwards:,} times when no call could be stopped")
    return " · ".join(parts)


def about(tally: RuleTally | ShadowTally) -> str:
    mode = " in shadow" if isinstance(tally, RuleTally) and tally.shadow else ""
    return f"{tally.then}{mode}" + (f" · {tally.line}" if tally.line else "")


def place(example: Example) -> str:
    turn = "" if example.turn is None else f"turn {example.turn}"
    parts = (example.trace, f"session {example.session}", turn)
    return " · ".join(part for part in parts if part)


def remarks(report: BacktestReport) -> Iterator[str]:
    if report.after_a_stop:
        yield (
            f"{count(report.after_a_stop, 'call')} came after one that would have been stopped; they are judged as "
            "recorded, though the agent might have gone on otherwise"
        )
    if report.resumed:
        yield f"{count(report.resumed, 'session')} or more went on after a long pause and were judged in two parts"
    for rule in report.never_decide:
        yield f"{rule}: a window counter decides no call without `inline: true`"
    for trace in report.traces:
        if not trace.complete:
            yield f"{trace.name}: the recording stopped early"
        if trace.skipped:
            yield f"{trace.name}: {count(trace.skipped, 'bad record')} skipped"
        yield from (f"{trace.name}: {note}" for note in trace.notes)


def busiest(report: BacktestReport) -> list[RuleTally]:
    """Rules by what they did, those that did nothing last."""
    return sorted(report.rules.values(), key=lambda tally: (-tally.decided, -tally.changed, -tally.matched))


def percent(share: float) -> str:
    """Never rounded up to all, or down to none."""
    if 0 < share < 0.001:
        return "< 0.1%"
    return "> 99.9%" if 0.999 < share < 1 else f"{share:.1%}"


def shadow_headline(report: ShadowReport) -> str:
    if not report.decisions:
        return "no decision is recorded"
    return f"{report.changed:,} of {count(report.decisions, 'decision')} would have been another"


def shadow_counts(tally: ShadowTally) -> str:
    flips = ", ".join(f"{flip} {number:,}" for flip, number in sorted(tally.changed.items()))
    changes = f"{count(tally.changes, 'decision')} changed ({flips})" if flips else "no decision changed"
    return f"{changes} · matched {tally.matched:,} · {count(tally.sessions, 'session')}"
