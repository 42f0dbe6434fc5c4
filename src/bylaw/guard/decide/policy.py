"""The compiled rules of one policy, and names for what its rules remember of a session.

The state of a rule is stored under a name that is taken from what the rule counts or looks at. So it outlives an edit
that changes nothing of this: a new reason, another severity, a higher limit, a rule added or removed beside it. Two
guards whose rules differ only in that share their counts. A rule that looks at something else has another name, and
begins with an empty state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.compile import Memo, Prevention, Program, compile_rules
from bylaw.engine.matching import tools_of
from bylaw.engine.operators.attempt import Attempt as AttemptMonitor
from bylaw.guard.policies import clause_text, policy_hash, rule_hashes
from bylaw.model.canonical import short_digest
from bylaw.model.condition import AllOf, AnyOf, ArgumentIs, CountOver, Nothing, NotOf, Predicate, argument_tests, counts
from bylaw.model.demand import Attempt as AttemptDemand
from bylaw.model.events import ToolCall
from bylaw.model.rule import GuardPolicy, GuardRule, Rule, Scope
from bylaw.rules.messages import near_name
from bylaw.rules.names import names_in
from bylaw.rules.versions import qualified_id

RESPONSES, RESULTS, MESSAGES = "responses", "results", "messages"
MOST_SEEN = 4_096
"""names of tools, and chains of agents, that are remembered: a host may invent names without end"""
_log = logging.getLogger("bylaw")
_LIMITS = {"max_calls": "limit", "max_sum": "limit", "temporal": "at_most"}
"""kind → the parameter that limits a count and has no influence on how it is counted"""


class Counted(Struct, frozen=True):
    """A counter of a rule about attempts."""

    name: str
    limit: int
    """a window holds as many times as the limit needs"""


class StateNames:
    """The names for the states of one policy."""

    def __init__(self, agent: str | None, attempts: Program, calls: Program) -> None:
        self.calls = tuple(map(rule_name, calls.rules))
        """by index"""
        self.indices: dict[str, tuple[int, ...]] = {}
        """name → rules about calls; rules that differ only in their action share one"""
        for index, name in enumerate(self.calls):
            self.indices[name] = (*self.indices.get(name, ()), index)
        self.counters = tuple(map(_counters, attempts.monitors))
        """by index of the rule about attempts"""
        self.agent = "" if agent is None else f"={agent}"
        self.key = f"{self.agent} {short_digest(sorted(self.indices))}"
        """equal for policies of one agent whose rules about calls remember the same"""

    def known(self) -> set[str]:
        return {*self.indices, *(counted.name for counters in self.counters for counted in counters)}


def rule_name(rule: Rule) -> str:
    """Of a rule about calls."""
    limit = _LIMITS.get(rule.kind)
    params = {name: value for name, value in rule.params.items() if name != limit}
    return short_digest([rule.kind, params, [clause_text(clause) for clause in rule.when], list(rule.agents)])


def remembered_by(rule: Rule, monitor: object) -> tuple[str, ...]:
    """The names of everything that one rule remembers."""
    if isinstance(monitor, AttemptMonitor):
        return tuple(counted.name for counted in _counters(monitor))
    return (rule_name(rule),)


def agent_of(key: str) -> str:
    """The part of `StateNames.key` that names the agent."""
    return key.rpartition(" ")[0]


def _counters(monitor: object) -> tuple[Counted, ...]:
    if not isinstance(monitor, AttemptMonitor):
        return ()
    return tuple(Counted(_counter_name(counted), counted.value) for counted in monitor.counted)


def _counter_name(counted: CountOver) -> str:
    window = "" if counted.seconds is None else f" {counted.seconds:g}s"
    across = "" if counted.across == "session" else f" {counted.across}"
    return f"{counted.over}{window}{across}" + ("" if counted.tool is None else f": {counted.tool}")


class CompiledPolicy:
    """A GuardPolicy with its programs. `attempts` holds rules that count attempts, `calls` rules about calls that
    run."""

    def __init__(self, policy: GuardPolicy) -> None:
        self.policy = policy
        self.agent = policy.agent
        self.hash = policy_hash(policy)
        active = () if policy.switched_off else policy.rules
        inline = [(rule.rule.id, inline_form(rule)) for rule in active]
        self.follow_up_only = tuple(id for id, rule in inline if rule is None)
        """rules that never gate a call: they act on the event log only"""
        gating = [rule for _, rule in inline if rule is not None]
        # without excerpts: arguments are recorded in one place, where secrets are removed
        self.attempts = compile_rules([r for r in gating if isinstance(r.demand, AttemptDemand)], excerpts=False)
        self.calls = compile_rules([r for r in gating if not isinstance(r.demand, AttemptDemand)], excerpts=False)
        check_name = _name_doubts(policy)
        for program in (self.attempts, self.calls):  # a route is looked up once, so decisions cost no more
            program.calls = Memo(_checking(program.calls, check_name))
        self.gates = bool(gating or policy.tools is not None)
        """whether anything here can refuse a call"""
        demands = [rule.demand for rule in self.attempts.rules if isinstance(rule.demand, AttemptDemand)]
        self.counts_session = any(counter.over != "run" for demand in demands for counter in counts(demand.when))
        """whether attempts of other agents of the session count here too"""
        self.rules: dict[str, GuardRule] = {rule.rule.id: rule for rule in active}
        self.needs = {rule.id: _needs(m) for rule, m in zip(self.calls.rules, self.calls.monitors, strict=True)}
        self._counting = Memo(self._counters_for)
        self.argument_predicates = Memo(self._argument_predicates_for)
        """tool → rules about attempts of it that look at arguments, with all their predicates on arguments"""

    @cached_property
    def rule_hashes(self) -> dict[str, str]:
        return rule_hashes(self.policy)

    @cached_property
    def names(self) -> StateNames:
        """The names under which its state is stored."""
        return StateNames(self.agent, self.attempts, self.calls)

    def counters(self, states: dict[int, Any], call: ToolCall) -> dict[str, int]:
        """The values of the counters of the rules about this tool."""
        shown: dict[str, int] = {}
        for index, monitor, names in self._counting[call.name]:
            if index in states:
                shown |= zip(names, monitor.shown(states[index], call), strict=True)
        return shown

    def _counters_for(self, tool: str) -> list[tuple[int, AttemptMonitor, list[str]]]:
        found: list[tuple[int, AttemptMonitor, list[str]]] = []
        for index, _, _ in self.attempts.calls[tool].session:
            monitor, rule = self.attempts.monitors[index], self.attempts.rules[index]
            if isinstance(monitor, AttemptMonitor) and monitor.counters:
                found.append((index, monitor, [f"{rule.id}: {name}" for name in monitor.counters]))
        return found

    def _argument_predicates_for(self, tool: str) -> list[tuple[str, tuple[ArgumentIs, ...]]]:
        """Taken from the original rules, since the follow-up evaluates all of them."""
        found: list[tuple[str, tuple[ArgumentIs, ...]]] = []
        for id, guarded in self.rules.items():
            demand = guarded.rule.demand
            if isinstance(demand, AttemptDemand) and (leaves := tuple(argument_tests(demand.when))):
                tools = tools_of(demand.when)
                if tools is None or tool in tools:
                    found.append((id, leaves))
        return found

    def rule_name(self, id: str, agent: str | None) -> str:
        """The rule as decisions about a call of `agent` name it."""
        return id if self.agent is None or self.agent == agent else qualified_id(self.agent, id)


def _name_doubts(policy: GuardPolicy) -> Callable[[str], None]:
    """Reports a tool that is called while rules name one that is called nearly the same: once for each tool."""
    listed = frozenset(policy.tools or ())
    rules = {
        name.text: guarded.rule.id
        for guarded in policy.rules
        for name in names_in(guarded.rule.demand)
        if name.is_plain
    }
    seen = listed | rules.keys()
    checked: set[str] = set()

    def check(tool: str) -> None:
        if tool in seen or tool in checked or len(checked) >= MOST_SEEN:
            return
        checked.add(tool)
        near = near_name(tool, rules.keys() - listed)
        if near is not None:
            _log.warning("`%s` is called, and the rule `%s` names `%s`: is one misspelt?", tool, rules[near], near)

    return check


def _checking(routes: Mapping[str, Any], check: Callable[[str], None]) -> Callable[[str], Any]:
    def route(tool: str) -> Any:
        check(tool)
        return routes[tool]

    return route


def cannot_prevent(policy: GuardPolicy) -> list[str]:
    """One line for each rule with `then` that the guard cannot, or cannot always, enforce."""
    compiled = CompiledPolicy(policy)
    found = [f"`{rule}`: only its follow-up acts, it never gates a call" for rule in compiled.follow_up_only]
    for rule, label in zip(compiled.calls.rules, compiled.calls.prevention, strict=True):
        if label is Prevention.DETECTIVE:
            found.append(f"`{rule.id}`: cannot block: depends on model or tool output")
        elif label is Prevention.CLOSING:
            found.append(f"`{rule.id}`: cannot block: only the end of the session decides it")
    found += [
        f"`{rule}`: blind unless the host feeds {' and '.join(sorted(needs))}"
        for rule, needs in compiled.needs.items()
        if needs
    ]
    return found


def inline_form(rule: GuardRule) -> Rule | None:
    """The rule as it gates a call; None if it gates none. The scope of a guard is always the session."""
    demand = rule.rule.demand
    if not isinstance(demand, AttemptDemand):
        return replace(rule.rule, scope=Scope.SESSION)
    if rule.inline:
        return rule.rule
    if _negates_window(demand.when, negated=False):
        return None
    when = _without_windows(demand.when)
    if isinstance(when, Nothing):
        return None
    return replace(rule.rule, demand=AttemptDemand(when, demand.marks), scope=Scope.SESSION)


def _negates_window(predicate: Predicate, *, negated: bool) -> bool:
    match predicate:
        case CountOver(over="window"):
            return negated
        case AllOf(of=parts) | AnyOf(of=parts):
            return any(_negates_window(part, negated=negated) for part in parts)
        case NotOf(of=of):
            return _negates_window(of, negated=True)
        case _:
            return False


def _without_windows(predicate: Predicate) -> Predicate:
    """The predicate at attempt time, when a window counter is never true."""
    match predicate:
        case CountOver(over="window"):
            return Nothing()
        case AllOf(of=of):
            parts = [_without_windows(part) for part in of]
            return Nothing() if any(isinstance(part, Nothing) for part in parts) else AllOf(tuple(parts))
        case AnyOf(of=of):
            parts = [part for part in map(_without_windows, of) if not isinstance(part, Nothing)]
            return AnyOf(tuple(parts)) if parts else Nothing()
        case _:
            return predicate


def _needs(monitor: Any) -> frozenset[str]:
    watches = monitor.watches
    wanted = {RESPONSES: watches.responses, RESULTS: bool(watches.results), MESSAGES: watches.messages}
    return frozenset(kind for kind, is_wanted in wanted.items() if is_wanted)
