"""The nouns of diff: changes on axes, tools, sessions and rules, divergences, the drift fingerprint, and the report."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import Severity

FingerprintDecision = Literal["differs", "no difference found", "too few to tell"]
"""`no difference found` does not mean equal: `detectable_shift` is the smallest shift that would have been found"""


class DimensionShift(Struct, frozen=True, kw_only=True):
    """How far one dimension moved."""

    dimension: str
    baseline: float
    """mean over the units, on the dimension's own scale"""
    candidate: float
    shift: float | None
    """candidate minus baseline, in pooled standard deviations; None where each side is constant and they differ"""


class Fingerprint(Struct, frozen=True, kw_only=True):
    """A comparison of response vectors: Hotelling's T² with shrinkage, judged by relabelling within tasks."""

    decision: FingerprintDecision
    unit: Literal["session", "turn"]
    """what is compared: sessions; turns in a replay"""
    per_unit: int = 1
    """consecutive tasks averaged into one unit, where there are very many"""
    baseline_units: int
    candidate_units: int
    statistic: float | None = None
    """T²; None where nothing varies or nothing could be compared"""
    p: float | None = None
    alpha: float
    smallest_p: float
    """the smallest p that this number of units can reach; above `alpha` nothing can be found"""
    exact: bool = False
    """every way of splitting the units was tried, rather than a seeded sample of them"""
    splits: int = 0
    """how many ways were tried"""
    shrinkage: float | None = None
    """from 0 (the covariance as measured) to 1 (dimensions taken as uncorrelated)"""
    detectable_shift: float | None = None
    """an estimate: the shift of one dimension, in pooled standard deviations, that is found in 80 % of cases"""
    moved: tuple[DimensionShift, ...] = ()
    """the dimensions that vary, the furthest moved first"""
    constant: tuple[str, ...] = ()
    """dimensions that are the same everywhere, on both sides"""
    unrecorded: tuple[str, ...] = ()
    """dimensions that at least one side does not record"""
    notes: tuple[str, ...] = ()


class Change(StrEnum):
    """The severity of a change for the worse. Improvements are shown and never fail the gate."""

    NONE = "none"
    MINOR = "minor"
    MODERATE = "moderate"
    SEVERE = "severe"

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS = {change: rank for rank, change in enumerate(Change)}


def _rank(change: Change) -> int:
    return change.rank


OF_SEVERITY = {
    Severity.INFO: Change.MINOR,
    Severity.WARNING: Change.MODERATE,
    Severity.ERROR: Change.SEVERE,
    Severity.CRITICAL: Change.SEVERE,
}
"""the severity of a newly broken rule"""


class AxisRow(Struct, frozen=True, kw_only=True):
    """One of the nine axes."""

    axis: str
    baseline: float | None = None
    """None: nothing on this axis was recorded"""
    candidate: float | None = None
    delta: float | None = None
    ci95: tuple[float | None, float | None] = (None, None)
    """None: unbounded, since one sample tells nothing about scatter"""
    p: float | None = None
    """corrected for testing everything else as well; None: not judged"""
    severity: Change = Change.NONE
    n: int = 0
    """sessions of the candidate that were compared; turns in a replay"""
    flags: tuple[str, ...] = ()
    share_changed: float | None = None
    """the share of sessions (turns in a replay) that got worse, which the mean may hide"""
    typical_ratio: float | None = None
    """of tokens, latency and cost: how many times as much a session has, as a geometric mean"""
    gaps: tuple[int, int] = (0, 0)
    """tasks in which the baseline, and in which the candidate, recorded it in fewer sessions than the other side"""
    structural: float | None = None
    """trajectory only: the distance without argument values"""
    expected: str | None = None
    """the reason, where the change was announced; it does not gate then"""


class Finding(Struct, frozen=True, kw_only=True):
    """One change that the test confirms, for all sessions together."""

    axis: str
    """`trajectory`, `conformance`, `safety`, or `answer` for what answers decide"""
    what: str
    """`calls`, `argument values`, `negation`, …"""
    tool: str | None = None
    text: str
    """the change in words"""
    baseline: float
    """per session"""
    candidate: float
    delta: float
    sessions: int
    """sessions of the candidate in which it moved"""
    of: int
    p: float
    """corrected for testing everything else as well"""
    severity: Change
    mends: bool = False
    """the calls of a tool whose absence broke a rule that is fixed now; such a change never gates"""
    expected: str | None = None
    """the reason, where the change was announced"""


class RuleRate(Struct, frozen=True, kw_only=True):
    """How often a rule is broken on both sides."""

    rule: str
    severity: Severity
    baseline: int
    """sessions that break it"""
    baseline_sessions: int
    candidate: int
    candidate_sessions: int
    p: float | None
    """one-sided, corrected; None where it was not tested"""
    gates: bool
    why: str
    """why it gates or does not"""
    expected: str | None = None

    @property
    def is_worse(self) -> bool:
        return self.candidate * self.baseline_sessions > self.baseline * self.candidate_sessions

    @property
    def change(self) -> Change:
        """What it counts for: nothing if it is not broken more often, at most minor where chance may explain it."""
        if not self.gates and not self.is_worse:
            return Change.NONE
        grade = OF_SEVERITY[self.severity]
        return grade if self.gates else min(grade, Change.MINOR, key=_rank)


DivergenceKind = Literal["structural", "decision", "style"]


