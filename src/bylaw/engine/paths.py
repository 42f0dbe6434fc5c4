"""Reading a path out of a turn. A compiled path is a function from the response (which knows its request) to a value.

`MISSING` is not null: a recorded null is a value, a path that leads nowhere is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from bylaw.model.condition import Path
from bylaw.model.events import Response, ToolCall


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = _Missing()

Read = Callable[[Response], Any]
ReadAll = Callable[[Response], Iterable[Any]]


def compile_path(path: Path) -> Read:
    """For a path without wildcard: its one value, or MISSING."""
    field = _FIELDS[path.root, path.field] if path.text != "model" else _either_model
    steps = _steps(path)
    if not steps:
        return field
    if len(steps) == 1:
        return _one_step(field, *steps[0])  # type: ignore[arg-type]
    return lambda response: _walk(field(response), steps)


def compile_paths(path: Path) -> ReadAll:
    """For any path: every value it leads to, in order. Missing ones are left out."""
    if None not in path.rest:
        return _one(compile_path(path))
    field = _FIELDS[path.root, path.field]
    steps = _steps(path)
    return lambda response: _spread(field(response), steps)


_Step = tuple[str | None, int | None]


def _steps(path: Path) -> tuple[_Step, ...]:
    return tuple((part, _index(part)) for part in path.rest)


def _index(part: str | None) -> int | None:
    if part is None or not part.removeprefix("-").isdecimal() or len(part) > 9:
        return None
    return int(part)


def _one_step(field: Read, key: str, index: int | None) -> Read:
    def read(response: Response) -> Any:
        value = field(response)
        return value.get(key, MISSING) if type(value) is dict else _enter(value, key, index)

    return read


def _walk(value: Any, steps: tuple[_Step, ...]) -> Any:
    for key, index in steps:
        value = _enter(value, key, index)
        if value is MISSING:
            break
    return value


def _enter(value: Any, key: str | None, index: int | None) -> Any:
    if isinstance(value, dict):
        return value.get(key, MISSING)
    if isinstance(value, list) and index is not None and -len(value) <= index < len(value):
        return value[index]
    return MISSING


def _one(read: Read) -> ReadAll:
    def read_all(response: Response) -> Iterable[Any]:
        value = read(response)
        return () if value is MISSING else (value,)

    return read_all


def _spread(value: Any, steps: tuple[_Step, ...]) -> Iterator[Any]:
    if value is MISSING:
        return
    if not steps:
        yield value
        return
    (key, index), rest = steps[0], steps[1:]
    if key is not None:
        yield from _spread(_enter(value, key, index), rest)
    elif isinstance(value, (list, dict)):
        for element in value.values() if isinstance(value, dict) else value:
            yield from _spread(element, rest)


def _present(value: Any) -> Any:
    return MISSING if value is None else value


def _request_field(name: str) -> Read:
    def read(response: Response) -> Any:
        request = response.request
        return MISSING if request is None else _present(getattr(request, name))

    return read


def _response_field(name: str) -> Read:
    return lambda response: _present(getattr(response, name))


def _either_model(response: Response) -> Any:
    """The alias `model` falls back on what the response says, for formats that record the model only there."""
    asked = response.request.model if response.request else None
    return _present(asked or response.model)


def _usage(response: Response) -> Any:
    usage = response.usage
    if usage is None:
        return MISSING
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
