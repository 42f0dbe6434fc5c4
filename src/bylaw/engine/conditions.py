"""`when` and triggers: the conditions on a turn, compiled to one function.

A path is compiled to a function from the response, which knows its request, to a value. It may lead to nothing:
`ABSENT` where what was recorded has no such key, which never matches, and `UNRECORDED` where nobody recorded what it
looks at, which is unknown. A recorded null is a value that no path leads below.

Values are compared as everywhere, in `values.py`. What cannot be compared is unknown too, also under a negation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from bylaw.engine.matching import compile_where
from bylaw.engine.monitor import count_turns
from bylaw.engine.values import (
    ABSENT,
    UNREADABLE,
    UNRECORDED,
    Comparison,
    Step,
    compile_comparison,
    compile_steps,
    enter,
)
from bylaw.model.condition import OTHER, TESTS, Clause, Condition, Either, Every, OfCall, Opposite, Path
from bylaw.model.events import Response, ToolCall

Read = Callable[[Response], Any]
ReadAll = Callable[[Response], Iterable[Any]]

_NOTHING = (ABSENT, UNREADABLE, UNRECORDED)


def compile_path(path: Path) -> Read:
    """For a path without wildcard: its one value, ABSENT, UNREADABLE or UNRECORDED."""
    field = _field(path)
    steps = [step for step in compile_steps(path.rest) if step is not None]
    if not steps:
        return field

    def read(response: Response) -> Any:
        value = field(response)
        for key, index in steps:
            if value in _NOTHING:
                return value
            value = value.get(key, ABSENT) if type(value) is dict else enter(value, key, index)
        return value

    return read


def compile_paths(path: Path) -> ReadAll:
    """For any path: every value it leads to, in order, without absent ones. UNRECORDED for one not recorded."""
    read_all, partly = _compile_all(path), _may_lack_parts(path)

    def read(response: Response) -> list[Any]:
        values = [UNRECORDED if value is UNREADABLE else value for value in read_all(response) if value is not ABSENT]
        return [UNRECORDED if _lacks_parts(value) else value for value in values] if partly else values

    return read


def _compile_all(path: Path) -> ReadAll:
    if None not in path.rest:
        read = compile_path(path)
        return lambda response: (read(response),)
    field, steps = _field(path), compile_steps(path.rest)
    return lambda response: _spread([field(response)], steps)


def _spread(values: list[Any], steps: tuple[Step | None, ...]) -> list[Any]:
    """The values at a path with wildcards, resolved one step at a time."""
    for step in steps:
        spread: list[Any] = []
        for value in values:
            if value in _NOTHING:
                spread.append(value)
            elif step is not None:
                spread.append(enter(value, *step))
            elif isinstance(value, (list, dict)):
                spread += value.values() if isinstance(value, dict) else value
            else:
                spread.append(UNREADABLE)
        values = spread
    return values


# -- the fields of a turn ---------------------------------------------------------------------------------------------


def _field(path: Path) -> Read:
    return _either_model if path.text == "model" else _FIELDS[path.root, path.field]


def _request_field(name: str, if_none: Any) -> Read:
    def read(response: Response) -> Any:
        request = response.request
        if request is None:
            return UNRECORDED
        value = getattr(request, name)
        return if_none if value is None else value

    return read


def _response_field(name: str) -> Read:
    def read(response: Response) -> Any:
        value = getattr(response, name)
        return UNRECORDED if value is None else value

    return read


def _either_model(response: Response) -> Any:
    """The alias `model` falls back on the model of the response, for formats that record it only there."""
    requested = response.request.model if response.request else None
    return requested or response.model or UNRECORDED


def _usage(response: Response) -> Any:
    usage = response.usage
    if usage is None:
        return UNRECORDED
    counted = {name: getattr(usage, name) for name in _USAGE_FIELDS}
    known = {name: value for name, value in counted.items() if value is not None}
    return {"input_tokens": UNRECORDED, "output_tokens": UNRECORDED, **(usage.recorded or {}), **known}


_USAGE_FIELDS = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens", "reasoning_tokens")


def _tool_calls(response: Response) -> Any:
    def as_json(call: ToolCall) -> dict[str, Any]:
        arguments = call.raw_arguments if call.arguments is None else call.arguments
        return {"id": call.call_id, "name": call.name, "arguments": UNRECORDED if arguments is None else arguments}

    return UNRECORDED if response.calls_follow else list(map(as_json, response.tool_calls))


_FIELDS: dict[tuple[str, str], Read] = {
    # a request that was recorded without one of these may have had it; other keys were given or not
    **{
        ("request", name): _request_field(name, UNRECORDED)
        for name in ("messages", "metadata", "model", "params", "tools")
    },
    ("request", OTHER): _request_field(OTHER, ABSENT),
    **{("response", name): _response_field(name) for name in ("content", "latency_ms", "model", "stop_reason", "text")},
    ("response", "usage"): _usage,
    ("response", "tool_calls"): _tool_calls,
}


def _may_lack_parts(path: Path) -> bool:
    """Whether a value there may be recorded in part: a call without its arguments, usage without one of the counts."""
    return (path.field == "tool_calls" and len(path.rest) < 2) or (path.field == "usage" and not path.rest)


def _lacks_parts(value: Any) -> bool:
    if isinstance(value, dict):
        return any(part is UNRECORDED for part in value.values())
    return isinstance(value, list) and any(map(_lacks_parts, value))


class _Anything:
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


_ANYTHING = _Anything()


def _fill_unrecorded(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_fill_unrecorded, value))
    parts = value.items() if isinstance(value, dict) else ()
    return {key: _ANYTHING if part is UNRECORDED else part for key, part in parts}


def _compare_parts(compare: Comparison) -> Comparison:
    """Decided where the parts that were not recorded make no difference: a list of one call is not empty."""

    def compared(found: Any) -> bool | None:
        answer = compare(found)
        return answer if not _lacks_parts(found) or compare(_fill_unrecorded(found)) is answer else None

    return compared


# -- conditions -------------------------------------------------------------------------------------------------------


class Doubt(Struct, frozen=True):
    """Why a condition is unknown in a turn."""

    text: str
    mismatch: bool = False
    """a value of another type, rather than one that was not recorded"""


Doubts = tuple[Doubt, ...]
Gate = Callable[[Response], tuple[bool | None, Doubts]]
"""turn → whether every condition holds, and every value that was unknown, decisive or not"""
Test = Callable[[Response, list[Doubt]], bool | None]
NO_DOUBTS: Doubts = ()


def compile_conditions(clauses: tuple[Clause, ...]) -> Gate:
    test = (
        _compile(clauses[0]) if len(clauses) == 1 else _join_tests([_compile(one) for one in clauses], decisive=False)
    )

    def gate(response: Response) -> tuple[bool | None, Doubts]:
        doubts: list[Doubt] = []
        answer = test(response, doubts)
        return answer, tuple(doubts) if doubts else NO_DOUBTS

    return gate


def add_doubts(counted: tuple[tuple[str, int], ...], doubts: Doubts) -> tuple[tuple[str, int], ...]:
    """One more turn for each of them."""
    return tuple((Counter(dict(counted)) + Counter({doubt.text for doubt in doubts})).items())


def tell_doubts(what: str, counted: Iterable[tuple[str, int]]) -> str:
    """Each reason why a condition is unknown, with its count."""
    why = ", ".join(f"{text} in {count_turns(number)}" for text, number in counted)
    return f"it is not known whether {what}: {why}"


def _compile(clause: Clause) -> Test:
    match clause:
        case Condition():
            return _compile_condition(clause)
        case OfCall():
            return _compile_of_call(clause)
        case Every(of=parts):
            return _join_tests([_compile(part) for part in parts], decisive=False)
        case Either(of=parts):
            return _join_tests([_compile(part) for part in parts], decisive=True)
        case Opposite(of=inner):
            return _negate_test(_compile(inner))


def _compile_condition(condition: Condition) -> Test:
    compare, _ = compile_comparison(TESTS[condition.op], condition.value)
    if _may_lack_parts(condition.path):
        compare = _compare_parts(compare)
    if_absent = condition.op == "missing"
    text = f"`{condition.path.text}`"
    unrecorded, unlike = Doubt(f"{text} was not recorded"), Doubt(f"{text} cannot be compared", mismatch=True)

    def judge(found: Any, doubts: list[Doubt]) -> bool | None:
        if found is ABSENT:
            return if_absent
        if found is UNRECORDED:
            doubts.append(unrecorded)
            return None
        answer = None if found is UNREADABLE else compare(found)
        if answer is None:
            doubts.append(unlike)
        return answer

    if None not in condition.path.rest:
        read = compile_path(condition.path)
        return lambda response, doubts: judge(read(response), doubts)
    read_all = _compile_all(condition.path)

    def judge_any(response: Response, doubts: list[Doubt]) -> bool | None:
        new_doubts: list[Doubt] = []
        present = [value for value in read_all(response) if value is not ABSENT]
        answers = [judge(value, new_doubts) for value in present]
        doubts += dict.fromkeys(new_doubts)
        return any_of(answers) if answers else if_absent

    return judge_any


def _compile_of_call(clause: OfCall) -> Test:
    test = compile_where(clause.predicate)
    doubt = Doubt("an argument was not recorded or cannot be compared", mismatch=True)

    def judge(response: Response, doubts: list[Doubt]) -> bool | None:
        answer = None if response.calls_follow else any_of([test(call) for call in response.tool_calls])
        if answer is None:
            doubts.append(doubt)
        return answer

    return judge


def any_of(answers: Sequence[bool | None]) -> bool | None:
    return True if True in answers else None if None in answers else False


def _join_tests(tests: list[Test], *, decisive: bool) -> Test:
    """All of them, or any of them. Every test is asked, so that each value of another type is counted."""

    def joined(response: Response, doubts: list[Doubt]) -> bool | None:
        answers = [test(response, doubts) for test in tests]
        return decisive if decisive in answers else None if None in answers else not decisive

    return joined


def _negate_test(test: Test) -> Test:
    def opposite(response: Response, doubts: list[Doubt]) -> bool | None:
        answer = test(response, doubts)
        return None if answer is None else not answer

    return opposite
