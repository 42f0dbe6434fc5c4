"""What a comparison of two versions found."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from bylaw.diff.fingerprint_model import Fingerprint
from bylaw.model.rule import Severity


class Change(StrEnum):
    """How grave a change for the worse is. An improvement is shown and never gates."""

    NONE = "none"
    MINOR = "minor"
    MODERATE = "moderate"
    SEVERE = "severe"

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS = {change: rank for rank, change in enumerate(Change)}

OF_SEVERITY = {
    Severity.INFO: Change.MINOR,
    Severity.WARNING: Change.MODERATE,
    Severity.ERROR: Change.SEVERE,
    Severity.CRITICAL: Change.SEVERE,
}
"""what a newly broken rule counts as"""


class AxisRow(Struct, frozen=True, kw_only=True):
    """One of the nine axes."""

    axis: str
    baseline: float | None = None
    """None: nothing on this axis was recorded"""
    candidate: float | None = None
    delta: float | None = None
    ci95: tuple[float | None, float | None] = (None, None)
    """None: unbounded, since one sample tells nothing about scatter"""
    severity: Change = Change.NONE
    n: int = 0
    """turns, or sessions where the baseline has repeats"""
    flags: tuple[str, ...] = ()
    share_changed: float | None = None
    """the share of turns (or sessions) that got worse, beside the centre that may hide them"""
    structural: float | None = None
    """trajectory only: the distance without argument values"""


class ToolRate(Struct, frozen=True, kw_only=True):
    """Calls of one tool per session, where they shifted by more than relabelling explains."""

    tool: str
    baseline: float
    candidate: float
    delta: float
    p: float
    """corrected for looking at every tool"""
    severity: Change


class ChangedSessions(Struct, frozen=True, kw_only=True):
    """The share of sessions that call other tools, or with other arguments' names, than their counterpart.

    A mean over turns shrinks as sessions grow; a share of sessions does not.
    """

    share: float
    ci95: tuple[float, float]
    n: int
    severity: Change


DivergenceKind = Literal["structural", "decision", "style"]


class Divergence(Struct, frozen=True, kw_only=True):
    """A place where the two sides part: which turns, in what way, and both sides quoted."""

    turn: int | None
    """index in the baseline's trace; in the candidate's for an insertion"""
    kind: DivergenceKind
    what: str
    baseline: str | None
    candidate: str | None
    session: str
    trace: str = ""
    baseline_turn: int | None = None
    candidate_turn: int | None = None
    weight: float = 0.0
    """how far apart the two turns are, in [0, 1]"""


class PolicyChange(Struct, frozen=True, kw_only=True):
    """A violation that only one side has."""

    rule: str
    kind: str
    severity: Severity
    session: str | None
    turn: int | None
    message: str
    trace: str
    count: int = 1


class PolicyDiff(Struct, frozen=True, kw_only=True):
    regressions: tuple[PolicyChange, ...] = ()
    fixes: tuple[PolicyChange, ...] = ()
    errors: tuple[PolicyChange, ...] = ()
    """rules that could not be evaluated on one side or the other: never "no change" """
    undecided: tuple[str, ...] = ()
    """rules that one side decided and the other did not, with the outcomes"""


class SessionIssue(Struct, frozen=True, kw_only=True):
    """A session or trace that has nothing to be compared with."""

    what: Literal["missing", "extra", "empty"]
    side: Literal["baseline", "candidate"]
    name: str
    severity: Change


class DiffReport(Struct, kw_only=True):
    """The result of `bylaw diff`."""

    axes: tuple[AxisRow, ...]
    semantic_measure: str = "lexical"
    """what the semantic axis was measured with: the words, or the embedder named here"""
    tool_rates: tuple[ToolRate, ...] = ()
    changed_sessions: ChangedSessions | None = None
    """only without repeats, and with enough sessions to speak of a share"""
    divergences: tuple[Divergence, ...] = ()
    """the first and the gravest, in order of appearance"""
    divergence_count: int = 0
    policy: PolicyDiff
    sessions: tuple[SessionIssue, ...] = ()
    fingerprint: Fingerprint | None = None
    groups: int = 0
    """tasks compared"""
    turns: tuple[int, int] = (0, 0)
    """baseline's and candidate's"""
    repeats: bool = False
    """whether divergence was judged against the baseline's own run-to-run divergence"""
    rules: int = 0
    notes: tuple[str, ...] = ()
    fail_on: Change = Change.SEVERE

    @property
    def first_divergence(self) -> Divergence | None:
        return self.divergences[0] if self.divergences else None

    @property
    def worst(self) -> Change:
        """The worst signal over axes, tool rates, sessions and rules."""
        signals = [row.severity for row in self.axes]
        signals += [rate.severity for rate in self.tool_rates]
        signals += [self.changed_sessions.severity] if self.changed_sessions else []
        signals += [issue.severity for issue in self.sessions]
        signals += [OF_SEVERITY[change.severity] for change in (*self.policy.regressions, *self.policy.errors)]
        return max(signals, key=lambda signal: signal.rank, default=Change.NONE)

    @property
    def tripped(self) -> bool:
        """A gate that compared nothing cannot trip: that is said apart."""
        if self.nothing_compared or self.fail_on is Change.NONE:
            return False
        return self.worst.rank >= self.fail_on.rank

    @property
    def nothing_compared(self) -> bool:
        return self.groups == 0

    @property
    def exit_code(self) -> int:
        """The one criterion: renderers print what it says, commands exit with it."""
        if self.tripped:
            return 1
        return 3 if self.nothing_compared else 0
