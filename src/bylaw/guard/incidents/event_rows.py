"""One row of the event log: when it happened, its digest, the attempt or event in it; and the rules that look at values
which rows leave out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any, TypeAlias, get_args

from msgspec import Struct, convert
from msgspec.structs import replace

from bylaw.engine.matching import RedactedArguments
from bylaw.guard.decide.chain import Chain, Policies
from bylaw.guard.decide.policy import CompiledPolicy, inline_form
from bylaw.guard.decide.records import attempt_of, recorded_event
from bylaw.guard.decide.redaction import (
    overlaps,
    predicate_digest,
    rules_on_arguments,
    rules_on_event,
    rules_on_places,
    rules_on_result,
)
from bylaw.guard.model import Attempt
from bylaw.guard.policies import drop_repeated, fill_mode, guard_hash, joined_hash, policy_hash
from bylaw.guard.stores.records import EventRow
from bylaw.model.canonical import canonical_json
from bylaw.model.condition import ArgumentIs, Reach, reach_of
from bylaw.model.demand import Attempt as AttemptDemand
from bylaw.model.events import Event, ToolCall, ToolResult
from bylaw.model.rule import Action, ExecutionMode, GuardPolicy, GuardRule, Scope

FOLDED = frozenset({"decision", "taken", "result", "observation", "session", "run", "release", "review"})
"""kinds of rows that the rules are folded over"""
FAILURES = frozenset({"on_error", "on_store_unavailable"})
"""`decided_by` of decisions that no rule made, because of an error"""

TimedRow: TypeAlias = tuple[float, int, EventRow]
"""time, number and row: rows are folded in this order"""


class Unreadable(Exception):
    """The row is not one that a guard writes."""


def add_time(row: EventRow) -> TimedRow:
    return time_of(row), row.seq, row


def time_of(row: EventRow) -> float:
    """The time that the host gave; else the time at which the row was written."""
    attempt = row.data.get("attempt") if row.kind in ("decision", "taken") else None
    at: Any = attempt.get("ts") if isinstance(attempt, dict) else row.data.get("at")
    if type(at) is not float and type(at) is not int:
        return row.at
    try:
        return float(at) if isfinite(at) else row.at
    except OverflowError:  # an integer of hundreds of digits
        return row.at


def digest(row: EventRow) -> str:
    """Equal for copies of one event, at any position in the log."""
    return hashlib.sha256(canonical_json([row.session, row.kind, row.at, row.data])).hexdigest()[:32]


class RedactedData(Struct, frozen=True):
    """The arguments that were redacted, and the truth of the predicates that looked at them."""

    arguments: list[list[str | int]]
    truths: dict[str, list[bool | None]] = {}
    """rule → the truth of each of its predicates on arguments"""
    asked: dict[str, list[str]] = {}
    """rule → the digest of each"""


ALL_REDACTED = RedactedData([[]])


class RecordedDecision(Struct, frozen=True):
    """An attempt, and the guard's decision at the time."""

    attempt: Attempt
    call_id: str
    action: str
    matched: tuple[str, ...]
    review: str | None
    judged: bool
    """whether the rules apply: not if the attempt was refused before any rule"""
    resumed: bool
    """whether it resumed a paused call, and so is not a new attempt"""
    in_shadow: bool
    """whether the whole guard was in shadow, so that no match had an effect"""
    redacted: RedactedData | None = None
    """None if all arguments were recorded"""
    policy: str | None = None
    """hash of the rules that judged it; None if none did"""


