"""The chain of policies that applies to an attempt.

Rules of an agent's ancestors apply to it too. A child can only tighten: rules are added, never removed.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from bylaw.engine.compile import NOBODY as NO_RULE
from bylaw.engine.compile import Memo
from bylaw.guard.decide.policy import MOST_SEEN, CompiledPolicy
from bylaw.guard.json_values import RefusedAttempt
from bylaw.guard.model import Attempt
from bylaw.guard.policies import decide_nothing
from bylaw.model.condition import Nothing
from bylaw.model.demand import Attempt as AttemptDemand
from bylaw.model.rule import GuardRule

DEEPEST = 64
"""levels of runs that are followed upwards"""
_NAMED = 3
"""rules that a note names"""

Runs: TypeAlias = Mapping[str, tuple[str | None, str | None]]
"""run → its agent and its parent run"""
Family: TypeAlias = Mapping[str, tuple[str, ...]]
"""agent → every ancestor that was announced for it in the session"""
NO_FAMILY: Family = {}


class Chain:
    """The policies that apply to an attempt, root first, the agent's own last, and the data derived from them."""

    def __init__(
        self,
        policies: tuple[CompiledPolicy, ...] = (),
        *,
        own: Sequence[CompiledPolicy] = (),
        known: Sequence[CompiledPolicy] = (),
        unknown: str | None = None,
        refused: str | None = None,
        is_orphan: bool = False,
        can_pause: bool = True,
    ) -> None:
        self.policies = policies
        self.unknown = unknown
        """an ancestor that no policy knows, so the rules above are not known either"""
        self.refused = refused
        """why one of the agents may not be started by the one above it"""
        self.is_orphan = is_orphan
        """whether that is because a sub-agent has no parent"""
        self.can_pause = can_pause
        """whether a person can be asked on behalf of the agent"""
        self.judging = tuple(policy for policy in policies if not policy.policy.switched_off)
        self.concerned = Memo(self._concerned_by)
        """tool → policies with a rule about it, and whether that rule is about its attempts or its calls"""
        self.reserving = tuple(policy for policy in self.judging if policy.calls.rules)
        """policies that remember calls which run"""
        self.counting = tuple(policy for policy in self.judging if policy.attempts.rules)
        self.allowed = tuple(frozenset(policy.policy.tools) for policy in own if policy.policy.tools is not None)
        """allowlists; the tool has to be on each of them"""
        self.elsewhere = tuple(
            policy
            for policy in known
            if policy.counts_session and policy not in policies and not policy.policy.switched_off
        )
        """policies of other agents, whose session counters span the whole tree"""
        self.admits_all = bool(policies) and not self.allowed and unknown is refused is None
        self.version = next((policy.policy.version for policy in reversed(own) if policy.policy.version), None)
        """the version of the agent, from a manifest"""
        self.notes = _notes(policies)
        self.can_be_blind = any(needs for policy in policies for needs in policy.needs.values())
        self._blind: dict[frozenset[str], tuple[str, ...]] = {}

    def _concerned_by(self, tool: str) -> tuple[tuple[CompiledPolicy, bool, bool], ...]:
        found = [(p, p.attempts.calls[tool] is not NO_RULE, p.calls.calls[tool] is not NO_RULE) for p in self.judging]
        return tuple((policy, attempts, calls) for policy, attempts, calls in found if attempts or calls)

    def blind(self, fed: frozenset[str]) -> tuple[str, ...]:
        """Rules that need events which the guard has not received."""
        known = self._blind.get(fed)
        if known is None:
            needs = [item for policy in self.policies for item in policy.needs.items()]
            known = self._blind[fed] = tuple(rule for rule, needed in needs if not needed <= fed)
        return known

    def rules_by_name(self, agent: str | None) -> dict[str, tuple[CompiledPolicy, GuardRule]]:
        """The rules, by the names that decisions about a call of `agent` use."""
        return {p.rule_name(id, agent): (p, rule) for p in self.judging for id, rule in p.rules.items()}


