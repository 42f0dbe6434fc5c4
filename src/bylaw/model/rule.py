"""A rule, independent of the format it was written in; and the rules of one or more files with the problems found."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from msgspec import Struct

from bylaw.model.condition import Clause
from bylaw.model.demand import Always, Demand, Never
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.source import Span


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
