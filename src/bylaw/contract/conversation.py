"""A golden prompt of several user messages, which an agent answers one after the other in one conversation."""

from __future__ import annotations

from collections.abc import Sequence

ARROW = "\n→ "


class Conversation(str):
    """The messages as one text, for reports and names of runs; `messages` holds them apart."""

    messages: tuple[str, ...]

    def __new__(cls, messages: Sequence[str]) -> Conversation:
        self = super().__new__(cls, ARROW.join(messages))
        self.messages = tuple(messages)
        return self


def messages_of(prompt: str) -> tuple[str, ...]:
    return prompt.messages if isinstance(prompt, Conversation) else (prompt,)


def is_conversation(prompt: str) -> bool:
    return isinstance(prompt, Conversation)
