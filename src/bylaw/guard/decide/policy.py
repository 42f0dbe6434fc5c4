"""The rules of one agent, compiled for call time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from bylaw.engine.compile import Prevention, compile_rules
from bylaw.engine.memo import Memo
from bylaw.engine.operators.attempt import Attempt as AttemptMonitor
from bylaw.engine.predicates import tools_of
from bylaw.model.canonical import canonical_json
from bylaw.model.demand import Attempt
from bylaw.model.events import ToolCall
from bylaw.model.guarding import GuardPolicy, GuardRule
from bylaw.model.predicate import AllOf, AnyOf, ArgumentIs, CountOver, Nothing, NotOf, Predicate, counts
from bylaw.model.rule import Rule, Scope

RESPONSES, RESULTS, MESSAGES = "responses", "results", "messages"


class CompiledPolicy:
    """A GuardPolicy with its programs. Rules about attempts count attempts; the others judge calls that are made."""

    def __init__(self, policy: GuardPolicy) -> None:
        self.policy = policy
        self.agent = policy.agent
        self.hash = policy_hash(policy)
        active = () if policy.switched_off else policy.rules
        gating = [(rule, inline_form(rule)) for rule in active]
        self.follow_up_only = tuple(rule.rule.id for rule, inline in gating if inline is None)
        """rules that never gate a call: they act on what was recorded"""
        attempts = [(rule, inline) for rule, inline in gating if inline and isinstance(inline.demand, Attempt)]
        calls = [(rule, inline) for rule, inline in gating if inline and not isinstance(inline.demand, Attempt)]
        # without excerpts: arguments are written down in one place, where secrets are taken out
        self.attempts = compile_rules([inline for _, inline in attempts], excerpts=False)
        self.calls = compile_rules([inline for _, inline in calls], excerpts=False)
        counted = [
            c for rule in self.attempts.rules if isinstance(rule.demand, Attempt) for c in counts(rule.demand.when)
        ]
        self.gates = bool(self.attempts.rules or self.calls.rules or policy.tools is not None)
        """whether anything here can refuse a call"""
        self.counts_session = any(counter.over != "run" for counter in counted)
        """whether attempts of other agents of the session count here too"""
        self.rules: dict[str, GuardRule] = {rule.rule.id: rule for rule in active}
        self.detective = tuple(
            rule.id
            for rule, label in zip(self.calls.rules, self.calls.prevention, strict=True)
            if label is not Prevention.PREVENTIVE
        )
        self.needs = {rule.id: _needs(m) for rule, m in zip(self.calls.rules, self.calls.monitors, strict=True)}
        self._blind: dict[frozenset[str], tuple[str, ...]] = {}
        self._counting = Memo(self._counting_about)
        self.asking = Memo(self._asking_about)
        """tool → rules about attempts of it that look at arguments, with all that they ask of them"""

    def blind(self, fed: frozenset[str]) -> tuple[str, ...]:
        """Rules that need events nobody has fed."""
        known = self._blind.get(fed)
        if known is None:
            known = self._blind[fed] = tuple(rule for rule, needs in self.needs.items() if not needs <= fed)
        return known

    def counters(self, states: dict[int, Any], call: ToolCall) -> dict[str, int]:
        """What the counters of the rules that this call concerns show."""
        shown: dict[str, int] = {}
        for index, monitor, names in self._counting[call.name]:
            if index in states:
                shown |= zip(names, monitor.shown(states[index], call), strict=True)
        return shown

    def _counting_about(self, tool: str) -> list[tuple[int, AttemptMonitor, list[str]]]:
        found: list[tuple[int, AttemptMonitor, list[str]]] = []
        for index, _, _ in self.attempts.calls[tool].session:
            monitor, rule = self.attempts.monitors[index], self.attempts.rules[index]
            if isinstance(monitor, AttemptMonitor) and monitor.counters:
                found.append((index, monitor, [f"{rule.id}: {name}" for name in monitor.counters]))
        return found

    def _asking_about(self, tool: str) -> list[tuple[str, tuple[ArgumentIs, ...]]]:
        """Of the rules as they are written: the follow-up judges by all of it."""
        found: list[tuple[str, tuple[ArgumentIs, ...]]] = []
        for id, guarded in self.rules.items():
            demand = guarded.rule.demand
            if isinstance(demand, Attempt) and (leaves := tuple(_leaves(demand.when))):
                tools = tools_of(demand.when)
                if tools is None or tool in tools:
                    found.append((id, leaves))
        return found


def cannot_prevent(policy: GuardPolicy) -> list[str]:
    """For each rule with `then` that a guard cannot or not always enforce: why, for people."""
    compiled = CompiledPolicy(policy)
    found = [f"`{rule}`: only its follow-up acts, it never gates a call" for rule in compiled.follow_up_only]
    for rule, label in zip(compiled.calls.rules, compiled.calls.prevention, strict=True):
        if label is Prevention.DETECTIVE:
            found.append(f"`{rule.id}`: detective, it needs what the model or a tool answered")
        elif label is Prevention.CLOSING:
            found.append(f"`{rule.id}`: closing, only the end of the session decides it")
    found += [
        f"`{rule.rule.id}`: a guard judges it session by session, `bylaw check` the whole trace (`scope: trace`)"
        for rule in policy.rules
        if rule.rule.kind != "guard" and rule.rule.scope is Scope.TRACE
    ]
    found += [
        f"`{rule}`: blind unless the host feeds {' and '.join(sorted(needs))}"
        for rule, needs in compiled.needs.items()
        if needs
    ]
    return found


def policy_hash(policy: GuardPolicy) -> str:
    """Equal for equal rules, wherever they stand."""
    rules = [
        [r.rule.id, r.rule.kind, r.rule.params, r.then.value, r.reason, r.inline, r.shadow, _when(r.rule)]
        for r in policy.rules
    ]
    tools = None if policy.tools is None else list(policy.tools)
    content = [policy.agent, policy.mode, tools, policy.switched_off, rules]
    return "sha256:" + hashlib.sha256(canonical_json(content)).hexdigest()


def _when(rule: Rule) -> list[str]:
    return [str(condition) for condition in rule.when]


def inline_form(rule: GuardRule) -> Rule | None:
    """The rule as it gates a call; None where it does not. A guard's trace is the session, so that is every scope."""
    demand = rule.rule.demand
    if not isinstance(demand, Attempt):
        return replace(rule.rule, scope=Scope.SESSION)
    if rule.inline:
        return rule.rule
    if _denies_window(demand.when, under_not=False):
        return None
    when = _without_windows(demand.when)
    return None if isinstance(when, Nothing) else replace(rule.rule, demand=Attempt(when, demand.marks))


