"""What the guard said at the time, as its rows have it, and how it names rules."""

from __future__ import annotations

from typing import Any

from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.tree import Chain
from bylaw.guard.decision import Match
from bylaw.guard.stores.ports import EventRow
from bylaw.model.guarding import Action, GuardRule


def word(row: EventRow) -> dict[str, Match]:
    """What the guard said of a call, by rule."""
    return {
        str(one.get("rule")): Match(
            rule=str(one.get("rule")),
            then=Action.BLOCK,
            message=str(one.get("message") or ""),
            certain=one.get("certain") is not False,
        )
        for one in _records(row.data["decision"].get("matches"))
    }


def said(row: EventRow) -> dict[str, str]:
    """What the guard found by an event, by rule."""
    return {str(one.get("rule")): str(one.get("message")) for one in _records(row.data.get("found"))}


def _records(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def name_of(policy: CompiledPolicy, rule_id: str, agent: str | None) -> str:
    """As decisions name it: an ancestor's rule with its agent."""
    return rule_id if policy.agent in (None, agent) else f"{policy.agent}/{rule_id}"


def named(chain: Chain, agent: str | None) -> dict[str, tuple[CompiledPolicy, GuardRule]]:
    return {name_of(policy, id, agent): (policy, rule) for policy in chain.judging for id, rule in policy.rules.items()}
