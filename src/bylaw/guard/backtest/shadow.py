"""The decisions that shadow rules, or a whole guard in shadow, would have changed, from the record of a live guard."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field

from bylaw.engine.evidence import as_json, shorten
from bylaw.guard.backtest.model import Example
from bylaw.guard.stores.ports import GuardStore, each_event
from bylaw.guard.stores.records import EventRow
from bylaw.model.guard_policy import Action

EXAMPLES = 3
MOST_SESSIONS = 1_000_000
"""sessions that are counted separately for one rule"""


class ShadowTally(Struct, kw_only=True):
    """What one rule would have changed if it had been on."""

    rule: str
    then: str
    line: str | None = None
    matched: int = 0
    changed: dict[str, int] = field(default_factory=dict)
    """such as `allow → block` → decisions"""
    sessions: int = 0
    first: float | None = None
    last: float | None = None
    examples: list[Example] = field(default_factory=list)

    @property
    def changes(self) -> int:
        return sum(self.changed.values())


class ShadowReport(Struct, kw_only=True):
    """What rules and guards in shadow would have changed."""

    decisions: int = 0
    changed: int = 0
    """decisions that would differ with everything in shadow turned on"""
    rules: dict[str, ShadowTally] = field(default_factory=dict)


def shadow_report(store: GuardStore, *, rule: str | None = None, examples: int = EXAMPLES) -> ShadowReport:
    """Every rule that matched in shadow, or only one rule."""
    report, sessions = ShadowReport(), dict[str, set[int]]()
    for row in each_event(store):
        if row.kind != "decision" or "decision" not in row.data:
            continue
        report.decisions += 1
        action = Action(row.data["decision"]["action"])
        changed = False
        for match in _shadow_matches(row.data["decision"], action):
            if rule is not None and match["rule"] != rule:
                continue
            name = match["rule"]
            tally = report.rules.get(name)
            if tally is None:
                tally = report.rules[name] = ShadowTally(rule=name, then=match["then"], line=match.get("line"))
            changed |= _count(tally, match, row, action, examples)
            seen = sessions.setdefault(name, set())
            if len(seen) < MOST_SESSIONS:
                seen.add(hash(row.session))
            tally.sessions = len(seen)
        report.changed += changed
    return report


def _shadow_matches(decision: dict[str, Any], action: Action) -> Iterable[dict[str, Any]]:
    """Matches without effect: those of shadow rules, and all of a guard that is in shadow as a whole."""
    matches = decision.get("matches", [])
    found = [m for m in matches if m["shadow"] or Action(m["then"]).strictness > action.strictness]
    if not matches and "would" in decision:  # refused before any rule
        by = decision["decided_by"] or "the guard"
        found = [{"rule": by, "then": decision["would"], "message": decision["reason"], "reason": None, "line": None}]
    return found


def _count(tally: ShadowTally, match: dict[str, Any], row: EventRow, action: Action, examples: int) -> bool:
    """Returns whether the match would have changed the decision."""
    tally.matched += 1
    tally.first = row.at if tally.first is None else min(tally.first, row.at)
    tally.last = row.at if tally.last is None else max(tally.last, row.at)
    then = Action(match["then"])
    if then.strictness <= action.strictness:
        return False
    flip = f"{action.value} → {then.value}"
    tally.changed[flip] = tally.changed.get(flip, 0) + 1
    if len(tally.examples) < examples:
        tally.examples.append(_example(match, row, action))
    return True


def _example(match: dict[str, Any], row: EventRow, action: Action) -> Example:
    """The record holds no secrets."""
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
