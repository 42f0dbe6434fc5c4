"""Rules that look at values which are not in the log: secrets are redacted, and messages to the model are not recorded.

- The truth of predicates on redacted arguments is in the row, and is used in place of the argument.
- For other rules, the guard's own finding is used if it had the same rules; that it found nothing counts only if it
  evaluated the whole rule.
- In all other cases the rule is counted as not judged: it is neither satisfied nor broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import get_args

from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.predicates import RedactedArguments
from bylaw.guard.decide.chain import Chain, Policies
from bylaw.guard.decide.policy import MESSAGES, CompiledPolicy, inline_form
from bylaw.guard.decide.redaction import (
    is_recorded,
    looks_at_text,
    overlaps,
    predicate_digest,
    rules_on_arguments,
    rules_on_places,
    rules_on_result,
)
from bylaw.guard.incidents.event_rows import ALL_REDACTED, Redacted
from bylaw.guard.policies import fill_mode, guard_hash, joined_hash, policy_hash, without_repeats
from bylaw.model.demand import Attempt
from bylaw.model.events import Event, Request, Response, ToolCall, ToolResult
from bylaw.model.guard_policy import Action, ExecutionMode, GuardPolicy, GuardRule
from bylaw.model.predicate import ArgumentIs, Reach, reach_of
from bylaw.model.rule import Scope


class Rules:
    """The policies of the follow-up, where every window counter applies, and the guards whose findings can be used."""

    def __init__(self, policies: Sequence[GuardPolicy]) -> None:
        once = without_repeats(policies)
        inline = [replace(policy, rules=tuple(map(_in_session, policy.rules))) for policy in once]
        own = [replace(p, rules=tuple(r for r in p.rules if reach_of_rule(r) == "session")) for p in inline]
        self.policies = Policies([CompiledPolicy(policy) for policy in own])
        self.wide: dict[Reach, Policies] = {
            reach: wide for reach in ("agent", "all") if (wide := _reaching(inline, reach)) is not None
        }
        """policies with the rules that count over an agent, or over all: see `wide_windows`"""
        self.everywhere = Chain(self.wide["all"].all if "all" in self.wide else ())
        """the rules that count over all agents: each attempt is judged by all of them, whosever rules they are"""
        self._partly_evaluated = frozenset(
            rule_key(compiled, guarded.rule.id)
            for policy, compiled in zip(once, self.policies.all, strict=True)
            for guarded in policy.rules
            if isinstance(guarded.rule.demand, Attempt) and inline_form(guarded) != guarded.rule
        )
        self.hash = joined_hash([policy.hash for policy in self.policies.all])
        modes = (None, *get_args(ExecutionMode))
        self._guards = frozenset(guard_hash(without_repeats(fill_mode(policies, mode))) for mode in modes)
        self._by_response = {policy.hash: _ResponseRules(policy) for policy in self.policies.all}

    @property
    def have_windows(self) -> bool:
        """Whether a rule counts what no guard counts before a call."""
        return bool(self._partly_evaluated)

    def are_those_of(self, guard: object) -> bool:
        """Whether a guard with this hash has the same rules."""
        return isinstance(guard, str) and guard in self._guards

    def is_partly_evaluated(self, policy: CompiledPolicy, guarded: GuardRule) -> bool:
        """Whether no guard evaluates all of the rule before a call: if it reported nothing, the rule may be broken."""
        return rule_key(policy, guarded.rule.id) in self._partly_evaluated

    def lost_by(self, event: Event, *, redacted: bool, has_request: bool) -> set[str]:
        """Rules whose state is unknown after the event."""
        found: set[str] = set()
        ids: Iterable[str]
        for policy in self.policies.all:
            if isinstance(event, ToolResult):
                ids = rules_on_result(policy, event.name) if redacted else ()
            elif isinstance(event, Response | Request):
                ids = self._by_response[policy.hash].unknown(event, redacted=redacted, has_request=has_request)
            else:
                ids = _routed(policy, event) if redacted else ()
            found.update(rule_key(policy, id) for id in ids)
        return found


def _in_session(rule: GuardRule) -> GuardRule:
    """The rule with its window counters. A rule that reaches further is folded as if all calls were in one session."""
    return replace(rule, inline=True, rule=replace(rule.rule, scope=Scope.SESSION))


def reach_of_rule(rule: GuardRule) -> Reach:
    return reach_of(rule.rule.demand.when) if isinstance(rule.rule.demand, Attempt) else "session"


def _reaching(policies: Sequence[GuardPolicy], reach: Reach) -> Policies | None:
    """One policy for each rule. Its hash is that of what the rule counts, so that its window survives an edit of any
    other rule, and of its own action and reason."""
    found: dict[str, CompiledPolicy] = {}
    for policy in policies:
        for rule in policy.rules if not policy.switched_off else ():
            if reach_of_rule(rule) == reach:
                alone = replace(policy, mode=None, tools=None, sub_agents=None, rules=(rule,))
                compiled = CompiledPolicy(alone)
                counting = replace(rule.rule, params={"when": rule.rule.params.get("when")})
                counted = replace(rule, rule=counting, reason=None, then=Action.PAUSE, shadow=False)
                compiled.hash = policy_hash(replace(alone, rules=(counted,)))
                found.setdefault(compiled.hash, compiled)
    return Policies(list(found.values())) if found else None


def rule_key(policy: CompiledPolicy, rule: str) -> str:
    return f"{policy.hash}/{rule}"


def _routed(policy: CompiledPolicy, event: Event) -> list[str]:
    return [policy.calls.rules[index].id for index, _, _ in policy.calls.route(event).session]


def lost_rules(
    policies: Sequence[CompiledPolicy], event: Event, lost: set[str]
) -> Iterator[tuple[CompiledPolicy, str]]:
    """The rules with unknown state that the event concerns."""
    for policy in policies:
        for id in _routed(policy, event):
            if rule_key(policy, id) in lost:
                yield policy, id


class PartialCall(Struct, frozen=True):
    """A call whose arguments are known in part."""

    call: ToolCall
    doubtful: frozenset[str]
    """rules about attempts that look at an unknown value"""
    lost: frozenset[str]
    """rules about calls whose state is unknown after the call"""


def partial_call(call: ToolCall, chain: Chain, redacted: Redacted) -> PartialCall:
    rules = list(rules_on_places(chain, call.name, redacted.arguments))
    recorded = {
        digest: truth
        for rule, digests in redacted.asked.items()
        for digest, truth in zip(digests, redacted.truths.get(rule, []), strict=False)
    }
    truths: dict[ArgumentIs, bool | None] = {}
    unknown: set[ArgumentIs] = set()
    for leaf in {leaf for _, _, leaves in rules for leaf in leaves}:
        digest = predicate_digest(leaf)
        if digest in recorded:
            truths[leaf] = recorded[digest]
        elif any(overlaps(leaf.path, place) for place in redacted.arguments) and not _is_on_presence(leaf, redacted):
            truths[leaf] = None
            unknown.add(leaf)
    doubtful = {rule_key(policy, id) for policy, id, leaves in rules if not unknown.isdisjoint(leaves)}
    lost = {rule_key(p, id) for p in chain.reserving for id in rules_on_arguments(p, call.name, redacted.arguments)}
    if isinstance(call.arguments, dict):
        call = replace(call, arguments=RedactedArguments(call.arguments, truths))
    return PartialCall(call, frozenset(doubtful), frozenset(lost))


def _is_on_presence(leaf: ArgumentIs, redacted: Redacted) -> bool:
    """Whether it only asks if a value exists. That is known, since redaction replaces a value by a text."""
    return leaf.op in ("present", "missing") and redacted is not ALL_REDACTED


class _ResponseRules:
    """The rules of a policy by what they look at in a response. Its text, stop reason, model and calls are recorded."""

    def __init__(self, policy: CompiledPolicy) -> None:
        self._policy = policy
        self._unrecorded = frozenset(rule.id for rule in policy.calls.rules if not is_recorded(rule))
        self._texts = frozenset(rule.id for rule in policy.calls.rules if looks_at_text(rule))
        self._messages = frozenset(id for id, needs in policy.needs.items() if MESSAGES in needs)

    def unknown(self, event: Response | Request, *, redacted: bool, has_request: bool) -> set[str]:
        routed = set(_routed(self._policy, event)) if isinstance(event, Response) else set()
        found = routed & (self._unrecorded - self._messages)
        if redacted:
            found |= routed & self._texts
        return found | self._messages if has_request else found
