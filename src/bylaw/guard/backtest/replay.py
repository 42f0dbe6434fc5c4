"""One guard in shadow, fed with what was recorded: every call is decided, and happens all the same, since it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from bylaw.engine.memo import MOST_NAMES
from bylaw.guard.backtest.model import UNCLEAR, Lack
from bylaw.guard.backtest.needs import Needs, needs_of
from bylaw.guard.backtest.recorded import Recorded, call_id_of
from bylaw.guard.decide.deciding import strictest
from bylaw.guard.decide.options import Options
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decision import Attempt, Decision, Match
from bylaw.guard.guard import Guard
from bylaw.guard.stores.ports import GuardStore
from bylaw.model.events import Event, Request, ToolCall, ToolResult
from bylaw.model.guarding import Action, GuardPolicy, GuardRule
from bylaw.model.verdict import Verdict


class Concern(Struct, frozen=True):
    """A rule that speaks of a tool, as one agent meets it."""

    name: str
    """as decisions call it"""
    key: str
    """its own name over all agents"""
    rule: GuardRule
    needs: Needs | None
    """None: nothing"""


class Judged(Struct):
    """What the rules say of one recorded call."""

    action: str
    shadow_action: str
    """with the shadow rules on"""
    decided_by: str | None
    """a rule's key, or what stands in its place"""
    why: str
    concerns: Sequence[Concern]
    matches: Sequence[tuple[str, Match]]
    lacking: dict[str, list[Lack]]
    """by rule"""
    listed: bool
    """whether an allowlist speaks of the call"""


def trying(policies: Sequence[GuardPolicy], store: GuardStore, tool_schemas: Mapping[str, Any] | None = None) -> Guard:
    """A guard that only tries rules out: nothing is kept, and what has no time happened at none in particular."""
    return Guard(
        policies,
        store=store,
        durable=False,
        options=Options(shadow=True),
        tool_schemas=tool_schemas,
        clock=lambda: 0.0,
    )


