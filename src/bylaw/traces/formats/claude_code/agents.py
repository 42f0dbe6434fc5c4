"""A response that Claude Code wrote over several lines, one content block each, all with the id of the message.

One agent's part of a session: what was said so far, and the response that is being put together.

Whose line it is: the session's own, or a subagent's, and who started that.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.model.events import Origin, ToolCall, ToolResult
from bylaw.model.source import Locator
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.content import calls_in, read_content, unread_kinds
from bylaw.traces.assembly.conversation import Answer, Conversation, Prefix, Settings
from bylaw.traces.assembly.session_buffer import SHARED_ID
from bylaw.traces.assembly.usage import read_usage
from bylaw.traces.formats.chat_message import Said, said, text_field
from bylaw.traces.formats.claude_code.files import Part
from bylaw.traces.formats.claude_code.lines import Line
from bylaw.traces.formats.reader import remember
from bylaw.traces.formats.record import Record

_MOST_HEARD = 100
"""lines that wait for the rest of a response"""


class Pending(Struct, eq=False):
    """The response so far, and what was heard before it was whole: tools may run while it is being written."""

    record: Record
    id: str | None
    message: dict[str, Any]
    told: Said | None
    """what the message says, as long as it is one line"""
    at: str | None
    source: Locator
    asked: float | None
    """when the latest thing before it was heard"""
    ended: float | None
    heard: list[tuple[Any, list[ToolResult], Locator]] = []

    def add(self, message: dict[str, Any], ended: float | None) -> None:
        """One more line. Usage is that of the whole response on each of its lines, the last one being final."""
        self.message["content"] += message["content"]
        self.told = None
        for key in ("usage", "stop_reason", "model"):
            if message.get(key) is not None:
                self.message[key] = message[key]
        self.ended = ended if ended is not None else self.ended

    @property
    def may_wait(self) -> bool:
        return len(self.heard) < _MOST_HEARD

    @property
    def latency_ms(self) -> float | None:
        if self.asked is None or self.ended is None or self.ended < self.asked:
            return None
        return round((self.ended - self.asked) * 1000, 3)


def answer_of(pending: Pending, conversation: Conversation, *, counted: bool) -> Answer:
    """The whole response. `counted`: its usage was told already, with lines of it that stand far before these."""
    record, message, at, source = pending.record, pending.message, pending.at, pending.source
    told, model = pending.told or said(message), text_field(message, "model")
    calls: tuple[ToolCall, ...] = ()
    if told.uses:
        calls, shared = calls_in(told.uses, conversation.origin, conversation.turn, at, source, told.arguments)
        for call_id in shared:
            record.warn("duplicate-call-id", SHARED_ID.format(call_id))
    content, text, _ = read_content(told.blocks)
    for kind in unread_kinds(content):
        record.warn("unread-content", f"a block of type `{kind}` is kept, and no rule looks into it")
    usage, unread = read_usage(None if counted else message.get("usage"), model)
    for problem in unread:
        record.warn("bad-usage", problem, ("message", "usage"))
    return Answer(
        content=content,
        text=text,
        calls=calls,
        at=at,
        source=source,
        model=model,
        stop_reason=text_field(message, "stop_reason"),
        latency_ms=pending.latency_ms,
        usage=usage,
    )


def blocks_of(message: dict[str, Any]) -> list[Any]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content) if isinstance(content, list) else []


_SETTINGS = Settings()


class Shared(Struct, eq=False):
    """What all agents of a session have in common."""

    assembler: Assembler
    counted: dict[str, None] = {}
    """the latest responses whose usage is told"""
    points: dict[str, Prefix] = {}
    """what was said up to lines that another one follows later on"""
    cut: bool = False


class Talk:
    __slots__ = ("_shared", "conversation", "heard_at", "origin", "pending", "reached")

    def __init__(self, origin: Origin, shared: Shared) -> None:
        self._shared = shared
        self.origin = origin
        self.pending: Pending | None = None
        self.heard_at: float | None = None
        self.reached: list[str] = []
        """lines that another one follows later on, until all that belongs to them is told"""
        self.begin_afresh()
        self.origin = self.conversation.origin

    def begin_afresh(self) -> None:
        """What was said before is no longer before the model."""
        assembler = self._shared.assembler
        self.conversation = Conversation(assembler, assembler.lane_for(self.origin), _SETTINGS, bounded=True)

    def hear(self, message: Any, results: list[ToolResult], source: Locator) -> None:
        self.conversation.heard(message, source)
        for result in results:
            self.conversation.result(result)

    def respond(self) -> None:
        """No line of the pending response follows."""
        pending, self.pending = self.pending, None
        if pending is None:
            return
        conversation, shared = self.conversation, self._shared
        conversation.answered(answer_of(pending, conversation, counted=pending.id in shared.counted))
        if pending.id is not None:
            remember(shared.counted, pending.id, None)
        conversation.said({"role": "assistant", "content": pending.message["content"]})
        shared.cut = shared.cut or conversation.cut
        for heard, results, source in pending.heard:
            self.hear(heard, results, source)

    def pass_points(self) -> None:
        """All that belongs to the lines that were reached is told."""
        for uuid in self.reached:
            self._shared.points[uuid] = self.conversation.so_far()
        self.reached.clear()

    def go_back(self, uuid: str) -> None:
        """What follows was not said after the line before, but after this one."""
        before = self._shared.points.get(uuid)
        self.begin_afresh()
        for message in before.get() if before is not None else ():
            self.conversation.said(message)


_MOST_CALLS = 1000


class _Call(Struct, eq=False):
    """A call that may start a subagent."""

    origin: Origin
    kind: str | None


class Agents:
    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], Origin] = {}
        self._calls: dict[str, _Call] = {}
        """by their ids, and by the prompts that they pass on"""

    def notes(self) -> list[str]:
        """Where no line of a session itself was met."""
        if not self._runs:
            return []
        session = next(iter(self._runs))[0]
        return [f"only the part of a subagent is here: session `{session}` has a file of its own"]

    def called(self, block: dict[str, Any], origin: Origin) -> None:
        """A call was issued."""
        given = block.get("input")
        kind = given.get("subagent_type") if isinstance(given, dict) else None
        prompt = given.get("prompt") if isinstance(given, dict) else None
        for key in (prompt, block.get("id")):
            if isinstance(key, str) and isinstance(prompt, str):
                self._calls[key] = _Call(origin, kind if isinstance(kind, str) else None)
        while len(self._calls) > _MOST_CALLS:
            del self._calls[next(iter(self._calls))]

    def origin_of(self, line: Line, session: str, part: Part, callers: dict[str, str]) -> Origin:
        """Whose line it is that is not the session's own."""
        caller = line.parent_tool_use_id
        run = line.agentId or caller or part.run or _root(part, line.uuid)
        known = self._runs.get((session, run))
        if known is None:
            known = self._runs[session, run] = self._begin(line, session, run, part, caller or callers.get(run))
        return known

    def _begin(self, line: Line, session: str, run: str, part: Part, caller: str | None) -> Origin:
        prompt = line.message.get("content") if isinstance(line.message, dict) else None
        keys = [part.caller if part.run == run else None, caller, prompt]
        call = next((self._calls[key] for key in keys if isinstance(key, str) and key in self._calls), None)
        return Origin(
            session,
            run=run,
            parent_run=(call.origin.run if call is not None else None) or session,
            agent=(part.agent if part.run == run else None) or (call.kind if call is not None else None),
            parent_agent=call.origin.agent if call is not None else None,
        )


def _root(part: Part, uuid: str | None) -> str:
    return part.branches.root_of(uuid) if uuid is not None else "1"
