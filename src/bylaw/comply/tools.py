"""The tools an agent has: from their schemas in whatever form they come, or from the calls in a trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bylaw.comply.prompt.model import ToolSpec
from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event, Request, ToolCall
from bylaw.model.values import json_type

_SCHEMAS = ("parameters", "input_schema", "inputSchema", "schema")
"""OpenAI's, Anthropic's, MCP's and other people's word for the JSON Schema of the arguments"""
MOST = 5_000


def read_tools(given: Any, file: str = "tools") -> tuple[ToolSpec, ...]:
    """OpenAI functions, Anthropic tools, an MCP tool list, or plain objects with `name`. Raises InputError."""
    return tuple(_unique(_each(given, file)))


def tools_called(events: Iterable[Event]) -> tuple[ToolSpec, ...]:
    """As far as a trace tells: tools that requests offer with their schemas, and those that were only called."""
    offered: dict[str, ToolSpec] = {}
    called: dict[str, dict[str, None]] = {}
    seen: set[int] = set()
    for event in events:
        if isinstance(event, Request) and event.held_tools is not None and id(event.held_tools) not in seen:
            seen.add(id(event.held_tools))
            offered |= {tool.name: tool for tool in _readable(event.tools)}
        elif isinstance(event, ToolCall):
            names = event.arguments if isinstance(event.arguments, dict) else {}
            called.setdefault(event.name, {}).update(dict.fromkeys(names))
    only_called = [
        ToolSpec(name=name, params={key: {} for key in sorted(keys)})
        for name, keys in called.items()
        if name not in offered
    ]
    return tuple(sorted((*offered.values(), *only_called), key=lambda tool: tool.name)[:MOST])


def merged(several: Iterable[Iterable[ToolSpec]]) -> tuple[ToolSpec, ...]:
    """The tools of several traces; of one that is known twice, all parameters."""
    tools: dict[str, ToolSpec] = {}
    for tool in (tool for some in several for tool in some):
        known = tools.get(tool.name)
        if known is None or (tool.has_schema and not known.has_schema):
            tools[tool.name] = tool
        elif not known.has_schema:
            tools[tool.name] = ToolSpec(name=tool.name, params={**tool.params, **known.params})
    return tuple(sorted(tools.values(), key=lambda tool: tool.name))


def completed(given: Iterable[ToolSpec], called: Iterable[ToolSpec], prompt: str) -> tuple[ToolSpec, ...]:
    """The given tools, and those of the trace that the prompt speaks of though nobody gave their schemas."""
    given = tuple(given)
    known = {tool.name for tool in given}
    return (*given, *(tool for tool in called if tool.name not in known and tool.name in prompt))


def _readable(tools: Any) -> Iterator[ToolSpec]:
    """What a recorded request offers is no input of the user's: an odd entry is passed over."""
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        try:
            yield _tool(tool, f"tools[{place}]", "trace")
        except InputError:
            continue


def _unique(tools: Iterable[ToolSpec]) -> list[ToolSpec]:
    return list({tool.name: tool for tool in tools}.values())


def _each(given: Any, file: str) -> Iterator[ToolSpec]:
    if isinstance(given, Mapping):
        given, path = _listed(given)
    else:
        path = file
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise _wrong(file, f"`{file}` must be a list of tools, not {json_type(given)}")
    for place, tool in enumerate(given):
        if place >= MOST:
            raise _wrong(file, f"`{file}` holds more than {MOST:,} tools")
        yield _tool(tool, f"{path}[{place}]", file)


def _listed(given: Mapping[str, Any]) -> tuple[Any, str]:
    """`{"tools": […]}`, MCP's `{"result": {"tools": […]}}`, or schemas by the tool's name."""
    inner = given.get("result")
    if isinstance(inner, Mapping) and "tools" in inner:
        return inner["tools"], "result.tools"
    for key in ("tools", "functions"):
        if isinstance(given.get(key), list):
            return given[key], key
    if isinstance(given.get("name"), str):
        return [given], "tools"
    return [
        {"name": name, "parameters": one} if isinstance(one, Mapping) and not _has_schema(one) else _named(name, one)
        for name, one in given.items()
    ], "tools"


def _named(name: str, tool: Any) -> Any:
    return {"name": name, **tool} if isinstance(tool, Mapping) else tool


def _has_schema(tool: Mapping[str, Any]) -> bool:
    return any(key in tool for key in (*_SCHEMAS, "description", "name"))


def _tool(tool: Any, path: str, file: str) -> ToolSpec:
    if isinstance(tool, str):
        return ToolSpec(name=tool)
    tool = _plain(tool)
    if not isinstance(tool, Mapping):
        raise _wrong(file, f"`{path}` must be an object with `name`, not {json_type(tool)}")
    inner = tool.get("function")
    tool = inner if isinstance(inner, Mapping) else tool
    name = tool.get("name", tool.get("title"))
    if not isinstance(name, str) or not name:
        raise _wrong(file, f"`{path}` has no `name`")
    key = next((key for key in _SCHEMAS if tool.get(key) is not None), None)
    schema = tool[key] if key else (tool if isinstance(tool.get("properties"), Mapping) else None)
    if schema is not None and not isinstance(schema, Mapping):
        raise _wrong(file, f"`{path}.{key}` must be a JSON Schema object, not {json_type(schema)}")
    description = tool.get("description")
    return ToolSpec(
        name=name,
        description=description if isinstance(description, str) else "",
        params=_params(schema or {}),
        has_schema=schema is not None,
    )


def _plain(tool: Any) -> Any:
    """Tools of the providers' Python libraries are models that can say what they hold."""
    dump = getattr(tool, "model_dump", None)
    return dump() if callable(dump) else tool


def _params(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    properties = schema.get("properties")
    found = properties if isinstance(properties, Mapping) else {}
    return {str(name): dict(one) if isinstance(one, Mapping) else {} for name, one in found.items()}


def _wrong(file: str, message: str) -> InputError:
    return InputError([Diagnostic(code="wrong-type", message=message, file=file)])
