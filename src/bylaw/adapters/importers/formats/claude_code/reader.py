"""Reads Claude Code's sessions, and what `claude --output-format stream-json` prints.

Lines of subagents (`isSidechain`) belong to the session too, as runs of their own below it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.adapters.importers.assembly.assembler import Assembler
from bylaw.adapters.importers.assembly.blocks import read_content, unread_kinds
from bylaw.adapters.importers.assembly.calls import calls_in
from bylaw.adapters.importers.assembly.conversation import Answer, Conversation, Settings
from bylaw.adapters.importers.assembly.lane import SHARED_ID
from bylaw.adapters.importers.assembly.prefix import cut_note
from bylaw.adapters.importers.assembly.usage import read_usage
from bylaw.adapters.importers.formats.chat.message import Misshapen, results_in, role_of, said, text_field
from bylaw.adapters.importers.formats.claude_code.branches import Branches
from bylaw.adapters.importers.formats.claude_code.response import Pending, blocks_of
from bylaw.adapters.importers.formats.reader import Record, a_type, assembly_notes, records_of
from bylaw.adapters.importers.formats.spans.times import moment
from bylaw.adapters.importers.records.lines import Block
from bylaw.adapters.importers.records.problems import Problems
from bylaw.model.events import Annotation, Event, Origin, ToolResult

_SPOKEN = ("user", "assistant")
_KEPT = ("summary", "system", "result")
"""lines of these kinds become annotations; any other kind is the program's own and says nothing of the agent"""
_SYNTHETIC = "<synthetic>"
"""the model of what the program itself put in, such as the text of an error"""
_MOST_PROMPTS = 1000


