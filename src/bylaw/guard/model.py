"""The nouns of the guard: what an agent attempts, what the guard decides, and the options of a guard."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct, to_builtins

from bylaw.model.guard_policy import Action

Fallback: TypeAlias = Literal["block", "pause", "allow"]


class Attempt(Struct, frozen=True, kw_only=True):
    """One tool call that is about to be made."""

    tool: str
    arguments: Any = None
    """a JSON object; None means no arguments"""
    agent: str | None = None
    session: str = "default"
    run: str | None = None
    parent_run: str | None = None
    ancestors: tuple[str, ...] = ()
    """agents above this one, root first; needed only if the runs were not announced"""
    ts: float | None = None
    """seconds since 1970; None means now"""
    call_id: str | None = None


class DenialClass(StrEnum):
    PERMISSION = "permission"
    """not allowed; trying again changes nothing"""
    STRUCTURAL = "structural"
    """the call is malformed; a corrected one may pass"""
    TRANSIENT = "transient"
    """the guard could not judge the call; a later attempt may pass"""


class Match(Struct, frozen=True, kw_only=True):
    """One rule that matched the attempt."""

    rule: str
    """its id; `agent/id` for a rule of an ancestor"""
    then: Action
    message: str = ""
    reason: str | None = None
    certain: bool = True
    """False if the rule could not be evaluated, which restricts the call as well"""
    shadow: bool = False
    line: str | None = None
    """file:line:column of the rule"""


class Decision(Struct, kw_only=True):
    """What the guard answers."""

    action: Action
    decided_by: str | None = None
    """the rule, or what decided in its place: `allowlist`, `kill-switch`, `session`, `arguments`, `on_error`, …"""
    matches: tuple[Match, ...] = ()
    reason: str = ""
    review: str | None = None
    """the id of the review that is pending, or that let the call through"""
    policy: str = ""
    denial: DenialClass | None = None
    advice: str | None = None
    """what the model may do instead"""
    would: Action | None = None
    """the action if shadow rules were enforced, if it differs"""
    blind: tuple[str, ...] = ()
    """rules that need events which the host does not feed; they never count as satisfied"""
    counters: dict[str, int] = {}
    """values of the counters of the rules about this tool"""
    repeats: int = 0
    """how often the same call was denied before in this session"""
    notes: tuple[str, ...] = ()
    agent: str | None = None
    """whose call it is"""
    version: str | None = None
    """the version of the agent whose rules decided, from a manifest"""
    call_id: str = ""
    session: str = ""
    latency_us: float = 0.0

    @property
    def allowed(self) -> bool:
        return self.action is Action.ALLOW

    @property
    def matched(self) -> tuple[str, ...]:
        return tuple(match.rule for match in self.matches)


class Limits(Struct, frozen=True):
    """Bounds on the arguments of a call."""

    bytes: int = 1 << 20
    depth: int = 64


class Options(Struct, frozen=True, kw_only=True):
    """Settings of a guard that no rule decides."""

    on_error: Fallback = "block"
    """what happens to the call after an internal error of the guard"""
    on_store_unavailable: Fallback = "block"
    shadow: bool = False
    """decide and record everything, but let every call run"""
    review_seconds: float | None = 3600.0
    """how long a review may wait for an answer; None means without limit"""
    review_uses: int = 1
    breaker_after: int = 5
    """how often the same call may be denied before `breaker_then` applies"""
    breaker_then: Action = Action.BLOCK
    """has an effect only if it is stricter than the denial"""
    max_depth: int = 5
    """levels of agents below the root"""
    limits: Limits = Limits()

    @property
    def recorded(self) -> dict[str, Any]:
        """`{"options": …}` with the non-default options that influence decisions, as rows of the log carry them."""
        default = Options()
        names = ("on_error", "shadow", "breaker_after", "breaker_then", "max_depth", "limits")
        changed = {name: getattr(self, name) for name in names if getattr(self, name) != getattr(default, name)}
        return {"options": to_builtins(changed)} if changed else {}

    def __post_init__(self) -> None:
        for name in ("on_error", "on_store_unavailable"):
            if getattr(self, name) not in get_args(Fallback):
                raise ValueError(f"{name}={getattr(self, name)!r}: expected `block`, `pause` or `allow`")
        if self.review_uses < 1 or self.breaker_after < 1:
            raise ValueError("review_uses and breaker_after must be at least 1")
