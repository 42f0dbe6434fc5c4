"""Reads Claude Code's sessions, and what `claude --output-format stream-json` prints.

Lines of subagents belong to the session too, as runs of their own below it. They stand in the session's file
(`isSidechain`) or in sidecar files.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.model.events import Event, Locator, Origin
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.content import AssistantContent, Result
from bylaw.traces.assembly.conversation import Conversation, Prefix, Settings, truncation_notes
from bylaw.traces.formats.chat import read_recorded_usage
from bylaw.traces.formats.chat_message import read_assistant, results_in, role_of
from bylaw.traces.formats.claude_code.files import SessionFile, StoredOutputs, SubagentFiles, describe_file, folder_of
from bylaw.traces.formats.claude_code.lines import ANNOTATIONS, SPOKEN, Branches, Line, line_hash, line_of, lines_of
from bylaw.traces.formats.reader import AssemblingReader, OpenedFile, add_answer, remember
from bylaw.traces.formats.record import MalformedRecord, Record, text_field, type_name
from bylaw.traces.formats.spans.attributes import latency_ms, moment
from bylaw.traces.records.lines import Block

# The conversations of a session's agents: the messages so far, the pending response, and who started whom


_MOST_INPUTS = 100
"""lines that wait for the rest of a response"""
_MOST_CALLS = 1000


class Input(Struct, eq=False):
    """A user's message, with the results in it and the latency of each."""

    message: Any
    results: list[tuple[Result, float | None]]
    at: str | None
    source: Locator
    when: float | None = None
    blocks: int = 0
    """the blocks of the pending response that came before it"""


class PendingResponse(Struct, eq=False):
    """A response that is written over several lines, one content block each, all with the id of the message.

    Tools may run while it is being written, so inputs may come before it is complete.
    """

    record: Record
    id: str | None
    message: dict[str, Any]
    answer: AssistantContent | None
    """the content of the message, as long as it is one line"""
    at: str | None
    source: Locator
    asked_at: float | None
    """the time of the latest input before it"""
    ended_at: float | None
    inputs: list[Input] = []

    def add(self, message: dict[str, Any], ended_at: float | None) -> None:
        """Add one more line. Each line has the usage of the whole response so far, so the last one is final."""
        self.message["content"] += message["content"]
        self.answer = None
        for line in reversed(self.inputs):
            if line.when is None or ended_at is None or line.when <= ended_at:
                break
            line.blocks = len(self.message["content"])  # this line was written late
        for key in ("usage", "stop_reason", "model"):
            if message.get(key) is not None:
                self.message[key] = message[key]
        self.ended_at = ended_at if ended_at is not None else self.ended_at

    @property
    def may_wait(self) -> bool:
        return len(self.inputs) < _MOST_INPUTS


class Shared(Struct, eq=False):
    """State that all agents of a session share."""

    assembler: Assembler
    counted: dict[str, None] = {}
    """the latest responses whose usage was emitted"""
    prefixes: dict[str, Prefix] = {}
    """the messages up to lines that another line follows later on"""
    is_truncated: bool = False


