"""A guard's rule set: which agent it is for, what it may call, and the rules that hold at call time."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import Rule


class Action(StrEnum):
    """What a matching rule does to the call, from the mildest to the strictest."""

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
    """what was read, as JSON, for writing it back unchanged"""


class GuardSet(Struct, frozen=True):
    """What a guard file holds: the policies of one or several agents, and every problem in it."""

    policies: tuple[GuardPolicy, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not any(diagnostic.is_error for diagnostic in self.diagnostics)