def _denies_window(predicate: Predicate, *, under_not: bool) -> bool:
    match predicate:
        case CountOver(over="window"):
            return under_not
        case AllOf(of=parts) | AnyOf(of=parts):
            return any(_denies_window(part, under_not=under_not) for part in parts)
        case NotOf(of=of):
            return _denies_window(of, under_not=True)
        case _:
            return False


def _without_windows(predicate: Predicate) -> Predicate:
    """At attempt time a window counter does not hold."""
    match predicate:
        case CountOver(over="window"):
            return Nothing()
        case AllOf(of=parts):
            kept = [_without_windows(part) for part in parts]
            return Nothing() if any(isinstance(part, Nothing) for part in kept) else AllOf(tuple(kept))
        case AnyOf(of=parts):
            some = [part for part in map(_without_windows, parts) if not isinstance(part, Nothing)]
            return AnyOf(tuple(some)) if some else Nothing()
        case _:
            return predicate


def _leaves(predicate: Predicate) -> Iterator[ArgumentIs]:
    match predicate:
        case ArgumentIs():
            yield predicate
        case AllOf(of=of) | AnyOf(of=of):
            for part in of:
                yield from _leaves(part)
        case NotOf(of=part):
            yield from _leaves(part)


def _needs(monitor: Any) -> frozenset[str]:
    watches = monitor.watches
    wanted = {RESPONSES: watches.responses, RESULTS: bool(watches.results), MESSAGES: watches.messages}
    return frozenset(kind for kind, is_wanted in wanted.items() if is_wanted)
