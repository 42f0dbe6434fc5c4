"""A verdict of the engine → a violation: which events of the caller's list, quoted, and which sentence they break."""

from __future__ import annotations

import re
from typing import TypeAlias

from bylaw.comply.model import Violation
from bylaw.comply.positions import index_of
from bylaw.comply.prompt.model import PromptRule
from bylaw.model.events import ToolCall, ToolResult
from bylaw.model.trace import Trace
from bylaw.model.verdict import EventRef, Verdict

_Key: TypeAlias = tuple[str, int | None, str | None, str | None]
_LONG_QUOTE = re.compile(r"`[^`]{120,}`")
_UNCONFIRMED = "the call was made, and the user's last message before it does not confirm it"
_QUOTED = 5
"""events that an evidence quotes, the deciding one among them"""


class Places:
    """Where the events that a verdict points at stand in the list that was given."""

    def __init__(self, trace: Trace) -> None:
        self._indexes: dict[_Key, int] = {}
        for position, event in enumerate(trace.events):
            call_id = event.call_id if isinstance(event, ToolCall | ToolResult) else None
            source = None if event.source is None else str(event.source)
            key = (event.kind, event.turn, call_id, source)
            self._indexes.setdefault(key, index_of(event, position, trace.format))

    def of(self, event: EventRef) -> int | None:
        return self._indexes.get((event.event, event.turn, event.call_id, event.source))


def violation_of(rule: PromptRule, verdict: Verdict, places: Places) -> Violation:
    """The engine puts the event that decided last."""
    found = [(place, event) for event in verdict.evidence if (place := places.of(event)) is not None]
    indexes = tuple(dict.fromkeys(place for place, _ in found))
    aspect = next((one.aspect for one in rule.items if one.item["id"] == verdict.rule.id), None)
    confirming = aspect == "dialogue" and rule.required_action == "confirm_with_user"
    message = _UNCONFIRMED if confirming else _readable(verdict.message)
    return Violation(
        rule_id=rule.rule_id,
        evidence="; ".join(_quote(place, event) for place, event in found[-_QUOTED:]) or "the trace as a whole",
        explanation=f"the prompt says `{_one_line(rule.description)}`: {message}",
        confidence=rule.confidence,
        event_index=indexes[-1] if indexes else None,
        event_indexes=indexes,
        tier=rule.tier,
        aspect=aspect,
        session=verdict.session,
        turn=verdict.turn,
    )


def _quote(place: int, event: EventRef) -> str:
    return f"event {place}: {event.excerpt or event.event}"


def _readable(message: str) -> str:
    """A formula of a dialogue rule quotes long patterns, which nobody reads."""
    return _one_line(_LONG_QUOTE.sub("what the rule demands", message), 600)


def _one_line(text: str, width: int = 300) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"
