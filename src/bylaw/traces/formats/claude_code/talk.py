"""One agent's part of a session: what was said so far, and the response that is being put together."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.model.events import Origin, ToolResult
from bylaw.model.source import Locator
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.assembly.prefix import Prefix
from bylaw.traces.formats.claude_code.response import Pending, answer_of
from bylaw.traces.formats.recent import remember

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
