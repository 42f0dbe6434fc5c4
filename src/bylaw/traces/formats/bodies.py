"""Requests to the APIs of models and their replies, in the form of each provider. Nothing here can fail.

OpenAI's chat completions and Responses, Anthropic's messages, Gemini's `generateContent`, Bedrock's Converse. Logs of
proxies hold these bodies whole, and so do the spans of many recorders, as objects or as text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.model.events import Locator
from bylaw.traces.assembly.assembler import Assembler
from bylaw.traces.assembly.content import CALL_BLOCKS, AssistantContent, Result, foreign_call
from bylaw.traces.assembly.session_buffer import MOST_CALLS, KnownCall, SessionBuffer
from bylaw.traces.formats.chat_message import ASSISTANT, read_assistant, results_in, time_of, unwrap
from bylaw.traces.formats.messages import bare_calls, chat_message, chat_messages, first_answer, parse_if_json
from bylaw.traces.formats.record import MalformedRecord, object_field, text_field
from bylaw.traces.formats.responses_items import add_item, is_item

PARAMS = (
    "frequency_penalty",
    "max_completion_tokens",
    "max_tokens",
    "presence_penalty",
    "reasoning_effort",
    "response_format",
    "seed",
    "stop",
    "stop_sequences",
    "temperature",
    "thinking",
    "tool_choice",
    "top_k",
    "top_p",
)
_CONFIGS = ("generationConfig", "generation_config", "inferenceConfig", "config")
"""where Gemini and Bedrock put the parameters"""
_TOOL_LISTS = ("function_declarations", "functionDeclarations")


class RequestBody(Struct, frozen=True):
    """A request to a model."""

    messages: list[Any]
    """as they were recorded"""
    system: Any = None
    model: str | None = None
    params: dict[str, Any] | None = None
    tools: list[Any] | None = None

    def chat(self) -> list[dict[str, Any]]:
        """The messages in one shape, after the instructions."""
        system = self.system
        if isinstance(system, dict) and isinstance(system.get("parts"), list):
            system = system["parts"]
        first = [] if system is None else [{"role": "system", "content": system}]
        return [*first, *(message for one in self.messages for message in chat_message(one))]


def read_request(body: Any) -> RequestBody | None:
    """The body of a request; None if it is none."""
    if not isinstance(body, dict):
        return None
    listed = next((body[key] for key in ("messages", "contents", "input") if key in body), None)
    if isinstance(listed, str):
        listed = [{"role": "user", "content": listed}]
    if not isinstance(listed, list) or not listed or not all(isinstance(one, (dict, str)) for one in listed):
        return None
    config: dict[str, Any] = next((body[key] for key in _CONFIGS if isinstance(body.get(key), dict)), {})
    systems = (body.get(key) for key in ("system", "systemInstruction", "system_instruction", "instructions"))
    system = next((one for one in systems if one), None)
    params = {key: body[key] for key in PARAMS if body.get(key) is not None}
    params |= {key: one for key, one in config.items() if key not in ("tools", "system_instruction", "http_options")}
    return RequestBody(
        messages=listed,
        system=config.get("system_instruction") if system is None else system,
        model=text_field(body, "model", "modelId"),
        params=params or None,
        tools=_tools(body) or _tools(config),
    )


def _tools(body: dict[str, Any]) -> list[Any] | None:
    tools = body.get("tools", object_field(body, "toolConfig").get("tools"))
    if not isinstance(tools, list) or not tools:
        return None
    found: list[Any] = []
    for tool in tools:
        declared = next((tool[key] for key in _TOOL_LISTS if isinstance(tool, dict) and key in tool), None)
        found += declared if isinstance(declared, list) else [tool]
    return found


# Answers


def read_answer(body: Any) -> dict[str, Any] | None:
    """The answer in a body as an assistant's chat message, with its `model`, `finish_reason` and `usage`; or None."""
    body = parse_if_json(body)
    if not isinstance(body, dict):
        return None
    return next((found for read in _READERS if (found := read(body)) is not None), None)


def answer_of(output: Any) -> dict[str, Any] | None:
    """The answer in what a recorder wrote as the output of a model: a body, messages in any shape, calls, or text."""
    output = parse_if_json(output)
    calls = bare_calls(output)
    if calls is not None:
        return {"role": "assistant", "content": None, "tool_calls": calls}
    return answer_in_list(output) or read_answer(output) or first_answer(chat_messages(output, "assistant"))


