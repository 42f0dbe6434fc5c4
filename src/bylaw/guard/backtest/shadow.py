"""What rules and guards in shadow would have changed, by the decisions that a live guard has written down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bylaw.engine.evidence import as_json, shorten
from bylaw.guard.backtest.model import Example, ShadowReport, ShadowTally
from bylaw.guard.stores.ports import EventRow, GuardStore
from bylaw.model.guarding import Action

EXAMPLES = 3
PAGE = 1_000
MOST_SESSIONS = 1_000_000
"""told apart for one rule"""


def shadow_report(store: GuardStore, *, rule: str | None = None, examples: int = EXAMPLES) -> ShadowReport:
    """Of every rule that would have changed a decision or had something against a call in shadow, or of one."""
    report, sessions = ShadowReport(), dict[str, set[int]]()
    for row in _decisions(store):
        report.decisions += 1
        action = Action(row.data["decision"]["action"])
        changed = False
        for match in _in_shadow(row.data["decision"], action):
            if rule is not None and match["rule"] != rule:
                continue
            tally = report.rules.get(match["rule"]) or _begin(report, match)
            _count(tally, match, row, action, examples)
            seen = sessions.setdefault(tally.rule, set())
            if len(seen) < MOST_SESSIONS:
                seen.add(hash(row.session))
            tally.sessions = len(seen)
            changed = changed or Action(match["then"]).strictness > action.strictness
        report.changed += changed
    return report


def _decisions(store: GuardStore) -> Iterator[EventRow]:
    after = 0
    while rows := store.events(after=after, limit=PAGE):
        yield from (row for row in rows if row.kind == "decision" and "decision" in row.data)
        after = rows[-1].seq


def _in_shadow(decision: dict[str, Any], action: Action) -> Iterable[dict[str, Any]]:
    """Matches that did not act: those of shadow rules, and in a guard that is in shadow as a whole, all of them."""
    matches = decision.get("matches", [])
    found = [m for m in matches if m["shadow"] or Action(m["then"]).strictness > action.strictness]
    if not matches and "would" in decision:  # refused before any rule was asked
        by = decision["decided_by"] or "the guard"
        found = [{"rule": by, "then": decision["would"], "message": decision["reason"], "reason": None, "line": None}]
    return found


def _begin(report: ShadowReport, match: dict[str, Any]) -> ShadowTally:
    tally = ShadowTally(rule=match["rule"], then=match["then"], line=match.get("line"))
    report.rules[tally.rule] = tally
    return tally


def _count(tally: ShadowTally, match: dict[str, Any], row: EventRow, action: Action, examples: int) -> None:
    tally.matched += 1
    tally.first = row.at if tally.first is None else min(tally.first, row.at)
    tally.last = row.at if tally.last is None else max(tally.last, row.at)
    then = Action(match["then"])
    if then.strictness <= action.strictness:
        return
    flip = f"{action.value} → {then.value}"
    tally.changed[flip] = tally.changed.get(flip, 0) + 1
    if len(tally.examples) < examples:
        tally.examples.append(_example(match, row, action))


def _example(match: dict[str, Any], row: EventRow, action: Action) -> Example:
    """What is written down is without secrets already."""
    attempt = row.data["attempt"]
    arguments = attempt.get("arguments")
    if isinstance(arguments, dict):
        shown = ", ".join(f"{key}={as_json(value)}" for key, value in arguments.items())
    else:
        shown = "" if arguments is None else as_json(arguments)
    tool = str(attempt["tool"])
    return Example(
        trace="",
        session=row.session,
        tool=tool,
        call=shorten(f"{tool}({shown})"),
        action=match["then"],
        before=action.value,
        rules=tuple(row.data["decision"]["matched"]),
        why=match["reason"] or match["message"],
    )
