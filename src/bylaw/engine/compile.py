"""Rules → a program of monitors, with an index from events to the monitors that can care about them.

1. lower: each rule's demand becomes the monitor of its operator
2. gate: `when` wraps the monitor, since it filters the events that the operator sees
3. label: whether a live guard could prevent, detect or not see a violation, which depends on the operator
4. index: last, since it needs what every monitor watches
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeAlias, TypeVar, assert_never

from msgspec import Struct

from bylaw.engine.filters import AgentMonitor, ConditionMonitor
from bylaw.engine.matching import compile_names
from bylaw.engine.monitor import Monitor, ScopeEnd, Step
from bylaw.engine.operators.quantifiers import (
    Always,
    Constant,
    NeverCalls,
    NeverText,
    Sometime,
    TallyCalls,
    TallyTokens,
    TallyTurns,
)
from bylaw.engine.operators.sequence import Before, Next
from bylaw.engine.probes import (
    CHUNK_KEYS,
    MEASURES,
    judge_amount,
    judge_grounding,
    judge_schema,
    judge_stop_reason,
)
from bylaw.model import demand as demands
from bylaw.model.events import Event, Message, Response, ToolCall, ToolResult
from bylaw.model.rule import Rule, Scope
from bylaw.model.temporal import Formula
from bylaw.model.verdict import Outcome
from bylaw.text.regex import Matches

T = TypeVar("T")

MOST_NAMES = 4_096
"""names whose answer is remembered; a hostile trace may invent names without end"""


class Memo(dict[str, T]):
    """A cache of one answer for each name. A dictionary, since a lookup takes a third of the time of a method call."""

    def __init__(self, compute: Callable[[str], T]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, name: str) -> T:
        answer = self._compute(name)
        if len(self) < MOST_NAMES:
            self[name] = answer
        return answer


class Prevention(StrEnum):
    """Whether a guard that sees each call before it runs can prevent violations of a rule."""

    PREVENTIVE = "preventive"
    """the past and the proposed call decide it"""
    DETECTIVE = "detective"
    """depends on the output of the model or of a tool"""
    CLOSING = "closing"
    """only the end decides it"""


Routed: TypeAlias = tuple[int, Callable[[Any, Event], Step], Any]
"""a monitor's index, its step, and its initial state"""


class Route(Struct, frozen=True):
    """Which monitors an event goes to, by scope."""

    trace: tuple[Routed, ...] = ()
    session: tuple[Routed, ...] = ()
    alone: tuple[Routed, ...] = ()
    """those of `trace` whose scope is not given: in a trace of several sessions, each session is judged alone too"""


NOBODY = Route()


class Program:
    """Compiled rules. Immutable but for a cache of routes; one program serves any number of evaluations."""

    def __init__(self, rules: Sequence[Rule], *, index: bool = True, excerpts: bool = True) -> None:
        self.rules = tuple(rules)
        self._excerpts = excerpts
        self.monitors = tuple(map(_compile, self.rules))
        self.prevention = tuple(_prevention(rule) for rule in self.rules)
        self.unscoped = frozenset(
            i
            for i, rule in enumerate(self.rules)
            if rule.scope is Scope.TRACE and not rule.scope_given and rule.depends_on_scope
        )
        """rules without a scope that a trace may keep and one of its sessions break, or the other way round"""
        self.has_session_rules = any(rule.scope is Scope.SESSION for rule in self.rules)
        everyone = range(len(self.rules))
        watching = [i for i in everyone if self.monitors[i].watches.responses]
        self.on_response = self._route_to(watching if index else everyone)
        listening = [i for i in everyone if self.monitors[i].watches.messages]
        self.on_message = self._route_to(listening if index else everyone)
        self.on_other = NOBODY if index else self._route_to(everyone)
        self._callers = tuple((i, _matcher(self.monitors[i].watches.calls, index)) for i in everyone)
        self.calls = Memo(lambda tool: self._route_to(i for i, matches in self._callers if matches(tool)))
        """tool → who hears of a call of it"""
        taking = [i for i in everyone if not index or self.monitors[i].watches.results]
        self._takers = tuple((i, _matcher(self.monitors[i].watches.results, index)) for i in taking)
        self._any_result = self._route_to(taking)
        self._results = Memo(lambda tool: self._route_to(i for i, takes in self._takers if takes(tool)))

    @cached_property
    def digest(self) -> str:
        """Of the rules' ids, in order: states are stored by index, so those of other rules would be taken for these."""
        import hashlib  # only for snapshots

        return hashlib.sha256("\0".join(rule.id for rule in self.rules).encode("utf-8", "replace")).hexdigest()[:32]

    @cached_property
    def owing(self) -> frozenset[int]:
        """Session rules that are neither ok nor vacuous in a session that never touched them: `must_call_once`, say."""
        return frozenset(i for i, rule in enumerate(self.rules) if rule.scope is Scope.SESSION and self._owes(i))

    @cached_property
    def unscoped_owing(self) -> frozenset[int]:
        """The same of rules without a scope."""
        return frozenset(i for i in self.unscoped if self._owes(i))

    def _owes(self, index: int) -> bool:
        monitor = self.monitors[index]
        return monitor.end(monitor.initial, ScopeEnd(1, complete=True)).outcome not in (Outcome.OK, Outcome.VACUOUS)

    def dump(self, index: int, state: Any) -> Any:
        """The state of a rule as it is written down."""
        return self.monitors[index].dump(state, self._excerpts)

    def route(self, event: Event) -> Route:
        kind = type(event)
        if kind is Response:
            return self.on_response
        if kind is ToolCall:
            return self.calls[event.name]  # type: ignore[attr-defined]
        if kind is ToolResult:
            return self.on_result(event)  # type: ignore[arg-type]
        return self.on_message if kind is Message else self.on_other

    def on_result(self, result: ToolResult) -> Route:
        if not self._takers:
            return self._any_result
        call = result.certain_call
        tool = result.name if result.name is not None or call is None else call.name
        return self._any_result if tool is None else self._results[tool]

    def _route_to(self, indices: Iterable[int]) -> Route:
        chosen = [(i, self.monitors[i].step, self.monitors[i].initial) for i in indices]
        in_scope = {scope: tuple(c for c in chosen if self.rules[c[0]].scope is scope) for scope in Scope}
        alone = tuple(c for c in chosen if c[0] in self.unscoped)
        return Route(in_scope[Scope.TRACE], in_scope[Scope.SESSION], alone) if chosen else NOBODY


