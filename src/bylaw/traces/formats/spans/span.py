"""A span, and what it can be about. What a recorder left out is None, or UNSET if null could be recorded too."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Container, Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from bylaw.model.events import Deferred, Locator, Usage
from bylaw.traces.assembly.content import Result, foreign_result, only_part, read_arguments
from bylaw.traces.assembly.session_buffer import is_same_value
from bylaw.traces.formats.chat_message import read_assistant, results_in
from bylaw.traces.formats.messages import chat_message, list_messages, parse_if_json
from bylaw.traces.formats.record import MalformedRecord, object_field, text_field
from bylaw.traces.formats.spans.attributes import Element, latency_ms
from bylaw.traces.records.jsontext import REFUSED, decode_whole

# The input of a model as a recorder wrote it


_pieces = msgspec.json.Decoder(list[Raw]).decode


def split_messages(value: Any) -> list[Any] | None:
    """The recorded messages. A list that is still JSON is only divided, for callers that look at few messages."""
    if type(value) is Raw and bytes(value)[:1] != b"[":
        value = decode_whole(value)  # text may hold JSON
    found = _split_raw(value)
    if found is not None and len(found) == 1 and bytes(found[0])[:1] == b"[":
        found = _split_raw(found[0])
    return list_messages(value) if found is None else found


def _split_raw(value: Any) -> list[Raw] | None:
    if type(value) is not Raw and (type(value) is not str or value.lstrip()[:1] != "["):
        return None
    try:
        return _pieces(value)
    except REFUSED:
        return None


class RecordedInput:
    """The input of a model as it was recorded, converted to messages only when it is looked at.

    Recorders repeat the whole conversation with every request, so nearly all of it is never looked at. Results of calls
    stand near the end, so they are searched from the end.
    """

    __slots__ = ("_each", "_read", "_recorded", "_system")

    def __init__(
        self,
        recorded: Any,
        *,
        read: Callable[[Any], Any] | None = None,
        system: list[dict[str, Any]] | None = None,
        each: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        """`recorded` may still be JSON. `read` extracts the messages, `system` precedes them, `each` converts one."""
        self._recorded = recorded
        self._read = read
        self._system = system
        self._each = each

    def deferred(self) -> Deferred:
        return Deferred(RecordedInput.messages, self)

    def messages(self) -> list[dict[str, Any]] | None:
        found = [message for one in list_messages(self._read_once()) or () for message in self._converted(one)]
        return [*(self._system or ()), *found] or None

    def results(self, wanted: set[str], known: Container[str]) -> tuple[list[Result], list[Result]]:
        """The latest result of each of these calls; if one lacks, also those since the last answer that name no call.

        `known`: the ids of all calls. An answer may be recorded without ids, or with others than its results have: what
        the input itself says about the call of such a result is returned with it.
        """
        by_id: dict[str, Result] = {}
        unnamed: list[Result] = []
        answered = False
        for one in reversed(split_messages(self._read_once()) or ()):
            for message in reversed(self._converted(one)):
                if message.get("role") == "assistant":
                    for result in reversed(results_in(message)):  # of calls that the provider ran
                        if result.call_id in wanted:
                            by_id.setdefault(result.call_id or "", result)
                    answered = True
                    unnamed = [_add_call(result, message) for result in unnamed]
                    if not wanted.isdisjoint(_ids(message)):
                        return list(by_id.values())[::-1], unnamed[::-1]  # results follow their call
                    continue
                for result in reversed(results_in(message)):
                    if result.call_id in wanted:
                        by_id.setdefault(result.call_id or "", result)
                    elif not answered and (result.call_id is None or result.call_id not in known):
                        unnamed.append(result)
            if len(by_id) == len(wanted):
                return list(by_id.values())[::-1], []  # no call is left that a result without an id could answer
        return list(by_id.values())[::-1], unnamed[::-1]

    def _read_once(self) -> Any:
        if self._read is not None:
            self._recorded, self._read = self._read(self._recorded), None
        return self._recorded

    def _converted(self, one: Any) -> list[dict[str, Any]]:
        found = chat_message(one.nested() if type(one) is Element else one)
        return found if self._each is None else [self._each(message) for message in found]


def _add_call(result: Result, answer: dict[str, Any]) -> Result:
    """The result with the name and the arguments of its call, if the answer holds that."""
    if result.call_id is None or result.arguments is not None or result.call_id not in _ids(answer):
        return result
    try:
        content = read_assistant(answer)
    except MalformedRecord:
        return result  # the answer itself was reported when it was read
    for use, (arguments, raw) in zip(content.uses, content.arguments, strict=True):
        if use.get("id") == result.call_id:
            return replace(result, name=str(use["name"]), arguments=raw if arguments is None else arguments)
    return result


def _ids(message: dict[str, Any]) -> Iterator[str]:
    content, calls = message.get("content"), message.get("tool_calls")
    for part in (*(content if isinstance(content, list) else ()), *(calls if isinstance(calls, list) else ())):
        if isinstance(part, dict) and isinstance(part.get("id"), str):
            yield part["id"]


class ModelCall(Struct, kw_only=True):
    """A request to a model, usually with its answer."""

    model: str | None = None
    messages: RecordedInput | None = None
    """the input"""
    params: dict[str, Any] | None = None
    tools: list[Any] | Deferred | None = None
    answer: dict[str, Any] | None = None
    """the output, as an assistant's chat message"""
    stop_reason: str | None = None
    usage: Usage | None = None
    response_id: str | None = None
    """the provider's id of the answer: two spans with the same one recorded one call"""