def read_decision(row: EventRow, at: float) -> RecordedDecision:
    """The decision in a row of kind `decision`, or the call of a row of kind `taken`, which is a fact. Raises
    Unreadable."""
    data = row.data
    try:
        decision = past_call(data) if row.kind == "taken" else data["decision"]
        action, review, matched = decision["action"], decision.get("review"), tuple(decision["matched"])
        by = decision.get("decided_by")
        resumed = review is not None and action != "pause"
        is_judged = not resumed and (bool(matched) or by is None or by in FAILURES)
        return RecordedDecision(
            attempt=attempt_of(data, session=row.session, ts=at),
            call_id=str(decision.get("call_id") or data["attempt"].get("call_id") or ""),
            action=action,
            matched=matched,
            review=review,
            judged=is_judged,
            resumed=resumed,
            in_shadow=action == "allow" and decision.get("would") is not None,
            redacted=_read_redacted(data),
            policy=None if by in FAILURES else decision.get("policy"),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise Unreadable(f"event {row.seq}: {problem!r}") from problem


def past_call(data: dict[str, Any]) -> dict[str, Any]:
    """A call that ran before anybody was asked, as a decision. Its rules judge it only if the guard has judged it too:
    calls of a history only count."""
    is_judged = "matches" in data
    return {
        "action": "allow",
        "matched": (),
        "call_id": data.get("call_id"),
        "decided_by": None if is_judged else "history",
        "policy": data.get("policy"),
    }


def _read_redacted(data: dict[str, Any]) -> RedactedData | None:
    """If another part of the attempt is not recorded, the row says whether the arguments are."""
    if "redacted" in data:
        return convert({**data["redacted"], "asked": data.get("asked", {})}, RedactedData)
    return ALL_REDACTED if "unwritten" in data and data.get("arguments_written") is not True else None


def read_observation(row: EventRow, at: float) -> Event | None:
    """As `recorded_event`. Raises Unreadable."""
    try:
        return recorded_event(row.data, row.session, at)
    except (KeyError, TypeError, AttributeError) as problem:
        raise Unreadable(f"event {row.seq}: {problem!r}") from problem


def recorded_matches(row: EventRow) -> dict[str, dict[str, Any]]:
    """The matches of a recorded decision, by rule."""
    return {str(one.get("rule")): one for one in _objects(row.data.get("decision", row.data).get("matches"))}


def recorded_findings(row: EventRow) -> dict[str, str]:
    """The messages of the rules that the guard found broken by a recorded event, by rule."""
    return {str(one.get("rule")): str(one.get("message")) for one in _objects(row.data.get("found"))}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text_at(row: EventRow, key: str) -> str:
    """Raises Unreadable."""
    value: Any = row.data.get(key)
    if not isinstance(value, str):
        raise Unreadable(f"event {row.seq}: `{key}` is no text")
    return value


# -- rules that look at values which are not in the log ---------------------------------------------------------------
# Secrets are redacted, and messages to the model are not recorded.
#
# - The truth of predicates on redacted arguments is in the row, and is used in place of the argument.
# - For other rules, the guard's own finding is used if it had the same rules; that it found nothing counts only if it
#   evaluated the whole rule.
# - In all other cases the rule is counted as not judged: it is neither satisfied nor broken.


class Rules:
    """The policies of the follow-up, where every window counter applies, and the guards whose findings can be used."""

    def __init__(self, policies: Sequence[GuardPolicy]) -> None:
        once = drop_repeated(policies)
        inline = [replace(policy, rules=tuple(map(_in_session, policy.rules))) for policy in once]
        own = [replace(p, rules=tuple(r for r in p.rules if reach_of_rule(r) == "session")) for p in inline]
        self.policies = Policies([CompiledPolicy(policy) for policy in own])
        self.wide: dict[Reach, Policies] = {
            reach: wide for reach in ("agent", "all") if (wide := _policies_reaching(inline, reach)) is not None
        }
        """policies with the rules that count over an agent, or over all: see `WideWindows`"""
        self.everywhere = Chain(self.wide["all"].all if "all" in self.wide else ())
        """the rules that count over all agents: each attempt is judged by all of them, whosever rules they are"""
        self._partly_evaluated = frozenset(
            rule_key(compiled, guarded.rule.id)
            for policy, compiled in zip(once, self.policies.all, strict=True)
            for guarded in policy.rules
            if isinstance(guarded.rule.demand, AttemptDemand) and inline_form(guarded) != guarded.rule
        )
        self.hash = joined_hash([policy.hash for policy in self.policies.all])
        modes = (None, *get_args(ExecutionMode))
        self._guards = frozenset(guard_hash(drop_repeated(fill_mode(policies, mode))) for mode in modes)

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

    def lost_by(self, event: Event, *, redacted: bool) -> set[str]:
        """Rules whose state is unknown after the event."""
        found: set[str] = set()
        for policy in self.policies.all:
            ids: Iterable[str] = ()
            if not isinstance(event, ToolResult):
                ids = rules_on_event(policy, event, redacted=redacted)
            elif redacted:
                ids = rules_on_result(policy, event.name)
            found.update(rule_key(policy, id) for id in ids)
        return found


def _in_session(rule: GuardRule) -> GuardRule:
    """The rule with its window counters. A rule that reaches further is folded as if all calls were in one session."""
    return replace(rule, inline=True, rule=replace(rule.rule, scope=Scope.SESSION))


def reach_of_rule(rule: GuardRule) -> Reach:
    return reach_of(rule.rule.demand.when) if isinstance(rule.rule.demand, AttemptDemand) else "session"


def _policies_reaching(policies: Sequence[GuardPolicy], reach: Reach) -> Policies | None:
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


def _routed_rules(policy: CompiledPolicy, event: Event) -> list[str]:
    return [policy.calls.rules[index].id for index, _, _ in policy.calls.route(event).session]


def lost_rules(
    policies: Sequence[CompiledPolicy], event: Event, lost: set[str]
) -> Iterator[tuple[CompiledPolicy, str]]:
    """The rules with unknown state that the event concerns."""
    for policy in policies:
        for id in _routed_rules(policy, event):
            if rule_key(policy, id) in lost:
                yield policy, id


class PartialCall(Struct, frozen=True):
    """A call whose arguments are known in part."""

    call: ToolCall
    doubtful: frozenset[str]
    """rules about attempts that look at an unknown value"""
    lost: frozenset[str]
    """rules about calls whose state is unknown after the call"""


def partial_call(call: ToolCall, chain: Chain, redacted: RedactedData) -> PartialCall:
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
        elif leaf.op in ("present", "missing") and redacted is not ALL_REDACTED:
            continue  # whether a value exists is known, since redaction replaces a value by a text
        elif any(overlaps(leaf.path, place) for place in redacted.arguments):
            truths[leaf] = None
            unknown.add(leaf)
    doubtful = {rule_key(policy, id) for policy, id, leaves in rules if not unknown.isdisjoint(leaves)}
    lost = {rule_key(p, id) for p in chain.reserving for id in rules_on_arguments(p, call.name, redacted.arguments)}
    if isinstance(call.arguments, dict):
        call = replace(call, arguments=RedactedArguments(call.arguments, truths))
    return PartialCall(call, frozenset(doubtful), frozenset(lost))
