"""A turn as the differ sees it: what it called, what it said, what it cost. Computed once per turn."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from bylaw.model.canonical import short_digest
from bylaw.model.events import Response, ToolCall


class Step:
    """One turn of one session."""

    def __init__(self, response: Response, position: int) -> None:
        self.response = response
        self.position = position
        """index in its session"""
        self.turn = position if response.turn is None else response.turn
        """index in its trace"""

    @property
    def text(self) -> str:
        return self.response.text or ""

    @cached_property
    def shape(self) -> tuple[str, ...]:
        """One token a call: name and sorted argument keys."""
        return tuple(_shape(call) for call in self.response.tool_calls)

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """The trajectory token of each call: shape and the digest of its arguments."""
        digests = (short_digest(arguments(call)) for call in self.response.tool_calls)
        return tuple(f"{shape}#{digest}" for shape, digest in zip(self.shape, digests, strict=True))

    @cached_property
    def signature(self) -> tuple[Any, ...]:
        """Equal signatures: the same turn, as far as the differ can tell."""
        return (self.tokens, self.text, self.response.stop_reason)


def arguments(call: ToolCall) -> Any:
    return call.raw_arguments if call.arguments is None else call.arguments


def _shape(call: ToolCall) -> str:
    given = arguments(call)
    keys = ",".join(sorted(given)) if isinstance(given, dict) else type(given).__name__
    return f"{call.name}({keys})"
