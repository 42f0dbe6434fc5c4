"""The content of an answer: blocks, their text, and the calls that it issues with their arguments."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from bylaw.model.events import Locator, Origin, ToolCall, ToolResult
from bylaw.text.repeated_keys import repeated_key
from bylaw.traces.assembly.session_buffer import is_same_call
from bylaw.traces.records.jsontext import REFUSED, Fault, decode_carefully, decode_quickly

CALL_BLOCKS = frozenset(("tool_use", "server_tool_use", "mcp_tool_use"))
"""a call that the model issued, no matter who ran it"""
KNOWN_BLOCKS = frozenset(
    (*CALL_BLOCKS, "text", "thinking", "redacted_thinking", "reasoning", "refusal", "output_text", "image", "image_url",
     "input_text", "input_audio", "audio", "document", "file", "compaction", "text-plain", "source", "source-url",
     "source-document", "blob", "uri", "container_upload", "fallback", "mcp_tool_listing", "video", "output_image",
     "reference", "document_url", "reasoning.text", "reasoning.summary", "reasoning.encrypted")
)  # fmt: skip
"""block types whose meaning is known; the result of a tool that the provider ran ends in `tool_result`"""
_DATA = "data-"
"""how the type of a part begins that an application adds to answers for its interface, in Vercel's AI SDK"""
UNREAD_BLOCK = "a block of type `{}` is stored, but rules do not look into it"
EVERYTHING = ("*",)
"""what a response with such a block may hold: calls of any tool, and text"""
MISSING_CALLS = "the model stopped to call tools, and no call was read from this answer"
MISSING_HELP = "its calls were not recorded, or not in a way that is read; rules that they may decide are inconclusive"
WRITTEN_CALL = "the text of this answer looks like a call of a tool, which is not read"
WRITTEN_HELP = "have your server read calls from the text of answers; rules that a call may decide are inconclusive"
_TOOL_STOPS = frozenset(("tool_use", "tooluse", "tool_calls", "tool_call", "function_call"))
_FOREIGN_CALLS = frozenset(
    ("function_call", "tool_call", "server_tool_call", "tool-call", "builtin-tool-call", "toolUse", "functionCall",
     "toolRequest", "executableCode", "executable_code")
)  # fmt: skip
"""calls in the words of other APIs: the type of the block, or the only key of a block without a type"""
_FOREIGN_RESULTS = frozenset(
    ("function_call_output", "tool_call_response", "server_tool_call_response", "tool-result", "toolResult",
     "functionResponse", "function_response", "toolResponse", "tool-return", "builtin-tool-return",
     "codeExecutionResult", "code_execution_result", "function_result", "tool_call_result")
)  # fmt: skip
"""results in the words of other APIs, found the same way"""
_CALL_IDS = ("call_id", "tool_call_id", "toolCallId", "toolUseId", "id")
_RESULT_IDS = ("tool_use_id", "tool_call_id", "call_id", "toolCallId", "toolUseId", "id")
_RESULT_CONTENTS = ("output", "response", "result", "content", "toolResult", "server_tool_call_response")
_FAILED = frozenset(
    ("error", "failed", "denied", "cancelled", "deadline_exceeded", "error-text", "error-json", "execution-denied")
)
_SUCCEEDED = frozenset(("success", "ok"))
CODE_EXECUTION = "code_execution"
"""the name of the tool with which a provider runs a model's code, where calls do not name it"""
_KNOWN_KEYS = frozenset(
    (*_FOREIGN_RESULTS, "reasoningContent", "image", "document", "video", "audio", "inlineData", "inline_data",
     "fileData", "file_data", "cachePoint", "searchResult")
)  # fmt: skip
"""the key of a block without a type that is neither text nor a call"""
_TEXT_KEYS: dict[Any, str] = {"refusal": "refusal", "output_text": "text", "text-plain": "text", None: "text"}
"""blocks that are text under another name, by their type; a block without a type that has text is text"""
_PLAIN_FIELDS = 4
"""type, id, name, input"""

Content: TypeAlias = tuple[list[Any] | None, str | None, list[dict[str, Any]] | None]
"""the blocks, their text joined by newlines, and those blocks that are calls"""


