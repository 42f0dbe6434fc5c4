"""What rules would have done to recorded traffic, and what shadow rules would have changed."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct, field

from bylaw.model.guarding import Action
from bylaw.model.report import TraceSummary

UNCLEAR = "unclear"
"""beside the four actions: the recording lacks what a rule needs that could have decided the call"""
OUTCOMES = (*(action.value for action in Action), UNCLEAR)

Lack: TypeAlias = Literal["arguments", "results", "errors", "responses", "messages", "times", "agents"]
LACKS: dict[Lack, str] = {
    "arguments": "no readable arguments",
    "results": "no result of an earlier call",
    "errors": "no word on whether an earlier call failed",
    "responses": "no text of the model",
    "messages": "no messages of the user",
    "times": "no time",
    "agents": "no name of the agent",
}
"""what a recording can lack, for people"""

FailOn: TypeAlias = Literal["none", "flips", "blocks"]


class Example(Struct, frozen=True, kw_only=True):
    """One recorded call, with enough of it to be found and understood. Secrets are taken out."""

    trace: str
    session: str
    turn: int | None = None
    tool: str
    call: str
    """as in `issue_refund(amount=900)`"""
    action: str
    before: str | None = None
    """what the other rules do to it"""
    rules: tuple[str, ...] = ()
    why: str = ""
    source: str | None = None
    """file:line"""


class RuleTally(Struct, kw_only=True):
    """One rule over all calls, or what stands in a rule's place: `allowlist`, `arguments`, `agent`."""

    rule: str
    then: str
    shadow: bool = False
    line: str | None = None
    concerned: int = 0
    """calls of tools that it speaks of"""
    matched: int = 0
    """calls that it has something against"""
    doubtful: int = 0
    """of those: only because a value could not be compared"""
    decided: int = 0
    """calls that go as it says"""
    changed: int = 0
    """of a shadow rule: calls that would go otherwise if it were on"""
    sessions: int = 0
    """in which it matched"""
    lacking: int = 0
    """calls whose recording lacks what it needs"""
    afterwards: int = 0
    """broken by a result, a response or the end of a session: no call could have been stopped for it"""
    examples: list[Example] = field(default_factory=list)


class Tally(Struct):
    """How often something happened, and the first of it."""

    count: int = 0
    examples: list[Example] = field(default_factory=list)


class BacktestReport(Struct, kw_only=True):
    policy: str
    """the hash of the rules"""
    against: str | None = None
    """the hash of the rules they are compared with"""
    fail_on: FailOn = "none"
    traces: list[TraceSummary] = field(default_factory=list)
    events: int = 0
    sessions: int = 0
    resumed: int = 0
    """sessions that were taken up again after they counted as over, and so were judged in two parts; at least"""
    calls: int = 0
    judged: int = 0
    """calls that some rule or allowlist speaks of"""
    covered: int = 0
    """of those: calls whose recording holds everything that the rules need"""
    lacking: dict[Lack, int] = field(default_factory=dict)
    """calls by what their recording lacks"""
    actions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    shadow_actions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    """the same, were the shadow rules on"""
    after_a_stop: int = 0
    """calls that follow one that would have been stopped: judged as recorded, though the agent might have gone on
    otherwise"""
    stopped_sessions: int = 0
    rules: dict[str, RuleTally] = field(default_factory=dict)
    flips: dict[str, Tally] = field(default_factory=dict)
    """`allow → block` and the like: what the other rules do, and what these do"""
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


class ShadowTally(Struct, kw_only=True):
    """What one rule would have changed, had it been on."""

    rule: str
    then: str
    line: str | None = None
    matched: int = 0
    changed: dict[str, int] = field(default_factory=dict)
    """`allow → block` → decisions"""
    sessions: int = 0
    first: float | None = None
    last: float | None = None
    examples: list[Example] = field(default_factory=list)

    @property
    def changes(self) -> int:
        return sum(self.changed.values())


class ShadowReport(Struct, kw_only=True):
    """What rules and guards in shadow would have changed, by the decisions that a store holds."""

    decisions: int = 0
    changed: int = 0
    """decisions that would have been another with everything in shadow turned on"""
    rules: dict[str, ShadowTally] = field(default_factory=dict)
