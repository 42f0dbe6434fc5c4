"""The tools, arguments and stop reasons that traces hold, so that a rule about a misspelt one can be found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from msgspec import Raw, Struct
from msgspec.structs import replace

from bylaw.engine.compile import Program
from bylaw.engine.matching import tools_of
from bylaw.model.condition import Condition, OfCall, argument_tests
from bylaw.model.demand import Attempt, looks_at_arguments
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Deferred, Response, ToolCall
from bylaw.model.rule import Rule
from bylaw.model.temporal import ResultOf, ToolIs
from bylaw.rules.loader import source_line
from bylaw.rules.messages import near_name, quote
from bylaw.rules.names import ExistingNames, doubtful_names, rule_warning

# The arguments that tools take, as recorded: a rule about a misspelt one never applies, unnoticed.


Tools: TypeAlias = tuple[str, ...] | None
"""names and globs; None: any tool"""

_MOST_CALLS = 200
"""calls of a tool that are looked at; more of them rarely show another argument"""
_MOST_TOOLS = 2000


def asked_of(rule: Rule) -> set[tuple[Tools, str]]:
    """The arguments that the rule names, each with the tools whose it is."""
    found: list[tuple[Tools, tuple[str | None, ...]]] = [
        (calls.tools, path) for calls, path in looks_at_arguments(rule.demand)
    ]
    found += _arguments_in((rule.demand, rule.when))
    return {(tools, path[0]) for tools, path in found if path and path[0] is not None}


def _arguments_in(part: Any) -> Iterator[tuple[Tools, tuple[str | None, ...]]]:
    match part:
        case ToolIs(names=names, tests=tests) | ResultOf(names=names, tests=tests):
            yield from ((names, test.path) for test in tests if test.root == "args")
        case Attempt(when=predicate) | OfCall(predicate=predicate):
            tools = tools_of(predicate)
            named = None if tools is None else tuple(sorted(tools))
            yield from ((named, test.path) for test in argument_tests(predicate))
        case Condition(path=path) if path.field == "tool_calls" and path.rest[1:2] == ("arguments",):
            yield None, path.rest[2:]
        case Condition(path=path) if path.field == "content" and path.rest[1:2] == ("input",):
            yield None, path.rest[2:]
        case Struct():
            for field in part.__struct_fields__:
                yield from _arguments_in(getattr(part, field))
        case tuple():
            for one in part:
                yield from _arguments_in(one)


class SeenArguments:
    """Collects the names of arguments while traces are folded, at constant cost for each call."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}
        self._calls: dict[str, int] = {}

    def add(self, calls: Iterable[ToolCall]) -> None:
        for call in calls:
            seen = self._calls.get(call.name, 0)
            if seen >= _MOST_CALLS or (not seen and len(self._calls) >= _MOST_TOOLS):
                continue
            self._calls[call.name] = seen + 1
            if isinstance(call.arguments, dict):
                self._names.setdefault(call.name, set()).update(map(str, call.arguments))

    def define(self, tool: str, schema: Any) -> None:
        """`schema`: the JSON Schema of the arguments."""
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if isinstance(properties, dict):
            self._names.setdefault(tool, set()).update(map(str, properties))

    def doubts(self, rules: Iterable[Rule]) -> Iterator[Diagnostic]:
        """A warning for each argument that no call and no definition of its tool has, and that is near one of those."""
        for rule in rules:
            for tools, name in sorted(asked_of(rule), key=repr):
                near = near_name(name, _known_arguments(tools, self._names))
                if near is not None:
                    of = " or ".join(map(quote, tools)) if tools else "any tool"
                    message = (
                        f"`{rule.id}` looks at the argument {quote(name)}, which no call and no definition of {of} has"
                    )
                    yield rule_warning(rule, code="unlikely-argument", message=message, help=f"did you mean `{near}`?")


def _known_arguments(tools: Tools, names: Mapping[str, set[str]]) -> set[str]:
    if tools is None:
        return set().union(*names.values())
    return {name for tool, own in names.items() if any(fnmatchcase(tool, one) for one in tools) for name in own}


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
            for name, schema in _defined_tools(request.tools):
                self._tools.add(name)
                if self._arguments is not None:
                    self._arguments.define(name, schema)

    def doubts(self, program: Program, known: Sequence[Diagnostic] = ()) -> list[Diagnostic]:
        """Warnings about the rules' names that are not in the traces, and near one that is; none that is `known`."""
        existing = ExistingNames({*self._tools, *program.calls}, self._stop_reasons)
        reported = {(warning.code, warning.span) for warning in known}
        doubts = doubtful_names(program.rules, existing)
        doubts += self._arguments.doubts(program.rules) if self._arguments is not None else ()
        found = [one for one in doubts if (one.code, one.span) not in reported]
        return [replace(one, excerpt=source_line(one.span)) if one.span else one for one in found]


def _defined_tools(tools: list[Any] | None) -> Iterator[tuple[str, Any]]:
    """The names of tool definitions, in the usual forms, each with the schema of its arguments."""
    for tool in tools or ():
        if isinstance(tool, dict):
            function = tool.get("function")
            definition = function if isinstance(function, dict) else tool
            if isinstance(name := definition.get("name"), str):
                yield name, next((definition[key] for key in _SCHEMA_KEYS if key in definition), None)


_SCHEMA_KEYS = ("parameters", "input_schema", "inputSchema", "parameters_json_schema")