def has_calls(message: dict[str, Any]) -> bool:
    """Whether an assistant's message issues calls."""
    if message.get("tool_calls") or message.get("function_call"):
        return True
    content = message.get("content")
    blocks = content if isinstance(content, list) else ()
    return any(
        isinstance(block, dict) and (block.get("type") in tuple(CALL_BLOCKS) or foreign_call(block) is not None)
        for block in blocks
    )


def _chat(body: dict[str, Any]) -> dict[str, Any] | None:
    message = unwrap(body)
    return None if message is body else chat_message(message, "assistant")[0]


def _responses(body: dict[str, Any]) -> dict[str, Any] | None:
    output = body.get("output")
    if not isinstance(output, list):
        return None
    are_items = bool(output) and all(isinstance(one, dict) and isinstance(one.get("type"), str) for one in output)
    if body.get("object") != "response" and not are_items:
        return None
    reason = object_field(body, "incomplete_details").get("reason")
    stop = reason if isinstance(reason, str) else text_field(body, "status")
    return _with_outer(answer_of_items(output), body, stop, body.get("usage"))


def answer_in_list(output: Any) -> dict[str, Any] | None:
    """The answer if this is the output of a response without its body; else None."""
    is_output = isinstance(output, list) and (any(map(is_item, output)) or any(map(_resembles_call, output)))
    return answer_of_items(output) if is_output else None


def _resembles_call(value: Any) -> bool:
    """Whether this looks like a call, of a type that may be unknown."""
    kind = value.get("type") if isinstance(value, dict) and "role" not in value else None
    return isinstance(kind, str) and (kind.endswith("_call") or "call_id" in value)


def answer_of_items(items: list[Any]) -> dict[str, Any]:
    """The output of a response, item by item, as one message."""
    answer = AssistantContent()
    for item in items:
        add_item(item, answer)
    return {"role": "assistant", "content": answer.blocks}


def _converse(body: dict[str, Any]) -> dict[str, Any] | None:
    output = body.get("output")
    message = output.get("message") if isinstance(output, dict) else None
    if not isinstance(message, dict) or "role" not in message:
        return None
    return _with_outer(message, body, text_field(body, "stopReason"), body.get("usage"))


def _gemini(body: dict[str, Any]) -> dict[str, Any] | None:
    candidates = body.get("candidates")
    one = candidates[0] if isinstance(candidates, list) and candidates else body
    content = one.get("content") if isinstance(one, dict) else None
    if not isinstance(content, dict) or not isinstance(content.get("parts", []), list):
        return None
    messages = chat_message({"role": "model", "parts": [], **content}, "assistant")
    stop = text_field(one, "finishReason", "finish_reason")
    answer = first_answer(messages) or {"role": "assistant", "content": []}
    return _with_outer(answer, body, stop, body.get("usageMetadata", body.get("usage_metadata")))


def _message(body: dict[str, Any]) -> dict[str, Any] | None:
    """A message of Anthropic's API, or one that is wrapped once more."""
    inner = body.get("message")
    if "role" not in body and isinstance(inner, dict) and inner.get("role") == "assistant":
        message = first_answer(chat_message(inner, "assistant")) or inner
        return _with_outer(message, body, None, object_field(body, "usage").get("usage", body.get("usage")))
    is_message = body.get("role") == "assistant" and isinstance(body.get("content"), list)
    return body if is_message and "stop_reason" in body else None


_READERS: tuple[Callable[[dict[str, Any]], dict[str, Any] | None], ...] = (
    _chat,
    _responses,
    _converse,
    _gemini,
    _message,
)


def _with_outer(message: dict[str, Any], body: dict[str, Any], stop: str | None, usage: Any) -> dict[str, Any]:
    """The message with what its body says about it."""
    outer = {
        "model": text_field(body, "model", "modelVersion", "model_version"),
        "finish_reason": stop,
        "usage": usage if isinstance(usage, dict) else None,
        "created_at": body.get("created_at", body.get("created")),
    }
    return {**message, **{key: value for key, value in outer.items() if value is not None}}


# Results that only the next request of a conversation shows, because it repeats the messages so far.
#
# A result is read once, however many requests repeat it, and none is left out. Its id may not be that of the recorded
# call: some clients and proxies write ids of their own. Then the repeated answer says which call has it there.


def add_repeated_results(
    assembler: Assembler, buffer: SessionBuffer, messages: list[dict[str, Any]], source: Locator | None, before: int = 0
) -> None:
    """Add the results among the messages of the next request of this session that were not read yet.

    `before`: how many messages stand before these.
    """
    for message, result in _new_results(buffer, messages, before):
        event = result.event(buffer.origin, time_of(message), source)
        assembler.result(buffer, event, result.arguments, is_repeated=True)