class Divergence(Struct, frozen=True, kw_only=True):
    """A turn at which the two sides differ, with both sides quoted."""

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
    alike: int = 1
    """how many divergences of the comparison are of this kind and say the same, this one included"""


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
    rates: tuple[RuleRate, ...] = ()
    """every rule that a session breaks on either side"""
    regressions: tuple[PolicyChange, ...] = ()
    fixes: tuple[PolicyChange, ...] = ()
    errors: tuple[PolicyChange, ...] = ()
    """rules that could not be evaluated on a side; each counts as a change"""
    undecided: tuple[str, ...] = ()
    """rules that only one side decided, with the outcomes"""
    scope_doubts: tuple[str, ...] = ()
    """ids of rules without `scope` that a whole trace keeps and one of its sessions breaks"""


class SessionIssue(Struct, frozen=True, kw_only=True):
    """A session or trace that has nothing to be compared with."""

    what: Literal["missing", "extra", "empty"]
    side: Literal["baseline", "candidate"]
    name: str
    severity: Change


class Cases(Struct, frozen=True, kw_only=True):
    """The tasks by name. A rule, a score or a refusal decides what is better or worse."""

    improved: tuple[str, ...] = ()
    regressed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """other calls or decisions, neither better nor worse by these measures"""
    unchanged: tuple[str, ...] = ()


class DiffReport(Struct, kw_only=True):
    """The result of `bylaw diff`."""

    axes: tuple[AxisRow, ...]
    semantic_measure: str = "lexical"
    """what measured the semantic axis: `lexical`, or the name of an embedder"""
    findings: tuple[Finding, ...] = ()
    """confirmed changes, the gravest first"""
    pairing: dict[str, int] = {}
    """how many tasks were matched by what"""
    guessed: int = 0
    """tasks that were paired by a guess: similar messages, or the order in the file"""
    unlike: bool = False
    """each side has one session, and nothing shows that the two belong together"""
    by_turn: bool = False
    """a replay: the turns of both sides answer the same requests, so that each turn is a unit"""
    deterministic: bool = False
    cases: Cases = Cases()
    unused_expectations: tuple[str, ...] = ()
    """announced changes that did not happen"""
    strict: bool = False
    """an axis that only one side recorded is exit 3, and so are a guessed pair, too few recordings and figures that
    exchange places and cannot be judged"""
    confirmable: bool = True
    """whether the recordings are enough to confirm any change; with fewer, only rules and lost sessions gate"""
    exchanged: int = 0
    """tasks in which the same figures stand beside other words, where nothing shows whether chance explains it"""
    divergences: tuple[Divergence, ...] = ()
    """the first and the gravest ones, in order of appearance"""
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
    unread: tuple[Diagnostic, ...] = ()
    """files that could not be read …"""
    refuses_unread: bool = True
    """… which is bad input, unless `skip_bad` passed over them"""
    judge_failure: str | None = None
    """why the judge was not asked to the end; exit 4, unless the gate tripped without it"""
    fail_on: Change = Change.SEVERE

    @property
    def first_divergence(self) -> Divergence | None:
        return self.divergences[0] if self.divergences else None

    @property
    def most_important(self) -> Divergence | None:
        """The gravest divergence: of a tool that a finding names, then calls before decisions before words."""
        gravity = {"structural": 0, "decision": 1, "style": 2}
        tools = [one.tool for one in self.findings if one.tool and one.expected is None and not one.mends]

        def key(one: Divergence) -> tuple[int, int, float]:
            words = one.what.replace(",", " ").split()
            named = min((rank for rank, tool in enumerate(tools) if tool in words), default=len(tools))
            return named if one.kind != "style" else len(tools), gravity[one.kind], -one.weight

        return min(self.divergences, key=key, default=None)

    @property
    def changes(self) -> list[tuple[str, Change]]:
        """Every change for the worse, by name: an axis, a tool, sessions, a rule."""
        found = [(row.axis, row.severity) for row in self.axes if row.expected is None]
        found += [(one.text, one.severity) for one in self.findings if one.expected is None]
        found += [(issue.name, issue.severity) for issue in self.sessions]
        found += [(f"rule {rate.rule}", rate.change) for rate in self.policy.rates if rate.expected is None]
        found += dict.fromkeys((f"rule {one.rule}", OF_SEVERITY[one.severity]) for one in self.policy.errors)
        return [(name, change) for name, change in found if change is not Change.NONE]

    @property
    def worst(self) -> Change:
        return max((change for _, change in self.changes), key=lambda change: change.rank, default=Change.NONE)

    @property
    def tripped(self) -> bool:
        """A gate that compared nothing does not trip: `nothing_compared` has an exit code of its own."""
        if self.nothing_compared or self.fail_on is Change.NONE:
            return False
        return self.worst.rank >= self.fail_on.rank

    @property
    def nothing_compared(self) -> bool:
        return self.groups == 0

    @property
    def exit_code(self) -> int:
        """Renderers print it and commands exit with it."""
        return 2 if self.unread and self.refuses_unread else self.gate_code

    @property
    def gate_code(self) -> int:
        """The exit code by the files that could be read."""
        if self.tripped:
            return 1
        if self.judge_failure is not None:
            return 4
        is_unchecked = self.nothing_compared or self.unlike or self.policy.scope_doubts
        return 3 if is_unchecked or (self.strict and self._doubtful) else 0

    @property
    def _doubtful(self) -> bool:
        return bool(self.one_sided or self.unequal or self.guessed or self.exchanged or not self.confirmable)

    @property
    def one_sided(self) -> list[str]:
        """Axes that only one side recorded, so that they were not compared."""
        return [row.axis for row in self.axes if "recorded_on_one_side" in row.flags]

    @property
    def unequal(self) -> list[AxisRow]:
        """Axes that one side recorded in fewer sessions than chance explains."""
        return [row for row in self.axes if "recorded_less_on_one_side" in row.flags]
