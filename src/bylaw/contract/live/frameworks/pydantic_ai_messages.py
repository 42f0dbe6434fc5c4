"""Pydantic AI's messages as chat messages, and back where an attack changed them."""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart

from bylaw.contract.live.frameworks.model_call import aligned, chat_reply, chat_tool_call
from bylaw.wire.formats.base import Json

_FINISH = {"length": "length", "stop": "stop", "tool_calls": "tool_call"}


class Conversation:
    """A conversation, with each chat message knowing the part it was made of."""

    def __init__(self, messages: list[Any], parameters: Any) -> None:
        self._messages = messages
        self.told: list[Json] = []
        self._places: list[tuple[int, int] | None] = []
        """message and part; None for what no part holds"""
        instructions = [part.content for part in getattr(parameters, "instruction_parts", None) or ()]
        if instructions:
            self._tell(None, {"role": "system", "content": "\n\n".join(instructions)})
        for at, message in enumerate(messages):
            self._read(at, message)

    def attacked(self, before: list[Json], after: list[Json]) -> list[Any]:
        """The messages to send; the given ones where nothing was changed."""
        if before == after:
            return self._messages
        edits: dict[tuple[int, int], Json] = {}
        extra: dict[tuple[int, int], list[Json]] = {}
        waiting: list[Json] = []
        for place, message in aligned(before, after):
            part = self._places[place] if place is not None else None
            if place is None:
                waiting.append(message)
            elif part is not None:
                extra.setdefault(part, []).extend(waiting)
                waiting = []
                if message != before[place]:
                    edits[part] = message
        rebuilt: list[Any] = []
        for at, message in enumerate(self._messages):
            rebuilt += _rebuilt(at, message, edits, extra)
        return rebuilt + [_made(message) for message in waiting]

    def _tell(self, place: tuple[int, int] | None, message: Json) -> None:
        self.told.append(message)
        self._places.append(place)

    def _read(self, at: int, message: Any) -> None:
        if message.kind == "response":
            self._tell((at, 0), told_response(message)["choices"][0]["message"])
            return
        for index, part in enumerate(message.parts):
            told = _told_part(part)
            if told is not None:
                self._tell((at, index), told)


def told_response(response: Any) -> Json:
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    calls = [
        chat_tool_call(part.tool_call_id, part.tool_name, part.args if part.args is not None else {})
        for part in response.parts
        if isinstance(part, ToolCallPart)
    ]
    return chat_reply(response.model_name, text or (None if calls else ""), calls)


def changed_response(response: Any, text: str, calls: list[Json], finish: str) -> Any:
    """The same response saying something else; arguments that are no JSON stay text, as a provider would send them."""
    arguments = {call["id"]: call["function"]["arguments"] for call in calls}
    parts: list[Any] = [part for part in response.parts if not isinstance(part, TextPart | ToolCallPart)]
    if text:
        parts.append(TextPart(content=text))
    parts += [
        dataclasses.replace(part, args=arguments[part.tool_call_id])
        for part in response.parts
        if isinstance(part, ToolCallPart) and part.tool_call_id in arguments
    ]
    return dataclasses.replace(response, parts=parts, finish_reason=_FINISH.get(finish))


def _told_part(part: Any) -> Json | None:
    kind = part.part_kind
    if kind == "system-prompt":
        return {"role": "system", "content": part.content}
    if kind == "user-prompt":
        return {"role": "user", "content": _user_text(part.content)}
    if kind in ("tool-return", "retry-prompt") and part.tool_name:
        text = part.model_response_str() if kind == "tool-return" else part.model_response()
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": text}
    return {"role": "user", "content": part.model_response()} if kind == "retry-prompt" else None


def _user_text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(item for item in content if isinstance(item, str))


def _rebuilt(
    at: int, message: Any, edits: dict[tuple[int, int], Json], extra: dict[tuple[int, int], list[Json]]
) -> list[Any]:
    """A message with its changes, after what was put before it."""
    before: list[Any] = []
    if message.kind == "response":
        return [*(_made(item) for item in extra.get((at, 0), ())), message]
    parts: list[Any] = []
    for index, part in enumerate(message.parts):
        for item in extra.get((at, index), ()):
            if item["role"] == "assistant":
                before.append(_made(item))
            else:
                parts.append(UserPromptPart(content=item["content"]))
        edit = edits.get((at, index))
        parts.append(part if edit is None else _edited(part, edit["content"]))
    return [*before, dataclasses.replace(message, parts=parts)]


def _edited(part: Any, text: str) -> Any:
    """The part with another text; pictures and the like beside it are kept."""
    content = getattr(part, "content", None)
    if isinstance(content, list | tuple) and part.part_kind == "user-prompt":
        return dataclasses.replace(part, content=[text, *(item for item in content if not isinstance(item, str))])
    return dataclasses.replace(part, content=text)


def _made(message: Json) -> Any:
    if message["role"] == "assistant":
        return ModelResponse(parts=[TextPart(content=message["content"])])
    return ModelRequest(parts=[UserPromptPart(content=message["content"])])
