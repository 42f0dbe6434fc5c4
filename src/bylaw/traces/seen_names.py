"""The tools and stop reasons that traces hold, so that a rule about a misspelt one can be found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from bylaw.engine.compile import Program
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Deferred, Response
from bylaw.rules.loader import source_line
from bylaw.rules.names import Existing, doubtful_names

_MOST_LISTS = 100
"""different lists of definitions that are decoded; an agent has few, and sends one of them with each request"""


class SeenNames:
    """Collects the names while traces are folded. Calls need no collecting: the program knows each name it routed."""

    def __init__(self, tools: Iterable[str] = ()) -> None:
        self._tools = set(tools)
        self._stop_reasons: set[str] = set()
        self._lists: dict[int, object] = {}
        """hash of a list as recorded, or the identity of one, which is kept so that no other takes its identity"""

    def add(self, response: Response) -> None:
        """Constant cost: definitions are decoded once for each different list of them."""
        if response.stop_reason is not None:
            self._stop_reasons.add(response.stop_reason)
        request = response.request
        if request is None or request.held_tools is None or len(self._lists) >= _MOST_LISTS:
            return
        held = request.held_tools
        recorded = held.held if isinstance(held, Deferred) and held.decode is not None else None
        key = hash(bytes(recorded)) if isinstance(recorded, bytes | memoryview | Raw) else id(held)
        if key not in self._lists:
            self._lists[key] = held
            self._tools.update(_defined(request.tools))

    def doubts(self, program: Program, known: Sequence[Diagnostic] = ()) -> list[Diagnostic]:
        """Warnings about the rules' names that are not in the traces, and near one that is; none that is `known`."""
        existing = Existing({*self._tools, *program.calls}, self._stop_reasons)
        told = {(warning.code, warning.span) for warning in known}
        found = [one for one in doubtful_names(program.rules, existing) if (one.code, one.span) not in told]
        return [replace(one, excerpt=source_line(one.span)) if one.span else one for one in found]


def _defined(tools: list[Any] | None) -> set[str]:
    """The names of tool definitions, in the usual forms."""
    found: set[str] = set()
    for tool in tools or ():
        if isinstance(tool, dict):
            function = tool.get("function")
            name = function.get("name") if isinstance(function, dict) else tool.get("name")
            if isinstance(name, str):
                found.add(name)
    return found