def add_results_of_request(
    assembler: Assembler, buffer: SessionBuffer, recorded: Sequence[Any], source: Locator | None
) -> None:
    """The same for messages in any shape, decoded or not. They are looked at from the end, as far as is needed."""
    from_the_end: list[list[dict[str, Any]]] = []
    start = len(recorded)
    while start > 0:
        start -= 1
        new = chat_message(recorded[start])
        from_the_end.append(new)
        if new and new[-1].get("role") == ASSISTANT and (not buffer.is_waiting or _is_known(buffer, new, len(new))):
            break
    messages = [message for new in reversed(from_the_end) for message in new]
    add_repeated_results(assembler, buffer, messages, source, start)


def _new_results(
    buffer: SessionBuffer, messages: list[dict[str, Any]], before: int
) -> Iterator[tuple[dict[str, Any], Result]]:
    end = _after_answer(messages, len(messages))
    yield from _of_waiting_calls(buffer, messages, end)
    if buffer.turn is None and end and has_calls(messages[end - 1]):
        return  # the recording began amid a conversation
    issued: dict[str, tuple[str, Any]] | None = None
    fresh: set[int] = set()
    for at in range(end, len(messages)):
        for result in results_in(messages[at]):
            known = _certain(buffer, result)
            if known is not None:
                if not known.answered or id(known) in fresh:
                    fresh.add(id(known))
                    yield messages[at], result
            elif _is_new(buffer, before + at, result):
                issued = _issued(messages, end) if issued is None else issued
                name, arguments = issued.get(result.call_id or "", (None, None))
                if result.arguments is None and name is not None:
                    result = replace(result, name=result.name or name, arguments=arguments)
                yield messages[at], result


def _of_waiting_calls(
    buffer: SessionBuffer, messages: list[dict[str, Any]], end: int
) -> Iterator[tuple[dict[str, Any], Result]]:
    """Results before the latest answer, if the answers since the recorded one were left out of the recording."""
    is_waiting = buffer.is_waiting
    while is_waiting and end > 0 and not _is_known(buffer, messages, end):
        start = _after_answer(messages, end - 1)
        found = [(message, one) for message in messages[start : end - 1] for one in results_in(message)]
        known = [_certain(buffer, result) for _, result in found]
        for pair, call in zip(found, known, strict=True):
            if call is not None and not call.answered:
                yield pair
        if not found or None not in known:
            return
        end = start


def _is_known(buffer: SessionBuffer, messages: list[dict[str, Any]], end: int) -> bool:
    """Whether the answer before `end` issues calls that are recorded."""
    return any(call_id in buffer.calls for call_id in _issued(messages, end))


def _after_answer(messages: list[dict[str, Any]], end: int) -> int:
    """Where the messages after the latest answer before `end` begin."""
    return next((at + 1 for at in range(end - 1, -1, -1) if messages[at].get("role") == ASSISTANT), 0)


def _certain(buffer: SessionBuffer, result: Result) -> KnownCall | None:
    """The call that has the id of a result, and shares it with no other."""
    call_id = result.call_id
    return None if call_id is None or call_id in buffer.shared else buffer.calls.get(call_id)


def _is_new(buffer: SessionBuffer, at: int, result: Result) -> bool:
    """Whether no earlier request showed this result in the same place."""
    key = hash((at, result.call_id, result.name, msgspec.json.encode(result.content)))
    is_new = key not in buffer.repeated
    buffer.repeated[key] = None
    if len(buffer.repeated) > MOST_CALLS:
        del buffer.repeated[next(iter(buffer.repeated))]
    return is_new


def _issued(messages: list[dict[str, Any]], end: int) -> dict[str, tuple[str, Any]]:
    """Name and arguments of the calls in the answer before `end`, by the ids that they have there, unless shared."""
    try:
        answer = read_assistant(messages[end - 1]) if end else None
    except MalformedRecord:
        return {}
    found: dict[str, tuple[str, Any]] = {}
    uses = [] if answer is None else [(str(use.get("id") or ""), use) for use in answer.uses]
    ids = [call_id for call_id, _ in uses]
    for number, (call_id, use) in enumerate(uses):
        if call_id and ids.count(call_id) == 1 and answer is not None:
            arguments, raw = answer.arguments[number]
            found[call_id] = (use["name"], raw if arguments is None else arguments)
    return found