class Replay:
    def __init__(self, guard: Guard) -> None:
        assert guard.options.shadow, "what happened cannot be stopped"
        self.guard = guard
        self._policies: tuple[CompiledPolicy, ...] = guard.policies.all
        named = {policy.agent for policy in self._policies if policy.agent is not None}
        self._by_agent, self._several = bool(named), len(named) > 1
        self._listing = any(policy.policy.tools is not None for policy in self._policies)
        self._concerns: dict[tuple[tuple[str | None, ...], str], tuple[Concern, ...]] = {}
        self._runs: dict[tuple[str, str], tuple[str | None, str | None]] = {}

    def rules(self) -> list[tuple[str, GuardRule]]:
        return [(self._key(policy, id), rule) for policy in self._policies for id, rule in policy.rules.items()]

    def judge(self, call: ToolCall, recorded: Recorded) -> Judged:
        self._announce(call, recorded)
        origin = call.origin
        decision = self.guard.decide(
            Attempt(
                tool=call.name,
                arguments=call.arguments if call.arguments is not None else _unread(call),
                agent=origin.agent,
                session=origin.session,
                run=origin.run,
                parent_run=origin.parent_run,
                ts=call.time,
                call_id=call.call_id,
            )
        )
        concerns = self._concerned(self._agents(call), call.name)
        lacking = self._lacking(call, concerns, recorded)
        return self._judged(decision, concerns, lacking)

    def tell(self, event: Event, recorded: Recorded) -> tuple[Verdict, ...]:
        self._announce(event, recorded)
        if isinstance(event, ToolResult):
            return self.guard.record(
                call_id_of(event),
                event.content,
                session=event.origin.session,
                is_error=event.is_error,
                ts=event.time,
            )
        return () if isinstance(event, Request) else self.guard.observe(event)  # a response brings its request

    def end(self, session: str, recorded: Recorded, *, complete: bool) -> tuple[Verdict, ...]:
        for run in recorded.announced:
            self._runs.pop((session, run), None)
        return self.guard.end_session(session, complete=complete)

    # -- whose rules, and what they need --------------------------------------------------------------------------

    def _announce(self, event: Event, recorded: Recorded) -> None:
        """A host tells the guard of its runs; a recording names them with each event."""
        origin = event.origin
        if origin.run is None or origin.run in recorded.announced:
            return
        recorded.announced.add(origin.run)
        self._runs[origin.session, origin.run] = (origin.agent, origin.parent_run)
        self.guard.start_run(origin.session, origin.run, agent=origin.agent, parent_run=origin.parent_run)

    def _agents(self, call: ToolCall) -> tuple[str | None, ...]:
        """The agent and those above it, as far as the runs tell."""
        if not self._by_agent:
            return (None,)
        origin = call.origin
        line, run = [self.guard.policies.named(origin.agent)], origin.parent_run
        while run is not None and len(line) <= self.guard.options.max_depth:
            agent, run = self._runs.get((origin.session, run), (None, None))
            line.append(agent)
        return tuple(line)

    def _concerned(self, agents: tuple[str | None, ...], tool: str) -> tuple[Concern, ...]:
        found = self._concerns.get((agents, tool))
        if found is None:
            found = tuple(
                concern
                for policy in self._policies
                if policy.agent is None or policy.agent in agents
                for concern in self._of_policy(policy, agents[0], tool)
            )
            if len(self._concerns) < MOST_NAMES:
                self._concerns[agents, tool] = found
        return found

    def _of_policy(self, policy: CompiledPolicy, agent: str | None, tool: str) -> list[Concern]:
        prefix = "" if policy.agent in (None, agent) else f"{policy.agent}/"
        ids = [p.rules[i].id for p in (policy.attempts, policy.calls) for i, _, _ in p.calls[tool].session]
        rules = [policy.rules[id] for id in ids]
        return [
            Concern(prefix + r.rule.id, self._key(policy, r.rule.id), r, needs_of(r.rule, tool) or None) for r in rules
        ]

    def _key(self, policy: CompiledPolicy, id: str) -> str:
        return id if policy.agent is None or not self._several else f"{policy.agent}/{id}"

    def _lacking(self, call: ToolCall, concerns: Sequence[Concern], recorded: Recorded) -> dict[str, list[Lack]]:
        nameless = self._by_agent and self.guard.policies.named(call.origin.agent) is None
        found: dict[str, list[Lack]] = {"": ["agents"]} if nameless else {}
        for concern in concerns:
            if concern.needs is not None and (lacks := recorded.lacks(call, concern.needs)):
                found[concern.key] = lacks
        return found

    # -- one answer -----------------------------------------------------------------------------------------------

    def _judged(self, decision: Decision, concerns: Sequence[Concern], lacking: dict[str, list[Lack]]) -> Judged:
        keys = {concern.name: concern.key for concern in concerns}
        matches = [(keys.get(match.rule, match.rule), match) for match in decision.matches]
        sure = [match for key, match in matches if key not in lacking]
        best, with_shadow = strictest(sure, shadow=False), strictest(sure, shadow=True)
        refused = not decision.matches and decision.decided_by is not None
        if refused:
            action = decision.would or Action.ALLOW
            told, shadow_told, by, why = action, action, decision.decided_by, decision.reason
        else:
            told = Action.ALLOW if best is None else best.then
            shadow_told = Action.ALLOW if with_shadow is None else with_shadow.then
            by = None if best is None else keys.get(best.rule, best.rule)
            why = "" if best is None else best.reason or best.message
        unclear = _open_question(told, concerns, lacking, shadow=False)
        still_unclear = _open_question(shadow_told, concerns, lacking, shadow=True)
        return Judged(
            UNCLEAR if unclear else told.value,
            UNCLEAR if still_unclear else shadow_told.value,
            None if unclear else by,
            why,
            concerns,
            matches,
            lacking,
            self._listing,
        )


def _open_question(told: Action, concerns: Sequence[Concern], lacking: dict[str, list[Lack]], *, shadow: bool) -> bool:
    """Whether a rule that could not be judged might have done something stricter."""
    if not lacking:
        return False
    return "" in lacking or any(
        concern.key in lacking and (shadow or not concern.rule.shadow) and _stricter(concern.rule.then, told)
        for concern in concerns
    )


def _stricter(one: Action, other: Action) -> bool:
    return one.strictness > other.strictness


def _unread(call: ToolCall) -> str | None:
    """Arguments that are no JSON are put before the guard as they are: it knows that it cannot read them."""
    return call.raw_arguments or None
