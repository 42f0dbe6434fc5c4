"""The capability that puts a run's faults into the tools and the model of a Pydantic AI agent.

Messages of Pydantic AI are converted to chat messages, and back if an attack changed them.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from pydantic_ai import exceptions
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models import CompletedStreamedResponse, Model
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.toolsets import WrapperToolset

from bylaw.contract.faults.live_run import Lens, LiveRun, live_run_for
from bylaw.contract.frameworks import Errors, ModelCall, align_messages, chat_parts, chat_reply, chat_tool_call
from bylaw.wire.formats.base import Json
from bylaw.wire.listeners import ignore_exchanges

_OVER_HTTP = ("pydantic_ai.models.anthropic", "pydantic_ai.models.openai")


class FaultCapability(AbstractCapability[Any]):  # type: ignore[misc]  # of an optional library
    def __init__(self, run: LiveRun) -> None:
        self._run = run

    def get_wrapper_toolset(self, toolset: Any) -> Any:
        return FaultyTools(toolset)

    def get_wrapper_model(self, model: Model) -> Model | None:
        over_http = any(kind.__module__.startswith(_OVER_HTTP) for kind in type(model).__mro__)
        return None if over_http else FaultyModel(model, self._run)


@dataclasses.dataclass
class FaultyTools(WrapperToolset[Any]):  # type: ignore[misc]  # of an optional library
    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        run = live_run_for(name)
        if run is None:
            return await super().call_tool(name, tool_args, ctx, tool)
        call = super().call_tool
        return await run.acall_tool(
            name, tool_args, lambda: call(name, tool_args, ctx, tool), call_id=ctx.tool_call_id, lens=_RETURN
        )


def _is_return(result: Any) -> bool:
    from pydantic_ai.messages import ToolReturn

    return isinstance(result, ToolReturn)


_RETURN = Lens(
    lambda result: result.return_value if _is_return(result) else result,
    lambda result, value: dataclasses.replace(result, return_value=value) if _is_return(result) else value,
)


class FaultyModel(WrapperModel):  # type: ignore[misc]  # of an optional library
    def __init__(self, wrapped: Model, run: LiveRun) -> None:
        super().__init__(wrapped)
        self._run = run

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
        async def ask(asked: Any) -> Any:
            return await self.wrapped.request(asked, model_settings, model_request_parameters)

        return await self._ask_model(messages, model_request_parameters, ask)

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncIterator[Any]:
        """A stream is read to its end first, so that a fault gets the whole answer, and then replayed."""
        events: list[Any] = []
        original: list[Any] = []

        async def ask(asked: Any) -> Any:
            async with self.wrapped.request_stream(
                asked, model_settings, model_request_parameters, run_context
            ) as stream:
                events.extend([event async for event in stream])
                original.append(stream.get())
                return original[0]

        response = await self._ask_model(messages, model_request_parameters, ask)
        is_original = bool(original) and response is original[0]
        # without the events that the end of the stream sends itself
        replayed = [event for event in events if event.event_kind in ("part_start", "part_delta", "part_end")]
        yield CompletedStreamedResponse(
            response,
            model_request_parameters=model_request_parameters,
            replay_events=(replayed or True) if is_original else True,
        )

    async def _ask_model(self, messages: Any, parameters: Any, ask: Any) -> Any:
        conversation = Conversation(messages, parameters)
        request = {"model": self.wrapped.model_name, "messages": conversation.messages, **_tools(parameters)}
        call = ModelCall(self._run, "chat", request, _errors(self.wrapped.model_name))
        with call.recorded():
            await call.begin()
            asked = conversation.attacked(call.sent["messages"], call.request["messages"])
            with ignore_exchanges():
                response = await ask(asked)
            changed = call.answered(_chat_response(response))
            await asyncio.sleep(call.first_byte_delay)
        return response if changed is None else _changed_response(response, *chat_parts(changed))


def _tools(parameters: Any) -> dict[str, Any]:
    tools = [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters_json_schema},
        }
        for tool in parameters.function_tools
    ]
    return {"tools": tools} if tools else {}


def _errors(model: str) -> Errors:
    def broken(kind: Literal["timeout", "cut"]) -> Exception:
        name = "ModelTimeoutError" if kind == "timeout" else "ModelConnectionError"
        message = "Request timed out." if kind == "timeout" else "Connection error."
        error: Exception = getattr(exceptions, name, exceptions.ModelAPIError)(model_name=model, message=message)
        return error

    def status(code: int, _message: str, error: Any, headers: dict[str, str]) -> Exception:
        failure: Exception = exceptions.ModelHTTPError(code, model, error, headers=headers)
        return failure

    return Errors(broken, status)


_FINISH = {"length": "length", "stop": "stop", "tool_calls": "tool_call"}


class Conversation:
    """A conversation as chat messages, each with the part that it was converted from."""

    def __init__(self, messages: list[Any], parameters: Any) -> None:
        self._originals = messages
        self.messages: list[Json] = []
        self._places: list[tuple[int, int] | None] = []
        """index of the message and of the part; None for instructions, which are no part"""
        instructions = [part.content for part in getattr(parameters, "instruction_parts", None) or ()]
        if instructions:
            self._add(None, {"role": "system", "content": "\n\n".join(instructions)})
        for at, message in enumerate(messages):
            self._read(at, message)

    def attacked(self, before: list[Json], after: list[Json]) -> list[Any]:
        """The messages to send; the original ones if nothing was changed."""
        if before == after:
            return self._originals
        edits: dict[tuple[int, int], Json] = {}
        extra: dict[tuple[int, int], list[Json]] = {}
        waiting: list[Json] = []
        for place, message in align_messages(before, after):
            part = self._places[place] if place is not None else None
            if place is None:
                waiting.append(message)
            elif part is not None:
                extra.setdefault(part, []).extend(waiting)
                waiting = []
                if message != before[place]:
                    edits[part] = message
        rebuilt: list[Any] = []
        for at, message in enumerate(self._originals):
            rebuilt += _rebuilt(at, message, edits, extra)
        return rebuilt + [_make_message(message) for message in waiting]

    def _add(self, place: tuple[int, int] | None, message: Json) -> None:
        self.messages.append(message)
        self._places.append(place)

    def _read(self, at: int, message: Any) -> None:
        if message.kind == "response":
            self._add((at, 0), _chat_response(message)["choices"][0]["message"])
            return
        for index, part in enumerate(message.parts):
            converted = _chat_part(part)
            if converted is not None:
                self._add((at, index), converted)


def _chat_response(response: Any) -> Json:
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    calls = [
        chat_tool_call(part.tool_call_id, part.tool_name, part.args if part.args is not None else {})
        for part in response.parts
        if isinstance(part, ToolCallPart)
    ]
    return chat_reply(response.model_name, text or (None if calls else ""), calls)


def _changed_response(response: Any, text: str, calls: list[Json], finish: str) -> Any:
    """The same response with another answer; arguments that are not JSON stay text, as a provider would send them."""
    arguments = {call["id"]: call["function"]["arguments"] for call in calls}
    parts: list[Any] = [part for part in response.parts if not isinstance(part, TextPart | ToolCallPart)]
    if text:
        parts.append(TextPart(content=text))
    parts += [
        dataclasses.replace(part, args=arguments[part.tool_call_id])
        for part in response.parts
        if isinstance(part, ToolCallPart) and part.tool_call_id in arguments
    ]
    return dataclasses.replace(response, parts=parts, finish_reason=_FINISH.get(finish))


def _chat_part(part: Any) -> Json | None:
    kind = part.part_kind
    if kind == "system-prompt":
        return {"role": "system", "content": part.content}
    if kind == "user-prompt":
        texts = [part.content] if isinstance(part.content, str) else part.content
        return {"role": "user", "content": "\n".join(text for text in texts if isinstance(text, str))}
    if kind in ("tool-return", "retry-prompt") and part.tool_name:
        text = part.model_response_str() if kind == "tool-return" else part.model_response()
        return {"role": "tool", "tool_call_id": part.tool_call_id, "content": text}
    return {"role": "user", "content": part.model_response()} if kind == "retry-prompt" else None


def _rebuilt(
    at: int, message: Any, edits: dict[tuple[int, int], Json], extra: dict[tuple[int, int], list[Json]]
) -> list[Any]:
    """A message with its changes, after the messages that were inserted before it."""
    before: list[Any] = []
    if message.kind == "response":
        return [*(_make_message(item) for item in extra.get((at, 0), ())), message]
    parts: list[Any] = []
    for index, part in enumerate(message.parts):
        for item in extra.get((at, index), ()):
            if item["role"] == "assistant":
                before.append(_make_message(item))
            else:
                parts.append(UserPromptPart(content=item["content"]))
        edit = edits.get((at, index))
        parts.append(part if edit is None else _replace_text(part, edit["content"]))
    return [*before, dataclasses.replace(message, parts=parts)]


def _replace_text(part: Any, text: str) -> Any:
    """The part with another text; other content, such as images, stays."""
    content = getattr(part, "content", None)
    if isinstance(content, list | tuple) and part.part_kind == "user-prompt":
        return dataclasses.replace(part, content=[text, *(item for item in content if not isinstance(item, str))])
    return dataclasses.replace(part, content=text)


def _make_message(message: Json) -> Any:
    if message["role"] == "assistant":
        return ModelResponse(parts=[TextPart(content=message["content"])])
    return ModelRequest(parts=[UserPromptPart(content=message["content"])])
