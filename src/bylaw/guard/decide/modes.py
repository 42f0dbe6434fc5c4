"""The execution mode of policies that name none."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.guarding import Action, ExecutionMode, GuardPolicy, GuardRule


def with_mode(policies: Sequence[GuardPolicy], mode: ExecutionMode | None) -> list[GuardPolicy]:
    """The policies with `mode` where they name none. Raises InputError for `pause` where nobody can be asked."""
    moded = [policy if policy.mode or mode is None else replace(policy, mode=mode) for policy in policies]
    problems = [
        _cannot_pause(rule)
        for policy in moded
        if policy.mode == "request"
        for rule in policy.rules
        if rule.then is Action.PAUSE
    ]
    if problems:
        raise InputError(problems)
    return moded


def _cannot_pause(rule: GuardRule) -> Diagnostic:
    span = rule.rule.span
    return Diagnostic(
        code="pause-in-request-mode",
        message=f"`{rule.rule.id}` pauses, and nobody can be asked in `request` mode",
        file=span.file if span is not None else "<rules>",
        span=span,
        help="use `block`, or run the agent in mode `hitl` or `sub_agent`",
    )
