"""How a guard behaves where rules say nothing."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct, to_builtins

from bylaw.guard.decide.attempts import Limits
from bylaw.guard.decide.tree import MOST_DEPTH
from bylaw.model.guarding import Action

Fallback: TypeAlias = Literal["block", "pause", "allow"]


class Options(Struct, frozen=True, kw_only=True):
    on_error: Fallback = "block"
    """what a fault inside the guard does to the call"""
    on_store_unavailable: Fallback = "block"
    shadow: bool = False
    """decide and record everything, act on nothing"""
    review_seconds: float | None = 3600.0
    """how long a review may wait for an answer; None: for ever"""
    review_uses: int = 1
    breaker_after: int = 5
    """how often the very same call may be denied before `breaker_then`"""
    breaker_then: Action = Action.BLOCK
    """an action stricter than the denial itself"""
    max_depth: int = MOST_DEPTH
    limits: Limits = Limits()

    @property
    def given(self) -> dict[str, Any]:
        """`{"options": …}` with those that change decisions and are not the defaults, as they are written down."""
        default = Options()
        names = ("on_error", "shadow", "breaker_after", "breaker_then", "max_depth", "limits")
        changed = {name: getattr(self, name) for name in names if getattr(self, name) != getattr(default, name)}
        return {"options": to_builtins(changed)} if changed else {}

    def __post_init__(self) -> None:
        for name in ("on_error", "on_store_unavailable"):
            if getattr(self, name) not in get_args(Fallback):
                raise ValueError(f"{name}={getattr(self, name)!r}: expected `block`, `pause` or `allow`")
        if self.review_uses < 1 or self.breaker_after < 1:
            raise ValueError("review_uses and breaker_after are at least 1")
