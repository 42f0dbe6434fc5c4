"""The rules a system prompt states, as far as they could be read, and what became of each on a trace."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, TypeAlias

from msgspec import Struct


class Tier(StrEnum):
    """How a rule came to be bound to tools and events, from the surest on."""

    CERTAIN = "certain"
    """by the names and words that stand in the prompt"""
    LIKELY = "likely"
    """by likeness of words, or by patterns over what was said"""
    JUDGED = "judged"
    """by a model that was asked"""


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool the agent may call, as far as it is known: from its schema, or only from calls in the trace."""

    name: str
    description: str = ""
    params: dict[str, dict[str, Any]] = {}
    """JSON Schema by parameter; empty ones where only the names are known"""
    has_schema: bool = False


RuleSeverity: TypeAlias = Literal["critical", "high", "medium", "low"]
OF_ENGINE: dict[str, RuleSeverity] = {"critical": "critical", "error": "high", "warning": "medium", "info": "low"}
"""severity of an engine rule → that of the rule it decides"""
Aspect: TypeAlias = Literal["order", "state", "argument", "count", "text", "dialogue", "call"]
"""what an engine rule looks at: was it asked before, what did the answer say, …"""


class EngineItem(Struct, frozen=True):
    """One engine rule that decides (a part of) a prompt rule, as it is written in a rule file."""

    item: dict[str, Any]
    aspect: Aspect


class PromptRule(Struct, frozen=True, kw_only=True):
    """One rule that the prompt states."""

    rule_id: str
    description: str
    """the sentence, or as much of it as states the rule"""
    start: int
    """where it stands in the prompt, in characters"""
    end: int
    trigger: str = "always"
    required_action: str | None = None
    """such as `call_tool: verify_identity`"""
    forbidden_action: str | None = None
    severity: RuleSeverity = "medium"
    tier: Tier = Tier.CERTAIN
    confidence: float = 1.0
    """how sure a violation of it is one"""
    items: tuple[EngineItem, ...] = ()
    """what decides it; none: it cannot be decided by the engine"""
    undecided: str | None = None
    """why not, where there are no items or they leave a part of it open"""
