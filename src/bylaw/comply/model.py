"""What became of the rules of a system prompt on one trace, and on several."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from bylaw.comply.prompt.model import Aspect, PromptRule, RuleSeverity, Tier
from bylaw.model.rule import Rule


class State(StrEnum):
    """What became of a rule. Undecided is never taken for satisfied."""

    VIOLATED = "violated"
    SATISFIED = "satisfied"
    NOT_TRIGGERED = "not_triggered"
    """nothing happened that the rule speaks about"""
    UNDECIDED = "undecided"


class PromptRules(Struct, frozen=True, kw_only=True):
    """The rules of one prompt, ready for the engine."""

    sha256: str
    """of the prompt's UTF-8"""
    rules: tuple[PromptRule, ...] = ()
    engine: tuple[Rule, ...] = ()
    owners: dict[str, str] = {}
    """id of an engine rule → id of the prompt rule that it decides (a part of)"""
    unusable: dict[str, str] = {}
    """id of a prompt rule → why the engine cannot run a part of it"""
    notes: tuple[str, ...] = ()
    """what could not be read of the prompt"""


class BehavioralRule(Struct, frozen=True, kw_only=True):
    """One rule that the prompt states, and what became of it."""

    rule_id: str
    description: str
    trigger: str = "always"
    required_action: str | None = None
    forbidden_action: str | None = None
    severity: RuleSeverity = "medium"
    start: int
    """where it stands in the prompt, in characters"""
    end: int
    tier: Tier = Tier.CERTAIN
    confidence: float = 1.0
    state: State = State.UNDECIDED
    reason: str | None = None
    """why it is undecided; what the judge said where it decided"""
    decided_by: Literal["engine", "judge"] | None = None

    @property
    def decided(self) -> bool:
        return self.state is not State.UNDECIDED


class Violation(Struct, frozen=True, kw_only=True):
    """One breach of one rule."""

    rule_id: str
    evidence: str
    """the events that decided, quoted"""
    explanation: str
    confidence: float
    event_index: int | None = None
    """in the list that was given; None where only the end of the trace decided"""
    event_indexes: tuple[int, ...] = ()
    """of all the events quoted"""
    tier: Tier = Tier.CERTAIN
    aspect: Aspect | None = None
    """which part of the rule was broken: what came before, what a result said, an argument, …; None: a judge said so"""
    session: str | None = None
    turn: int | None = None


class ComplianceResult(Struct, frozen=True, kw_only=True):
    """The result of `check_compliance`."""

    detected: bool
    """whether any rule was violated"""
    confidence: float
    """of the surest violation; 0 without any"""
    violations: list[Violation]
    extracted_rules: list[BehavioralRule]
    tokens_used: int = 0
    """by the judge; 0 without one"""
    cost_usd: float = 0.0
    coverage: float
    """the share of the rules that was decided: violated, satisfied or not triggered"""
    degraded: list[str] = []
    """what could not be done; not empty means that the answer is not a whole one"""
    trace: str = "trace"
    turns: int = 0

    def in_state(self, state: State) -> list[BehavioralRule]:
        return [rule for rule in self.extracted_rules if rule.state is state]

    @property
    def nothing_checked(self) -> bool:
        """No rule was broken and none was kept: every one is open or never came up."""
        return not any(rule.state in (State.VIOLATED, State.SATISFIED) for rule in self.extracted_rules)


class ComplyReport(Struct, frozen=True, kw_only=True):
    """The result of `bylaw comply`: one prompt, any number of traces."""

    prompt: str
    """the name of its file"""
    text: str
    """the prompt itself, for lines and columns"""
    sha256: str
    results: tuple[ComplianceResult, ...]
    notes: tuple[str, ...] = ()
    allow_vacuous: bool = False
    out_of_reach: bool = False
    """the judge was asked and did not answer"""

    @property
    def detected(self) -> bool:
        return any(result.detected for result in self.results)

    @property
    def nothing_checked(self) -> bool:
        return all(result.nothing_checked for result in self.results)

    @property
    def exit_code(self) -> int:
        """The one criterion: renderers print what it says, commands exit with it."""
        if self.detected:
            return 1
        if self.out_of_reach:
            return 4
        return 3 if self.nothing_checked and not self.allow_vacuous else 0


ChangeKind = Literal["added", "dropped", "loosened", "tightened", "changed"]


class RuleChange(Struct, frozen=True, kw_only=True):
    """How one rule differs between two versions of a prompt."""

    kind: ChangeKind
    before: PromptRule | None = None
    after: PromptRule | None = None
    why: str = ""

    @property
    def worse(self) -> bool:
        """Dropped, loosened, or changed in a way that cannot be told from loosened."""
        return self.kind in ("dropped", "loosened", "changed")


class PromptDiff(Struct, frozen=True, kw_only=True):
    """The result of `bylaw comply diff`."""

    before: str
    """names of the files"""
    after: str
    texts: tuple[str, str]
    """the prompts themselves, for lines and columns"""
    changes: tuple[RuleChange, ...] = ()
    unchanged: int = 0
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        if any(change.worse for change in self.changes):
            return 1
        return 0 if self.changes or self.unchanged else 3
