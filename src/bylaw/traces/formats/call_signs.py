"""Signs of calls in records from which no call was read: nothing that an agent did may pass unread.

Each reader tells of parts of an answer that it does not know. This is the net below all readers: a whole recording
without a call, although its records look as if they hold some, in the words of any API.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from bylaw.model.events import Event, Response, SessionEnd, ToolCall
from bylaw.traces.assembly.content import read_arguments
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Place, Problems

_HINTS = (b"ool_call", b"oolCall", b"ool_use", b"unction_call", b"unctionCall", b"oolUse", b"ool-call", b"mcp_call")
"""a record without any of these holds no sign; finding out is much faster than the pattern"""
_PATTERN = (
    r'"(?:tool_calls|toolCalls|tool_uses)"\s*:\s*\[\s*\{'
    r'|"(?:function_call|functionCall|toolUse|toolCall|tool_call)"\s*:\s*\{\s*"(?!type"\s*:\s*"object)'
    r'|"(?:type|kind|part_kind|event_type)"\s*:\s*"(?:tool_use|function_call|tool-call|tool_call|toolCall|mcp_call)"'
)
_CALLS = re.compile(_PATTERN.encode())
_QUOTED_CALLS = re.compile(_PATTERN.replace('"', r'\\*"').encode())
"""the same, also in JSON that is text inside of JSON, as attributes of spans are"""
_NAMES = frozenset(("tool_calls", "toolCalls", "tool_uses", "function_call", "functionCall", "toolUse", "toolCall"))
_TYPES = frozenset(("tool_use", "function_call", "tool-call", "tool_call", "toolCall", "mcp_call", "tool-invocation"))
_TOOL_KEYS = ("tool", "tool_name", "toolName")
_INPUT_KEYS = frozenset(("input", "args", "arguments", "tool_input", "tool_args", "parameters"))
_MOST_LEVELS = 6
_SAMPLED = 50
_MESSAGE_START = re.compile(
    r'\s*\[?\s*\{\s*"(?:role|parts|message|choices|candidates|generations|lc|tool_calls|toolUse|functionCall)"'
    r'|\s*\[\s*\{\s*"(?:type|text|id)"'
)
CUT_ANSWER = "this answer is JSON that does not end: its recorder cut it off"
CUT_HELP = (
    "raise the recorder's limit, such as `OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT`; rules that it may decide are inconclusive"
)
UNREAD_CALL = "this answer looks like a call of a tool, and no call was read from it"
_MESSAGE = "this looks like a call of a tool, and no call was read from the file"
_HELP = "the recording counts as incomplete, and rules that a call may decide are inconclusive"


def looks_like_call(value: Any, level: int = 0) -> bool:
    """Whether a decoded value holds what looks like a call, in the words of any API."""
    if isinstance(value, list):
        return level < _MOST_LEVELS and any(looks_like_call(one, level + 1) for one in value[:_SAMPLED])
    if not isinstance(value, dict):
        return False
    if isinstance(kind := value.get("type"), str) and kind in _TYPES:
        return True
    if any(value[key] for key in _NAMES.intersection(value)) or ("toolName" in value and "toolCallId" in value):
        return True
    if any(isinstance(value.get(key), str) for key in _TOOL_KEYS) and not _INPUT_KEYS.isdisjoint(value):
        return True
    return level < _MOST_LEVELS and any(
        looks_like_call(one, level + 1) for one in value.values() if isinstance(one, (dict, list))
    )


def is_cut_answer(content: Any) -> bool:
    """Whether the text of an answer is the start of a message that a recorder wrote as JSON, and did not end."""
    if not isinstance(content, str) or _MESSAGE_START.match(content) is None:
        return False
    return read_arguments(content)[0] is None


class CallSigns:
    """Looks for signs of calls until the first call is read."""

    def __init__(self, *, repeats_history: bool, is_own: bool) -> None:
        """`repeats_history`: requests show earlier calls, so signs mean something only if nothing was read at all.
        `is_own`: Bylaw wrote the file, so nothing in it is unread."""
        self._repeats_history = repeats_history
        self._pattern = _QUOTED_CALLS if repeats_history else _CALLS
        self._first: tuple[bytes, int | Place] | None = None
        self._has_turns = False
        self.has_calls = is_own
        """a call was read, or a reader reported that it could not read one"""

    def watch(self, block: Block) -> Block:
        """The same records, each looked at while no call was read."""
        if self.has_calls or self._first is not None:
            return block
        return self._watch(block)

    def _watch(self, block: Block) -> Block:
        for raw, place in block:
            # in formats that repeat the history the pattern is needed only at the end, if at all
            if (
                self._first is None
                and any(hint in raw for hint in _HINTS)
                and (self._repeats_history or self._pattern.search(raw) is not None)
            ):
                self._first = (raw, place)
            yield raw, place

    @property
    def is_unread(self) -> bool:
        return self._first is not None and not self.has_calls and not (self._repeats_history and self._has_turns)

    def check(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events, with sessions as incomplete that ended while signs and no call had been seen."""
        if self.has_calls or not events:
            return events
        kinds = {type(event) for event in events}
        self._has_turns = self._has_turns or Response in kinds
        self.has_calls = ToolCall in kinds or any(isinstance(event, Response) and event.unread for event in events)
        if SessionEnd not in kinds or self._repeats_history or not self.is_unread:
            return events
        return [replace(event, complete=False) if type(event) is SessionEnd else event for event in events]

    def report(self, problems: Problems) -> None:
        if not self.is_unread:
            return  # nearly always: the pattern is slow
        if self._first is not None and (problems.skipped or self._pattern.search(self._first[0]) is None):
            self._first = None  # records skipped on request are reported and counted
        if self._first is not None and self.is_unread:
            raw, place = self._first
            text = raw.decode(errors="replace")
            found = self._pattern.search(raw)
            offset = 0 if found is None else len(raw[: found.start()].decode(errors="replace"))
            problems.report_at(
                place, text, offset, code="unread-content", message=_MESSAGE, severity="warning", help=_HELP
            )
