"""ShareGPT: conversations whose messages have `from` and `value`, as datasets of dialogues with tools are stored.

A call is a message of its own (`function_call`), with JSON as its value, or stands in the text of an answer between
`<tool_call>` and `</tool_call>`. A result is an `observation`, or a message of a `tool`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from bylaw.traces.formats.chat import AnswerPart, GatheringReader, call_of
from bylaw.traces.formats.messages import parse_if_json
from bylaw.traces.formats.record import MalformedRecord, Record, list_field, suggest, text_field

_ROLES = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "function_call": "assistant",
    "tool_call": "assistant",
    "observation": "tool",
    "function_response": "tool",
    "tool_response": "tool",
    "tool": "tool",
}
_CALLS = ("function_call", "tool_call")
_WRITTEN = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>", re.DOTALL)
_RETURNED = re.compile(r"\s*<tool_response>(.*)</tool_response>\s*", re.DOTALL)
_IDS = ("id", "conversation_id", "session_id")


def claims(value: Any) -> bool:
    messages = value if isinstance(value, list) else list_field(value, "conversations")
    return bool(messages) and all(map(_is_message, messages[:5]))


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("from"), str) and isinstance(value.get("value"), str)


class ShareGptReader(GatheringReader):
    def read_record(self, record: Record) -> None:
        value = record.value
        if isinstance(value, list):
            self.read_list(record, value, (), None)
        elif record.expect_object("a conversation", "conversations"):
            name = next((str(value[key]) for key in _IDS if isinstance(value.get(key), (str, int))), None)
            system = text_field(value, "system")
            self.read_list(record, value["conversations"], ("conversations",), name, system=system)

    def parts_of(self, event: dict[str, Any]) -> Iterator[AnswerPart]:
        if not _is_message(event):
            raise MalformedRecord("a message has no text `from` and `value`")
        speaker, text = event["from"], event["value"]
        role = _ROLES.get(speaker)
        if role is None:
            help = suggest(speaker, tuple(_ROLES))
            raise MalformedRecord(f"unknown speaker `{speaker}`", ("from",), code="unknown-kind", help=help)
        if speaker in _CALLS:
            yield AnswerPart({"role": role, "content": None, "tool_calls": _calls(text)}, key="answer")
        elif role == "assistant":
            calls = [call for written in _WRITTEN.findall(text) for call in _calls(written)]
            content = _WRITTEN.sub("", text).strip() if calls else text
            yield AnswerPart(
                {"role": role, "content": content, **({"tool_calls": calls} if calls else {})}, key="answer"
            )
        elif role == "tool" and (found := _RETURNED.fullmatch(text)) is not None:
            for one in found[1].split("<tool_response>"):
                yield AnswerPart(_result(parse_if_json(one.replace("</tool_response>", "").strip())))
        else:
            yield AnswerPart(_result(text) if role == "tool" else {"role": role, "content": text})


def _calls(text: str) -> list[dict[str, Any]]:
    found = parse_if_json(text)
    calls = found if isinstance(found, list) else [found]
    for call in calls:
        if not isinstance(call, dict) or not isinstance(call.get("name"), str):
            raise MalformedRecord("this call is no JSON with a `name`", ("value",))
    return [call_of(call.get("id"), call["name"], call.get("arguments", call.get("parameters"))) for call in calls]


def _result(value: Any) -> dict[str, Any]:
    """The result of a tool; some datasets name the tool beside it."""
    if isinstance(value, dict) and isinstance(value.get("name"), str) and "content" in value:
        return {"role": "tool", "name": value["name"], "content": value["content"]}
    return {"role": "tool", "content": value}
