"""What callers pass in: tools, aliases, traces, and the files of the commands.

Everything is checked before any work starts: bad input is an error, never a verdict.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bylaw.comply.model import ToolSpec
from bylaw.comply.prompt.returns import answer_of, observe_results
from bylaw.comply.prompt.vocabulary import only_reads
from bylaw.errors import InputError
from bylaw.model.canonical import json_type
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Event, Message, Request, ToolCall, Trace, seconds
from bylaw.traces import load_trace

# -- tools -------------------------------------------------------------------------------------------------------------

_SCHEMAS = ("parameters", "input_schema", "inputSchema", "schema")
"""the keys of OpenAI, Anthropic, MCP and others for the JSON Schema of the arguments"""
_OUTPUTS = ("outputSchema", "output_schema", "returns", "response")
"""the keys of MCP and others for the JSON Schema of the result"""
_ANSWERS = {"string": "text", "array": "list", "integer": "number"} | {
    one: one for one in ("boolean", "number", "object")
}
MOST_TOOLS = 5_000


def read_tools(given: Any, file: str = "tools") -> tuple[ToolSpec, ...]:
    """OpenAI functions, Anthropic tools, an MCP tool list, or plain objects with `name`. Raises InputError."""
    return tuple({tool.name: tool for tool in _read_each_tool(given, file)}.values())


def tools_called(events: Sequence[Event], known: Collection[str] = ()) -> tuple[ToolSpec, ...]:
    """The tools that a trace shows: those that requests offer with their schemas, and those that were only called.

    What they returned is read too, but for the tools of which that is `known`.
    """
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
    found = sorted((*offered.values(), *only_called), key=lambda tool: tool.name)[:MOST_TOOLS]
    observed = observe_results(events, {tool.name for tool in found}.difference(known))
    return tuple(_merge_results(tool, observed.get(tool.name)) for tool in found)


def _merge_results(tool: ToolSpec, seen: ToolSpec | None) -> ToolSpec:
    if seen is None or tool.answer:
        return tool
    return replace(tool, answer=seen.answer, fields=tuple(dict.fromkeys((*tool.fields, *seen.fields))))


def merge_tools(several: Iterable[Iterable[ToolSpec]]) -> tuple[ToolSpec, ...]:
    """The tools of several traces. One that is known twice has the parameters of both, and a type if it is the same."""
    tools: dict[str, ToolSpec] = {}
    for tool in (tool for some in several for tool in some):
        known = tools.get(tool.name)
        if known is None or (tool.has_schema and not known.has_schema):
            tools[tool.name] = tool
            continue
        answers = {known.answer, tool.answer} - {""}
        tools[tool.name] = replace(
            known,
            params=known.params if known.has_schema else {**tool.params, **known.params},
            answer=answers.pop() if len(answers) == 1 else "",
            fields=tuple(sorted({*known.fields, *tool.fields})),
        )
    return tuple(sorted(tools.values(), key=lambda tool: tool.name))


def complete_tools(given: Iterable[ToolSpec], called: Iterable[ToolSpec], prompt: str) -> tuple[ToolSpec, ...]:
    """The tools passed in, with what they returned, and those of the trace without a schema that the prompt names."""
    seen = {tool.name: tool for tool in called}
    given = tuple(_merge_results(tool, None if says_result(tool) else seen.get(tool.name)) for tool in given)
    known = {tool.name for tool in given}
    return (*given, *(tool for name, tool in seen.items() if name not in known and name in prompt))


def says_result(tool: ToolSpec) -> bool:
    """Whether a tool's schema or description says what it returns; of one that acts, its type matters little."""
    return answer_of(tool) != "" or ("return" in tool.description.lower() and not only_reads(tool))


def _readable(tools: Any) -> Iterator[ToolSpec]:
    """A recorded request is not input of the user: a malformed entry is skipped."""
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        try:
            yield _tool(tool, f"tools[{place}]", "trace")
        except InputError:
            continue


def _read_each_tool(given: Any, file: str) -> Iterator[ToolSpec]:
    given, path = _find_tool_list(given) if isinstance(given, Mapping) else (given, file)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise _wrong(file, f"`{file}` must be a list of tools, not {json_type(given)}")
    for place, tool in enumerate(given):
        if place >= MOST_TOOLS:
            raise _wrong(file, f"`{file}` holds more than {MOST_TOOLS:,} tools")
        yield _tool(tool, f"{path}[{place}]", file)


