"""The nouns of comply: the rules that a system prompt states, and the state of each rule on a trace."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Literal, TypeAlias
from urllib.error import URLError

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.errors import BylawError, ExitCode
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import Rule


class JudgeError(BylawError):
    """Some questions to the judge have no answer. `result` holds what is known nevertheless."""

    exit_code = ExitCode.OUT_OF_REACH
    result: ComplianceResult | None = None
    """the result without the judge, with the answers that it gave before"""

    @property
    def tokens_used(self) -> int:
        return 0 if self.result is None else self.result.tokens_used

    @property
    def cost_usd(self) -> float:
        return 0.0 if self.result is None else self.result.cost_usd


class JudgeUnreachable(JudgeError, URLError):
    """The judge did not answer, or refused to."""

    def __init__(self, reason: str, *, result: ComplianceResult | None = None) -> None:
        URLError.__init__(self, reason)
        self.result = result

    def __str__(self) -> str:
        return str(self.reason)


class JudgeTimeout(JudgeError, TimeoutError):
    """The judge did not answer all questions within `timeout_ms`."""

    def __init__(self, message: str, *, result: ComplianceResult | None = None) -> None:
        super().__init__(message)
        self.result = result


class Tier(StrEnum):
    """How a rule was bound to tools and events, from the most certain to the least."""

    CERTAIN = "certain"
    """by names and words in the prompt"""
    LIKELY = "likely"
    """by similar words, or by patterns over messages"""
    JUDGED = "judged"
    """by the judge, a model"""


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool that the agent may call, known from its schema or only from calls in the trace."""

    name: str
    description: str = ""
    params: dict[str, dict[str, Any]] = {}
    """JSON Schema by parameter; empty if only the name of the parameter is known"""
    has_schema: bool = False
    fields: tuple[str, ...] = ()
    """names in its results, by its output schema or by results in the trace"""
    answer: str = ""
    """the JSON type of its results, if that is known"""


RuleSeverity: TypeAlias = Literal["critical", "high", "medium", "low"]
RULE_SEVERITY: dict[str, RuleSeverity] = {"critical": "critical", "error": "high", "warning": "medium", "info": "low"}
"""severity of an engine rule → severity of the prompt rule it decides"""
ENGINE_SEVERITY = {rule: engine for engine, rule in RULE_SEVERITY.items()}
Aspect: TypeAlias = Literal["order", "state", "argument", "count", "text", "dialogue", "call"]
"""the data that an engine rule looks at: earlier calls, the state that a result showed, an argument, …"""


class EngineItem(Struct, frozen=True):
    """One engine rule that decides (a part of) a prompt rule, as it is written in a rule file."""

    item: dict[str, Any]
    aspect: Aspect
    tier: Tier | None = None
    """if it is less certain than the rule as a whole"""
    done: dict[str, Any] | None = None
    """another engine rule, which is broken if all calls that this one needs have failed"""


class _Record(Struct, frozen=True):
    """A part of the result that JSON can hold."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON holds them: enumerations as text, tuples as lists."""
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return fields


class StatedRule(_Record, frozen=True, kw_only=True):
    """One rule that the prompt states."""

    rule_id: str
    description: str
    """the sentence, or the clause of it that states the rule"""
    trigger: str = "always"
    required_action: str | None = None
    """such as `call_tool: verify_identity`"""
    forbidden_action: str | None = None
    severity: RuleSeverity = "medium"
    start: int
    """its position in the prompt, in characters"""
    end: int
    tier: Tier | None = Tier.CERTAIN
    """None if nothing decides the rule"""
    confidence: float = 1.0
    """how likely a reported violation is a real one"""


class PromptRule(StatedRule, frozen=True, kw_only=True):
    """The rule with the engine rules that decide it."""

    items: tuple[EngineItem, ...] = ()
    """empty if the engine cannot decide it"""
    undecided: str | None = None
    """the reason, if there are no items or they do not decide all of it"""

    def leave_open(self, why: str) -> PromptRule:
        """The rule, undecided for this reason if it was not undecided before."""
        return replace(self, items=(), undecided=self.undecided or why)


