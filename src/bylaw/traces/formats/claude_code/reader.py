"""Reads Claude Code's sessions, and what `claude --output-format stream-json` prints.

Lines of subagents belong to the session too, as runs of their own below it. They stand in the session's file
(`isSidechain`) or in sidecar files.
"""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Event, Origin
from bylaw.traces.assembly.conversation import truncation_notes
from bylaw.traces.formats.chat_message import read_assistant, results_in, role_of
from bylaw.traces.formats.claude_code.conversations import AgentConversation, Agents, Input, PendingResponse, Shared
from bylaw.traces.formats.claude_code.files import SessionFile, StoredOutputs, SubagentFiles, describe_file, folder_of
from bylaw.traces.formats.claude_code.lines import (
    ANNOTATIONS,
    PROGRESS,
    SPOKEN,
    Branches,
    Line,
    line_hash,
    line_inside,
    line_of,
    lines_of,
    response_id,
)
from bylaw.traces.formats.reader import AssemblingReader, OpenedFile, remember
from bylaw.traces.formats.record import MalformedRecord, Record, text_field, type_name
from bylaw.traces.formats.spans.attributes import latency_ms, moment
from bylaw.traces.records.lines import Block

_SYNTHETIC = "<synthetic>"
"""the model of messages that the program itself inserted: the text of an error, unless it says that it is none"""
_CONTENT = (str, list)
NO_LINES = "a subagent ran for this call, but its lines are neither in this file nor in `<session>/subagents/`"
_NO_LINES_HELP = "copy that folder beside the file of the session; rules that a call may decide are inconclusive"