def _find_tool_list(given: Mapping[str, Any]) -> tuple[Any, str]:
    """`{"tools": […]}`, MCP's `{"result": {"tools": […]}}`, or schemas by the tool's name."""
    inner = given.get("result")
    if isinstance(inner, Mapping) and "tools" in inner:
        return inner["tools"], "result.tools"
    for key in ("tools", "functions"):
        if isinstance(given.get(key), list):
            return given[key], key
    if isinstance(given.get("name"), str):
        return [given], "tools"
    tools = []
    for name, one in given.items():
        if not isinstance(one, Mapping):
            tools.append(one)
        elif any(key in one for key in (*_SCHEMAS, "description", "name")):
            tools.append({"name": name, **one})
        else:
            tools.append({"name": name, "parameters": one})
    return tools, "tools"


def _tool(tool: Any, path: str, file: str) -> ToolSpec:
    if isinstance(tool, str):
        return ToolSpec(name=tool)
    if callable(dump := getattr(tool, "model_dump", None)):  # of a provider's Python library
        tool = dump()
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
    output: Mapping[str, Any] = next((tool[key] for key in _OUTPUTS if isinstance(tool.get(key), Mapping)), {})
    answer, shown = output.get("type"), output.get("properties")
    properties = schema.get("properties") if schema else None
    params = properties.items() if isinstance(properties, Mapping) else ()
    return ToolSpec(
        name=name,
        description=description if isinstance(description, str) else "",
        params={str(param): dict(one) if isinstance(one, Mapping) else {} for param, one in params},
        has_schema=schema is not None,
        fields=tuple(str(key) for key in shown) if isinstance(shown, Mapping) else (),
        answer=_ANSWERS.get(answer, "") if isinstance(answer, str) else "",
    )


def _wrong(file: str, message: str) -> InputError:
    return InputError([Diagnostic(code="wrong-type", message=message, file=file)])


# -- aliases and time --------------------------------------------------------------------------------------------------


def checked_aliases(aliases: Mapping[str, Sequence[str]] | None) -> dict[str, list[str]]:
    if aliases is None:
        return {}
    if not isinstance(aliases, Mapping):
        raise TypeError(f"aliases must map words to tools, not be {type(aliases).__name__}")
    checked: dict[str, list[str]] = {}
    words: Any
    for words, tools in aliases.items():
        if not isinstance(words, str) or not words.strip():
            raise TypeError(f"aliases: {words!r} is not a word of a prompt")
        names = [tools] if isinstance(tools, str) else tools
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise TypeError(f"aliases[{words!r}] must be a tool's name or a list of them")
        checked[words] = list(names)
    return checked


def check_timeout(timeout_ms: Any) -> None:
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float):
        raise TypeError(f"timeout_ms must be a number, not {type(timeout_ms).__name__}")
    if not math.isfinite(timeout_ms) or timeout_ms <= 0:
        raise ValueError(f"timeout_ms={timeout_ms}: expected more than 0")


# -- traces ------------------------------------------------------------------------------------------------------------

_DEEPEST = 100


def as_trace(given: Any) -> Trace:
    if isinstance(given, Trace):
        return given
    if isinstance(given, list | tuple):
        given = [_finite(event, f"trace_events[{index}]") for index, event in enumerate(given)]
        # Elements with a `type` are events, known or not; so are elements that are not objects.
        is_events = all("type" in event for event in given if isinstance(event, dict))
        return load_trace(given, format="events" if is_events else None)
    if isinstance(given, str | os.PathLike | bytes | bytearray | memoryview | dict) or hasattr(given, "read"):
        return load_trace(given)
    raise TypeError(f"trace_events must be a list of events or a trace, not {type(given).__name__}")


def _finite(value: Any, path: str, depth: int = 0) -> Any:
    """The value with `inf` and `nan` as text, which no rule can compare with a number.

    Raises InputError at the first value that JSON has no form for.
    """
    if value is None or isinstance(value, str | bool | int) or callable(getattr(value, "model_dump", None)):
        return value
    if depth > _DEEPEST:
        raise _wrong_type_error(path, f"nested more than {_DEEPEST} levels deep")
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise _wrong_type_error(path, f"a mapping with the key `{key}`, which is not text")
        return {key: _finite(one, f"{path}.{key}", depth + 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one, f"{path}[{index}]", depth + 1) for index, one in enumerate(value)]
    raise _wrong_type_error(path, f"of the type `{type(value).__name__}`, which is not JSON")


def _wrong_type_error(path: str, what: str) -> InputError:
    help = "give it as text, number, list or mapping"
    return InputError([Diagnostic(code="wrong-type", message=f"`{path}` is {what}", file="trace", help=help)])


