"""`when` and triggers: conditions on a turn, all of which must hold, compiled to one function.

A path is compiled to a function from the response, which knows its request, to a value. `ABSENT` is not null: a
recorded null is a value, a path that leads nowhere has none.

A missing path never matches, with any operator. A value of a type that the operator cannot compare with the wanted one
does not match either, also not under `!=` and the other negations. It is counted, so that a rule which never fires for
that reason says so. Null compares with anything.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from bylaw.engine.values import ABSENT, UNREADABLE, Step, compile_steps, enter
from bylaw.model.condition import Condition, Path
from bylaw.model.events import Response, ToolCall
from bylaw.model.values import json_equal, json_type

Read = Callable[[Response], Any]
ReadAll = Callable[[Response], Iterable[Any]]


def compile_path(path: Path) -> Read:
    """For a path without wildcard: its one value, or ABSENT."""
    field = _FIELDS[path.root, path.field] if path.text != "model" else _either_model
    steps = [step for step in compile_steps(path.rest) if step is not None]
    if not steps:
        return field

    def read(response: Response) -> Any:
        value = field(response)
        for key, index in steps:
            value = value.get(key, ABSENT) if type(value) is dict else enter(value, key, index)
            if value is ABSENT or value is UNREADABLE:
                return ABSENT
        return value

    return read


def compile_paths(path: Path) -> ReadAll:
    """For any path: every value it leads to, in order. Missing ones are left out."""
    if None in path.rest:
        field, steps = _FIELDS[path.root, path.field], compile_steps(path.rest)
        return lambda response: _spread([field(response)], steps)
    read = compile_path(path)

    def read_all(response: Response) -> Iterable[Any]:
        value = read(response)
        return () if value is ABSENT else (value,)

    return read_all


def _spread(values: list[Any], steps: tuple[Step | None, ...]) -> list[Any]:
    """The values that a path with wildcards leads to, one step after the other."""
    for step in steps:
        if step is None:
            values = [
                element
                for value in values
                if isinstance(value, (list, dict))
                for element in (value.values() if isinstance(value, dict) else value)
            ]
        else:
            key, index = step
            values = [value.get(key, ABSENT) if type(value) is dict else enter(value, key, index) for value in values]
    return [value for value in values if value is not ABSENT and value is not UNREADABLE]


def _present(value: Any) -> Any:
    return ABSENT if value is None else value


def _request_field(name: str) -> Read:
    def read(response: Response) -> Any:
        request = response.request
        return ABSENT if request is None else _present(getattr(request, name))

    return read


def _response_field(name: str) -> Read:
    return lambda response: _present(getattr(response, name))


def _either_model(response: Response) -> Any:
    """The alias `model` falls back on what the response says, for formats that record the model only there."""
    requested = response.request.model if response.request else None
    return _present(requested or response.model)


def _usage(response: Response) -> Any:
    usage = response.usage
    if usage is None:
        return ABSENT
    counted = {name: getattr(usage, name) for name in _USAGE_FIELDS}
    return {**(usage.recorded or {}), **{name: value for name, value in counted.items() if value is not None}}


_USAGE_FIELDS = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens", "reasoning_tokens")


def _tool_calls(response: Response) -> list[dict[str, Any]]:
    return [_call_as_json(call) for call in response.tool_calls]


def _call_as_json(call: ToolCall) -> dict[str, Any]:
    arguments = call.raw_arguments if call.arguments is None else call.arguments
    return {"id": call.call_id, "name": call.name, "arguments": arguments}


_FIELDS: dict[tuple[str, str], Read] = {
    **{("request", name): _request_field(name) for name in ("messages", "metadata", "model", "params", "tools")},
    **{("response", name): _response_field(name) for name in ("content", "latency_ms", "model", "stop_reason", "text")},
    ("response", "usage"): _usage,
    ("response", "tool_calls"): _tool_calls,
}


NO, YES = 0, 1
MISMATCH = 2
"""added to NO or YES: the two values are of types that are not usually compared"""

Gate = Callable[[Response], tuple[bool, int]]
"""turn → (every condition holds, how many comparisons found values of another type)"""


def compile_conditions(conditions: tuple[Condition, ...]) -> Gate:
    tests = [_compile_one(condition) for condition in conditions]
    if len(tests) == 1:
        test = tests[0]
        return lambda response: _ANSWERS[test(response)]

    def gate(response: Response) -> tuple[bool, int]:
        results = [test(response) for test in tests]
        return all(result & YES for result in results), sum(result >= MISMATCH for result in results)

    return gate


_ANSWERS = ((False, 0), (True, 0), (False, 1), (True, 1))


def _compile_one(condition: Condition) -> Callable[[Response], int]:
    compare, value = _OPERATORS[condition.op], condition.value
    if None in condition.path.rest:
        read_all = compile_paths(condition.path)
        return lambda response: _any_of(compare(found, value) for found in read_all(response))
    read = compile_path(condition.path)

    def test(response: Response) -> int:
        found = read(response)
        return NO if found is ABSENT else compare(found, value)

    return test


def _any_of(results: Iterable[int]) -> int:
    answer = NO
    for result in results:
        answer |= result
    return answer


def _equal(found: Any, value: Any) -> int:
    if type(found) is type(value) is str:
        return YES if found == value else NO
    if _of_other_type(found, value):
        return MISMATCH
    return YES if json_equal(found, value) else NO


def _of_other_type(found: Any, value: Any) -> bool:
    """Null can be compared with anything: it is what `!= null` is for."""
    return found is not None and value is not None and json_type(found) != json_type(value)


def _negated(compare: Callable[[Any, Any], int]) -> Callable[[Any, Any], int]:
    """The opposite, except that what cannot be compared does not match either way."""

    def test(found: Any, value: Any) -> int:
        result = compare(found, value)
        return result if result >= MISMATCH else result ^ YES

    return test


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], int]:
    def test(found: Any, value: Any) -> int:
        if type(found) not in _NUMBERS or type(value) not in _NUMBERS:
            return MISMATCH
        return YES if compare(found, value) else NO

    return test


_NUMBERS = (int, float)


def _in(found: Any, values: Any) -> int:
    if values and all(_of_other_type(found, value) for value in values):
        return MISMATCH
    return YES if any(json_equal(found, value) for value in values) else NO


def _contains(found: Any, value: Any) -> int:
    if isinstance(found, str):
        return MISMATCH if not isinstance(value, str) else YES if value in found else NO
    if not isinstance(found, list):
        return MISMATCH
    holds = _text_in if isinstance(value, str) else json_equal
    for item in found:
        if holds(item, value):
            return YES
    return NO


def _text_in(item: Any, value: str) -> bool:
    """Content blocks, calls and messages are searched where a reader would look: in their text and their tool names."""
    if type(item) is not dict:
        return bool(item == value)
    for key in ("text", "name", "content"):
        part = item.get(key)
        if type(part) is str and value in part:
            return True
    return False


_OPERATORS: dict[str, Callable[[Any, Any], int]] = {
    "==": _equal,
    "!=": _negated(_equal),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    "in": _in,
    "not_in": _negated(_in),
    "contains": _contains,
    "not_contains": _negated(_contains),
}
