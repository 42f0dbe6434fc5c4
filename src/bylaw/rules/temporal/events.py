"""Events in the readable form: a tool's name, or a mapping that says more. Each becomes one atom of a formula.

| written                                                        | is                                       |
|----------------------------------------------------------------|------------------------------------------|
| `issue_refund`, `"delete_*"`, `[a, b]`                         | a call of one of these tools             |
| `{tool: issue_refund, args: {amount: {">=": 500}}}`            | a call whose arguments pass the tests    |
| `{result: verify, args: …, returns: {ok: true}, error: false}` | a result, with tests on its content too  |
| `{text: sorry}`, `{text: "sorr(y|ies)", regex: true}`          | a response with this text                |
| `{user: cancel}`                                               | a response to a user who said this       |
| `{stop_reason: max_tokens}`                                    | a response that stopped for this reason  |
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bylaw.rules.messages import did_you_mean, listing, quote
from bylaw.rules.nodes import Entry, MapNode, Node, plain
from bylaw.rules.params import (
    FLAG,
    TEXT_PARAMS,
    TEXT_SCHEMA,
    TEXTS_SCHEMA,
    TOOLS,
    Context,
    Param,
    ParamType,
    Values,
    read_params,
)
from bylaw.rules.readers import Fields, closed_object, read_json, read_map, report_wrong_type
from bylaw.rules.temporal.atoms import NAME, OPERATOR_SYNONYMS, OPERATORS, PATH
from bylaw.rules.temporal.parser import parse_formula
from bylaw.rules.temporal.scanner import Report

_SLASH = re.compile(r"(\\.)|/", re.DOTALL)

Sort: TypeAlias = Literal["tool", "result", "response"]


class Event(Struct, frozen=True):
    sort: Sort
    names: tuple[str, ...]
    tests: tuple[str, ...]
    response: str
    """the atom of a response, which has no names"""
    plain: Any
    """as JSON"""
    phrase: str = ""
    """a response in words"""

    def written(self, *more: str, sort: Sort | None = None) -> str:
        """The atom, with further tests."""
        if self.sort == "response":
            return self.response
        return f"{sort or self.sort}({self.inside(*more)})"

    def inside(self, *more: str) -> str:
        names = " | ".join(write_name(name) for name in self.names)
        return ", ".join([names, *self.tests, *more])

    @property
    def words(self) -> str:
        """The event in a sentence, without its article: "call of `refund`"."""
        if self.sort == "response":
            return self.phrase
        tests = " and ".join(f"`{test.removeprefix('args.')}`" for test in self.tests)
        noun = "call" if self.sort == "tool" else "result"
        return f"{noun} of {listing(self.names, last='or')}{f' with {tests}' if tests else ''}"

    @property
    def plural(self) -> str:
        noun, _, rest = self.words.partition(" ")
        return f"{noun}s {rest}"

    def meets(self, other: Event) -> bool:
        """Whether one position can be both."""
        if self.sort != other.sort:
            return False
        if self.sort == "response":
            return True
        return any(_may_overlap(one, two) for one in self.names for two in other.names)


def read_event(node: Node, name: str, context: Context) -> Event | None:
    if not isinstance(node, MapNode):
        names = TOOLS.read(node, name, context)
        if names is not None and (atom := next(filter(None, map(_ATOM.fullmatch, names)), None)):
            _refuse_atom(atom, node, context)
            return None
        return None if names is None else Event("tool", names, (), "", list(names))
    given = [sort for sort in _SORTS if sort in node.entries]
    if len(given) != 1:
        _refuse_sorts(node, name, given, context)
        return None
    sort = given[0]
    values = read_params(node, _SORTS[sort], context, what=f"{quote(name)} with `{sort}`")
    if values is None:
        return None
    return _event(sort, values, plain(node))


_ATOM = re.compile(r"(tool|tool_call|result|stop_reason|text|text_contains)(?::|\()\s*([^()]*)\)?")
"""as a formula has it: no tool is called that, so the rule would hold of every trace"""


def _refuse_atom(atom: re.Match[str], node: Node, context: Context) -> None:
    meant = atom[2].strip("\"' ") or "…"
    sort = {"tool_call": "tool", "text_contains": "text"}.get(atom[1], atom[1])
    help = f"write `{{{sort}: {meant}}}`" if sort != "tool" else f"write `{meant}`"
    context.problems.error(
        code="wrong-type",
        message=f"{quote(atom[0])} is no name of a tool",
        at=node,
        help=f"{help} here, or `{sort}({meant})` in a `formula`",
    )


def write_name(name: str) -> str:
    return name if NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _event(sort: str, values: Values, written: Any) -> Event:
    if sort in ("tool", "result"):
        tests = (*values.get("args", ()), *values.get("returns", ()))
        failed = values.get("error")
        error = () if failed is None else (f"error = {json.dumps(failed)}",)
        return Event("tool" if sort == "tool" else "result", values[sort], (*tests, *error), "", written)
    if sort == "stop_reason":
        reasons = [f"stop_reason({write_name(reason)})" for reason in values[sort]]
        text = reasons[0] if len(reasons) == 1 else f"({' | '.join(reasons)})"
        return Event("response", (), (), text, written, f"response with stop reason {listing(values[sort], last='or')}")
    phrase = "response with the text" if sort == "text" else "response to a user message with the text"
    text = f"{sort}({_write_text(values[sort], values)})"
    return Event("response", (), (), text, written, f"{phrase} {quote(values[sort])}")


def _write_text(text: str, values: Values) -> str:
    if not values["regex"] and not values["ignore_case"]:
        return json.dumps(text, ensure_ascii=False)
    if not values["regex"]:  # backslashes and line breaks are written so that they are not taken for mistakes
        text = re.escape(text).replace("\\\\", "[\\\\]").replace("\\\n", "\\n")
    return write_pattern(text) + ("i" if values["ignore_case"] else "")


def write_pattern(pattern: str) -> str:
    escaped = _SLASH.sub(lambda found: found[1] or "\\/", pattern)
    return f"/{escaped}/"


def _may_overlap(one: str, two: str) -> bool:
    """Whether a name can fit both; two globs are taken to overlap."""
    globs = [name for name in (one, two) if any(sign in name for sign in "*?[")]
    return one == two or len(globs) == 2 or fnmatchcase(one, two) or fnmatchcase(two, one)


# tests on arguments and content


def _read_tests(root: str) -> ParamType:
    def read(node: Node, name: str, context: Context) -> tuple[str, ...] | None:
        mapping = read_map(node, name, context.problems)
        if mapping is None:
            return None
        tests = [_tests(root, path, entry, context) for path, entry in mapping.entries.items()]
        return None if None in tests else tuple(text for some in tests if some for text in some)

    return ParamType(read, {"type": "object"})


def _tests(root: str, path: str, entry: Entry, context: Context) -> list[str] | None:
    if not PATH.fullmatch(f"{root}.{path}"):
        help = "parts are separated by single dots; a part with spaces needs double quotes"
        context.problems.error(code="bad-path", message=f"{quote(path)} is no path", at=entry.key, help=help)
        return None
    found = [_test(f"{root}.{path}", op, value, context) for op, value in _comparisons(entry, context)]
    return None if not found or None in found else [text for text in found if text]


def _comparisons(entry: Entry, context: Context) -> Iterator[tuple[str, Node]]:
    if not isinstance(entry.value, MapNode):
        yield "=", entry.value
        return
    if not entry.value.entries:
        report_wrong_type(entry.value, quote(str(entry.key.value)), "a value or `{operator: value}`", context.problems)
    for op, one in entry.value.entries.items():
        if op in OPERATORS:
            yield op, one.value
        else:
            context.problems.error(
                code="unknown-operator",
                message=f"unknown operator {quote(op)}",
                at=one.key,
                help=did_you_mean(op, OPERATORS, OPERATOR_SYNONYMS),
            )
            yield "", one.value


def _test(path: str, op: str, node: Node, context: Context) -> str | None:
    """The test as text, read once here so that what is wrong with it is shown where it stands."""
    if not op:
        return None
    if op in ("present", "missing"):
        there = FLAG.read(node, op, context)
        return None if there is None else f"{path} {'present' if there is (op == 'present') else 'missing'}"
    value: Any = read_json(node, context.problems)
    is_pattern = op == "matches" and isinstance(value, str)
    text = f"{path} {op} {write_pattern(value) if is_pattern else json.dumps(value, ensure_ascii=False)}"
    parsed = parse_formula(f"result(*, {text})", Report(context.problems, lambda spot: node))
    return text if parsed else None


_ERROR = Param("error", FLAG, "whether the result is an error")
_ARGS = Param("args", _read_tests("args"), "tests on the arguments: `{path: value}` or `{path: {operator: value}}`")
_RETURNS = Param("returns", _read_tests("result"), "tests on the content, written like those on `args`")
_SORTS: dict[str, tuple[Param, ...]] = {
    "tool": (Param("tool", TOOLS, "the tool", required=True), _ARGS),
    "result": (Param("result", TOOLS, "the tool", required=True), _ARGS, _RETURNS, _ERROR),
    "text": TEXT_PARAMS,
    "user": (Param("user", TEXT_PARAMS[0].type, "the text to look for", required=True), *TEXT_PARAMS[1:]),
    "stop_reason": (Param("stop_reason", TOOLS, "the reason, or a list", required=True),),
}


def _refuse_sorts(node: MapNode, name: str, given: Sequence[str], context: Context) -> None:
    fields = Fields(node, context.problems, what=quote(name))
    if len(given) > 1:
        message, at = f"{quote(name)} is {listing(given)} at once", node.entries[given[1]].key
        context.problems.error(code="unclear-temporal", message=message, at=at, help="an event is one of them")
        return
    help = "an event is a tool's name, or a mapping such as `{tool: name, args: {path: value}}`"
    fields.missing(tuple(_SORTS), help=help)
    words = {"name": "tool", "tool_name": "tool", "call": "tool", "output": "returns"}
    fields.finish(synonyms=words, accepted=("args", "returns", "error", "regex", "ignore_case", *_SORTS))


def event_schema() -> dict[str, Any]:
    """The JSON Schema of what `read_event` accepts."""
    sorts = [
        closed_object(
            {param.name: dict(param.type.json_schema) for param in params},
            required=[param.name for param in params if param.required],
        )
        for params in _SORTS.values()
    ]
    return {"anyOf": [TEXT_SCHEMA, TEXTS_SCHEMA["anyOf"][1], *sorts]}


EVENT = ParamType(read_event, {"$ref": "#/$defs/event"}, plain=lambda event: event.plain)