class ToolRun(Struct, kw_only=True):
    """The execution of a tool."""

    name: str
    namespace: str | None = None
    call_id: str | None = None
    arguments: Any = None
    raw_arguments: str | None = None
    result: Any | UnsetType = UNSET
    is_error: bool | None = None

    @property
    def given(self) -> Any:
        """The arguments, or their text if they could not be parsed."""
        return self.raw_arguments if self.arguments is None else self.arguments

    @classmethod
    def recorded(
        cls, name: str, arguments: Any, result: Any, *, call_id: str | None, failed: bool, namespace: str | None = None
    ) -> ToolRun:
        """The execution that a span records, however its values are wrapped. The result may name its call."""
        given, raw = tool_arguments(arguments)
        if isinstance(given, dict) and given.keys() == _MCP_CALL and given["tool_name"] == name:  # OpenLLMetry, MCP
            given, raw = tool_arguments(given["arguments"] or {})
            output = parse_if_json(result)
            if isinstance(output, dict) and output.keys() == {"result"}:
                result = output["result"]
        found = tool_result(result)
        is_error = None if found is None else found.is_error
        return cls(
            name=name,
            namespace=namespace,
            call_id=call_id or (found.call_id if found is not None else None),
            arguments=given,
            raw_arguments=raw,
            result=UNSET if found is None else found.content,
            is_error=True if failed or is_error else is_error,
        )


class UnreadTool(Struct, kw_only=True):
    """A span or log record that seems to be the run of a tool, but that no vocabulary reads."""

    name: str
    is_named: bool = True
    """whether the name is the tool's; if not, it is only that of the span"""
    event: str = ""
    """the event name of a log record; empty for a span"""


class AgentRun(Struct, kw_only=True):
    """The run of an agent: all spans below belong to it."""

    name: str | None = None
    whole: ModelCall | None = None
    """its input and output, for recordings without spans of models"""


class SpanAnnotation(Struct, kw_only=True):
    """Anything else that becomes an annotation: a hand-off, the answer of a guardrail."""

    label: str
    data: Any = None


