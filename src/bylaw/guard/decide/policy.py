"""The compiled rules of one policy, names for what its rules remember of a session, and the rules as they are stored.

The state of a rule is stored under a name that is taken from what the rule counts or looks at. So it outlives an edit
that changes nothing of this: a new reason, another severity, a higher limit, a rule added or removed beside it. Two
guards whose rules differ only in that share their counts. A rule that looks at something else has another name, and
begins with an empty state.

The rules of a guard are stored as JSON under their hash, so that every verdict can be recomputed without the files.
They are loaded as a file would be, and their hash is computed again, so that nothing but the rules that were in force
is taken for them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.compile import Memo, Prevention, Program, compile_rules
from bylaw.engine.matching import tools_of
from bylaw.engine.operators.attempt import Attempt as AttemptMonitor
from bylaw.errors import InputError
from bylaw.guard.policies import clause_text, drop_repeated, guard_hash, policy_hash, rule_hashes
from bylaw.guard.stores.ports import GuardStore, StoreUnavailable, Transaction
from bylaw.model.canonical import canonical_json, short_digest
from bylaw.model.condition import AllOf, AnyOf, ArgumentIs, CountOver, Nothing, NotOf, Predicate, argument_tests, counts
from bylaw.model.demand import Attempt as AttemptDemand
from bylaw.model.events import ToolCall
from bylaw.model.rule import GuardPolicy, GuardRule, Rule, Scope
from bylaw.rules import load_guard
from bylaw.rules.conditions import plain_conditions
from bylaw.rules.kinds import KINDS
from bylaw.rules.messages import near_name
from bylaw.rules.names import names_in
from bylaw.rules.versions import qualified_id

RESPONSES, RESULTS, MESSAGES = "responses", "results", "messages"
MOST_SEEN = 4_096
"""names of tools, and chains of agents, that are remembered: a host may invent names without end"""
_log = logging.getLogger("bylaw")


class AttemptCounter(Struct, frozen=True):
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
    limit = KINDS[rule.kind].count_limit if rule.kind in KINDS else None
    params = {name: value for name, value in rule.params.items() if name != limit}
    return short_digest([rule.kind, params, [clause_text(clause) for clause in rule.when], list(rule.agents)])


def agent_of(key: str) -> str:
    """The part of `StateNames.key` that names the agent."""
    return key.rpartition(" ")[0]


def _counters(monitor: object) -> tuple[AttemptCounter, ...]:
    if not isinstance(monitor, AttemptMonitor):
        return ()
    return tuple(AttemptCounter(_counter_name(counted), counted.value) for counted in monitor.counted)


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
            program.calls = Memo(_check_names_of(program.calls, check_name))
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


def _check_names_of(routes: Mapping[str, Any], check: Callable[[str], None]) -> Callable[[str], Any]:
    def route(tool: str) -> Any:
        check(tool)
        return routes[tool]

    return route


def cannot_prevent(policy: GuardPolicy) -> list[str]:
    """One line for each rule with `then` that the guard cannot, or cannot always, enforce."""
    compiled = CompiledPolicy(policy)
    found = [
        f"`{rule}`: cannot block: `bylaw guard follow` judges it after the call" for rule in compiled.follow_up_only
    ]
    for rule, label in zip(compiled.calls.rules, compiled.calls.prevention, strict=True):
        if label is Prevention.DETECTIVE:
            found.append(f"`{rule.id}`: cannot block: depends on model or tool output")
        elif label is Prevention.CLOSING:
            found.append(f"`{rule.id}`: cannot block: only the end of the session decides it")
    found += [
        f"`{rule}`: blind unless your program passes {' and '.join(sorted(needs))} to the guard"
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
    when = _drop_windows(demand.when)
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


def _drop_windows(predicate: Predicate) -> Predicate:
    """The predicate at attempt time, when a window counter is never true."""
    match predicate:
        case CountOver(over="window"):
            return Nothing()
        case AllOf(of=of):
            parts = [_drop_windows(part) for part in of]
            return Nothing() if any(isinstance(part, Nothing) for part in parts) else AllOf(tuple(parts))
        case AnyOf(of=of):
            parts = [part for part in map(_drop_windows, of) if not isinstance(part, Nothing)]
            return AnyOf(tuple(parts)) if parts else Nothing()
        case _:
            return predicate


def _needs(monitor: Any) -> frozenset[str]:
    watches = monitor.watches
    wanted = {RESPONSES: watches.responses, RESULTS: bool(watches.results), MESSAGES: watches.messages}
    return frozenset(kind for kind, is_wanted in wanted.items() if is_wanted)


# -- the rules as JSON, and the effect of changed rules on counters ----------------------------------------------------

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
    return drop_repeated([_load(one) for one in json.loads(content)])


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
    """The counters that a guard with these policies resets in the store; None if none, or if the store cannot be read.
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
        old = _state_names(map(CompiledPolicy, load_content(before)))
    except UNUSABLE:  # msgspec's errors are ValueErrors
        return None, (), ()
    new = _state_names(policies)
    known = {name for names in old.values() for name in names}
    begun = {rule for rule, names in new.items() if not names <= known}
    return (
        tuple(sorted(begun & old.keys())),
        tuple(sorted(new.keys() - old.keys())),
        tuple(sorted(old.keys() - new.keys())),
    )


def _state_names(policies: Iterable[CompiledPolicy]) -> dict[str, set[tuple[str | None, str]]]:
    """Rule → the names of its states, for each agent."""
    found: dict[str, set[tuple[str | None, str]]] = {}
    for policy in policies:
        for program in (policy.attempts, policy.calls):
            for rule, monitor in zip(program.rules, program.monitors, strict=True):
                id = rule.id if policy.agent is None else qualified_id(policy.agent, rule.id)
                is_counter = isinstance(monitor, AttemptMonitor)
                names = [one.name for one in _counters(monitor)] if is_counter else [rule_name(rule)]
                found.setdefault(id, set()).update((policy.agent, name) for name in names)
    return found
