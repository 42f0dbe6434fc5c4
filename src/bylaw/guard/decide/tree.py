"""Agents above agents: whose rules hold for an attempt. A child can only tighten: rules are added, never taken away."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from bylaw.engine.compile import NOBODY as NO_RULE
from bylaw.engine.memo import Memo
from bylaw.guard.decide.attempts import Refused
from bylaw.guard.decide.policy import CompiledPolicy, policy_hash
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decision import Attempt
from bylaw.model.guarding import GuardPolicy

MOST_DEPTH = 5
"""agents below the root"""
MOST_CHAINS = 4_096
"""lines of agents that are remembered; a host may invent names without end"""


class Chain:
    """Whose rules hold for an attempt, root first, the agent's own last, and what follows from that alone."""

    def __init__(
        self,
        policies: tuple[CompiledPolicy, ...] = (),
        *,
        own: Sequence[CompiledPolicy] = (),
        known: Sequence[CompiledPolicy] = (),
    ) -> None:
        self.policies = policies
        self.judging = tuple(policy for policy in policies if not policy.policy.switched_off)
        self.concerned = Memo(self._concerned_by)
        """tool → those of them that have a rule about it: on its attempts, on its calls"""
        self.reserving = tuple(policy for policy in self.judging if policy.calls.rules)
        """those that remember calls which are made"""
        self.counting = tuple(policy for policy in self.judging if policy.attempts.rules)
        self.allowed = tuple(frozenset(policy.policy.tools) for policy in own if policy.policy.tools is not None)
        """every list that the tool has to be on"""
        self.elsewhere = tuple(
            policy
            for policy in known
            if policy.counts_session and policy not in policies and not policy.policy.switched_off
        )
        """of other agents: their counters of the session span the whole tree"""
        self.admits_all = bool(policies) and not self.allowed
        self.notes = _notes(policies)
        self.can_be_blind = any(needs for policy in policies for needs in policy.needs.values())
        self._blind: dict[frozenset[str], tuple[str, ...]] = {}

    def _concerned_by(self, tool: str) -> tuple[tuple[CompiledPolicy, bool, bool], ...]:
        asked = [(p, p.attempts.calls[tool] is not NO_RULE, p.calls.calls[tool] is not NO_RULE) for p in self.judging]
        return tuple((policy, attempts, calls) for policy, attempts, calls in asked if attempts or calls)

    def blind(self, fed: frozenset[str]) -> tuple[str, ...]:
        """Rules that need events nobody has fed."""
        known = self._blind.get(fed)
        if known is None:
            known = self._blind[fed] = tuple(rule for policy in self.policies for rule in policy.blind(fed))
        return known


def _notes(policies: Sequence[CompiledPolicy]) -> tuple[str, ...]:
    off = [policy for policy in policies if policy.policy.switched_off]
    if not off and not any(policy.gates for policy in policies):
        return ("no rule decides calls here: nothing was judged",)
    return tuple(f"the rules of {policy.agent or 'every agent'} are switched off" for policy in off)


NOBODY = Chain()


def without_repeats(policies: Sequence[GuardPolicy]) -> list[GuardPolicy]:
    """Each rule once for each agent: one that holds for everyone would else be counted and recorded twice."""
    everywhere = {rule.rule.id: rule for policy in policies if _holds_for_all(policy) for rule in policy.rules}
    made: dict[str, GuardPolicy] = {}
    for policy in policies:
        if policy.agent is not None:
            own = tuple(rule for rule in policy.rules if everywhere.get(rule.rule.id) != rule)
            policy = policy if len(own) == len(policy.rules) else replace(policy, rules=own)
        made.setdefault(policy_hash(policy), policy)
    return list(made.values())


def _holds_for_all(policy: GuardPolicy) -> bool:
    return policy.agent is None and not policy.switched_off


class Policies:
    """The policies of a guard, by agent. Those without an agent hold for everyone, before all others."""

    def __init__(self, policies: Sequence[CompiledPolicy], *, depth: int = MOST_DEPTH) -> None:
        self.all = tuple(policies)
        self._everyone = tuple(policy for policy in policies if policy.agent is None)
        self._by_agent: dict[str, tuple[CompiledPolicy, ...]] = {}
        for policy in policies:
            if policy.agent is not None:
                self._by_agent[policy.agent] = (*self._by_agent.get(policy.agent, ()), policy)
        self._sole = next(iter(self._by_agent)) if len(self._by_agent) == 1 and not self._everyone else None
        self._depth = depth
        self._chains: dict[tuple[str | None, ...], Chain] = {}
        self._alone: dict[str | None, Chain] = {}
        """those of agents with nobody above"""

    def named(self, agent: str | None) -> str | None:
        """Whose rules hold for an attempt that names this agent, or none: where only one agent is known, it is that."""
        return self._sole if agent is None else agent

    def chain(self, attempt: Attempt, state: SessionState) -> Chain:
        """Raises Refused for a tree that is too deep or runs in a circle."""
        if attempt.run is attempt.parent_run is None and not attempt.ancestors:
            return self._alone.get(attempt.agent) or self._remembered((attempt.agent,))
        agents = (*self._above(attempt, state), attempt.agent)
        return self._chains.get(agents) or self._remembered(agents)

    def apart(self, agent: str | None) -> Chain:
        """Of an agent whose line cannot be told: without anyone above."""
        return Chain(self._own(agent))

    def _remembered(self, agents: tuple[str | None, ...]) -> Chain:
        chain = Chain(self._build(agents), own=self._own(agents[-1]), known=self.all)
        if len(self._chains) < MOST_CHAINS:
            self._chains[agents] = chain
            if len(agents) == 1:
                self._alone[agents[0]] = chain
        return chain

    def _above(self, attempt: Attempt, state: SessionState) -> tuple[str, ...]:
        if self._by_agent and not attempt.ancestors and attempt.parent_run and attempt.parent_run not in state.runs:
            raise Refused(f"the parent run `{attempt.parent_run}` is not known, so neither are the rules above")
        return ancestors(attempt, state, self._depth)

    def _own(self, agent: str | None) -> tuple[CompiledPolicy, ...]:
        """Policies whose allowlist an agent's call has to be on."""
        return (*self._everyone, *self._by_agent.get(agent or "", ()))

    def _build(self, agents: tuple[str | None, ...]) -> tuple[CompiledPolicy, ...]:
        if len(agents) - 1 > self._depth:
            raise Refused(f"the agent stands more than {self._depth} levels below the root")
        named = [agent for agent in agents if agent is not None]
        if len(set(named)) < len(named):
            raise Refused(f"agents call each other in a circle: {' → '.join(named)}")
        found = [policy for agent in named for policy in self._by_agent.get(agent, ())]
        return (*self._everyone, *found)


def ancestors(attempt: Attempt, state: SessionState, depth: int) -> tuple[str, ...]:
    """Agents above, root first: as the attempt says, else as the runs were announced."""
    if attempt.ancestors:
        return tuple(attempt.ancestors)
    above: list[str] = []
    run = attempt.parent_run or (state.runs.get(attempt.run, (None, None))[1] if attempt.run else None)
    seen: set[str] = set()
    while run is not None and run not in seen and len(above) <= depth:
        seen.add(run)
        agent, run = state.runs.get(run, (None, None))
        if agent is not None:
            above.append(agent)
    return tuple(reversed(above))
