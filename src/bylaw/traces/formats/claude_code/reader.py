"""Reads Claude Code's sessions, and what `claude --output-format stream-json` prints.

Lines of subagents belong to the session too, as runs of their own below it, whether they stand in the session's file
(`isSidechain`) or in files beside it.
"""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Annotation, Event, Origin, ToolResult
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.conversation import cut_note
from bylaw.traces.formats.chat_message import Misshapen, results_in, role_of, said, text_field
from bylaw.traces.formats.claude_code.agents import Agents, Pending, Shared, Talk, blocks_of
from bylaw.traces.formats.claude_code.files import Companions, Outputs, Part, folder_of, part_of
from bylaw.traces.formats.claude_code.lines import KEPT, SPOKEN, Branches, Line, line_mark, line_of, lines_of
from bylaw.traces.formats.reader import remember
from bylaw.traces.formats.record import Opened, Record, a_type, assembly_notes
from bylaw.traces.formats.spans.attributes import moment
from bylaw.traces.records.lines import Block

_SYNTHETIC = "<synthetic>"
"""the model of what the program itself put in, such as the text of an error"""
_CONTENT = (str, list)


def claims(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    if value["type"] == "summary":
        return "leafUuid" in value
    named = any(isinstance(value.get(key), str) for key in ("uuid", "sessionId", "session_id"))
    return value["type"] in SPOKEN and named and isinstance(value.get("message"), dict)


class ClaudeCodeReader:
    def __init__(self, opened: Opened) -> None:
        self.header: dict[str, Any] = {}
        self.complete = True
        path = opened.source.path
        self._problems = opened.problems
        self._outputs = Outputs(None if path is None else folder_of(path))
        self._part = part_of(path, Branches(opened.raw_records()), self._outputs)
        self._companions = Companions(path, self._part, opened.problems)
        self._assembler = Assembler(opened.problems)
        self._agents = Agents()
        self._shared = Shared(self._assembler)
        self._talks: dict[str | Origin, Talk] = {}
        """that of a session itself by its name alone, for that is asked at nearly every line"""
        self._own: Talk | None = None
        """the one that the latest line of the session's own file belongs to"""
        self._session = "1"
        self._jumps = self._repeats = 0
        self._met: set[int] = set()
        self._called: dict[str, float] = {}

    def read(self, block: Block) -> list[Event]:
        for record in lines_of(block, self._problems):
            if self._companions.waiting:
                self._catch_up(record)
            self._line(record, self._part)
        return self._assembler.take()

    def finish(self) -> list[Event]:
        if self._own is not None:
            self._own.respond()
        for record, part in self._companions.due(None):
            self._line(record, part)
        for talk in self._talks.values():
            talk.respond()
            talk.conversation.end()
        return self._assembler.take_all()

    def notes(self) -> list[str]:
        notes = [*(cut_note() if self._shared.cut else ()), *assembly_notes(self._assembler)]
        if self._jumps:
            times = "once" if self._jumps == 1 else f"{self._jumps:,} times"
            notes.append(f"the user went back {times}: what ran before that counts too")
        if self._repeats:
            lines = "1 line stands" if self._repeats == 1 else f"{self._repeats:,} lines stand"
            notes.append(f"{lines} in the file once more, and count once")
        if not any(isinstance(key, str) for key in self._talks):
            notes += self._agents.notes()
        return [*notes, *self._companions.notes(), *self._outputs.notes()]

    def _catch_up(self, record: Record) -> None:
        """Subagents, up to a line of the session. They wait for the whole of a response: it may have started them."""
        if self._own is not None and self._own.pending is not None:
            return
        when = moment(line_of(record.value).timestamp)[0]
        if when is None:
            return
        for line, part in self._companions.due(when):
            self._line(line, part)

    def _line(self, record: Record, part: Part) -> None:
        line = record.value if type(record.value) is Line else line_of(record.value)
        kind = line.type
        if kind is None:
            value, whole = record.value, isinstance(record.value, (Line, dict))
            record.bad("wrong-type", "a line has no `type`" if whole else f"a line is an object, not {a_type(value)}")
            return
        session = line.session_id if line.sessionId is None else line.sessionId
        if session:
            self._session = session
        if part.branches.repeated and self._is_repeated(record.raw, part):
            return
        if kind in SPOKEN:
            self._spoken(record, line, kind, part)
        elif kind in KEPT:
            self._kept(record, line, kind, part)

    def _is_repeated(self, line: bytes, part: Part) -> bool:
        mark = line_mark(line)
        if mark not in part.branches.repeated:
            return False
        again = mark in self._met
        self._met.add(mark)
        self._repeats += again
        return again

    def _kept(self, record: Record, line: Line, kind: str, part: Part) -> None:
        value = record.value
        if kind == "summary" and not self._talks:  # of what another file holds
            self.header = {"summary": value.get("summary")}
            return
        talk = self._talk(line, part)
        label = text_field(value, "subtype") or kind
        if label == "compact_boundary":
            talk.respond()
            talk.begin_afresh()
        self._annotate(talk, record, line, label, value)

    def _annotate(self, talk: Talk, record: Record, line: Line, label: str, data: Any) -> None:
        self._assembler.add(Annotation(origin=talk.origin, at=line.at, source=record.locator(), label=label, data=data))

    # Messages

    def _spoken(self, record: Record, line: Line, kind: str, part: Part) -> None:
        message = line.message
        try:
            if type(message) is not dict or message.get("role") != kind or type(message.get("content")) not in _CONTENT:
                raise _misshapen(message, kind)
            talk = self._talk(line, part)
            if part is self._part:
                self._own = talk
            if kind == "assistant":
                self._assistant(record, line, message, talk, part)
            else:
                self._user(record, line, message, talk, part)
        except Misshapen as error:
            record.bad(error.code, error.message, ("message", *error.path), help=error.help)
            return
        points = part.branches.points
        if points and line.uuid in points:
            talk.reached.append(line.uuid)

    def _assistant(self, record: Record, line: Line, message: dict[str, Any], talk: Talk, part: Part) -> None:
        whole = {**message, "content": blocks_of(message)}
        told = said(whole)  # now, or nobody would know which line of the response is to blame
        when = moment(line.timestamp)[0]
        if message.get("model") == _SYNTHETIC:
            talk.respond()
            self._annotate(talk, record, line, "error", message["content"])
            return
        if told.uses:
            self._note_calls(whole, when, talk)
        id = message.get("id")
        id = id if id and type(id) is str else line.requestId
        if id is not None and talk.pending is not None and talk.pending.id == id:
            talk.pending.add(whole, when)
        else:
            self._follow(talk, record, line, part)
            talk.pending = Pending(record, id, whole, told, line.at, record.locator(), talk.heard_at, when)
        if id is None or part.branches.is_last(id):
            talk.respond()

    def _note_calls(self, message: dict[str, Any], when: float | None, talk: Talk) -> None:
        for block in message["content"]:
            if isinstance(block, dict) and block.get("type") == "tool_use":
                self._agents.called(block, talk.origin)
                if when is not None and isinstance(call_id := block.get("id"), str):
                    remember(self._called, call_id, when)

    def _user(self, record: Record, line: Line, message: dict[str, Any], talk: Talk, part: Part) -> None:
        at, source = line.at, record.locator()
        when = moment(at)[0]
        if when is not None:
            talk.heard_at = when
        results = [
            ToolResult(
                origin=talk.origin,
                at=at,
                source=source,
                call_id=result.call_id,
                content=part.outputs.whole(result.content, line.toolUseResult),
                is_error=result.is_error,
                latency_ms=self._latency(result.call_id, when),
            )
            for result in (results_in(message) if type(message["content"]) is list else ())
        ]
        if talk.pending is not None and talk.pending.may_wait:
            talk.pending.heard.append((message, results, source))
            return
        if results:
            talk.respond()
        else:
            self._follow(talk, record, line, part)
        talk.hear(message, results, source)

    def _latency(self, call_id: str | None, when: float | None) -> float | None:
        called = self._called.pop(call_id, None) if call_id is not None else None
        return None if called is None or when is None or when < called else round((when - called) * 1000, 3)

    def _follow(self, talk: Talk, record: Record, line: Line, part: Part) -> None:
        """A line begins something new: it follows the one before, or one that the user went back to."""
        if talk.pending is not None:
            talk.respond()
        if talk.reached:
            talk.pass_points()
        jumps = part.branches.jumps
        back_to = jumps.get(line.uuid or "") if jumps else None
        if back_to is not None:
            self._jumps += 1
            talk.go_back(back_to)
            self._annotate(talk, record, line, "went_back", {"parentUuid": back_to})

    def _talk(self, line: Line, part: Part) -> Talk:
        key: str | Origin = self._session
        if line.isSidechain or part.run is not None or line.parent_tool_use_id is not None:
            key = self._agents.origin_of(line, self._session, part, self._part.branches.callers)
        talk = self._talks.get(key)
        if talk is None:
            talk = self._talks[key] = Talk(Origin(key) if isinstance(key, str) else key, self._shared)
        return talk


def _misshapen(message: Any, kind: str) -> Misshapen:
    """What is wrong with a message that is no message of this kind."""
    if role_of(message) != kind:
        return Misshapen(f"a line of type `{kind}` has a message of another role", ("role",))
    return Misshapen("a message has no `content`")
