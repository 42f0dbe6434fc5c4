"""The conversations of a session's agents: the messages so far, the pending response, and who started whom."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.model.events import Locator, Origin
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.content import EVERYTHING, AssistantContent, Result
from bylaw.traces.assembly.conversation import Conversation, Prefix, Settings
from bylaw.traces.formats.chat import read_recorded_usage
from bylaw.traces.formats.chat_message import read_assistant
from bylaw.traces.formats.claude_code.files import SessionFile
from bylaw.traces.formats.claude_code.lines import Line
from bylaw.traces.formats.reader import add_answer, remember
from bylaw.traces.formats.record import Record, text_field
from bylaw.traces.formats.spans.attributes import latency_ms

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
    lacks_calls: bool = False
    """whether it holds the result of a subagent whose calls are missing"""


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
        if line.lacks_calls:
            assembler = self._shared.assembler
            assembler.lack_call(assembler.buffer_for(self.origin), EVERYTHING[0])

    def respond(self) -> None:
        """Emit the pending response: no further line belongs to it."""
        pending, self.pending = self.pending, None
        if pending is None:
            return
        record, message, conversation, shared = pending.record, pending.message, self.conversation, self._shared
        is_counted = pending.id in shared.counted  # earlier lines of the same response were emitted already
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
        if before is not None:
            self.conversation.continue_from(before)


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