class State(StrEnum):
    """The state of a rule on a trace. Undecided never counts as satisfied."""

    VIOLATED = "violated"
    SATISFIED = "satisfied"
    NOT_TRIGGERED = "not_triggered"
    """the situation of the rule did not occur"""
    UNDECIDED = "undecided"


class PromptRules(Struct, frozen=True, kw_only=True):
    """The rules of one prompt, ready for the engine."""

    sha256: str
    """of the prompt in UTF-8"""
    rules: tuple[PromptRule, ...] = ()
    engine: tuple[Rule, ...] = ()
    owners: dict[str, str] = {}
    """id of an engine rule → id of the prompt rule that it decides, or a part of it"""
    done: dict[str, tuple[Rule, ...]] = {}
    """id of a prompt rule → engine rules that are broken if all calls that it needs have failed"""
    unusable: dict[str, str] = {}
    """id of a prompt rule → why the engine cannot run a part of it"""
    notes: tuple[str, ...] = ()
    """parts of the prompt that could not be read"""


class BehavioralRule(StatedRule, frozen=True, kw_only=True):
    """The rule with its state on a trace."""

    state: State = State.UNDECIDED
    reason: str | None = None
    """why it is undecided, or the explanation of the judge"""
    decided_by: Literal["engine", "judge"] | None = None

    @property
    def decided(self) -> bool:
        return self.state is not State.UNDECIDED


def coverage_of(rules: Sequence[BehavioralRule]) -> float:
    """The share of rules that are decided; 0 without any."""
    return sum(rule.decided for rule in rules) / len(rules) if rules else 0.0


class Violation(_Record, frozen=True, kw_only=True):
    """One breach of one rule."""

    rule_id: str
    evidence: str
    """quotes of the events that decided"""
    explanation: str
    confidence: float
    event_index: int | None = None
    """in the list that was passed in; None if only the end of the trace decided"""
    event_indexes: tuple[int, ...] = ()
    """of all events quoted"""
    tier: Tier = Tier.CERTAIN
    aspect: Aspect | None = None
    """which part of the rule was broken; None if the judge found the violation"""
    session: str | None = None
    turn: int | None = None


class ComplianceResult(_Record, frozen=True, kw_only=True):
    """The result of `check_compliance`."""

    detected: bool
    """whether any rule was violated"""
    confidence: float
    """of the most certain violation; 0 without any"""
    violations: list[Violation]
    extracted_rules: list[BehavioralRule]
    tokens_used: int = 0
    """by the judge; 0 without one"""
    cost_usd: float = 0.0
    coverage: float
    """the share of rules that are violated, satisfied or not triggered"""
    degraded: list[str] = []
    """what could not be done; if not empty, the result is incomplete"""
    trace: str = "trace"
    turns: int = 0

    def in_state(self, state: State) -> list[BehavioralRule]:
        """The rules that were satisfied, violated, not triggered or not decided."""
        return [rule for rule in self.extracted_rules if rule.state is state]

    @property
    def nothing_checked(self) -> bool:
        """No rule was violated or satisfied."""
        return not any(rule.state in (State.VIOLATED, State.SATISFIED) for rule in self.extracted_rules)


class ComplyReport(Struct, frozen=True, kw_only=True):
    """The result of `bylaw comply`: one prompt, any number of traces."""

    prompt: str
    """the name of its file"""
    text: str
    """the prompt itself, for lines and columns"""
    sha256: str
    results: tuple[ComplianceResult, ...]
    """one for each session"""
    traces: int = 1
    """files that were read"""
    empty: tuple[str, ...] = ()
    """files in which the agent has no turn"""
    allow_vacuous: bool = False
    out_of_reach: bool = False
    """the judge did not answer"""
    unread: tuple[Diagnostic, ...] = ()
    """files that could not be read, which is bad input"""

    @property
    def detected(self) -> bool:
        return any(result.detected for result in self.results)

    @property
    def nothing_checked(self) -> bool:
        return bool(self.empty) or all(result.nothing_checked for result in self.results)

    @property
    def exit_code(self) -> int:
        """Renderers print the verdict by it, and commands exit with it."""
        if self.unread:
            return 2
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
        """Dropped, loosened, or changed so that it may allow more."""
        return self.kind in ("dropped", "loosened", "changed")

    @property
    def rule_id(self) -> str:
        rule = self.after or self.before
        return "" if rule is None else rule.rule_id


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