class AgentConversation:
    """One agent's part of a session."""

    __slots__ = ("_shared", "conversation", "input_at", "origin", "pending", "reached")

    def __init__(self, origin: Origin, shared: Shared) -> None:
        self._shared = shared
        self.origin = origin
        self.pending: PendingResponse | None = None
        self.input_at: float | None = None
        self.reached: list[str] = []
        """lines that another line follows later on, until everything that belongs to them is emitted"""
        self.begin_afresh()
        self.origin = self.conversation.origin

    def begin_afresh(self) -> None:
        """From here on the model no longer sees the earlier messages."""
        assembler = self._shared.assembler
        self.conversation = Conversation(assembler, assembler.buffer_for(self.origin), Settings(), bounded=True)

    def add_input(self, line: Input) -> None:
        self.conversation.add_input(line.message, line.source)
        for result, took in line.results:
            self.conversation.add_result(
                line.source, line.at, result.call_id, result.content, is_error=result.is_error, latency_ms=took
            )

    def respond(self) -> None:
        """Emit the pending response: no further line belongs to it."""
        pending, self.pending = self.pending, None
        if pending is None:
            return
        record, message, conversation, shared = pending.record, pending.message, self.conversation, self._shared
        is_counted = pending.id in shared.counted  # lines of the same response stand far before these
        add_answer(
            conversation,
            record,
            pending.answer or read_assistant(message),
            pending.source,
            at=pending.at,
            model=text_field(message, "model"),
            stop_reason=text_field(message, "stop_reason"),
            latency_ms=latency_ms(pending.asked_at, pending.ended_at),
            usage=None if is_counted else read_recorded_usage(record, message, ("message", "usage")),
        )
        if pending.id is not None:
            remember(shared.counted, pending.id, None)
        conversation.add_message({"role": "assistant", "content": message["content"]})
        shared.is_truncated = shared.is_truncated or conversation.is_truncated
        for number, line in enumerate(pending.inputs):
            self.add_input(line)
            if line.blocks < len(message["content"]):
                following = pending.inputs[number + 1 : number + 2]
                end = following[0].blocks if following else None
                blocks = message["content"][line.blocks : end]
                ids = (block.get("id") for block in blocks if isinstance(block, dict))
                conversation.place_calls(id for id in ids if isinstance(id, str))

    def save_prefixes(self) -> None:
        """Everything that belongs to the reached lines is emitted, so store the messages up to them."""
        for uuid in self.reached:
            self._shared.prefixes[uuid] = self.conversation.prefix()
        self.reached.clear()

    def go_back(self, uuid: str) -> None:
        """What follows continues from this line, not from the line before."""
        before = self._shared.prefixes.get(uuid)
        self.begin_afresh()
        for message in before.get() if before is not None else ():
            self.conversation.add_message(message)


class _AgentCall(Struct, eq=False):
    """A call that may start a subagent."""

    origin: Origin
    kind: str | None


class Agents:
    """Finds the subagent that a line belongs to, and who started it."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], Origin] = {}
        self._calls: dict[str, _AgentCall] = {}
        """by their ids, and by the prompts that they pass on"""

    def notes(self) -> list[str]:
        """Notes on a file without any line of the session itself."""
        if not self._runs:
            return []
        session = next(iter(self._runs))[0]
        return [f"only the part of a subagent is here: session `{session}` has a file of its own"]

    def add_call(self, block: dict[str, Any], origin: Origin) -> None:
        input = block.get("input")
        kind = input.get("subagent_type") if isinstance(input, dict) else None
        prompt = input.get("prompt") if isinstance(input, dict) else None
        for key in (prompt, block.get("id")):
            if isinstance(key, str) and isinstance(prompt, str):
                self._calls[key] = _AgentCall(origin, kind if isinstance(kind, str) else None)
        while len(self._calls) > _MOST_CALLS:
            del self._calls[next(iter(self._calls))]

    def origin_of(self, line: Line, session: str, file: SessionFile, callers: dict[str, str]) -> Origin:
        """The origin of a line that a subagent wrote."""
        caller = line.parent_tool_use_id
        root = "1" if line.uuid is None else file.branches.root_of(line.uuid)
        run = line.agentId or caller or file.run or root
        known = self._runs.get((session, run))
        if known is None:
            known = self._runs[session, run] = self._begin(line, session, run, file, caller or callers.get(run))
        return known

    def _begin(self, line: Line, session: str, run: str, file: SessionFile, caller: str | None) -> Origin:
        prompt = line.message.get("content") if isinstance(line.message, dict) else None
        keys = [file.caller if file.run == run else None, caller, prompt]
        call = next((self._calls[key] for key in keys if isinstance(key, str) and key in self._calls), None)
        return Origin(
            session,
            run=run,
            parent_run=(call.origin.run if call is not None else None) or session,
            agent=(file.agent if file.run == run else None) or (call.kind if call is not None else None),
            parent_agent=call.origin.agent if call is not None else None,
        )


_SYNTHETIC = "<synthetic>"
"""the model of messages that the program itself inserted: the text of an error, unless it says that it is none"""
_CONTENT = (str, list)


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
        id = message.get("id")
        id = id if id and type(id) is str else line.requestId
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
        if agent.pending is not None and agent.pending.may_wait:
            found.blocks = len(agent.pending.message["content"])
            agent.pending.inputs.append(found)
            return
        if results:
            agent.respond()
        else:
            self._continue(agent, record, line, file)
        agent.add_input(found)

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