def first_day(trace: Trace) -> str | None:
    """The day on which the recording begins, in UTC."""
    at = next((found for event in trace.events if (found := seconds(event.at)) is not None), None)
    try:
        return None if at is None else datetime.fromtimestamp(at, UTC).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return None


def split_sessions(trace: Trace) -> list[Trace]:
    """One trace for each session: a prompt speaks about one conversation. Notes and problems stay with the first."""
    events: dict[str, list[Event]] = {}
    for event in trace.events:
        events.setdefault(event.origin.session, []).append(event)
    if len(events) < 2:
        return [trace]
    parts = [
        replace(trace, name=f"{trace.name}#{session}", events=tuple(own), notes=(), problems=(), skipped=0)
        for session, own in events.items()
    ]
    first = replace(parts[0], notes=trace.notes, problems=trace.problems, skipped=trace.skipped)
    return [first, *parts[1:]]


# -- files of the commands ---------------------------------------------------------------------------------------------


def read_tools_file(path: str) -> tuple[ToolSpec, ...]:
    return read_tools(_read_data(path), path)


def read_alias_file(path: str) -> Mapping[str, Sequence[str]]:
    data = _read_data(path)
    if not isinstance(data, dict):
        raise _wrong(path, "the file must map words to tools")
    aliases: dict[str, list[str]] = {}
    for words, tools in data.items():
        names = [tools] if isinstance(tools, str) else tools
        if isinstance(words, str) and not words.strip():  # which is in every sentence
            raise _wrong(path, f"`{words}` is not a word of a prompt")
        if not isinstance(words, str) or not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise _wrong(path, f"`{words}` must map to a tool's name or a list of them")
        aliases[words] = names
    return aliases


def _read_data(path: str) -> Any:
    """JSON or YAML, by the reader of rule files: bounded in size, and with the position of each problem."""
    from bylaw.rules.files import format_of
    from bylaw.rules.loader import parse_documents
    from bylaw.rules.nodes import Problems, Source, Unreadable, plain

    source = Source(path, read_prompt_file(path))
    problems = Problems(source)
    documents = []
    with contextlib.suppress(Unreadable):
        documents = parse_documents(source, problems, format_of(path))
    errors = [problem for problem in problems.all if problem.is_error]
    if errors or not documents:
        raise InputError(errors)
    return plain(documents[0])


def read_prompt_file(path: str) -> str:
    """The text of a file; `-` is standard input. Raises InputError."""
    from bylaw.rules.files import decode, read_text_file
    from bylaw.rules.nodes import MAX_BYTES

    if path == "-":
        return decode(sys.stdin.buffer.read(MAX_BYTES + 1), "<stdin>")
    return read_text_file(Path(path), path)


# -- the prompt that a trace holds -------------------------------------------------------------------------------------

# That of its first request, or of messages outside any request.

RECORDED = "system prompt"
"""the name of a prompt that is in no file"""
_ROLES = ("system", "developer")


def recorded_prompt(trace: Trace) -> str | None:
    """The texts of the system messages, in their order; None if the trace holds none."""
    for event in trace.events:
        found: list[str] = []
        if isinstance(event, Request):
            messages = [message for message in event.messages or () if isinstance(message, dict)]
            contents = (one.get("content", one.get("parts")) for one in messages if one.get("role") in _ROLES)
            found = [text for content in contents if (text := _text(content))]
        elif isinstance(event, Message) and event.role in _ROLES:
            found = [text for text in (_text(event.content),) if text]
        if found:
            return "\n\n".join(found)
    return None


def shared_prompt(traces: Sequence[Trace]) -> str:
    """The prompt of all these traces. Raises ValueError if one has none, or if they differ."""
    prompts = {trace.name: recorded_prompt(trace) for trace in traces}
    without = [name for name, prompt in prompts.items() if prompt is None]
    if without or not prompts:
        name = f"`{without[0]}`" if without else "the traces"
        raise ValueError(f"no system prompt is recorded in {name}: pass it (`--prompt`, `system_prompt`)")
    if len(different := set(prompts.values())) > 1:
        raise ValueError(
            f"the traces hold {len(different):,} different system prompts: check them one by one, or use --prompt"
        )
    return different.pop() or ""


def _text(content: Any) -> str:
    """The text of a message: plain, or in blocks."""
    if isinstance(content, str):
        return content.strip()
    if isinstance(content, list):
        return "\n".join(filter(None, map(_text, content)))
    if isinstance(content, dict):
        return _text(content.get("text") or content.get("content"))
    return ""
