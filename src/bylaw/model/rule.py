"""Rules, independent of the format they were written in: those that are checked, and the guards that decide calls."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from bylaw.model.condition import Clause
from bylaw.model.demand import Always, Demand, Never
from bylaw.model.diagnostic import Diagnostic, Span


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        return _RANKS[self]

    def reaches(self, threshold: Severity) -> bool:
        """Whether a gate set at `threshold` cares. `critical` is at least `error`."""
        return self.rank >= threshold.rank


_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


class Scope(StrEnum):
    TRACE = "trace"
    SESSION = "session"


class Rule(Struct, frozen=True, kw_only=True):
    """One rule, as a rule file states it or as code builds it."""

    id: str
    kind: str
    demand: Demand
    severity: Severity = Severity.ERROR
    scope: Scope = Scope.TRACE
    scope_given: bool = True
    """False where a rule file leaves it open: then the trace decides, unless one of its sessions says otherwise"""
    when: tuple[Clause, ...] = ()
    agents: tuple[str | None, ...] = ()
    """the agents whose events it judges, with those of their sub-agents; None stands for events that name no agent, and
    an empty tuple for everybody's"""
    sub_agents: bool = True
    """whether it judges the events of their sub-agents too"""
    description: str | None = None
    tags: tuple[str, ...] = ()
    params: dict[str, Any] = {}
    """the parameters as the kind read them, defaults filled in"""
    span: Span | None = None
    """where the rule stands in its file; None for a rule built in code"""

    @property
    def depends_on_scope(self) -> bool:
        """Whether a trace may keep the rule and one of its sessions break it, or the other way round.

        `Never` and `Always` judge each event by itself, so that a trace keeps them exactly if each session does.
        """
        return not isinstance(self.demand, Never | Always)


class RuleSet(Struct, frozen=True):
    rules: tuple[Rule, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    """sorted by file, line, column; only warnings where the rules were loaded to be used"""
    files: tuple[str, ...] = ()
    """the names of the files read, in the order given"""
    strict: bool = False
    """whether one of the files says `strict: true`"""
    tools: tuple[str, ...] = ()
    """the tools that exist, as far as the files list them"""

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    @property
    def ok(self) -> bool:
        """Whether no diagnostic is an error."""
        return not any(diagnostic.is_error for diagnostic in self.diagnostics)


# -- guards ------------------------------------------------------------------------------------------------------------


class Action(StrEnum):
    """The effect of a matching rule on the call, from the mildest to the strictest."""

    ALLOW = "allow"
    PAUSE = "pause"
    BLOCK = "block"
    TERMINATE = "terminate_session"

    @property
    def strictness(self) -> int:
        return _STRICTNESS[self]

    @property
    def restricts(self) -> bool:
        return self is not Action.ALLOW


_STRICTNESS = {action: rank for rank, action in enumerate(Action)}

ExecutionMode: TypeAlias = Literal["request", "hitl", "sub_agent"]
"""whether a person can be asked: a `request` agent cannot pause"""
MODES: tuple[ExecutionMode, ...] = get_args(ExecutionMode)


def parse_mode(text: object) -> ExecutionMode | None:
    """The mode in any usual spelling: `HITL`, `Sub-agent`, `sub_agent`, `Request`. None if it is not a mode."""
    letters = "".join(filter(str.isalnum, text.lower())) if isinstance(text, str) else ""
    return next((mode for mode in MODES if mode.replace("_", "") == letters), None)


class GuardRule(Struct, frozen=True, kw_only=True):
    """One rule of a guard: a demand on attempts or any behaviour rule, with what happens where it is broken."""

    rule: Rule
    then: Action
    reason: str | None = None
    inline: bool = False
    """whether window counters gate too, and not only alert"""
    shadow: bool = False
    """decide and record, never act"""
    approval: bool = False
    """asks a person before an operation (`requireApproval`), and blocks where nobody can be asked"""
    approvals: int = 1
    """how many people have to approve a call that the rule pauses"""
    approvers: tuple[str, ...] = ()
    """the people who can approve it; nobody named: everybody but the agents that ask"""


class GuardPolicy(Struct, frozen=True, kw_only=True):
    """Everything that decides the calls of one agent."""

    rules: tuple[GuardRule, ...] = ()
    agent: str | None = None
    """None: any"""
    mode: ExecutionMode | None = None
    """None: not said, so `pause` is accepted"""
    tools: tuple[str, ...] | None = None
    """the allowlist; None: every tool"""
    sub_agents: tuple[str, ...] | None = None
    """the agents that it may start; None: every agent"""
    version: str | None = None
    """the label of the agent's version, from a manifest"""
    status: str | None = None
    """`deployed` or `testing`, from a manifest"""
    switched_off: bool = False
    """`anomalyControl: false`: no rule is judged, and every decision says so; the allowlist still applies"""
    source: Any = None
    """the original document, as JSON, to write it back unchanged"""


class GuardSet(Struct, frozen=True):
    """The content of a guard file: the policies of one or several agents, and every problem in it."""

    policies: tuple[GuardPolicy, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not any(diagnostic.is_error for diagnostic in self.diagnostics)