class Span(Struct, kw_only=True, eq=False):
    id: str
    parent: str | None = None
    trace: str = ""
    name: str = ""
    session: str | None = None
    agent: str | None = None
    """the agent that the span names, used if no agent's span is above it"""
    start: float | None = None
    """seconds since 1970 …"""
    end: float | None = None
    at: str | float | None = None
    """… and the start as it was recorded …"""
    ended_at: str | float | None = None
    """… and the end"""
    attributes: dict[str, Any] = {}
    links: tuple[str, ...] = ()
    """spans that it names as related, apart from its parent"""
    events: list[tuple[str, dict[str, Any]]] = []
    """the span's events, by name"""
    error: str | None = None
    dropped: int = 0
    """attributes and events that the recorder left out, because there were too many"""
    source: Locator
    about: ModelCall | ToolRun | UnreadTool | AgentRun | SpanAnnotation | None = None

    @property
    def latency_ms(self) -> float | None:
        return latency_ms(self.start, self.end)


# Arguments and results of tools, without what recorders and frameworks wrap around them. Nothing here can fail.


_MOST_LAYERS = 4
_LANGCHAIN_INPUT = frozenset(("input_str", "inputs", "tags", "metadata", "kwargs"))
_LANGCHAIN_OUTPUT = frozenset(("output", "kwargs"))
_MCP_CALL = frozenset(("tool_name", "arguments"))
_MCP_RESULT = frozenset(("result", "is_error"))
_PYTHON_CALL = frozenset(("args", "kwargs", "sanitize_inputs_outputs"))
"""how smolagents records the call of a tool's function"""
_MOST_LITERAL = 1 << 16
"""characters of a value in Python's notation"""
_NO_LITERAL = (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, msgspec.MsgspecError)
_ESCAPED = re.compile(r"""(?:[^\\]|\\[\\'"nrtxuU])*""")
"""text that has only the escapes that `repr` writes; `ast.parse` prints a warning to standard error for others"""
_MCP = frozenset(("content", "isError", "is_error", "structuredContent", "_meta"))


def inner_arguments(arguments: Any) -> Any:
    """The arguments inside a recorder's wrapper; the same value if there is none."""
    if not isinstance(arguments, dict):
        return arguments
    keys = arguments.keys()
    if keys == {"input"}:  # LangSmith, and what passes through it
        inner = _parse_text(arguments["input"])
        return inner if isinstance(inner, dict) or _begins_object(inner) else arguments
    if "input_str" in keys and keys <= _LANGCHAIN_INPUT:  # LangChain's callback, as OpenLLMetry records it
        inputs = arguments.get("inputs")
        return inputs if isinstance(inputs, dict) else _parse_text(arguments["input_str"])
    if keys == {"kwargs"} and isinstance(arguments["kwargs"], dict):  # LlamaIndex
        return arguments["kwargs"]
    if {"args", "kwargs"} <= keys:  # Python's own: if all are named, `kwargs` are the arguments
        named = arguments["kwargs"]
        is_named = isinstance(named, dict) and not arguments["args"]
        return named if is_named and (named or keys <= _PYTHON_CALL) else arguments
    return arguments


def has_same_arguments(left: Any, right: Any) -> bool:
    """Whether two recordings of a call have the same arguments, however each is wrapped."""
    if is_same_value(left, right):
        return True
    inner, other = _innermost(left), _innermost(right)
    if is_same_value(inner, other):
        return True
    for call, whole in ((inner, other), (other, inner)):
        if _has_positional(call) and isinstance(whole, dict):
            return is_same_value([*call["args"], *object_field(call, "kwargs").values()], list(whole.values()))
    # LangChain shows a tool with one parameter only its value
    for value, whole in ((inner, other), (other, inner)):
        if not isinstance(value, dict) and isinstance(whole, dict) and len(whole) == 1:
            (only,) = whole.values()
            if is_same_value(value, only) or str(value) == only:
                return True
    return False


def _innermost(arguments: Any) -> Any:
    for _ in range(_MOST_LAYERS):
        inner = inner_arguments(_parse_text(arguments))
        if inner is arguments:
            break
        arguments = inner
    return arguments


