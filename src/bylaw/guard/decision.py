"""What an agent wants to do, and what the guard answers."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from bylaw.model.guarding import Action


class Attempt(Struct, frozen=True, kw_only=True):
    """One tool call that is about to be made."""

    tool: str
    arguments: Any = None
    """a JSON object; None is no arguments"""
    agent: str | None = None
    session: str = "default"
    run: str | None = None
    parent_run: str | None = None
    ancestors: tuple[str, ...] = ()
    """agents above this one, root first, where the runs were not announced"""
    ts: float | None = None
    """seconds since 1970; None is now"""
    call_id: str | None = None


class DenialClass(StrEnum):
    PERMISSION = "permission"
    """not allowed; trying again changes nothing"""
    STRUCTURAL = "structural"
    """the call itself is malformed; a corrected one may pass"""
    TRANSIENT = "transient"
    """something needed was out of reach; later it may pass"""


class Match(Struct, frozen=True, kw_only=True):
    """One rule that has something against the call, or for it."""

    rule: str
    """its id; an ancestor's as `agent/id`"""
    then: Action
    message: str = ""
    reason: str | None = None
    certain: bool = True
    """False where it could not be judged, which restricts as well"""
    shadow: bool = False
    line: str | None = None
    """file:line:column of the rule"""


class Decision(Struct, kw_only=True):
    action: Action
    decided_by: str | None = None
    """the rule, or what stands in its place: `allowlist`, `kill-switch`, `session`, `arguments`, `on_error`, …"""
    matches: tuple[Match, ...] = ()
    reason: str = ""
    review: str | None = None
    """the id of the review that has to be answered, or that let the call through"""
    policy: str = ""
    denial: DenialClass | None = None
    advice: str | None = None
    """what the model may do instead"""
    would: Action | None = None
    """the action with the shadow rules counted in, where that is another"""
    blind: tuple[str, ...] = ()
    """rules that need events nobody feeds: never counted as satisfied"""
    counters: dict[str, int] = {}
    """what the counters of the concerned rules showed"""
    repeats: int = 0
    """how often this very call was denied before in the session"""
    notes: tuple[str, ...] = ()
    call_id: str = ""
    session: str = ""
    latency_us: float = 0.0

    @property
    def allowed(self) -> bool:
        return self.action is Action.ALLOW

    @property
    def matched(self) -> tuple[str, ...]:
        return tuple(match.rule for match in self.matches)
