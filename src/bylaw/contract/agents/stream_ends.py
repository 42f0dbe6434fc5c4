"""Whether a stream has ended as its format says. A connection that breaks can look like an end: only the mark tells.

Formats with a mark: OpenAI's chat completions (`finish_reason` of each choice, or `[DONE]`) and Responses
(`response.completed`, `response.incomplete`), Anthropic (`message_stop`), Gemini (`finishReason`), Ollama and others
with `done`, Bedrock (`messageStop`), Vercel's AI SDK (`text-end`, `finish`), AG-UI (`RUN_FINISHED`), Cohere
(`message-end`). A stream in any other form has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bylaw.wire.formats.base import Event

DONE = "[DONE]"
_MARKS = {
    # kind of event: (what it opens or ends, whether it ends it)
    "message_start": ("message_stop", False),
    "content_block_start": ("message_stop", False),
    "content_block_delta": ("message_stop", False),
    "message_stop": ("message_stop", True),
    "message_end": ("message_stop", True),
    "response.created": ("response.completed", False),
    "response.output_text.delta": ("response.completed", False),
    "response.completed": ("response.completed", True),
    "response.incomplete": ("response.completed", True),
    "text-start": ("text-end", False),
    "text-delta": ("text-end", False),
    "text-end": ("text-end", True),
    "finish": ("text-end", True),
    "RUN_STARTED": ("RUN_FINISHED", False),
    "RUN_FINISHED": ("RUN_FINISHED", True),
    "message-start": ("message-end", False),
    "message-end": ("message-end", True),
}


def missing_end(events: Iterable[Event]) -> str | None:
    """The mark that is missing at the end of a stream; None if it has ended, or if its format has no mark."""
    missing: dict[str, str] = {}
    for event in events:
        if event.data.strip() == DONE:
            missing.clear()
            continue
        value = event.json
        for one in value if isinstance(value, list) else [value]:
            for key, mark, is_end in _steps(one) if isinstance(one, dict) else ():
                if is_end:
                    missing.pop(key, None)
                else:
                    missing[key] = mark
    return next(iter(missing.values()), None)


def _steps(event: dict[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """What an event opens or ends: a key, the mark that ends it, and whether this is the mark."""
    kind = event.get("type")
    if isinstance(kind, str) and kind in _MARKS:
        mark, is_end = _MARKS[kind]
        yield mark, mark, is_end
    for name, is_end in (("messageStart", False), ("messageStop", True)):
        if isinstance(event.get(name), dict):
            yield "messageStop", "messageStop", is_end
    if isinstance(event.get("done"), bool):
        yield "done", "done: true", event["done"]
    for name, reasons in (("choices", ("finish_reason",)), ("candidates", ("finishReason", "finish_reason"))):
        parts = event.get(name)
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and "message" not in part:
                yield f"{name}.{part.get('index') or 0}", reasons[0], any(part.get(reason) for reason in reasons)