def read_content(content: list[Any] | str | None) -> Content:
    """Recorded content: blocks, plain text, or nothing. Runs once per turn."""
    if not isinstance(content, list):
        return (None, None, None) if content is None else ([{"type": "text", "text": content}], content, None)
    if len(content) == 1 and type(block := content[0]) is dict and block.get("type") == "text":
        text = block.get("text")
        if type(text) is str:
            return content, text, None
    texts: list[str] = []
    uses: list[dict[str, Any]] | None = None
    for block in content:
        if type(block) is not dict:
            if type(block) is str:
                texts.append(block)
            continue
        kind = block.get("type")
        if kind == "text":
            if type(text := block.get("text")) is str:
                texts.append(text)
        elif type(kind) is str and kind in CALL_BLOCKS:
            uses = uses or []
            uses.append(block)
        elif (kind is None or type(kind) is str) and type(text := block.get(_TEXT_KEYS.get(kind, ""))) is str:
            texts.append(text)
        elif (call := foreign_call(block)) is not None:
            uses = uses or []
            uses.append(call)
            content = [call if one is block else one for one in content]
        elif kind is None and (text := _bedrock_text(block)):
            texts.append(text)
    return content, texts[0] if len(texts) == 1 else "\n".join(texts), uses


def _bedrock_text(block: dict[str, Any]) -> str | None:
    """The text of a block with citations, or of one for guardrails; None if it is neither, or not understood."""
    cited, guarded = block.get("citationsContent"), block.get("guardContent")
    if type(guarded) is dict:
        cited = {"content": [guarded["text"]] if "text" in guarded else []}
    parts = cited.get("content") if type(cited) is dict else None
    if type(parts) is not list or not all(type(part) is dict and type(part.get("text")) is str for part in parts):
        return None
    return "".join(part["text"] for part in parts)


def foreign_call(block: dict[str, Any]) -> dict[str, Any] | None:
    """A call in the words of another API as a `tool_use` block, if it is surely one: it names its tool."""
    kind, call = block.get("type"), block
    if kind is None:
        keys = [key for key in block if key in _FOREIGN_CALLS]
        inner = block[keys[0]] if len(keys) == 1 else None
        if type(inner) is not dict:
            return None
        call = inner
    elif type(kind) is not str or kind not in _FOREIGN_CALLS:
        return None
    if type(wrapped := call.get("toolCall")) is dict and type(wrapped.get("value")) is dict:  # goose
        call = {"id": call.get("id"), **wrapped["value"]}
    if "code" in call and kind is None:  # Gemini runs it
        call = {"name": CODE_EXECUTION, "input": call, "id": call.get("id")}
    names = [call[key] for key in ("name", "toolName", "tool_name") if key in call]
    inputs = [call[key] for key in ("input", "arguments", "args") if key in call]
    if len(names) != 1 or type(names[0]) is not str or len(inputs) > 1:
        return None
    call_id = next((call[key] for key in _CALL_IDS if call.get(key)), None)
    return {"type": "tool_use", "id": call_id, "name": names[0], "input": inputs[0] if inputs else None}


class Result(Struct, frozen=True):
    """The result of a tool, in any kind of message."""

    call_id: str | None
    name: str | None
    content: Any
    is_error: bool | None
    arguments: Any = None
    """the arguments of the call, in formats that repeat them with the result"""

    def event(self, origin: Origin, at: str | float | None, source: Locator | None) -> ToolResult:
        return ToolResult(
            origin=origin,
            at=at,
            source=source,
            call_id=self.call_id,
            name=self.name,
            content=self.content,
            is_error=self.is_error,
        )


