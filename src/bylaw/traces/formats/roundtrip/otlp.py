"""Reads the spans that Bylaw wrote: the events are in their slots, and the long parts of them where everyone looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bylaw.model.events import Deferred
from bylaw.traces.assembly.content import read_arguments
from bylaw.traces.formats.bylaw.lines import (
    VERSION,
    Line,
    RequestLine,
    ResponseLine,
    ToolCallLine,
    ToolResultLine,
)
from bylaw.traces.formats.otlp import is_foreign
from bylaw.traces.formats.roundtrip.lines import (
    END,
    EVENTS,
    HEADER,
    TRACE,
    RestoredReader,
    Slot,
    decode_header,
    decode_slots,
    raw_json,
)
from bylaw.traces.formats.roundtrip.messages import (
    recorded_content,
    recorded_message,
    recorded_messages,
    recorded_tools,
)
from bylaw.traces.records.jsontext import REFUSED, decode_deferred
from bylaw.traces.records.problems import Place, Problems

INPUT = "gen_ai.input.messages"
OUTPUT = "gen_ai.output.messages"
SYSTEM = "gen_ai.system_instructions"
TOOLS = "gen_ai.tool.definitions"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"
MOST_WAITING = 1 << 14
"""lines that may wait for one before them; the writer lets far fewer wait"""


class _Value(Struct, gc=False):
    stringValue: str | None = None


class _Attribute(Struct, gc=False):
    key: str = ""
    value: _Value | None = None


class _Span(Struct, gc=False):
    attributes: list[_Attribute] = []


class _Scope(Struct, gc=False):
    spans: list[_Span] = []


class _Resource(Struct, gc=False):
    attributes: list[_Attribute] = []


class _ResourceSpans(Struct, gc=False):
    resource: _Resource | None = None
    scopeSpans: list[_Scope] = []


class _Export(Struct, gc=False):
    resourceSpans: list[_ResourceSpans] = []


_decode = msgspec.json.Decoder(_Export).decode


def is_restorable(first: bytes) -> bool:
    """Whether Bylaw wrote the file that begins with this record."""
    if TRACE.encode() not in first:
        return False
    try:
        found = _decode(first).resourceSpans
    except REFUSED:
        return False
    return bool(found) and all(TRACE in _texts(one.resource) for one in found)


class RestoredOtlpReader(RestoredReader):
    def __init__(self, problems: Problems) -> None:
        super().__init__(problems, most_waiting=MOST_WAITING)

    def read_record(self, raw: bytes, place: int | Place) -> None:
        export = self.decoded(raw, place, _decode)
        if export is None:
            return
        if not export.resourceSpans and is_foreign(raw):
            self.refuse_foreign(None, "this is no OTLP, and the file began with spans of Bylaw's", raw, place)
        for one in export.resourceSpans:
            about = _texts(one.resource)
            if about.get(TRACE) == VERSION:
                self._begin(about)
                self.put(lambda one=one, about=about: _all_lines(one, about), raw, place)  # type: ignore[misc]
            else:
                told = "these spans are not Bylaw's, and the file began with spans that are"
                self.refuse_foreign(about.get(TRACE), told, raw, place)

    def _begin(self, about: dict[str, str]) -> None:
        with suppress(*REFUSED):  # without a header that can be read, what follows still can
            self.started(decode_header(about[HEADER]) if HEADER in about else None)


def _all_lines(one: _ResourceSpans, about: dict[str, str]) -> Iterator[tuple[int, Line]]:
    for scope in one.scopeSpans:
        for span in scope.spans:
            attributes = _texts(span)
            for slot in decode_slots(attributes.get(EVENTS, "[]")):
                yield slot.n, _line(slot, attributes)
    for slot in decode_slots(about.get(END, "[]")):
        yield slot.n, slot.decoded()


def _texts(found: _Span | _Resource | None) -> dict[str, str]:
    return {
        one.key: one.value.stringValue
        for one in (found.attributes if found is not None else ())
        if one.value is not None and one.value.stringValue is not None
    }


# The parts of a line that stand elsewhere


def _line(slot: Slot, attributes: dict[str, str]) -> Line:
    line = slot.decoded()
    for field, form in slot.held.items():
        restore = _RESTORED.get((type(line), field))
        if restore is not None:
            setattr(line, field, restore(attributes, form))
    return line


def _messages(attributes: dict[str, str], form: Any) -> Deferred:
    return Deferred(_all_messages, (raw_json(attributes.get(SYSTEM, "[]")), raw_json(attributes.get(INPUT, "[]"))))


def _all_messages(held: tuple[Raw, Raw]) -> list[Any]:
    orders, asked = map(decode_deferred, held)
    system = [recorded_message({"role": "system", "parts": orders})] if orders else []
    return [*system, *recorded_messages(asked)]


def _tools(attributes: dict[str, str], form: Any) -> Deferred:
    return Deferred(_all_tools, raw_json(attributes.get(TOOLS, "[]")))


def _all_tools(held: Raw) -> list[Any]:
    return recorded_tools(decode_deferred(held))


def _said(attributes: dict[str, str], form: Any) -> list[Any]:
    found = msgspec.json.decode(attributes.get(OUTPUT, "[]"), type=list[dict[str, Any]])
    return recorded_content(found[0].get("parts")) if found else []


def _returned(attributes: dict[str, str], form: Any) -> Any:
    text = attributes.get(RESULT, "")
    return text if form == "text" else msgspec.json.decode(text)


def _arguments(attributes: dict[str, str], form: Any) -> Any:
    return read_arguments(attributes.get(ARGUMENTS, ""))[0]


def _raw_arguments(attributes: dict[str, str], form: Any) -> str:
    return attributes.get(ARGUMENTS, "")


_RESTORED: dict[tuple[type[Line], str], Callable[[dict[str, str], Any], Any]] = {
    (RequestLine, "messages"): _messages,
    (RequestLine, "tools"): _tools,
    (ResponseLine, "content"): _said,
    (ToolCallLine, "arguments"): _arguments,
    (ToolCallLine, "raw_arguments"): _raw_arguments,
    (ToolResultLine, "content"): _returned,
}
