"""One guard in shadow, fed with a recording: every call is decided, and happens in any case. A rule that needs a value
which the recording lacks is not judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bylaw.engine.compile import MOST_NAMES
from bylaw.engine.matching import compile_names
from bylaw.engine.monitor import ref
from bylaw.engine.temporal.shape import atoms, windows
from bylaw.guard.backtest.report import UNCLEAR, Example, Lack
from bylaw.guard.decide.attempts import strictest
from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.model import Attempt, Decision, Match, Options
from bylaw.guard.stores import MemoryStore
from bylaw.model.condition import AllOf, AnyOf, ArgumentIs, NotOf, Predicate, counts
from bylaw.model.demand import Attempt as AttemptDemand
from bylaw.model.demand import Calls, Temporal, looks_at_arguments
from bylaw.model.events import Event, Message, Request, Response, ToolCall, ToolResult
from bylaw.model.rule import Action, GuardPolicy, GuardRule, Rule
from bylaw.model.temporal import AgentIs, ResultOf, Says, StopsFor, ToolIs, UserSays
from bylaw.model.verdict import Verdict
from bylaw.rules.versions import qualified_id
from bylaw.text.redaction.redactor import redacted
from bylaw.text.regex import Matches

# -- the values that a rule needs at a call, and those that the recording of a session lacks --------------------------

MOST_OPEN = 1_024
"""calls without a result that are remembered"""


class Needs(Struct, frozen=True, kw_only=True):
    """The data that one rule needs at calls of one tool."""

    arguments: bool = False
    results: Matches | None = None
    """results of the tools that match; None: of none"""
    errors: Matches | None = None
    """whether calls of the tools that match failed"""
    responses: bool = False
    messages: bool = False
    times: bool = False
    agents: bool = False


def needs_of(rule: Rule, tool: str) -> Needs | None:
    """None if the rule needs nothing."""
    demand = rule.demand
    if isinstance(demand, AttemptDemand):
        timed = any(count.over == "window" for count in counts(demand.when))
        asks_arguments = any(isinstance(part, ArgumentIs) for part in _parts(demand.when))
        needs = Needs(arguments=asks_arguments, times=timed)
    elif isinstance(demand, Temporal):
        needs = _temporal(demand, tool, conditional=bool(rule.when))
    else:
        asks_arguments = any(compile_names(calls)(tool) for calls, _ in looks_at_arguments(demand))
        needs = Needs(arguments=asks_arguments, responses=bool(rule.when))
    return None if needs == Needs() else needs


def _temporal(demand: Temporal, tool: str, *, conditional: bool) -> Needs:
    found = atoms(demand.formula)
    results = [atom for atom in found if isinstance(atom, ResultOf)]
    failing = [atom for atom in results if any(test.root == "error" for test in atom.tests)]
    calls = [atom for atom in found if isinstance(atom, ToolIs) and atom.tests]
    return Needs(
        arguments=any(compile_names(Calls(atom.names))(tool) for atom in calls),
        results=_named_results(results),
        errors=_named_results(failing),
        responses=conditional or any(isinstance(atom, Says | StopsFor) for atom in found),
        messages=any(isinstance(atom, UserSays) for atom in found),
        times=any(window.unit == "seconds" for window in windows(demand.formula)),
        agents=any(isinstance(atom, AgentIs) for atom in found),
    )


def _named_results(results: list[ResultOf]) -> Matches | None:
    return compile_names(Calls(tuple(name for one in results for name in one.names))) if results else None


def _parts(predicate: Predicate) -> Iterator[Predicate]:
    yield predicate
    match predicate:
        case AllOf(of=of) | AnyOf(of=of):
            for part in of:
                yield from _parts(part)
        case NotOf(of=part):
            yield from _parts(part)


class RecordedSession:
    """Which values the recording of one session had so far, and the results of its replay."""

    __slots__ = ("_has_messages", "_has_text", "_open", "_without_status", "announced", "matched", "stopped")

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, int | None]] = {}
        """calls without a result: tool and turn"""
        self._without_status: set[str] = set()
        """tools with a result that does not say whether the call failed"""
        self._has_messages = self._has_text = False
        self.announced: set[str] = set()
        """runs that the guard knows"""
        self.matched: set[str] = set()
        """rules that matched a call"""
        self.stopped = False

    def observe(self, event: Event) -> None:
        if isinstance(event, ToolResult):
            self._open.pop(call_id_of(event), None)
            if event.is_error is None and len(self._without_status) < MOST_OPEN:
                self._without_status.add((event.call.name if event.call is not None else event.name) or "")
        elif isinstance(event, Response):
            self._has_text = event.text is not None
            request = event.request
            self._has_messages |= request is not None and request.held_messages is not None
        elif isinstance(event, Request):
            self._has_messages |= event.held_messages is not None
        elif isinstance(event, Message):
            self._has_messages = True

    def add_call(self, call: ToolCall) -> None:
        self._open[call.call_id] = (call.name, call.turn)
        if len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]

    def lacks(self, call: ToolCall, needs: Needs) -> list[Lack]:
        found: list[Lack] = []
        if needs.arguments and call.arguments is None:
            found.append("arguments")
        # A call of the same turn has no result yet, as in the live session.
        earlier = (tool for tool, turn in self._open.values() if turn is None or turn != call.turn)
        if needs.results is not None and any(map(needs.results, earlier)):
            found.append("results")
        if needs.results is not None and ("*" in call.unordered or any(map(needs.results, call.unordered))):
            found.append("order")
        if needs.errors is not None and any(map(needs.errors, self._without_status)):
            found.append("errors")
        if needs.responses and not self._has_text:
            found.append("responses")
        if needs.messages and not self._has_messages:
            found.append("messages")
        if needs.times and call.time is None:
            found.append("times")
        if needs.agents and call.origin.agent is None:
            found.append("agents")
        return found


def call_id_of(result: ToolResult) -> str:
    return result.call.call_id if result.call is not None else result.call_id or ""


# -- the guard --------------------------------------------------------------------------------------------------------


class RuleForAgent(Struct, frozen=True):
    """A rule about a tool, as it applies to one agent."""

    name: str
    """as decisions name it"""
    key: str
    """its name among the rules of all agents"""
    rule: GuardRule
    needs: Needs | None
    """None: nothing"""


class ReplayedCall(Struct):
    """The verdict of the rules on one recorded call."""

    action: str
    shadow_action: str
    """with the shadow rules on"""
    decided_by: str | None
    """a rule's key, or what decided in its place"""
    why: str
    concerns: Sequence[RuleForAgent]
    matches: Sequence[tuple[str, Match]]
    lacking: dict[str, list[Lack]]
    """by rule"""
    listed: bool
    """whether an allowlist is about the call"""


