"""Codex's rollouts: a line an item of OpenAI's Responses API, with a time, among lines that tell of the program.

Two logs are interleaved. `response_item` is what the model was told and gave; `event_msg` repeats most of that for the
screen, and only its token counts, errors and marks are of use. A response ends where its tokens are counted, or where
something is heard. Counts come more than once and sum up: the same sum again is no other response.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.model.events import Annotation, Event, Origin, SessionStart, ToolResult, Usage
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.content import calls_in, read_arguments, read_content
from bylaw.traces.assembly.conversation import Answer, Conversation, Settings, cut_note
from bylaw.traces.assembly.session_buffer import SHARED_ID
from bylaw.traces.formats.chat_message import Misshapen, text_field
from bylaw.traces.formats.reader import remember
from bylaw.traces.formats.record import Record, a_type, assembly_notes, records_of
from bylaw.traces.formats.responses_items import (
    HEARD,
    KINDS,
    MARKS,
    Given,
    add_said,
    call_id_of,
    is_said,
    kind_of,
    message_of,
)
from bylaw.traces.formats.spans.attributes import moment
from bylaw.traces.formats.spans.span import count_of, tokens
from bylaw.traces.records.lines import Block
from bylaw.traces.records.problems import Problems

_LINES = frozenset(("session_meta", "turn_context", "response_item", "event_msg", "compacted"))
_KEPT = frozenset(("error", "turn_aborted", "context_compacted", "thread_rolled_back"))
"""events that become annotations, beside requests for an approval"""
_COUNTS = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens")
_KNOWN = frozenset(KINDS) - MARKS
"""items that are part of the talk"""


def claims(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("payload"), dict):
        return False
    return text_field(value, "type") in _LINES


class _Saying(Struct, eq=False):
    """The response that is being put together, and what was heard before its tokens were counted."""

    record: Record
    at: str | None
    asked: float | None
    model: str | None
    given: Given
    ended: float | None = None
    usage: Usage | None = None
    over: bool = False
    heard: list[tuple[Record, dict[str, Any]]] = []


class CodexReader:
    def __init__(self, problems: Problems) -> None:
        self.header: dict[str, Any] = {}
        self.complete = True
        self._problems = problems
        self._assembler = Assembler(problems)
        self._conversation: Conversation | None = None
        self._origin = Origin("1")
        self._model: str | None = None
        self._saying: _Saying | None = None
        self._heard_at: float | None = None
        self._total = 0
        self._called: dict[str, float | None] = {}
        """calls without a result, and when they were issued"""
        self._answered: dict[str, None] = {}
        """calls with one: the same output may be told twice"""
        self._running = False
        self._cut = False

    def read(self, block: Block) -> list[Event]:
        for record in records_of(block, self._problems):
            value = record.value
            payload: Any = value.get("payload") if isinstance(value, dict) else None
            kind = value.get("type") if isinstance(payload, dict) else None
            if kind == "response_item":
                self._item(record, payload)
            elif kind == "event_msg":
                self._event(record, payload)
            elif isinstance(kind, str):
                self._about(record, kind, payload)
            else:
                what = "no `type` and `payload`" if isinstance(value, dict) else f"to be an object, not {a_type(value)}"
                record.bad("wrong-type", f"a line has {what}")
        return self._assembler.take()

    def finish(self) -> list[Event]:
        self._respond()
        self.complete = not self._running
        if self._conversation is not None:
            self._conversation.end()
        return self._assembler.take_all()

    def notes(self) -> list[str]:
        part = self._origin.run is not None
        whose = [f"only the part of a subagent is here: session `{self._origin.session}` has a file of its own"]
        return [*(cut_note() if self._cut else ()), *assembly_notes(self._assembler), *(whose if part else ())]

    # The session

    def _about(self, record: Record, kind: str, payload: dict[str, Any]) -> None:
        if kind == "session_meta":
            self._begin(record, payload)
        elif kind == "turn_context":
            self._model = text_field(payload, "model") or self._model
        elif kind == "compacted":
            self._compact(record, payload)

    def _begin(self, record: Record, payload: dict[str, Any]) -> None:
        if self.header or self._conversation is not None:
            return  # of the session that this one was forked from
        self.header = {key: payload[key] for key in ("id", "cli_version", "cwd", "source") if key in payload}
        own, parent = text_field(payload, "id", "session_id") or "1", _parent(payload)
        role = text_field(payload, "agent_role", "agent_nickname")
        self._origin = Origin(own) if parent is None else Origin(parent, run=own, parent_run=parent, agent=role)
        start = SessionStart(origin=self._origin, at=_at(record), source=record.locator(), metadata=self.header)
        self._assembler.add(start)
        orders = payload.get("base_instructions", payload.get("instructions"))
        orders = orders.get("text") if isinstance(orders, dict) else orders
        if isinstance(orders, str) and orders:
            self._talk().said({"role": "system", "content": orders})

    def _talk(self) -> Conversation:
        if self._conversation is None:
            lane = self._assembler.lane_for(self._origin)
            self._conversation = Conversation(self._assembler, lane, Settings(), bounded=True)
        return self._conversation

    def _compact(self, record: Record, payload: dict[str, Any]) -> None:
        """What was said before is no longer before the model, but for what stands here."""
        self._respond()
        self._conversation = None
        kept = payload.get("replacement_history")
        for item in kept if isinstance(kept, list) else ():
            if isinstance(item, dict):
                self._talk().said(message_of(item))
        if not isinstance(kept, list) and isinstance(payload.get("message"), str):
            self._talk().said({"role": "user", "content": payload["message"]})
        self._annotate(record, "compacted", payload)

    def _annotate(self, record: Record, label: str, data: Any) -> None:
        if self._saying is not None and self._saying.over:
            self._respond()
        origin, source = self._talk().origin, record.locator()
        self._assembler.add(Annotation(origin=origin, at=_at(record), source=source, label=label, data=data))

    # Items

    def _item(self, record: Record, item: dict[str, Any]) -> None:
        try:
            kind = kind_of(item)
            if is_said(item, kind):
                self._say(record, item, kind)
            elif kind not in _KNOWN:
                self._annotate(record, kind, item)
            elif self._saying is not None:
                self._saying.over = True
                self._saying.heard.append((record, item))
            else:
                self._hear(record, item)
        except Misshapen as error:
            record.bad(error.code, error.message, ("payload", *error.path), help=error.help)

    def _say(self, record: Record, item: dict[str, Any], kind: str) -> None:
        if self._saying is not None and self._saying.over:
            self._respond()
        saying, at = self._saying, _at(record)
        if saying is None:
            saying = self._saying = _Saying(record, at, self._heard_at, self._model, Given())
        saying.ended = when = moment(at)[0]
        uses = saying.given.uses
        known = len(uses)
        add_said(item, kind, saying.given)
        if len(uses) > known and isinstance(call_id := uses[-1].get("id"), str):
            remember(self._called, call_id, when)
            self._answered.pop(call_id, None)

    def _respond(self) -> None:
        saying, self._saying = self._saying, None
        if saying is None:
            return
        record, given, talk = saying.record, saying.given, self._talk()
        source = record.locator()
        calls, shared = calls_in(given.uses, talk.origin, talk.turn, saying.at, source, given.arguments)
        for call_id in shared:
            record.warn("duplicate-call-id", SHARED_ID.format(call_id))
        content, text, _ = read_content(given.blocks)
        talk.answered(
            Answer(
                content=content,
                text=text,
                calls=calls,
                at=saying.at,
                source=source,
                model=saying.model,
                latency_ms=_between(saying.asked, saying.ended),
                usage=saying.usage,
            )
        )
        talk.said({"role": "assistant", "content": given.blocks})
        self._cut = self._cut or talk.cut
        for heard, item in saying.heard:
            self._hear(heard, item)

    def _hear(self, record: Record, item: dict[str, Any]) -> None:
        talk, at, source = self._talk(), _at(record), record.locator()
        when = moment(at)[0]
        self._heard_at = when if when is not None else self._heard_at
        if kind_of(item) in HEARD:
            call_id = call_id_of(item)
            if call_id is not None and call_id in self._answered:
                return
            if call_id is not None:
                remember(self._answered, call_id, None)
            content, failed = _output(item.get("output"))
            talk.result(
                ToolResult(
                    origin=talk.origin,
                    at=at,
                    source=source,
                    call_id=call_id,
                    content=content,
                    is_error=failed,
                    latency_ms=_between(self._called.pop(call_id or "", None), when),
                )
            )
        talk.heard(message_of(item), source)

    # The program's own log

    def _event(self, record: Record, payload: dict[str, Any]) -> None:
        kind = text_field(payload, "type") or ""
        if kind == "token_count":
            self._count(payload.get("info"))
        elif kind in ("task_started", "task_complete", "turn_aborted"):
            self._running = kind == "task_started"
        if kind in _KEPT or kind.endswith("_approval_request"):
            self._annotate(record, kind, payload)

    def _count(self, info: Any) -> None:
        info = info if isinstance(info, dict) else {}
        total, last = info.get("total_token_usage"), info.get("last_token_usage")
        so_far = count_of(total.get("total_tokens")) if isinstance(total, dict) else None
        if so_far is not None and so_far == self._total:
            return
        self._total = self._total if so_far is None else so_far
        if self._saying is None or not isinstance(last, dict):
            return
        self._saying.over = True
        counts = {key: last[key] for key in _COUNTS if key in last}
        self._saying.usage = tokens(
            counts,
            input=last.get("input_tokens"),
            output=last.get("output_tokens"),
            read=last.get("cached_input_tokens"),
            reasoning=last.get("reasoning_output_tokens"),
        )


def _at(record: Record) -> str | None:
    return text_field(record.value, "timestamp")


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None or end < start else round((end - start) * 1000, 3)


def _parent(payload: dict[str, Any]) -> str | None:
    """The session that started this one as a subagent."""
    held: Any = payload.get("source")
    for step in ("subagent", "thread_spawn"):
        held = held.get(step) if isinstance(held, dict) else None
    found = text_field(held, "parent_thread_id") if isinstance(held, dict) else None
    return found or text_field(payload, "parent_thread_id")


def _output(recorded: Any) -> tuple[Any, bool | None]:
    """What a call returned, and whether it failed, where a code or a flag beside it says so."""
    found = read_arguments(recorded)[0] if isinstance(recorded, str) and recorded.startswith("{") else recorded
    if not isinstance(found, dict):
        return recorded, None
    about, flag = found.get("metadata"), found.get("success")
    code = about.get("exit_code") if isinstance(about, dict) else None
    if type(code) is int and "output" in found:
        return found["output"], code != 0
    return (found.get("content", recorded), not flag) if isinstance(flag, bool) else (recorded, None)
