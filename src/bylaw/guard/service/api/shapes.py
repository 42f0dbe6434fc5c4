"""Answers that no other part of the guard has a struct for."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from bylaw.guard.model import Call, Decision, DenialClass, Match
from bylaw.model.guard_policy import Action


class CallShape(Struct, frozen=True, kw_only=True):
    tool: str
    arguments: Any


class MatchShape(Struct, frozen=True, kw_only=True):
    """One rule that matched the attempt."""

    rule: str
    then: Action
    message: str = ""
    reason: str | None = None
    certain: bool = True
    shadow: bool = False
    line: str | None = None


class DecisionShape(Struct, frozen=True, kw_only=True):
    """What the guard answers. Empty keys after `call` are left out."""

    action: Action
    decided_by: str | None
    matched: tuple[str, ...]
    reason: str
    review: str | None
    policy: str
    call: CallShape | None
    """the call that may run; null if none may"""
    denial: DenialClass | UnsetType = UNSET
    advice: str | UnsetType = UNSET
    would: Action | UnsetType = UNSET
    matches: tuple[MatchShape, ...] | UnsetType = UNSET
    blind: tuple[str, ...] | UnsetType = UNSET
    counters: dict[str, int] | UnsetType = UNSET
    repeats: int | UnsetType = UNSET
    notes: tuple[str, ...] | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    session: str | UnsetType = UNSET
    latency_us: float | UnsetType = UNSET

    def as_decision(self) -> Decision:
        """The same as a guard in this process would return."""
        skipped = ("matched", "matches", "call")
        given = {
            name: value
            for name in self.__struct_fields__
            if name not in skipped and (value := getattr(self, name)) is not UNSET
        }
        matches = () if isinstance(self.matches, UnsetType) else self.matches
        return Decision(
            **given,
            matches=tuple(Match(**{name: getattr(one, name) for name in one.__struct_fields__}) for one in matches),
            call=None if self.call is None else Call(self.call.tool, self.call.arguments),
        )


class VerdictShape(Struct, frozen=True, kw_only=True):
    rule: str
    outcome: str
    message: str


class Found(Struct, frozen=True):
    """Rules that were broken by what happened."""

    found: tuple[VerdictShape, ...] = ()
    repeated: bool | UnsetType = UNSET
    """true if it was told before under the same `request_id`: nothing was judged now"""


class PastCall(Struct, frozen=True):
    call_id: str
    matches: tuple[MatchShape, ...] = ()
    """everything that would have stopped the call"""


class Released(Struct, frozen=True):
    released: bool
    """whether anything was reserved"""
    repeated: bool | UnsetType = UNSET
    """as that of what happened"""


class ReviewAnswer(Struct, frozen=True, kw_only=True):
    review: str
    status: Literal["pending", "approved", "rejected", "expired", "used"]
    edited: bool = False
    """whether another call was approved in its place: `call`"""
    call: CallShape | None = None
    """resume this one; null if the call was not edited, or if the edited one holds secrets"""
    decided_by: str | None = None
    note: str | None = None


class Health(Struct, frozen=True, kw_only=True):
    ok: bool
    version: str
    rules: str | None = None
    """the version in force"""
    problem: str | None = None
