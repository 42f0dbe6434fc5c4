"""Rule files as guard policies: loading, choosing a version and a mode, removing repeats, hashing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TypeAlias

from msgspec.structs import replace

from bylaw.errors import InputError
from bylaw.model.canonical import canonical_json
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.guard_policy import Action, ExecutionMode, GuardPolicy, GuardRule, GuardSet
from bylaw.rules import load_guard

GuardRules: TypeAlias = "str | PathLike[str] | GuardSet | Mapping[str, Any] | Sequence[Any]"
"""the path of a rule file, several paths, the rules themselves, or the result of `load_guard`"""


def load_policies(rules: GuardRules) -> Sequence[GuardPolicy]:
    if isinstance(rules, GuardSet):
        return rules.policies
    if isinstance(rules, str | PathLike | Mapping):
        return load_guard(rules).policies
    items = list(rules)
    if all(isinstance(item, Mapping) for item in items):
        return load_guard(items).policies
    return [policy for item in items for policy in load_guard(item).policies]


def select_version(policies: Sequence[GuardPolicy], version: str | None) -> list[GuardPolicy]:
    """The policies of one version of each agent; a manifest may hold several versions.

    Raises InputError if an agent has several versions and `version` names none of them.
    """
    by_agent: dict[str | None, list[GuardPolicy]] = {}
    for policy in policies:
        if version_of(policy) is not None:
            by_agent.setdefault(policy.agent, []).append(policy)
    chosen = {agent: _choose_version(agent, found, version) for agent, found in by_agent.items()}
    return [policy for policy in policies if version_of(policy) is None or policy is chosen[policy.agent]]


def version_of(policy: GuardPolicy) -> str | None:
    return str(policy.source["name"]) if isinstance(policy.source, dict) and "name" in policy.source else None


def _choose_version(agent: str | None, policies: list[GuardPolicy], version: str | None) -> GuardPolicy:
    wanted = [policy for policy in policies if version is None or version_of(policy) == version]
    if len(wanted) == 1:
        return wanted[0]
    names = ", ".join(f"`{version_of(policy)}`" for policy in policies)
    problem = Diagnostic(
        code="several-versions",
        message=f"the agent `{agent}` has the versions {names}, and it is not clear which one is running",
        file="<rules>",
        help="name one of them: `--version NAME`, or `version=` in Python",
    )
    raise InputError([problem])


def with_mode(policies: Sequence[GuardPolicy], mode: ExecutionMode | None) -> list[GuardPolicy]:
    """The policies, with `mode` for those that name none. Raises InputError for `pause` in mode `request`."""
    moded = fill_mode(policies, mode)
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


def fill_mode(policies: Sequence[GuardPolicy], mode: ExecutionMode | None) -> list[GuardPolicy]:
    return [policy if policy.mode or mode is None else replace(policy, mode=mode) for policy in policies]


def _cannot_pause(rule: GuardRule) -> Diagnostic:
    span = rule.rule.span
    return Diagnostic(
        code="pause-in-request-mode",
        message=f"`{rule.rule.id}` pauses, and nobody can be asked in `request` mode",
        file=span.file if span is not None else "<rules>",
        span=span,
        help="use `block`, or run the agent in mode `hitl` or `sub_agent`",
    )


def without_repeats(policies: Sequence[GuardPolicy]) -> list[GuardPolicy]:
    """Each rule once for each agent. A rule for every agent would otherwise be counted and recorded twice."""
    shared = [policy for policy in policies if policy.agent is None and not policy.switched_off]
    everywhere = {rule.rule.id: rule for policy in shared for rule in policy.rules}
    by_hash: dict[str, GuardPolicy] = {}
    for policy in policies:
        if policy.agent is not None:
            own = tuple(rule for rule in policy.rules if everywhere.get(rule.rule.id) != rule)
            policy = policy if len(own) == len(policy.rules) else replace(policy, rules=own)
        by_hash.setdefault(policy_hash(policy), policy)
    return list(by_hash.values())


def policy_hash(policy: GuardPolicy) -> str:
    """Equal for equal rules, whichever file they come from."""
    rules = [
        [
            r.rule.id,
            r.rule.kind,
            r.rule.params,
            r.then.value,
            r.reason,
            r.inline,
            r.shadow,
            [str(c) for c in r.rule.when],
        ]
        for r in policy.rules
    ]
    tools = None if policy.tools is None else list(policy.tools)
    content = [policy.agent, policy.mode, tools, policy.switched_off, rules]
    return "sha256:" + hashlib.sha256(canonical_json(content)).hexdigest()


def guard_hash(policies: Sequence[GuardPolicy]) -> str:
    """The hash of a guard with these policies, which have no repeats."""
    return joined_hash([policy_hash(policy) for policy in policies])


def joined_hash(hashes: Sequence[str]) -> str:
    return hashes[0] if len(hashes) == 1 else "sha256:" + hashlib.sha256("\n".join(hashes).encode()).hexdigest()
