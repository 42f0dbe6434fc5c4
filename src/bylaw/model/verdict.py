"""The answer for one rule, with the events that decided it; and the report from which renderers and exit codes come."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import Rule, Severity


class Outcome(StrEnum):
    """The result of evaluating a rule."""

    OK = "ok"
    VIOLATED = "violated"
    VACUOUS = "vacuous"
    """never triggered: nothing was checked"""
    INCONCLUSIVE = "inconclusive"
    """the recording stopped early or lacks data that the rule needs"""
    ERROR = "error"
    """the rule itself could not be evaluated"""

    @property
    def badness(self) -> int:
        """Of several scopes the worst decides: error, violated, inconclusive, ok, vacuous."""
        return _BADNESS[self]


_BADNESS = {
    Outcome.VACUOUS: 0,
    Outcome.OK: 1,
    Outcome.INCONCLUSIVE: 2,
    Outcome.VIOLATED: 3,
    Outcome.ERROR: 4,
}


class EventRef(Struct, frozen=True):
    """A pointer to an event that decided a verdict, with enough of it to read the report without the trace."""

    event: str
    """kind of the event: response, tool_call, …"""
    turn: int | None = None
    name: str | None = None
    """the tool's name, for calls and results"""
    call_id: str | None = None
    excerpt: str | None = None
    source: str | None = None
    """file:line"""


class Verdict(Struct, frozen=True, kw_only=True):
    """What a rule says about one trace or session, why, and the events that decided it."""

    rule: Rule
    outcome: Outcome
    session: str | None = None
    turn: int | None = None
    """index in the whole trace; None where only the end decided"""
    message: str = ""
    evidence: tuple[EventRef, ...] = ()
    notes: tuple[str, ...] = ()


# -- reports -----------------------------------------------------------------------------------------------------------


class Finding(Struct, frozen=True):
    """A verdict that is not ok, and the trace it is about."""

    trace: str
    verdict: Verdict


class OutcomeCounts(Struct):
    """How often each outcome was reached, counted rule x trace."""

    ok: int = 0
    violated: int = 0
    vacuous: int = 0
    inconclusive: int = 0
    error: int = 0

    def add(self, outcome: Outcome) -> None:
        setattr(self, outcome.value, getattr(self, outcome.value) + 1)

    @property
    def decided(self) -> int:
        return self.ok + self.violated + self.error


class TraceSummary(Struct, frozen=True, kw_only=True):
    """One trace of a check: its size, and what its reader had to say."""

    name: str
    turns: int
    sessions: int
    complete: bool
    format: str | None = None
    skipped: int = 0
    notes: tuple[str, ...] = ()
    problems: tuple[Diagnostic, ...] = ()


FailOn = Literal["none", "info", "warning", "error", "critical"]


class CheckReport(Struct, kw_only=True):
    """The result of `bylaw check`. `findings` may hold fewer than `finding_count`: only memory is bounded."""

    rules: tuple[Rule, ...]
    traces: list[TraceSummary] = []
    findings: list[Finding] = []
    finding_count: int = 0
    broken_traces: int = 0
    """traces in which a rule was broken or could not be evaluated"""
    outcomes: OutcomeCounts
    by_rule: dict[str, OutcomeCounts] = {}
    """rule id → its outcomes over the traces"""
    notes: dict[str, tuple[str, ...]] = {}
    """rule id → remarks that belong to no single finding"""
    unread: tuple[Diagnostic, ...] = ()
    """files that could not be read …"""
    refuses_unread: bool = False
    """… which is bad input, unless `skip_bad` passed over them"""
    warnings: list[Diagnostic] = []
    """about the rule files, and about rules that do not fit the traces"""
    scope_doubts: list[str] = []
    """ids of rules without `scope` that hold over a whole trace but not in one of its sessions"""
    fail_on: FailOn = "error"
    allow_vacuous: bool = False
    strict: bool = False
    """whether a rule that was not checked, or a warning, is exit 3"""

    @property
    def turns(self) -> int:
        return sum(trace.turns for trace in self.traces)

    @property
    def sessions(self) -> int:
        return sum(trace.sessions for trace in self.traces)

    @property
    def skipped(self) -> int:
        return sum(trace.skipped for trace in self.traces)

    @property
    def tripped(self) -> bool:
        """Whether a rule at or above the threshold was broken or could not be evaluated."""
        if self.fail_on == "none":
            return False
        threshold = Severity(self.fail_on)
        broken = (rule for rule in self.rules if rule.severity.reaches(threshold))
        return any(self.by_rule[rule.id].violated or self.by_rule[rule.id].error for rule in broken)

    @property
    def exit_code(self) -> int:
        """The one criterion: renderers print it, and commands exit with it."""
        if self.unread and self.refuses_unread:
            return 2
        if self.tripped:
            return 1
        if self.scope_doubts or (self.strict and (self.unchecked or self.warning_count)):
            return 3
        return 3 if self.nothing_checked and (self.strict or not self.allow_vacuous) else 0

    @property
    def nothing_checked(self) -> bool:
        """No rule was decided anywhere, or a trace has no turn at all."""
        return self.outcomes.decided == 0 or any(trace.turns == 0 for trace in self.traces) or not self.traces

    @property
    def unchecked(self) -> list[str]:
        """Rules that no trace triggered, and rules that some trace could not decide."""
        return [rule.id for rule in self.rules if self.worst(rule.id) in (Outcome.VACUOUS, Outcome.INCONCLUSIVE)]

    @property
    def warning_count(self) -> int:
        """Everything that was warned about: rule files, traces, and files that were passed over."""
        return len(self.warnings) + len(self.unread) + sum(max(len(t.problems), t.skipped) for t in self.traces)

    def worst(self, rule: str) -> Outcome:
        """Of several traces, the worst outcome counts; vacuous where there is no trace."""
        counts = self.by_rule[rule]
        reached = [outcome for outcome in Outcome if getattr(counts, outcome.value)]
        return max(reached, key=lambda outcome: outcome.badness, default=Outcome.VACUOUS)