def claims(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    if value["type"] == "summary":
        return "leafUuid" in value
    has_id = any(isinstance(value.get(key), str) for key in ("uuid", "sessionId", "session_id"))
    return value["type"] in SPOKEN and has_id and isinstance(value.get("message"), dict)


class ClaudeCodeReader(AssemblingReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        path = opened.source.path
        self._outputs = StoredOutputs(None if path is None else folder_of(path))
        is_lazy = opened.eager and path is not None  # what is spooled can be read only once at a time
        self._file = describe_file(path, Branches(opened.raw_records(), is_lazy=is_lazy), self._outputs)
        self._subagents = SubagentFiles(path, self._file, opened.problems)
        self._agents = Agents()
        self._shared = Shared(self._assembler)
        self._conversations: dict[str | Origin, AgentConversation] = {}
        """that of a session itself by its name alone, because nearly every line needs it"""
        self._own: AgentConversation | None = None
        """the one that the latest line of the session's own file belongs to"""
        self._session = "1"
        self._jumps = self._repeats = 0
        self._seen: set[int] = set()
        self._repeated: set[int] = set()
        """hashes of the lines of subagents that were read inside lines of the session"""
        self._called_at: dict[str, float] = {}

    def read(self, block: Block) -> list[Event]:
        branches = self._file.branches
        for record in lines_of(block, self._problems):
            if branches.is_lazy:
                branches.follow(len(record.raw))
            if self._subagents.waiting:
                self._catch_up(record)
            self._read_line(record, self._file)
        return self._assembler.take()

    def finish(self) -> list[Event]:
        if self._own is not None:
            self._own.respond()
        for record, file in self._subagents.due(None):
            self._read_line(record, file)
        for conversation in self._conversations.values():
            conversation.respond()
            conversation.conversation.end()
        self.complete = not self._subagents.is_cut
        return super().finish()

    def notes(self) -> list[str]:
        notes = [*truncation_notes(self._shared.is_truncated), *super().notes()]
        if self._jumps:
            times = "once" if self._jumps == 1 else f"{self._jumps:,} times"
            notes.append(f"the user went back {times}: what ran before that counts too")
        if self._repeats:
            lines = "1 line stands" if self._repeats == 1 else f"{self._repeats:,} lines stand"
            notes.append(f"{lines} in the file once more, and count once")
        if not any(isinstance(key, str) for key in self._conversations):
            notes += self._agents.notes()
        return [*notes, *self._subagents.notes(), *self._outputs.notes()]

    def _catch_up(self, record: Record) -> None:
        """Read subagents' lines up to a line of the session, unless a response is pending: it may have started them."""
        if self._own is not None and self._own.pending is not None:
            return
        when = moment(line_of(record.value).timestamp)[0]
        if when is not None:
            for line, file in self._subagents.due(when):
                self._read_line(line, file)

    def _read_line(self, record: Record, file: SessionFile) -> None:
        line = record.value if type(record.value) is Line else line_of(record.value)
        kind = line.type
        if kind is None:
            value, whole = record.value, isinstance(record.value, (Line, dict))
            record.bad(
                "wrong-type", "a line has no `type`" if whole else f"a line is an object, not {type_name(value)}"
            )
            return
        session = line.session_id if line.sessionId is None else line.sessionId
        if session:
            self._session = session
        branches = file.branches
        if branches.repeated or branches.is_lazy:
            mark = line_hash(record.raw)
            if mark in self._seen and mark in branches.repeated:
                self._repeats += 1
                return
            if branches.is_lazy or mark in branches.repeated:
                self._seen.add(mark)
        if kind in SPOKEN:
            self._read_message(record, line, kind, file)
        elif kind in ANNOTATIONS:
            self._read_annotation(record, line, kind, file)
        elif kind == PROGRESS:
            self._read_progress(record, line, file)

    def _read_progress(self, record: Record, line: Line, file: SessionFile) -> None:
        """Read a line of a subagent inside a line of the session, unless the subagent has lines of its own."""
        inside = line_inside(line.data, line.parentToolUseID)
        if inside is None or inside[1] in self._repeated:
            return
        self._repeated.add(inside[1])
        inner, agent = inside[0], inside[0].agentId
        if agent is None or not (agent in self._subagents.runs or file.branches.agents.get(agent)):
            self._read_message(record, inner, str(inner.type), file)

    def _read_annotation(self, record: Record, line: Line, kind: str, file: SessionFile) -> None:
        value = record.value
        if kind == "summary" and not self._conversations:  # summarizes another file
            self.header = {"summary": value.get("summary")}
            return
        agent = self._conversation(line, file)
        label = text_field(value, "subtype") or kind
        if label == "compact_boundary":
            agent.respond()
            agent.begin_afresh()
        self._annotate(agent.origin, record.locator(), label, value, line.at)

    # Messages

    def _read_message(self, record: Record, line: Line, kind: str, file: SessionFile) -> None:
        message = line.message
        try:
            if type(message) is not dict or message.get("role") != kind or type(message.get("content")) not in _CONTENT:
                if role_of(message) != kind:
                    raise MalformedRecord(f"a line of type `{kind}` has a message of another role", ("role",))
                raise MalformedRecord("a message has no `content`")
            agent = self._conversation(line, file)
            if file is self._file:
                self._own = agent
            if kind == "assistant":
                self._read_assistant(record, line, message, agent, file)
            else:
                self._read_user(record, line, message, agent, file)
        except MalformedRecord as error:
            record.malformed(error, ("message",))
            return
        branches = file.branches
        if (branches.points or branches.is_lazy) and line.uuid and (branches.is_lazy or line.uuid in branches.points):
            agent.reached.append(line.uuid)

    def _read_assistant(
        self, record: Record, line: Line, message: dict[str, Any], agent: AgentConversation, file: SessionFile
    ) -> None:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        whole = {**message, "content": blocks}
        answer = read_assistant(whole)  # at once, so that a mistake is reported at its own line
        when = moment(line.timestamp)[0]
        if message.get("model") == _SYNTHETIC and line.isApiErrorMessage is not False:
            agent.respond()
            self._annotate(agent.origin, record.locator(), "error", content, line.at)
            return
        if answer.uses:
            for block in blocks:
                if isinstance(block, dict) and block.get("type") == "tool_use":
                    self._agents.add_call(block, agent.origin)
                    if when is not None and isinstance(call_id := block.get("id"), str):
                        remember(self._called_at, call_id, when)
        id = response_id(line)
        if id is not None and agent.pending is not None and agent.pending.id == id:
            agent.pending.add(whole, when)
        else:
            self._continue(agent, record, line, file)
            agent.pending = PendingResponse(record, id, whole, answer, line.at, record.locator(), agent.input_at, when)
        if id is None or file.branches.is_last(id):
            agent.respond()

    def _read_user(
        self, record: Record, line: Line, message: dict[str, Any], agent: AgentConversation, file: SessionFile
    ) -> None:
        when = moment(line.at)[0]
        if when is not None:
            agent.input_at = when
        results = []
        for result in results_in(message) if type(message["content"]) is list else ():
            called = self._called_at.pop(result.call_id, None) if result.call_id is not None else None
            results.append((file.outputs.complete(result, line.toolUseResult), latency_ms(called, when)))
        found = Input(message, results, line.at, record.locator(), when)
        if file.branches.worked:
            found.lacks_calls = any(self._lacks_subagent(result.call_id, file) for result, _ in results)
            if found.lacks_calls:
                record.warn("unread-content", NO_LINES, ("toolUseResult",), help=_NO_LINES_HELP)
        if agent.pending is not None and agent.pending.may_wait:
            found.blocks = len(agent.pending.message["content"])
            agent.pending.inputs.append(found)
            return
        if results:
            agent.respond()
        else:
            self._continue(agent, record, line, file)
        agent.add_input(found)

    def _lacks_subagent(self, call_id: str | None, file: SessionFile) -> bool:
        """Whether a call started a subagent that made calls or still runs, and none of its lines is found."""
        if call_id not in file.branches.worked or call_id in file.branches.agents:
            return False
        agent, branches = file.branches.worked[call_id], (file.branches, self._file.branches)
        if agent is None:
            return not file.branches.has_sidechain
        return agent not in self._subagents.runs and not any(agent in one.agents for one in branches)

    def _continue(self, agent: AgentConversation, record: Record, line: Line, file: SessionFile) -> None:
        """Start something new: after the line before, or after a line that the user went back to."""
        if agent.pending is not None:
            agent.respond()
        if agent.reached:
            agent.save_prefixes()
        jumps = file.branches.jumps
        back_to = jumps.get(line.uuid or "") if jumps else None
        if back_to is not None:
            self._jumps += 1
            agent.go_back(back_to)
            self._annotate(agent.origin, record.locator(), "went_back", {"parentUuid": back_to}, line.at)

    def _conversation(self, line: Line, file: SessionFile) -> AgentConversation:
        key: str | Origin = self._session
        if line.isSidechain or file.run is not None or line.parent_tool_use_id is not None:
            key = self._agents.origin_of(line, self._session, file, self._file.branches.callers)
        found = self._conversations.get(key)
        if found is None:
            origin = Origin(key) if isinstance(key, str) else key
            found = self._conversations[key] = AgentConversation(origin, self._shared)
        return found