def _notes(policies: Sequence[CompiledPolicy]) -> tuple[str, ...]:
    off = [policy for policy in policies if policy.policy.switched_off]
    if not off and not any(policy.gates for policy in policies):
        return (f"no rule decides calls here: {_why_nothing(policies)}",)
    return tuple(f"the rules of {policy.agent or 'every agent'} are switched off" for policy in off)


def _why_nothing(policies: Sequence[CompiledPolicy]) -> str:
    rules = [policy.rules[id] for policy in policies for id in policy.follow_up_only]
    empty = [
        r.rule.id for r in rules if isinstance(r.rule.demand, AttemptDemand) and isinstance(r.rule.demand.when, Nothing)
    ]
    later = [rule.rule.id for rule in rules if rule.rule.id not in empty]
    why = [f"the `when` of `{id}` is empty, so it matches nothing" for id in empty[:_NAMED]]
    why += [f"`{id}` acts only afterwards, on the event log" for id in later[:_NAMED]]
    return "; ".join(why) or "nothing was judged"


NOBODY = Chain()


class Policies:
    """The policies of a guard, by agent. Those without an agent apply to everyone, before all others."""

    def __init__(self, policies: Sequence[CompiledPolicy], *, depth: int = 5) -> None:
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
        """chains of agents without ancestors"""
        self._wider: dict[tuple[tuple[str, ...], tuple[str | None, ...]], Chain] = {}
        """chains with further agents that may stand above"""

    @property
    def decide_nothing(self) -> bool:
        """Whether no rule and no list could refuse any call."""
        return decide_nothing(one.policy for one in self.all)

    def named(self, agent: str | None) -> str | None:
        """The agent whose rules apply to an attempt that names this one. If only one agent is known, None means
        that."""
        return self._sole if agent is None else agent

    def chain(self, attempt: Attempt, runs: Runs, family: Family = NO_FAMILY) -> Chain:
        """Raises Refused for a tree that is too deep or has a cycle."""
        if not family and attempt.run is attempt.parent_run is None and not attempt.ancestors:
            return self._alone.get(attempt.agent) or self._build((attempt.agent,))
        unknown_parent = not attempt.ancestors and attempt.parent_run and attempt.parent_run not in runs
        _refuse_other_agent(attempt, runs)
        if self._by_agent and unknown_parent:
            raise RefusedAttempt(f"the parent run `{attempt.parent_run}` is not known, so neither are the rules above")
        stated, possible = lineage(attempt, runs, family, self._depth)
        agents = (*stated, attempt.agent)
        chain = self._chains.get(agents) or self._build(agents)
        if not possible or not chain.policies:
            return chain
        return self._wider.get((possible, agents)) or self._widen(chain, possible, agents)

    def _widen(self, chain: Chain, possible: tuple[str, ...], agents: tuple[str | None, ...]) -> Chain:
        """With the rules of further agents that may stand above."""
        shared = len(self._everyone)
        added = [policy for agent in possible for policy in self._by_agent.get(agent, ())]
        policies = dict.fromkeys((*self._everyone, *added, *chain.policies[shared:]))
        refused = chain.refused
        if chain.is_orphan:  # one of these agents may start it
            starts = [self._refused_start((parent, agents[-1])) for parent in possible]
            refused = None if None in starts else starts[0]
        wider = Chain(
            tuple(policies),
            own=self._own(agents[-1]),
            known=self.all,
            unknown=chain.unknown,
            refused=refused,
            can_pause=chain.can_pause,
        )
        if len(self._wider) < MOST_SEEN:
            self._wider[possible, agents] = wider
        return wider

    def _own(self, agent: str | None) -> tuple[CompiledPolicy, ...]:
        return (*self._everyone, *self._by_agent.get(agent or "", ()))

    def without_ancestors(self, agent: str | None) -> Chain:
        return Chain(self._own(agent))

    def _build(self, agents: tuple[str | None, ...]) -> Chain:
        if len(agents) - 1 > self._depth:
            raise RefusedAttempt(f"the agent stands more than {self._depth} levels below the root")
        named = [agent for agent in agents if agent is not None]
        if len(set(named)) < len(named):
            twice = next(agent for place, agent in enumerate(named) if agent in named[:place])
            if len(set(named)) == 1:
                raise RefusedAttempt(f"the agent `{twice}` is named as its own parent")
            raise RefusedAttempt(f"agents call each other in a circle: {' → '.join(named)}")
        policies = (*self._everyone, *(policy for agent in named for policy in self._by_agent.get(agent, ())))
        agent_policies = self._by_agent.get(agents[-1] or "", ())
        own = self._own(agents[-1])
        above = [] if self._everyone else [agent for agent in agents[:-1] if agent not in self._by_agent]
        orphaned = f"`{agents[0]}` is a sub-agent, and no parent of it was announced"
        is_orphan = len(agents) == 1 and any(policy.policy.mode == "sub_agent" for policy in agent_policies)
        chain = Chain(
            policies,
            own=own,
            known=self.all,
            unknown=above[0] if above else None,
            refused=orphaned if is_orphan else self._refused_start(agents),
            is_orphan=is_orphan,
            can_pause=all(policy.policy.mode != "request" for policy in agent_policies),
        )
        if len(self._chains) < MOST_SEEN:
            self._chains[agents] = chain
            if len(agents) == 1:
                self._alone[agents[0]] = chain
        return chain

    def _refused_start(self, agents: tuple[str | None, ...]) -> str | None:
        for parent, child in itertools.pairwise(agents):
            for policy in self._by_agent.get(parent or "", ()):
                listed = policy.policy.sub_agents
                if listed is not None and child not in listed:
                    whom = "an agent without a name" if child is None else f"the agent `{child}`"
                    return f"{whom} is not a sub-agent that `{parent}` may start"
        return None


