"""Rules that clean traffic suggests, for a person to accept."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from bylaw.guard.backtest.model import Example

ProposalKind: TypeAlias = Literal["order", "range", "values", "ceiling"]


class Proposal(Struct, kw_only=True):
    kind: ProposalKind
    tools: tuple[str, ...]
    says: str
    """in words"""
    rule: dict[str, Any]
    """as it stands in a rule file, without its mode"""
    calls: int
    """calls it was mined from, all of which keep it"""
    sessions: int
    specificity: float
    """how much more it says of these calls than of others, in [0, 1]"""
    strength: float = 0.0
    """the lower end of the 95 % interval of the share of calls that keep it, times its specificity"""
    held_out_calls: int = 0
    """calls of the sessions that were kept apart, which it speaks of"""
    false_stops: int = 0
    """of those: calls it would have stopped"""
    counter_examples: list[Example] = field(default_factory=list)

    @property
    def id(self) -> str:
        return str(self.rule["id"])


class ProposalReport(Struct, kw_only=True):
    agent: str | None = None
    min_support: int
    hold_out: float
    calls: int = 0
    sessions: int = 0
    held_out_calls: int = 0
    held_out_sessions: int = 0
    stopped_sessions: int = 0
    """of those kept apart: in which some proposal would have stopped a call"""
    proposals: list[Proposal] = field(default_factory=list)
    """the strongest first"""
    dropped: dict[str, int] = field(default_factory=dict)
    """why → candidates that were dropped"""
    resumed: int = 0
    """sessions that went on after they counted as over, so that what came before was not known; at least"""
    unnamed_calls: int = 0
    """calls of tools beyond the number that is told apart: nothing is mined from them"""
    too_varied: tuple[str, ...] = ()
    """tools with so much variety before their calls that no order was looked for"""
    left_out: int = 0
    """proposals beyond the number that is shown, all weaker"""
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return 0 if self.proposals else 3
