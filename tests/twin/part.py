"""What the reference implementation judges: one scope of a trace, and the answer for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bylaw.model.events import Event, Response, ToolCall
from bylaw.model.verdict import Outcome

Breaches = list[int | None]
"""the turns at which a rule is broken; None for the end"""
Answer = tuple[Outcome, Breaches]


class Part:
    """One scope: its turns, and the calls of each turn, in order."""

    def __init__(self, events: list[Event], complete: bool) -> None:
        self.turns = [event for event in events if isinstance(event, Response)]
        self.calls = [event for event in events if isinstance(event, ToolCall)]
        self.events = events
        self.complete = complete


Judge = Callable[[dict[str, Any], Part, list[Response]], Answer]
"""a rule's parameters, the scope, and the turns that match `when` → the outcome, and where the rule is broken"""


def settled(part: Part, blind: int = 0, judged: bool = True) -> Outcome:
    """The outcome where nothing was broken."""
    if blind or not part.complete:
        return Outcome.INCONCLUSIVE
    return Outcome.OK if judged else Outcome.VACUOUS
