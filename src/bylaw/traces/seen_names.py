"""The tools, arguments and stop reasons that traces hold, so that a rule about a misspelt one can be found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from bylaw.engine.compile import Program
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Deferred, Response
from bylaw.model.rule import Rule
from bylaw.rules.loader import source_line
from bylaw.rules.names import Existing, doubtful_names
from bylaw.traces.seen_arguments import SeenArguments, asked_of

_MOST_LISTS = 100
"""different lists of definitions that are decoded; an agent has few, and sends one of them with each request"""


class SeenNames:
    """Collects the names while traces are folded. Calls need no collecting: the program knows each name it routed."""

    def __init__(self, tools: Iterable[str] = (), rules: Iterable[Rule] | None = None) -> None:
        """`rules`: those that will be asked about; arguments are collected only if one of them looks at any."""
        self._tools = set(tools)
        self._arguments = SeenArguments() if rules is None or any(map(asked_of, rules)) else None
        self._stop_reasons: set[str] = set()
        self._lists: dict[int, object] = {}
        """hash of a list as recorded, or the identity of one, which is kept so that no other takes its identity"""

    def add(self, response: Response) -> None:
        """Constant cost: definitions are decoded once for each different list of them."""
        if response.stop_reason is not None:
            self._stop_reasons.add(response.stop_reason)
        if self._arguments is not None and response.tool_calls:
            self._arguments.add(response.tool_calls)
        request = response.request
        if request is None or request.held_tools is None or len(self._lists) >= _MOST_LISTS:
            return
        held = request.held_tools
        recorded = held.held if isinstance(held, Deferred) and held.decode is not None else None
        key = hash(bytes(recorded)) if isinstance(recorded, bytes | memoryview | Raw) else id(held)
        if key not in self._lists:
            self._lists[key] = held
            for name, schema in _defined(request.tools):
                self._tools.add(name)
                if self._arguments is not None:
                    self._arguments.define(name, schema)

    def doubts(self, program: Program, known: Sequence[Diagnostic] = ()) -> list[Diagnostic]:
        """Warnings about the rules' names that are not in the traces, and near one that is; none that is `known`."""
        existing = Existing({*self._tools, *program.calls}, self._stop_reasons)
        told = {(warning.code, warning.span) for warning in known}
        doubts = doubtful_names(program.rules, existing)
        doubts += self._arguments.doubts(program.rules) if self._arguments is not None else ()
        found = [one for one in doubts if (one.code, one.span) not in told]
        return [replace(one, excerpt=source_line(one.span)) if one.span else one for one in found]


def _defined(tools: list[Any] | None) -> Iterator[tuple[str, Any]]:
    """The names of tool definitions, in the usual forms, each with the schema of its arguments."""
    for tool in tools or ():
        if isinstance(tool, dict):
            function = tool.get("function")
            definition = function if isinstance(function, dict) else tool
            if isinstance(name := definition.get("name"), str):
                yield name, next((definition[key] for key in _SCHEMA_KEYS if key in definition), None)


_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema", "parameters_json_schema")
