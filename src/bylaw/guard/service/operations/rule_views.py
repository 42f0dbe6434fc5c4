"""Rules as people read them: where they stand, what they do, and what the guard can do about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bylaw.engine.compile import Prevention
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.guard import Guard
from bylaw.guard.policies import clause_text, without_repeats
from bylaw.model.guard_policy import GuardPolicy, GuardRule

Effect: TypeAlias = Literal["preventive", "detective", "closing", "follow-up"]


class RuleView(Struct, frozen=True, kw_only=True):
    id: str
    agent: str | None = None
    """None: of every agent"""
    version: str | None = None
    """of the agent, from a manifest"""
    then: str
    reason: str | None = None
    kind: str
    """`guard` for a rule with `when` alone"""
    severity: str
    params: Any = None
    when: tuple[str, ...] = ()
    effect: Effect
    """`preventive`: can stop a call; `detective`: needs what the model or tool answered; `closing`: only the end of the
    session decides it; `follow-up`: never gates a call"""
    shadow: bool = False
    switched_off: bool = False
    approvals: int = 1
    approvers: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """events that the host has to feed for it"""
    file: str | None = None
    line: int | None = None
    end_line: int | None = None


def rule_views(guard: Guard) -> list[RuleView]:
    """The rules by which this worker decides."""
    return [view for policy in guard.policies.all for view in _views(policy)]


def views_of(policies: Sequence[GuardPolicy]) -> list[RuleView]:
    return [view for policy in without_repeats(policies) for view in _views(CompiledPolicy(policy))]


def _views(compiled: CompiledPolicy) -> list[RuleView]:
    labels = dict(zip((rule.id for rule in compiled.calls.rules), compiled.calls.prevention, strict=True))
    return [_view(rule, compiled, labels) for rule in compiled.policy.rules]


def _view(guarded: GuardRule, compiled: CompiledPolicy, labels: dict[str, Prevention]) -> RuleView:
    rule, span = guarded.rule, guarded.rule.span
    effect: Effect = "follow-up" if rule.id in compiled.follow_up_only else "preventive"
    if rule.id in labels:
        effect = labels[rule.id].value
    return RuleView(
        id=rule.id,
        agent=compiled.agent,
        version=compiled.policy.version,
        then=guarded.then.value,
        reason=guarded.reason,
        kind=rule.kind,
        severity=rule.severity.value,
        params=rule.params,
        when=tuple(clause_text(clause) for clause in rule.when),
        effect=effect,
        shadow=guarded.shadow,
        switched_off=compiled.policy.switched_off,
        approvals=guarded.approvals,
        approvers=guarded.approvers,
        needs=tuple(sorted(compiled.needs.get(rule.id, ()))),
        file=None if span is None else span.file,
        line=None if span is None else span.line,
        end_line=None if span is None else span.end_line,
    )
