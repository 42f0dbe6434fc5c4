"""The rules of a guard as JSON, stored under their hash, and what a change of rules does to what was counted.

From the stored rules every verdict can be recomputed without the files. They are loaded as a file would be, and their
hash is computed again, so that nothing but the rules that were in force is taken for them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from bylaw.errors import InputError
from bylaw.guard.decide.policy import CompiledPolicy, remembered_by
from bylaw.guard.policies import guard_hash, rule_hashes, without_repeats
from bylaw.guard.stores.ports import GuardStore, StoreUnavailable, Transaction
from bylaw.model.canonical import canonical_json
from bylaw.model.rule import GuardPolicy, GuardRule
from bylaw.rules import load_guard
from bylaw.rules.conditions import plain_conditions
from bylaw.rules.versions import qualified_id

_log = logging.getLogger("bylaw")
_LOOKED_BACK = 200
"""rows of the audit that are searched for the rules that were in force before"""
UNUSABLE = (InputError, AttributeError, KeyError, TypeError, ValueError, RecursionError)
"""what `load_content` raises for anything that `rules_content` has not written"""
_FIELDS = ("agent", "mode", "tools", "sub_agents", "version", "switched_off")


def rules_content(policies: Sequence[GuardPolicy]) -> str | None:
    """The policies as JSON; None if they cannot be loaded from it again with the same hash."""
    try:
        plain = [
            {name: getattr(policy, name) for name in _FIELDS} | {"rules": [_plain(rule) for rule in policy.rules]}
            for policy in policies
        ]
        content = canonical_json(plain).decode()
        return content if guard_hash(load_content(content)) == guard_hash(policies) else None
    except (InputError, TypeError, ValueError, RecursionError):
        return None


def load_content(content: str) -> list[GuardPolicy]:
    """Raises one of `UNUSABLE` for anything that `rules_content` has not written."""
    return without_repeats([_load(one) for one in json.loads(content)])


@lru_cache(maxsize=16)
def stored_rule_hashes(content: str, hash: str) -> frozenset[str] | None:
    """The hash of each of the stored rules; None if these are not the rules with that hash."""
    try:
        policies = load_content(content)
        if guard_hash(policies) != hash:
            return None
    except UNUSABLE:
        return None
    return frozenset(one for policy in policies for one in rule_hashes(policy).values())


def _load(plain: dict[str, Any]) -> GuardPolicy:
    rules = load_guard(plain["rules"]).policies[0].rules if plain["rules"] else ()
    fields = {name: plain[name] for name in _FIELDS}
    for name in ("tools", "sub_agents"):
        fields[name] = None if fields[name] is None else tuple(fields[name])
    return GuardPolicy(rules=rules, **fields)


def _plain(guarded: GuardRule) -> dict[str, Any]:
    rule = guarded.rule
    plain: dict[str, Any] = {"id": rule.id, "then": guarded.then.value}
    if guarded.reason is not None:
        plain["reason"] = guarded.reason
    if guarded.shadow:
        plain["mode"] = "shadow"
    if guarded.inline:
        plain["inline"] = True
    if guarded.approvals != 1:
        plain["approvals"] = guarded.approvals
    if guarded.approvers:
        plain["approvers"] = list(guarded.approvers)
    if rule.kind == "guard":
        return {**plain, "when": rule.params["when"]}
    plain |= {"kind": rule.kind, "params": rule.params, "scope": rule.scope.value}
    return {**plain, "when": plain_conditions(rule.when)} if rule.when else plain


class RuleChange(Struct):
    """A guard begins to use a store, whose rules may have been others before."""

    policy: str
    content: str | None
    """None if the store has the rules already, or they have no JSON form"""
    before: str | None = None
    """the hash of the rules before; None if there were none, or the same"""
    reset: tuple[str, ...] | None = ()
    """rules that count or look at something else than before, and begin with an empty state; None: not known"""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def tell(self) -> None:
        if self.before is None:
            return
        if self.reset is None:
            _log.warning("the rules have changed, and those before are not stored: what they counted may begin anew")
        elif self.reset:
            names = ", ".join(f"`{name}`" for name in self.reset)
            _log.warning("rules that have changed count from zero in every session: %s", names)

    def write(self, transaction: Transaction, now: float, *, how: str) -> None:
        """`how`: `loaded` or `reloaded`"""
        if self.content is not None:
            transaction.put_rules(self.policy, self.content)
        if self.before is not None:
            lists = {"reset": self.reset, "added": self.added, "removed": self.removed}
            plain = {name: None if found is None else list(found) for name, found in lists.items()}
            row = {"kind": "rules", "how": how, "before": self.before, "policy": self.policy, **plain}
            transaction.append_audit(now, row)


def find_change(
    store: GuardStore, policies: Sequence[CompiledPolicy], policy: str, before: str | None = None
) -> RuleChange | None:
    """What a guard with these policies changes in the store; None if nothing, or if the store cannot be read.
    `before`: the rules before, if they are known."""
    try:
        known = store.rules()
        content = None if policy in known else rules_content([one.policy for one in policies])
        before = before or _last_policy(store)
    except StoreUnavailable:
        return None
    if before is None or before == policy:
        return None if content is None else RuleChange(policy, content)
    return RuleChange(policy, content, before, *_compare(known.get(before), policies))


def _last_policy(store: GuardStore) -> str | None:
    for row in reversed(store.audit(after=max(store.audit_head().seq - _LOOKED_BACK, 0), limit=_LOOKED_BACK)):
        decision = row.data.get("decision")
        found = decision.get("policy") if isinstance(decision, dict) else row.data.get("policy")
        if isinstance(found, str) and found:
            return found
    return None


def _compare(
    before: str | None, policies: Sequence[CompiledPolicy]
) -> tuple[tuple[str, ...] | None, tuple[str, ...], tuple[str, ...]]:
    """Rules that are reset, added and removed."""
    if before is None:
        return None, (), ()
    try:
        old = _remembered(map(CompiledPolicy, load_content(before)))
    except UNUSABLE:  # msgspec's errors are ValueErrors
        return None, (), ()
    new = _remembered(policies)
    known = {name for names in old.values() for name in names}
    begun = {rule for rule, names in new.items() if not names <= known}
    return (
        tuple(sorted(begun & old.keys())),
        tuple(sorted(new.keys() - old.keys())),
        tuple(sorted(old.keys() - new.keys())),
    )


def _remembered(policies: Iterable[CompiledPolicy]) -> dict[str, set[tuple[str | None, str]]]:
    """Rule → the names of what it remembers, for each agent."""
    found: dict[str, set[tuple[str | None, str]]] = {}
    for policy in policies:
        for program in (policy.attempts, policy.calls):
            for rule, monitor in zip(program.rules, program.monitors, strict=True):
                id = rule.id if policy.agent is None else qualified_id(policy.agent, rule.id)
                found.setdefault(id, set()).update((policy.agent, name) for name in remembered_by(rule, monitor))
    return found