def trial_guard(policies: Sequence[GuardPolicy]) -> BaseGuard:
    """A guard for trying out rules: it stores nothing, and events without a time have the time 0."""
    return BaseGuard(
        policies,
        store=MemoryStore(),
        durable=False,
        options=Options(shadow=True),
        clock=lambda: 0.0,
    )


class Replay:
    def __init__(self, guard: BaseGuard) -> None:
        assert guard.options.shadow, "a recorded call cannot be stopped"
        self.guard = guard
        self._policies: tuple[CompiledPolicy, ...] = guard.policies.all
        named = {policy.agent for policy in self._policies if policy.agent is not None}
        self._by_agent, self._several = bool(named), len(named) > 1
        self._has_allowlist = any(policy.policy.tools is not None for policy in self._policies)
        self._concerns: dict[tuple[tuple[str | None, ...], str], tuple[RuleForAgent, ...]] = {}
        self._runs: dict[tuple[str, str], tuple[str | None, str | None]] = {}

    def rules(self) -> list[tuple[str, GuardRule]]:
        return [(self._key(policy, id), rule) for policy in self._policies for id, rule in policy.rules.items()]

    def judge(self, call: ToolCall, recorded: RecordedSession) -> ReplayedCall:
        self._announce(call, recorded)
        origin = call.origin
        decision = self.guard.decide(
            Attempt(
                tool=call.name,
                # the guard refuses raw arguments that are not JSON
                arguments=call.arguments if call.arguments is not None else call.raw_arguments or None,
                agent=origin.agent,
                session=origin.session,
                run=origin.run,
                parent_run=origin.parent_run,
                ts=call.time,
                call_id=call.call_id,
            )
        )
        concerns = self._concerned(self._agents(call), call.name)
        return self._judge_decision(decision, concerns, self._missing_data(call, concerns, recorded))

    def observe(self, event: Event, recorded: RecordedSession) -> tuple[Verdict, ...]:
        self._announce(event, recorded)
        if isinstance(event, ToolResult):
            session, is_error = event.origin.session, event.is_error
            return self.guard.record(
                call_id_of(event), event.content, session=session, is_error=is_error, ts=event.time
            )
        return () if isinstance(event, Request) else self.guard.observe(event)  # a response brings its request

    def end(self, session: str, recorded: RecordedSession, *, complete: bool) -> tuple[Verdict, ...]:
        for run in recorded.announced:
            self._runs.pop((session, run), None)
        return self.guard.end_session(session, complete=complete)

    # -- the rules about a call, and what they lack ---------------------------------------------------------------

    def _announce(self, event: Event, recorded: RecordedSession) -> None:
        """A host announces its runs; a recording names them with each event."""
        origin = event.origin
        if origin.run is None or origin.run in recorded.announced:
            return
        recorded.announced.add(origin.run)
        self._runs[origin.session, origin.run] = (origin.agent, origin.parent_run)
        self.guard.start_run(origin.session, origin.run, agent=origin.agent, parent_run=origin.parent_run)

    def _agents(self, call: ToolCall) -> tuple[str | None, ...]:
        """The agent and its ancestors, as far as the runs are known."""
        if not self._by_agent:
            return (None,)
        origin = call.origin
        line, run = [self.guard.policies.named(origin.agent)], origin.parent_run
        while run is not None and len(line) <= self.guard.options.max_depth:
            agent, run = self._runs.get((origin.session, run), (None, None))
            line.append(agent)
        return tuple(line)

    def _concerned(self, agents: tuple[str | None, ...], tool: str) -> tuple[RuleForAgent, ...]:
        found = self._concerns.get((agents, tool))
        if found is None:
            found = tuple(
                concern
                for policy in self._policies
                if policy.agent is None or policy.agent in agents
                for concern in self._concerns_of(policy, agents[0], tool)
            )
            if len(self._concerns) < MOST_NAMES:
                self._concerns[agents, tool] = found
        return found

    def _concerns_of(self, policy: CompiledPolicy, agent: str | None, tool: str) -> list[RuleForAgent]:
        ids = [p.rules[i].id for p in (policy.attempts, policy.calls) for i, _, _ in p.calls[tool].session]
        rules = [(id, policy.rules[id]) for id in ids]
        return [
            RuleForAgent(policy.rule_name(id, agent), self._key(policy, id), rule, needs_of(rule.rule, tool))
            for id, rule in rules
        ]

    def _key(self, policy: CompiledPolicy, id: str) -> str:
        return id if policy.agent is None or not self._several else qualified_id(policy.agent, id)

    def _missing_data(
        self, call: ToolCall, concerns: Sequence[RuleForAgent], recorded: RecordedSession
    ) -> dict[str, list[Lack]]:
        nameless = self._by_agent and self.guard.policies.named(call.origin.agent) is None
        found: dict[str, list[Lack]] = {"": ["agents"]} if nameless else {}
        for concern in concerns:
            if concern.needs is not None and (lacks := recorded.lacks(call, concern.needs)):
                found[concern.key] = lacks
        return found

    def _judge_decision(
        self, decision: Decision, concerns: Sequence[RuleForAgent], lacking: dict[str, list[Lack]]
    ) -> ReplayedCall:
        keys = {concern.name: concern.key for concern in concerns}
        matches = [(keys.get(match.rule, match.rule), match) for match in decision.matches]
        sure = [match for key, match in matches if key not in lacking]
        best, with_shadow = strictest(sure, shadow=False), strictest(sure, shadow=True)
        by: str | None
        if not decision.matches and decision.decided_by is not None:  # refused before any rule
            action = shadow_action = decision.would or Action.ALLOW
            by, why = decision.decided_by, decision.reason
        else:
            action = Action.ALLOW if best is None else best.then
            shadow_action = Action.ALLOW if with_shadow is None else with_shadow.then
            by = None if best is None else keys.get(best.rule, best.rule)
            why = "" if best is None else best.reason or best.message
        unclear = _is_unclear(action, concerns, lacking, shadow=False)
        shadow_unclear = _is_unclear(shadow_action, concerns, lacking, shadow=True)
        return ReplayedCall(
            action=UNCLEAR if unclear else action.value,
            shadow_action=UNCLEAR if shadow_unclear else shadow_action.value,
            decided_by=None if unclear else by,
            why=why,
            concerns=concerns,
            matches=matches,
            lacking=lacking,
            listed=self._has_allowlist,
        )


def _is_unclear(
    action: Action, concerns: Sequence[RuleForAgent], lacking: dict[str, list[Lack]], *, shadow: bool
) -> bool:
    """Whether a rule that could not be judged might have been stricter."""
    if not lacking:
        return False
    return "" in lacking or any(
        concern.key in lacking
        and (shadow or not concern.rule.shadow)
        and concern.rule.then.strictness > action.strictness
        for concern in concerns
    )


def example_of(
    trace: str, call: ToolCall, *, action: str, rules: tuple[str, ...], why: str, before: str | None = None
) -> Example:
    """A recorded call for people: short, and without secrets."""
    shown = ref(replace(call, arguments=redacted(call.arguments), raw_arguments=redacted(call.raw_arguments)))
    return Example(
        trace=trace,
        session=call.origin.session,
        turn=call.turn,
        tool=call.name,
        call=shown.excerpt or call.name,
        action=action,
        before=before,
        rules=rules,
        why=redacted(why),
        source=shown.source,
    )
