"""Rules that count over all sessions of an agent, or of all agents: `call_count_in_window_gt` with `over`.

They are folded in the order of the log, as if all calls of the agent, or all calls, were in one session. An event that
arrives late is counted at its time, and nothing before it is judged again. An event with a time in the future counts
when it was written: else one wrong clock would make calls recent for everybody. The state is one record for each agent
and one for all agents. A record holds no more times than the rules can ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.decide.evaluate import count_attempt, judge
from bylaw.guard.decide.policy import CompiledPolicy
from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.session_codec import dump, load
from bylaw.guard.incidents.event_rows import time_of
from bylaw.guard.incidents.fold import Attempted, Found, found_match
from bylaw.guard.incidents.sessions import detection
from bylaw.guard.incidents.unrecorded import Rules, rule_key
from bylaw.guard.stores.ports import GuardStore
from bylaw.guard.stores.records import Detection, WideWindow
from bylaw.model.guard_policy import Action
from bylaw.model.predicate import Reach

MOST_CACHED = 1_000
"""agents whose state is cached in decoded form"""
AHEAD = 60.0
"""seconds that the clock of a host may be ahead without a word"""


class _Window(Struct):
    record: WideWindow
    state: SessionState


class Counted(Struct):
    """The result of a batch."""

    added: list[Detection] = []
    records: list[WideWindow] = []
    """to be written with the batch"""
    unjudged: dict[str, int] = {}
    ahead: int = 0
    """attempts whose time is in the future"""


class WideWindows:
    def __init__(self, rules: Rules, target: GuardStore) -> None:
        self._rules, self._target = rules, target
        names = Counter(
            policy.rule_name(id, policy.agent) for policy in rules.everywhere.judging for id in policy.rules
        )
        self._shared = {name for name, number in names.items() if number > 1}
        """rules over all agents that several agents have under one name"""
        self._cached: dict[str, _Window] = {}

    def count(self, attempts: Sequence[Attempted]) -> Counted:
        """Judge the attempts of a batch."""
        counted = Counted()
        touched: dict[str, _Window] = {}
        for attempted in sorted(attempts, key=lambda one: one.row.seq):
            key = attempted.call.origin.agent or "" if attempted.reach == "agent" else ""
            id = f"{attempted.reach}:{key}"
            window = touched.get(id) or self._take(id, key, attempted.reach)
            touched[id] = window
            for found in self._judge(attempted, window.state, counted.unjudged):
                own = detection(found)
                when = min(own.when, attempted.row.at)
                over_all = replace(own, session=key, over=attempted.reach, call_session=own.session, when=when)
                counted.added.append(over_all)
        ahead = {one.row.seq for one in attempts if time_of(one.row) > one.row.at + AHEAD}
        counted.ahead = len(ahead)
        counted.records = [replace(window.record, state=dump(window.state)) for window in touched.values()]
        self._cached |= touched
        return counted

    def commit(self, records: Sequence[WideWindow]) -> None:
        """After the commit: the records as they were written."""
        for record in records:
            self._cached[record.id].record = replace(record, state=b"")
        while len(self._cached) > MOST_CACHED:
            del self._cached[next(iter(self._cached))]

    def clear(self) -> None:
        self._cached.clear()

    def _take(self, id: str, key: str, reach: Reach) -> _Window:
        cached = self._cached.pop(id, None)
        if cached is not None:
            return cached
        stored = self._target.followed(WideWindow, session=id, limit=1)
        if not stored:
            return _Window(WideWindow(id=id, session=id), SessionState(key))
        state = load(key, stored[0].state, self._rules.wide[reach].all)
        return _Window(replace(stored[0], state=b""), state)

    def _judge(self, attempted: Attempted, state: SessionState, unjudged: dict[str, int]) -> list[Found]:
        chain, call, partial = attempted.chain, attempted.call, attempted.partial
        at = min(time_of(attempted.row), attempted.row.at)
        there = replace(call, origin=replace(call.origin, session=state.key), at=at)
        if not attempted.decision.judged:
            if attempted.row.kind == "taken":
                count_attempt(chain.judging, state, there)
            return []
        rules = chain.rules_by_name(call.origin.agent)
        found: list[Found] = []
        for match in judge(chain, state, there, Action.BLOCK):
            policy, guarded = rules[match.rule]
            doubtful = partial is not None and rule_key(policy, guarded.rule.id) in partial.doubtful
            if doubtful and not match.certain:
                unjudged[match.rule] = unjudged.get(match.rule, 0) + 1
            else:
                name = match.rule if attempted.reach == "agent" else self._name(policy, guarded.rule.id)
                found += found_match(attempted.row, attempted.decision, guarded, replace(match, rule=name), call)
        return found

    def _name(self, policy: CompiledPolicy, rule: str) -> str:
        """The same, whichever agent broke the rule."""
        return f"{policy.agent}/{rule}" if rule in self._shared and policy.agent is not None else rule
