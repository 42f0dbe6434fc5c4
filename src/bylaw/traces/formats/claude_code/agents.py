"""Whose line it is: the session's own, or a subagent's, and who started that."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from bylaw.model.events import Origin
from bylaw.traces.formats.claude_code.companions import Part
from bylaw.traces.formats.claude_code.wire import Line

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
