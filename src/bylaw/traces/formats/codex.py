"""Codex's rollouts: each line holds an item of OpenAI's Responses API and a time, or an event of the program.

Two logs are interleaved. `response_item` holds the input and the output of the model. `event_msg` repeats most of that
for the screen; it has token counts, errors and marks, says which calls failed, and has the calls that a script made
(see `codex_scripts`). A response ends at its token count or at the next input. Counts are repeated and cumulative: an
equal sum does not mean another response.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct

from bylaw.model.events import Event, Origin, SessionStart, Usage
from bylaw.traces.assembly.content import AssistantContent, read_arguments
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.assembly.usage import count_of, usage_from_counts
from bylaw.traces.formats.codex_events import ended_call
from bylaw.traces.formats.codex_scripts import EventLogReader, recorded_at
from bylaw.traces.formats.reader import LoggedRecords, OpenedFile, add_answer, remember
from bylaw.traces.formats.record import MalformedRecord, Record, object_field, records_of, text_field, type_name
from bylaw.traces.formats.responses_items import (
    MARKS,
    RESULTS,
    add_output,
    call_id_of,
    is_output,
    kind_of,
    message_of,
)
from bylaw.traces.formats.spans.attributes import latency_ms, moment
from bylaw.traces.records.lines import Block

_LINES = frozenset(("session_meta", "turn_context", "response_item", "event_msg", "compacted"))
_ANNOTATIONS = frozenset(("error", "turn_aborted", "context_compacted", "thread_rolled_back"))
"""events that become annotations, besides requests for an approval"""
_COUNTS = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens", "total_tokens")


def claims(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("payload"), dict):
        return False
    return text_field(value, "type") in _LINES


class _PendingResponse(Struct, eq=False):
    """The response that is being collected, and what follows it before the next one."""

    record: Record
    at: str | None
    asked_at: float | None
    model: str | None
    answer: AssistantContent
    ended_at: float | None = None
    usage: Usage | None = None
    is_over: bool = False
    later: list[Callable[[], None]] = []
    """adds inputs, and calls and results of the event log"""


class CodexReader(EventLogReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._current: Conversation | None = None
        self._origin = Origin("1")
        self._model: str | None = None
        self._pending: _PendingResponse | None = None
        self._input_at: float | None = None
        self._total = 0
        self._answered: dict[str, None] = {}
        """calls with a result: the same output may be recorded twice"""
        self._is_running = False
        self._logged = LoggedRecords()

    def read(self, block: Block) -> list[Event]:
        for record in records_of(block, self._problems):
            value = record.value
            payload: Any = value.get("payload") if isinstance(value, dict) else None
            kind = value.get("type") if isinstance(payload, dict) else None
            if kind == "response_item":
                if not self._is_repeated(record):
                    self._read_item(record, payload)
            elif kind == "event_msg":
                self._read_event(record, payload)
            elif kind == "session_meta":
                self._begin(record, payload)
            elif kind == "turn_context":
                self._model = text_field(payload, "model") or self._model
            elif kind == "compacted":
                self._compact(record, payload)
            elif not isinstance(kind, str):
                what = "has no `type` and `payload`"
                what = what if isinstance(value, dict) else f"is an object, not {type_name(value)}"
                record.bad("wrong-type", f"a line {what}")
        return self._assembler.take()

    def _is_repeated(self, record: Record) -> bool:
        """Whether the log has this line twice."""
        return recorded_at(record) is not None and self._logged.repeats(hash(record.raw), None) is not None

    def finish(self) -> list[Event]:
        self._respond()
        self._settle()
        self._judge_scripts(is_over=True)
        self.complete = not self._is_running
        if self._current is not None:
            self._current.end()
        return super().finish()

    def notes(self) -> list[str]:
        alone = f"only the part of a subagent is here: session `{self._origin.session}` has a file of its own"
        return [*super().notes(), *([alone] if self._origin.run is not None else ())]

    # The session

    def _begin(self, record: Record, payload: dict[str, Any]) -> None:
        if self.header or self._current is not None:
            return  # describes the session that this one was forked from
        self.header = {key: payload[key] for key in ("id", "cli_version", "cwd", "source") if key in payload}
        spawn = object_field(object_field(payload.get("source"), "subagent"), "thread_spawn")
        own = text_field(payload, "id", "session_id") or "1"
        parent = text_field(spawn, "parent_thread_id") or text_field(payload, "parent_thread_id")
        role = text_field(payload, "agent_role", "agent_nickname")
        self._origin = Origin(own) if parent is None else Origin(parent, run=own, parent_run=parent, agent=role)
        start = SessionStart(origin=self._origin, at=recorded_at(record), source=record.locator(), metadata=self.header)
        self._assembler.add(start)
        instructions = payload.get("base_instructions", payload.get("instructions"))
        instructions = instructions.get("text") if isinstance(instructions, dict) else instructions
        if isinstance(instructions, str) and instructions:
            self._conversation().add_message({"role": "system", "content": instructions})

    def _conversation(self) -> Conversation:
        if self._current is None:
            buffer = self._assembler.buffer_for(self._origin)
            self._current = Conversation(self._assembler, buffer, Settings(), bounded=True)
        return self._current

    def _compact(self, record: Record, payload: dict[str, Any]) -> None:
        """From here on the model sees only what this line holds."""
        self._respond()
        self._current = None
        history = payload.get("replacement_history")
        for item in history if isinstance(history, list) else ():
            if isinstance(item, dict):
                self._conversation().add_message(message_of(item))
        if not isinstance(history, list) and isinstance(payload.get("message"), str):
            self._conversation().add_message({"role": "user", "content": payload["message"]})
        self._add_mark(record, "compacted", payload)

    def _add_mark(self, record: Record, label: str, data: Any) -> None:
        if self._pending is not None and self._pending.is_over:
            self._respond()
        self._annotate(self._conversation().origin, record.locator(), label, data, recorded_at(record))

    # Items

    def _read_item(self, record: Record, item: dict[str, Any]) -> None:
        try:
            kind = kind_of(item)
            if is_output(item, kind):
                self._read_output(record, item, kind)
            elif kind in MARKS:
                self._add_mark(record, kind, item)
            else:
                if kind in RESULTS:
                    self._read_script_output(item)
                if self._pending is not None:
                    self._pending.is_over = True
                self._after(partial(self._read_input, record, item))
        except MalformedRecord as error:
            record.malformed(error, ("payload",))

    def _read_output(self, record: Record, item: dict[str, Any], kind: str) -> None:
        if self._pending is not None and self._pending.is_over:
            self._respond()
        pending, at = self._pending, recorded_at(record)
        if pending is None:
            pending = _PendingResponse(record, at, self._input_at, self._model, AssistantContent())
            self._pending = pending
        pending.ended_at = when = moment(at)[0]
        uses = pending.answer.uses
        known = len(uses)
        add_output(item, kind, pending.answer)
        if len(uses) > known:
            self._note_call(record, kind, uses[-1], pending.answer.arguments[-1], when)
            self._answered.pop(uses[-1].get("id") or "", None)

    def _respond(self) -> None:
        """Add the pending response, and the inputs that follow it."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        conversation = self._conversation()
        add_answer(
            conversation,
            pending.record,
            pending.answer,
            pending.record.locator(),
            at=pending.at,
            model=pending.model,
            latency_ms=latency_ms(pending.asked_at, pending.ended_at),
            usage=pending.usage,
        )
        conversation.add_message({"role": "assistant", "content": pending.answer.blocks})
        self._is_truncated = self._is_truncated or conversation.is_truncated
        self._forget_results()
        for add in pending.later:
            add()
        self._judge_scripts()

    def _after(self, add: Callable[[], None]) -> None:
        """Add something after the response that is being collected."""
        if self._pending is None:
            add()
        else:
            self._pending.later.append(add)

    def _read_input(self, record: Record, item: dict[str, Any]) -> None:
        conversation, at, source = self._conversation(), recorded_at(record), record.locator()
        when = moment(at)[0]
        self._input_at = when if when is not None else self._input_at
        if kind_of(item) in RESULTS:
            call_id = call_id_of(item)
            if call_id is not None and call_id in self._answered:
                return
            if call_id is not None and not self._is_notice(item):
                remember(self._answered, call_id, None)
            self._add_output_of(record, call_id, item, *_output(item.get("output")))
        conversation.add_input(message_of(item), source)

    # The program's own log

    def _read_event(self, record: Record, payload: dict[str, Any]) -> None:
        kind = text_field(payload, "type") or ""
        if kind == "token_count":
            self._count(object_field(payload, "info"))
        elif kind in ("task_started", "task_complete", "turn_aborted"):
            self._is_running = kind == "task_started"
            self._settle()
        elif (ended := ended_call(payload)) is not None and not self._is_repeated(record):
            self._read_end(record, ended)
        if kind in _ANNOTATIONS or kind.endswith("_approval_request"):
            self._add_mark(record, kind, payload)

    def _count(self, info: dict[str, Any]) -> None:
        total, last = (
            count_of(object_field(info, "total_token_usage").get("total_tokens")),
            info.get("last_token_usage"),
        )
        if total is not None and total == self._total:
            return
        self._total = self._total if total is None else total
        if self._pending is None or not isinstance(last, dict):
            return
        self._pending.is_over = True
        self._pending.usage = usage_from_counts(
            {key: last[key] for key in _COUNTS if key in last},
            input=last.get("input_tokens"),
            output=last.get("output_tokens"),
            read=last.get("cached_input_tokens"),
            reasoning=last.get("reasoning_output_tokens"),
        )


def _output(recorded: Any) -> tuple[Any, bool | None]:
    """The result of a call, and whether it failed, if an exit code or a flag says so."""
    found = read_arguments(recorded)[0] if isinstance(recorded, str) and recorded.startswith("{") else recorded
    if not isinstance(found, dict):
        return recorded, None
    code, flag = object_field(found, "metadata").get("exit_code"), found.get("success")
    if type(code) is int and "output" in found:
        return found["output"], code != 0
    return (found.get("content", recorded), not flag) if isinstance(flag, bool) else (recorded, None)