def recorded_id(result: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    """The id of the call that a result answers: text or a number, as calls have them. Empty text is none."""
    values = (result.get(key) for key in keys)
    return next((str(value) for value in values if value or type(value) is int), None)


def foreign_result(block: dict[str, Any]) -> Result | None:
    """A result in the words of any API, if the block is one."""
    kind, result = block.get("type"), block
    if kind is None:
        keys = [key for key in block if key in _FOREIGN_RESULTS]
        inner = block[keys[0]] if len(keys) == 1 else None
        if type(inner) is not dict:
            return None
        result = inner
    elif type(kind) is not str or not (kind in _FOREIGN_RESULTS or kind.endswith("tool_result")):
        return None
    call = result.get("origin")
    if kind is None and type(call) is dict:  # Haystack repeats the call
        failed, content = result.get("error"), result.get("result")
        is_error = failed if type(failed) is bool else None
        return Result(recorded_id(call, ("id",)), call.get("tool_name"), content, is_error, call.get("arguments"))
    names = (result[key] for key in ("name", "toolName", "tool_name") if type(result.get(key)) is str)
    content = next((result[key] for key in _RESULT_CONTENTS if key in result), None)
    if "outcome" in result and kind is None:
        failed = _is_failure(str(result["outcome"]).rpartition("OUTCOME_")[2].lower())
        return Result(recorded_id(result, _RESULT_IDS), CODE_EXECUTION, content, failed)
    flags = [result[key] for key in ("is_error", "isError") if type(result.get(key)) is bool]
    failed = flags[0] if flags else _is_failure(result.get("status", result.get("outcome")))
    if type(content) is dict and type(content.get("type")) is str and ("value" in content or "reason" in content):
        failed = content["type"] in _FAILED  # Vercel
        content = content["value"] if "value" in content else content["reason"]
    elif type(content) is dict and content.keys() == {"status", "value"}:  # goose
        failed, content = _is_failure(content["status"]), content["value"]
    elif failed is None and kind is None and type(content) is dict and content.keys() == {"error"}:
        failed = True  # Gemini's API asks for this key
    return Result(recorded_id(result, _RESULT_IDS), next(names, None), only_part(content), failed)


def _is_failure(status: Any) -> bool | None:
    return None if type(status) is not str else True if status in _FAILED else False if status in _SUCCEEDED else None


def only_part(content: Any) -> Any:
    """The value of a list of one part without a type, as Bedrock writes it."""
    if type(content) is list and len(content) == 1 and type(part := content[0]) is dict and len(part) == 1:
        return part.get("json", part.get("text", content))
    return content


def unread_kinds(content: list[Any] | None) -> list[str]:
    """Types of blocks that are not known: they may hold text or calls that rules cannot see."""
    if not content or (len(content) == 1 and type(content[0]) is dict and content[0].get("type") == "text"):
        return []  # the common case, asked for every turn
    kinds: set[str] = set()
    for block in content:
        if type(block) is not dict:
            if type(block) is not str:
                kinds.add(type(block).__name__)
            continue
        kind = block.get("type")
        if kind is None:
            is_known = type(block.get("text")) is str or not _KNOWN_KEYS.isdisjoint(block)
            if not is_known and _bedrock_text(block) is None:
                kinds.add(next(iter(block), "{}"))
        elif type(kind) is not str or (
            kind not in KNOWN_BLOCKS
            and kind not in _FOREIGN_RESULTS
            and not kind.endswith("tool_result")
            and not kind.startswith(_DATA)
        ):
            kinds.add(str(kind))
    return sorted(kinds)


def stops_for_tools(stop_reason: str | None) -> bool:
    """Whether a model says that it stopped in order to call tools, in the words of any API."""
    return stop_reason is not None and stop_reason.lower().replace("-", "_") in _TOOL_STOPS


def is_written_call(text: str | None) -> bool:
    """Whether the text of an answer without calls may hold one. Asked for each answer, so most are decided here."""
    # each sign has one of these, and single characters are found much faster than words
    if text is None or not (
        "<" in text
        or "[" in text
        or "{" in text
        or "`" in text
        or "=" in text
        or "_" in text
        or "Action" in text
        or "\u273f" in text
    ):
        return False
    from bylaw.traces.assembly.written_calls import holds_call

    return holds_call(text)


def read_arguments(recorded: Any) -> tuple[Any, str | None]:
    """The parsed arguments of a call, and their text if they were recorded as text. Never fails.

    Text that is JSON is parsed; for other text the arguments are None, and so they are if an object in it has a key
    twice: nobody knows which of the two the tool used. Any other value is returned as it is.
    """
    if not isinstance(recorded, str):
        return recorded, None
    try:
        value = decode_quickly(recorded)
    except REFUSED:
        try:
            value = decode_carefully(recorded)[0]
        except Fault:
            return None, recorded
    return None if repeated_key(recorded, value) is not None else value, recorded


class AssistantContent(Struct, eq=False):
    """The content of an assistant's message, in Anthropic's block shapes."""

    blocks: list[Any] | None = []
    uses: list[dict[str, Any]] = []
    """the blocks that are calls …"""
    arguments: list[tuple[Any, str | None]] = []
    """… and the arguments of each, parsed and as text"""
    text: str | UnsetType | None = UNSET
    """the text of the blocks, where the reader knows it, and that no block is of an unknown type"""

    def add_call(self, id: Any, name: str, recorded: Any, type: str = "tool_use", **more: Any) -> None:
        arguments, raw = read_arguments(recorded)
        input = raw if arguments is None else arguments
        block = {"type": type, "id": id, "name": name, "input": input, **more}
        if self.blocks is None:
            self.blocks = []
        self.blocks.append(block)
        self.uses.append(block)
        self.arguments.append((arguments, raw))


def results_inside(answer: AssistantContent, calls: tuple[ToolCall, ...]) -> list[tuple[Result, tuple[ToolCall, ...]]]:
    """The results that an answer holds itself, each with the calls between it and the next one.

    Providers that run tools answer with calls and their results in the order in which they ran. A result without an id
    answers the only call before it that has no result yet.
    """
    found: list[tuple[Result, int]] = []
    before = 0
    for block in answer.blocks or ():
        if type(block) is not dict:
            continue
        if type(kind := block.get("type")) is str and kind in KNOWN_BLOCKS:
            before += kind in CALL_BLOCKS
        elif (result := foreign_result(block)) is not None:
            found.append((result, before))
    if not found:
        return []  # nearly always, and this is asked for every answer
    if len(calls) != len(answer.uses):
        calls = ()  # one call is recorded twice, so their numbers do not tell where they stand
    ends = [number for _, number in found[1:]] + [len(calls)]
    placed: list[tuple[Result, tuple[ToolCall, ...]]] = []
    answered: set[str | None] = set()
    for (result, number), end in zip(found, ends, strict=False):
        if result.call_id is None:
            waiting = [call for call in calls[:number] if call.call_id not in answered]
            fitting = [call.call_id for call in waiting if result.name in (None, call.name)]
            result = replace(result, call_id=fitting[0]) if len(fitting) == 1 else result
        answered.add(result.call_id)
        placed.append((result, calls[number:end]))
    return placed


class NamelessCall(ValueError):
    """A call without the name of a tool."""

    def __init__(self, block: dict[str, Any]) -> None:
        super().__init__("this call has no `name`")
        self.block = block


def calls_in(
    uses: list[dict[str, Any]],
    origin: Origin,
    turn: int,
    at: str | float | None,
    source: Locator | None,
    read: list[tuple[Any, str | None]] | None = None,
    places: list[Locator] | None = None,
) -> tuple[tuple[ToolCall, ...], list[tuple[str, str]]]:
    """The calls in these blocks, and the ids that two different calls of this response share, each with the new one.

    A block that repeats another one exactly is the same call. Of two different calls that share an id, the second gets
    a new id. `read` holds the arguments of each block if they are parsed already, `places` the source of each block if
    it is not `source`. Raises NamelessCall.
    """
    if not uses:
        return (), []
    group = turn if len(uses) > 1 else None
    calls: dict[str, ToolCall] = {}
    shared: list[tuple[str, str]] = []
    for number, block in enumerate(uses):
        name = block.get("name")
        if type(name) is not str:
            raise NamelessCall(block)
        call_id = block.get("id")
        if type(call_id) is not str or not call_id:
            call_id = f"t{turn}.{len(calls)}" if call_id is None or call_id == "" else str(call_id)
        arguments, raw = block.get("input"), None
        if read is not None:
            arguments, raw = read[number]
        elif type(arguments) is not dict:
            arguments, raw = read_arguments(arguments)
        namespace = block.get("server_name", block.get("toolset_name")) if len(block) > _PLAIN_FIELDS else None
        call = ToolCall(
            origin=origin,
            turn=turn,
            at=at,
            source=source if places is None else places[number],
            name=name,
            namespace=namespace if isinstance(namespace, str) else None,
            call_id=call_id,
            arguments=arguments,
            raw_arguments=raw,
            group=group,
        )
        if call_id not in calls:
            calls[call_id] = call
        elif not is_same_call(calls[call_id], call):
            own = f"t{turn}.{len(calls)}"
            shared.append((call_id, own))
            calls[own] = replace(call, call_id=own)
    return tuple(calls.values()), shared