def compile_rules(rules: Sequence[Rule], *, index: bool = True, excerpts: bool = True) -> Program:
    """`index=False` sends every event to every monitor: slower, with the same results. `excerpts=False` leaves the
    texts of events out of snapshots: evidence then names an earlier event without quoting it."""
    return Program(rules, index=index, excerpts=excerpts)


def _compile(rule: Rule) -> Monitor:
    monitor = _lower(rule.demand)
    gated = ConditionMonitor(monitor, rule.when) if rule.when else monitor
    return AgentMonitor(gated, rule.agents, below=rule.sub_agents) if rule.agents else gated


def _lower(demand: demands.Demand) -> Monitor:
    match demand:
        case demands.Never(probe=probe, message=message):
            return NeverCalls(probe) if isinstance(probe, demands.Calls) else NeverText(probe, message)
        case demands.Always(probe=probe):
            return _lower_always(probe)
        case demands.Sometime(probes=probes):
            return Sometime(probes)
        case demands.Before(same=same):
            if not same:
                return Before(demand)
            from bylaw.engine.operators.same_values import BeforeSame  # with a library of its own

            return BeforeSame(demand)
        case demands.Tally():
            return _lower_tally(demand)
        case demands.Constant(path=path):
            return Constant(path)
        case demands.Next():
            return Next(demand)
        case demands.Temporal():
            from bylaw.engine.temporal.monitor import TemporalMonitor

            return TemporalMonitor(demand)
        case demands.Attempt():
            from bylaw.engine.operators.attempt import Attempt

            return Attempt(demand)
        case _:
            assert_never(demand)


def _lower_always(
    probe: demands.StopReasonIn | demands.FitsSchema | demands.Grounded | demands.AtMost,
) -> Monitor:
    match probe:
        case demands.StopReasonIn():
            return Always(judge_stop_reason(probe), needs="stop reason not recorded in {}")
        case demands.FitsSchema():
            twice = "the JSON of {} has a key twice in one object"
            deep = "the JSON of {} is nested too deeply to be judged"
            return Always(judge_schema(probe), needs="content not recorded in {}", unread=twice, lost=deep)
        case demands.Grounded():
            looked_for = ", ".join(f"`{key}`" for key in CHUNK_KEYS)
            unread = f"no text in the chunks at `{probe.path.text}` in {{}}; looked for {looked_for}"
            lost = f"`{probe.path.text}` was not recorded in {{}}"
            return Always(judge_grounding(probe), needs="content not recorded in {}", unread=unread, lost=lost)
        case demands.AtMost(measure=measure):
            return Always(judge_amount(probe), needs=MEASURES[type(measure)][2])
        case _:
            assert_never(probe)


def _lower_tally(demand: demands.Tally) -> Monitor:
    match demand.measure:
        case demands.Calls() as calls:
            return TallyCalls(demand, calls)
        case demands.Turns():
            return TallyTurns(demand)
        case demands.Tokens():
            return TallyTokens(demand)
        case demands.Values() as values:
            from bylaw.engine.operators.totals import TallyValues

            return TallyValues(demand, values)
        case demands.Cost() | demands.Latency() as amount:
            from bylaw.engine.operators.totals import TallyAmount

            return TallyAmount(demand, amount)
        case _:
            assert_never(demand.measure)


def _matcher(named: tuple[demands.Calls, ...], index: bool) -> Matches:
    if not index:
        return lambda tool: True
    matchers = [compile_names(calls) for calls in named]
    return lambda tool: any(matches(tool) for matches in matchers)


def _prevention(rule: Rule) -> Prevention:
    match rule.demand:
        case demands.Before(only_if_both=True):
            return Prevention.DETECTIVE  # an early call breaks the rule only once a `first` follows it
        case demands.Never(probe=demands.Calls()) | demands.Before() | demands.Attempt():
            return Prevention.PREVENTIVE
        case demands.Tally(measure=demands.Calls() | demands.Values()):
            return Prevention.PREVENTIVE
        case demands.Sometime():
            return Prevention.CLOSING
        case demands.Temporal(formula=formula, over="events"):
            return _temporal_prevention(formula)
        case _:
            return Prevention.DETECTIVE


def _temporal_prevention(formula: Formula) -> Prevention:
    """What cannot be prevented decides, except that a part which only the end decides leaves the others preventable."""
    from bylaw.engine.temporal.shape import only_at_calls, only_at_end, parts_of

    open_parts = [part.body for part in parts_of(formula) if not only_at_end(part.body)]
    if not open_parts:
        return Prevention.CLOSING
    return Prevention.PREVENTIVE if all(map(only_at_calls, open_parts)) else Prevention.DETECTIVE