def claims(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    if value["type"] == "summary":
        return "leafUuid" in value
    named = any(isinstance(value.get(key), str) for key in ("uuid", "sessionId", "session_id"))
    return value["type"] in _SPOKEN and named and isinstance(value.get("message"), dict)


class _Talk(Struct, eq=False):
    """One agent's part of a session."""

    conversation: Conversation
    pending: Pending | None = None
    heard_at: float | None = None


class ClaudeCodeReader:
    def __init__(self, problems: Problems, branches: Branches) -> None:
        self.header: dict[str, Any] = {}
        self.complete = True
        self._problems = problems
        self._branches = branches
        self._assembler = Assembler(problems)
        self._talks: dict[Origin, _Talk] = {}
        self._runs: dict[tuple[str, str], Origin] = {}
        self._session = "1"
        self._left = 0
        self._cut = False
        self._agents: dict[str, str] = {}
        """the kind of subagent that was asked for, by the prompt or the id of the call that asked"""
        self._called: dict[str, float] = {}

    def read(self, block: Block) -> list[Event]:
        for record in records_of(block, self._problems):
            self._line(record)
        return self._assembler.take()

    def finish(self) -> list[Event]:
        for talk in self._talks.values():
            self._respond(talk)
            talk.conversation.end()
        return self._assembler.take_all()

    def notes(self) -> list[str]:
        notes = [*(cut_note() if self._cut else ()), *assembly_notes(self._assembler)]
        if self._left:
            lines = "1 line stands" if self._left == 1 else f"{self._left:,} lines stand"
            notes.append(f"{lines} on a branch that the user went back from: left out")
        return notes

    def _line(self, record: Record) -> None:
        value = record.value
        kind = value.get("type") if isinstance(value, dict) else None
        if not isinstance(kind, str):
            message = "a line has no `type`" if isinstance(value, dict) else f"a line is an object, not {a_type(value)}"
            record.bad("wrong-type", message)
            return
        self._session = text_field(value, "sessionId", "session_id") or self._session
        if kind in _SPOKEN:
            self._spoken(record, value, kind)
        elif kind in _KEPT:
            self._kept(record, value, kind)

    def _kept(self, record: Record, value: dict[str, Any], kind: str) -> None:
        if kind == "summary" and not self._talks:  # of what another file holds
            self.header = {"summary": value.get("summary")}
            return
        talk = self._talk(value)
        label = text_field(value, "subtype") or kind
        if label == "compact_boundary":  # what was said before is no longer before the model
            self._respond(talk)
            talk.conversation = Conversation(self._assembler, self._lane(talk), Settings(), bounded=True)
        origin, at = talk.conversation.origin, text_field(value, "timestamp")
        self._assembler.add(Annotation(origin=origin, at=at, source=record.locator(), label=label, data=value))

    # Messages

    def _spoken(self, record: Record, value: dict[str, Any], kind: str) -> None:
        if self._branches.is_left(text_field(value, "uuid")):
            self._left += 1
            return
        message = value.get("message")
        try:
            if role_of(message) != kind:
                raise Misshapen(f"a line of type `{kind}` has a message of another role", ("role",))
            if not isinstance(message, dict) or not isinstance(message.get("content"), (str, list)):
                raise Misshapen("a message has no `content`")
            if kind == "assistant":
                self._assistant(record, value, message)
            else:
                self._user(record, value, message)
        except Misshapen as error:
            record.bad(error.code, error.message, ("message", *error.path), help=error.help)

    def _assistant(self, record: Record, value: dict[str, Any], message: dict[str, Any]) -> None:
        said(message)  # or the response could not be read as a whole, and nobody would know which line is to blame
        talk = self._talk(value)
        when, _ = moment(value.get("timestamp"))
        if message.get("model") == _SYNTHETIC:
            self._respond(talk)
            at, origin = text_field(value, "timestamp"), talk.conversation.origin
            self._assembler.add(
                Annotation(origin=origin, at=at, source=record.locator(), label="error", data=message.get("content"))
            )
            return
        self._note_calls(message, when)
        id = text_field(message, "id") or text_field(value, "requestId")
        if talk.pending is not None and talk.pending.goes_on(id):
            talk.pending.add(message, when)
            return
        self._respond(talk)
        talk.pending = Pending(
            record,
            id,
            {**message, "content": blocks_of(message)},
            text_field(value, "timestamp"),
            record.locator(),
            talk.heard_at,
            when,
        )

    def _note_calls(self, message: dict[str, Any], when: float | None) -> None:
        for block in blocks_of(message):
            if not isinstance(block, dict) or block.get("type") != "tool_use":
                continue
            given, call_id = block.get("input"), block.get("id")
            if when is not None and isinstance(call_id, str):
                self._called[call_id] = when
                if len(self._called) > _MOST_PROMPTS:
                    del self._called[next(iter(self._called))]
            wanted = given.get("subagent_type") if isinstance(given, dict) else None
            if isinstance(given, dict) and isinstance(wanted, str):
                for key in (given.get("prompt"), call_id):
                    if isinstance(key, str):
                        self._agents[key] = wanted
                while len(self._agents) > _MOST_PROMPTS:
                    del self._agents[next(iter(self._agents))]

    def _user(self, record: Record, value: dict[str, Any], message: dict[str, Any]) -> None:
        talk = self._talk(value, message)
        at, source = text_field(value, "timestamp"), record.locator()
        when, _ = moment(at)
        results = [
            ToolResult(
                origin=talk.conversation.origin,
                at=at,
                source=source,
                call_id=result.call_id,
                content=result.content,
                is_error=result.is_error,
                latency_ms=self._latency(result.call_id, when),
            )
            for result in results_in(message)
        ]
        talk.heard_at = when if when is not None else talk.heard_at
        if results and talk.pending is not None:
            talk.pending.heard.append((message, results, source))
            return
        self._respond(talk)
        self._hear(talk, message, results, source)

    def _latency(self, call_id: str | None, when: float | None) -> float | None:
        called = self._called.pop(call_id, None) if call_id is not None else None
        return None if called is None or when is None or when < called else round((when - called) * 1000, 3)

    def _hear(self, talk: _Talk, message: Any, results: list[ToolResult], source: Any) -> None:
        talk.conversation.heard(message, source)
        for result in results:
            talk.conversation.result(result)

    def _respond(self, talk: _Talk) -> None:
        """No line of the pending response follows."""
        pending, talk.pending = talk.pending, None
        if pending is None:
            return
        conversation, record, message = talk.conversation, pending.record, pending.message
        told = said(message)
        calls, shared = calls_in(
            told.uses, conversation.origin, conversation.turn, pending.at, pending.source, told.arguments
        )
        for call_id in shared:
            record.warn("duplicate-call-id", SHARED_ID.format(call_id))
        content, text, _ = read_content(told.blocks)
        for kind in unread_kinds(content):
            record.warn("unread-content", f"a block of type `{kind}` is kept, and no rule looks into it")
        usage, unread = read_usage(message.get("usage"), text_field(message, "model"))
        for problem in unread:
            record.warn("bad-usage", problem, ("message", "usage"))
        conversation.answered(
            Answer(
                content=content,
                text=text,
                calls=calls,
                at=pending.at,
                source=pending.source,
                model=text_field(message, "model"),
                stop_reason=text_field(message, "stop_reason"),
                latency_ms=pending.latency_ms,
                usage=usage,
            )
        )
        conversation.said({"role": "assistant", "content": message["content"]})
        self._cut = self._cut or conversation.cut
        for heard, results, source in pending.heard:
            self._hear(talk, heard, results, source)

    # Whose line it is

    def _talk(self, value: dict[str, Any], message: dict[str, Any] | None = None) -> _Talk:
        origin = self._origin(value, message)
        talk = self._talks.get(origin)
        if talk is None:
            conversation = Conversation(self._assembler, self._assembler.lane_for(origin), Settings(), bounded=True)
            talk = self._talks[origin] = _Talk(conversation)
        return talk

    def _lane(self, talk: _Talk) -> Any:
        return self._assembler.lane_for(talk.conversation.origin)

    def _origin(self, value: dict[str, Any], message: dict[str, Any] | None) -> Origin:
        caller = text_field(value, "parent_tool_use_id")
        if not value.get("isSidechain") and caller is None:
            return Origin(self._session)
        uuid = text_field(value, "uuid")
        run = text_field(value, "agentId") or caller or (self._branches.root_of(uuid) if uuid is not None else "1")
        known = self._runs.get((self._session, run))
        if known is not None:
            return known
        prompt = (message or {}).get("content")
        agent = self._agents.get(prompt) if isinstance(prompt, str) else None
        agent = agent or (self._agents.get(caller) if caller is not None else None)
        origin = Origin(self._session, run=run, parent_run=self._session, agent=agent)
        self._runs[self._session, run] = origin
        return origin
