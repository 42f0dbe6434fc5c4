"""What a file says about the calls of its agents, put together: the guards it holds and the rules they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bylaw.model.guarding import Action, ExecutionMode, GuardPolicy
from bylaw.model.rule import Rule
from bylaw.rules.guard.enforcement import Item
from bylaw.rules.problems import Problems
from bylaw.rules.rule_fields import Ids


class Guard(Struct, frozen=True, kw_only=True):
    """One guard as it was read."""

    items: list[Item]
    agent: str | None = None
    mode: ExecutionMode | None = None
    tools: tuple[str, ...] | None = None
    switched_off: bool = False
    source: Any = None
    label: str
    """what it is called where two guards use the same id"""
    ids: Ids
    """the places of its own ids"""


def policies(guards: Sequence[Guard], shared: Sequence[Item], source: Any) -> list[GuardPolicy]:
    """A policy for each guard, and one for the agents that none of them is for.

    `shared` are the rules beside the guards, which hold for every agent and come first.
    """
    made = [_policy(guard, shared) for guard in guards]
    acting = any(item.enforcement for item in shared)
    if not guards or (acting and all(guard.agent is not None for guard in guards)):
        made.append(_policy(Guard(items=[], source=source, label="", ids={}), shared))
    return made


def refuse_pauses(guard: Guard, shared: Sequence[Item], problems: Problems) -> None:
    """Nobody can be asked on behalf of an agent in request mode."""
    if guard.mode != "request":
        return
    for item in (*shared, *guard.items):
        if item.enforcement and item.enforcement.then is Action.PAUSE:
            problems.error(
                code="pause-in-request-mode",
                message=f"the rule `{item.rule.id}` pauses, and a guard in the mode `request` has nobody to ask",
                at=item.enforcement.at,
                help="write `mode: hitl` or `mode: sub_agent` in the guard, or `then: block` here",
            )


def rules_of(guards: Sequence[Guard]) -> list[Rule]:
    """Every rule once, with an id of its own: two guards may use one id, for the same rule or for two."""
    found: dict[str, Rule] = {}
    for number, guard in enumerate(guards, 1):
        for item in guard.items:
            id = _free_id(item.rule, guard.label, number, found)
            if id is not None:
                found[id] = replace(item.rule, id=id) if id != item.rule.id else item.rule
    return list(found.values())


def _free_id(rule: Rule, label: str, number: int, found: dict[str, Rule]) -> str | None:
    """None where the rule is there already. `number` is the guard's own, so the last name is free but by design."""
    for id in (rule.id, f"{label}/{rule.id}", f"{label}/{number}/{rule.id}"):
        if id not in found:
            return id
        if _same(found[id], rule):
            return None
    return _free_id(rule, f"{label}/{number}", number, found)


def _same(one: Rule, other: Rule) -> bool:
    return replace(one, id="", span=None) == replace(other, id="", span=None)


def _policy(guard: Guard, shared: Sequence[Item]) -> GuardPolicy:
    rules = tuple(item.enforcement.of(item.rule) for item in (*shared, *guard.items) if item.enforcement)
    return GuardPolicy(
        rules=rules,
        agent=guard.agent,
        mode=guard.mode,
        tools=guard.tools,
        switched_off=guard.switched_off,
        source=guard.source,
    )
