"""The report of a backtest."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct, field

from bylaw.model.rule import Action
from bylaw.model.verdict import TraceSummary

UNCLEAR = "unclear"
"""beside the four actions: the recording lacks a value that could have decided the call"""
OUTCOMES = (*(action.value for action in Action), UNCLEAR)

Lack: TypeAlias = Literal["arguments", "results", "order", "errors", "responses", "messages", "times", "agents"]
LACKS: dict[Lack, str] = {
    "arguments": "no readable arguments",
    "results": "no result of an earlier call",
    "order": "no order of the call and a result",
    "errors": "no word on whether an earlier call failed",
    "responses": "no text of the model",
    "messages": "no messages of the user",
    "times": "no time",
    "agents": "no name of the agent",
}
"""what a recording can lack, for people"""

FailOn: TypeAlias = Literal["none", "flips", "blocks"]


class Example(Struct, frozen=True, kw_only=True):
    """One recorded call, with enough of it to find and understand it. Secrets are removed."""

    trace: str
    session: str
    turn: int | None = None
    tool: str
    call: str
    """as in `issue_refund(amount=900)`"""
    action: str
    before: str | None = None
    """the action of the other rules"""
    rules: tuple[str, ...] = ()
    why: str = ""
    source: str | None = None
    """file:line"""


class RuleTally(Struct, kw_only=True):
    """One rule over all calls, or what decides in place of a rule: `allowlist`, `arguments`, `agent`."""

    rule: str
    then: str
    shadow: bool = False
    line: str | None = None
    concerned: int = 0
    """calls of tools that the rule is about"""
    matched: int = 0
    doubtful: int = 0
    """matches only because a value could not be compared"""
    decided: int = 0
    """calls whose action it decided"""
    changed: int = 0
    """for a shadow rule: calls whose action would differ if it were on"""
    sessions: int = 0
    """in which it matched"""
    lacking: int = 0
    """calls whose recording lacks a value that it needs"""
    afterwards: int = 0
    """times it was broken by a result, a response or the end of a session, when no call could be stopped"""
    examples: list[Example] = field(default_factory=list)


class Tally(Struct):
    """A count, with the first examples."""

    count: int = 0
    examples: list[Example] = field(default_factory=list)


class BacktestReport(Struct, kw_only=True):
    policy: str
    """the hash of the rules"""
    against: str | None = None
    """the hash of the rules that they are compared with"""
    fail_on: FailOn = "none"
    traces: list[TraceSummary] = field(default_factory=list)
    events: int = 0
    sessions: int = 0
    resumed: int = 0
    """at least so many sessions continued after they counted as over, and were judged in two parts"""
    calls: int = 0
    judged: int = 0
    """calls that some rule or allowlist is about"""
    covered: int = 0
    """of those: calls whose recording holds every value that the rules need"""
    lacking: dict[Lack, int] = field(default_factory=dict)
    """calls by what their recording lacks"""
    actions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    shadow_actions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    """the same, if the shadow rules were on"""
    after_a_stop: int = 0
    """calls after one that would have been stopped; they are judged as recorded, although the agent might have
    continued differently"""
    stopped_sessions: int = 0
    rules: dict[str, RuleTally] = field(default_factory=dict)
    flips: dict[str, Tally] = field(default_factory=dict)
    """such as `allow → block`: the action of the other rules, and of these"""
    never_decide: tuple[str, ...] = ()
    """rules that only their follow-up acts on"""

    @property
    def stops(self) -> int:
        return sum(self.actions[action.value] for action in Action if action.restricts)

    @property
    def flipped(self) -> int:
        return sum(tally.count for tally in self.flips.values())

    @property
    def coverage(self) -> float | None:
        return self.covered / self.judged if self.judged else None

    @property
    def has_shadow(self) -> bool:
        return any(tally.shadow for tally in self.rules.values())

    @property
    def exit_code(self) -> int:
        if (self.fail_on == "flips" and self.flipped) or (self.fail_on == "blocks" and self.stops):
            return 1
        return 0 if self.judged else 3
