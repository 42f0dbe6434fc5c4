"""Names for what rules remember of a session, taken from what they count or look at.

The state of a rule is stored under such a name. So it outlives an edit that changes nothing of this: a new reason,
another severity, a higher limit, a rule added or removed beside it. Two guards whose rules differ only in that share
their counts. A rule that looks at something else has another name, and begins with an empty state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from msgspec import Struct

from bylaw.engine.compile import Program
from bylaw.engine.operators.attempt import Attempt as AttemptMonitor
from bylaw.guard.policies import clause_text
from bylaw.model.canonical import canonical_json
from bylaw.model.predicate import CountOver
from bylaw.model.rule import Rule

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
        self.key = f"{self.agent} {_digest(sorted(self.indices))}"
        """equal for policies of one agent whose rules about calls remember the same"""

    def known(self) -> set[str]:
        return {*self.indices, *(counted.name for counters in self.counters for counted in counters)}


def rule_name(rule: Rule) -> str:
    """Of a rule about calls."""
    limit = _LIMITS.get(rule.kind)
    params = {name: value for name, value in rule.params.items() if name != limit}
    return _digest([rule.kind, params, [clause_text(clause) for clause in rule.when], list(rule.agents)])


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


def _digest(content: Sequence[object] | Iterable[object]) -> str:
    return hashlib.sha256(canonical_json(content)).hexdigest()[:16]