def lineage(
    attempt: Attempt, runs: Runs, family: Family, depth: int = DEEPEST
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Agents above, root first, as the attempt states or its run shows; and others that may stand above it, since it
    does not say where it stands in the family that was announced."""
    stated = ancestors(attempt, runs, depth)
    if not family:
        return stated, ()
    agent = attempt.agent
    if stated and not attempt.ancestors and _is_own_run(attempt, runs):
        return stated, ()
    known = family.get(agent) if agent is not None else None
    if known is None:  # an agent that was not announced: below those it names, or else below anybody
        named = [name for name in stated if name in family]
        known = tuple(above for name in named for above in family[name]) if named else tuple(family)
    return stated, tuple(dict.fromkeys(name for name in known if name != agent and name not in stated))


def _refuse_other_agent(attempt: Attempt, runs: Runs) -> None:
    """A run is of one agent: a call of it that names another would escape the rules of either."""
    known = runs.get(attempt.run, (None, None))[0] if attempt.run is not None else None
    if known is not None and attempt.agent is not None and known != attempt.agent:
        raise RefusedAttempt(
            f"the run `{attempt.run}` is of the agent `{known}`, and the call names the agent `{attempt.agent}`"
        )


def _is_own_run(attempt: Attempt, runs: Runs) -> bool:
    """Whether the run that the attempt names is new, or was announced for this agent and this parent."""
    known = runs.get(attempt.run) if attempt.run is not None else None
    return known is None or (known[0] == attempt.agent and attempt.parent_run in (None, known[1]))


def ancestors(attempt: Attempt, runs: Runs, depth: int = DEEPEST) -> tuple[str, ...]:
    """Agents above, root first: as the attempt states, else as the runs were announced."""
    if attempt.ancestors:
        return tuple(attempt.ancestors)
    above: list[str] = []
    run = attempt.parent_run or (runs.get(attempt.run, (None, None))[1] if attempt.run else None)
    seen: set[str] = set()
    while run is not None and run not in seen and len(above) <= depth:
        seen.add(run)
        agent, run = runs.get(run, (None, None))
        if agent is not None:
            above.append(agent)
    return tuple(reversed(above))