def tool_arguments(recorded: Any) -> tuple[Any, str | None]:
    """The arguments that a tool's span recorded, parsed, and their text if that is what was recorded."""
    arguments, raw = read_arguments(recorded)
    if isinstance(found := _parse_text(raw if arguments is None else arguments), dict):
        arguments = found
    inner = inner_arguments(arguments)
    if inner is not arguments and isinstance(inner, str):
        return None, inner
    if _has_positional(inner):  # their names are not recorded
        return None, raw or msgspec.json.encode(inner).decode()
    return (arguments, raw) if inner is arguments else (inner, None)


def _has_positional(arguments: Any) -> bool:
    """Whether these are the arguments of a Python function, some of which are not named."""
    is_call = isinstance(arguments, dict) and {"args", "kwargs"} <= arguments.keys() <= _PYTHON_CALL
    return is_call and isinstance(arguments["args"], list) and bool(arguments["args"])


def _begins_object(value: Any) -> bool:
    return isinstance(value, str) and value.lstrip()[:1] == "{"


def _parse_text(value: Any) -> Any:
    """Text that holds JSON, or an object in Python's notation, parsed; any other value as it is."""
    found = parse_if_json(value)
    if found is not value or not _begins_object(value) or len(value) > _MOST_LITERAL:
        return found
    if _ESCAPED.fullmatch(value) is None:
        return value
    try:
        tree = ast.parse(value.strip(), mode="eval")
        objects = [node.keys for node in ast.walk(tree) if isinstance(node, ast.Dict)]
        if any(len({ast.dump(key) for key in keys if key is not None}) < len(keys) for keys in objects):
            return value  # a key occurs twice, which is not accepted in JSON either
        found = ast.literal_eval(tree)
        is_json = msgspec.json.decode(msgspec.json.encode(found)) == found
    except _NO_LITERAL:
        return value
    return found if is_json else value


def tool_result(recorded: Any | UnsetType) -> Result | None:
    """What a tool's span recorded as its output, and what that says about the call; None if nothing was recorded."""
    if recorded is UNSET or recorded is None:
        return None
    value = parse_if_json(recorded)
    if isinstance(value, str):
        return Result(None, None, _text(value), None)
    for _ in range(_MOST_LAYERS):
        found = _unwrap_result(value)
        if not isinstance(found, Result):
            if found is value:
                break
            value = found
            continue
        return found
    return Result(None, None, only_part(value), None)


def _unwrap_result(value: Any) -> Any:
    """A result if the value is a message or an object that holds one, else what it wraps, else the value itself."""
    if not isinstance(value, dict):
        return value
    if (found := foreign_result(value)) is not None:
        return found
    if "output" in value and value.keys() <= _LANGCHAIN_OUTPUT and isinstance(parse_if_json(value["output"]), dict):
        return parse_if_json(value["output"])
    if {"raw_output", "tool_name", "is_error"} <= value.keys():  # LlamaIndex
        failed = value["is_error"]
        return Result(None, text_field(value, "tool_name"), value["raw_output"], failed if failed is True else None)
    if value.keys() == _MCP_RESULT and isinstance(value["is_error"], bool):  # OpenLLMetry, MCP
        return Result(None, None, value["result"], value["is_error"])
    if value.keys() == {"id", "name", "response"}:  # ADK
        return Result(value["id"], value["name"], value["response"], None)
    if isinstance(value.get("content"), list) and value.keys() <= _MCP:
        failed = value.get("isError", value.get("is_error"))
        return Result(None, None, value["content"], failed if isinstance(failed, bool) else None)
    if value.get("role") == "tool" or not value.keys().isdisjoint(("lc", "tool_call_id", "data")):
        message = next(iter(chat_message(value)), {})
        if message.get("role") == "tool" and message is not value:
            failed = message.get("is_error")
            call_id, name = text_field(message, "tool_call_id"), text_field(message, "name")
            return Result(call_id, name, message.get("content"), failed if isinstance(failed, bool) else None)
    return value


def _text(value: str) -> Any:
    """Text that was recorded as JSON, with its quotes."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        found = read_arguments(value)[0]
        return found if isinstance(found, str) else value
    return value
