"""What a job needs of a model that judges. `adapters.judges` provides it."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from bylaw.model.events import Usage


class JudgeReply(Struct, frozen=True, kw_only=True):
    """What the model wrote, and what it took."""

    text: str
    usage: Usage | None = None


class BadReply(Exception):
    """The judge answered, and the answer is none of the kind that was asked for. Never a verdict, never a pass.

    `usage` is what it took nevertheless, where the answer says so.
    """

    def __init__(self, reason: str, usage: Usage | None = None) -> None:
        super().__init__(reason)
        self.usage = usage


class Judge(Protocol):
    @property
    def model(self) -> str:
        """As the price list knows it."""

    @property
    def name(self) -> str:
        """Model and place: answers are cached under it."""

    def ask(self, instructions: str, question: str, *, seconds: float) -> JudgeReply:
        """Raises JudgeUnreachable, BadReply, and TimeoutError after so many seconds, however slowly bytes come in."""
