"""The capability that puts a run's faults into the tools and the model of a Pydantic AI agent."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from pydantic_ai import exceptions
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models import CompletedStreamedResponse, Model
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.toolsets import WrapperToolset

from bylaw.contract.live.frameworks.model_call import Errors, ModelCall, chat_said
from bylaw.contract.live.frameworks.pydantic_ai_messages import Conversation, changed_response, told_response
from bylaw.contract.live.tools.calling import Lens, acall_tool
from bylaw.contract.live.tools.decorator import run_for
from bylaw.wire.current import LiveRun, aside

_OVER_HTTP = ("pydantic_ai.models.anthropic", "pydantic_ai.models.openai")


class Chaos(AbstractCapability[Any]):  # type: ignore[misc]  # of an optional library
    def __init__(self, run: LiveRun) -> None:
        self._run = run

    def get_wrapper_toolset(self, toolset: Any) -> Any:
        return FaultyTools(toolset)

    def get_wrapper_model(self, model: Model) -> Model | None:
        over_http = any(kind.__module__.startswith(_OVER_HTTP) for kind in type(model).__mro__)
        return None if over_http else FaultyModel(model, self._run)


@dataclasses.dataclass
class FaultyTools(WrapperToolset[Any]):  # type: ignore[misc]  # the same
    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        run = run_for(name)
        if run is None:
            return await super().call_tool(name, tool_args, ctx, tool)
        call = super().call_tool
        return await acall_tool(
            run, name, tool_args, lambda: call(name, tool_args, ctx, tool), call_id=ctx.tool_call_id, lens=_RETURN
        )


def _is_return(result: Any) -> bool:
    from pydantic_ai.messages import ToolReturn

    return isinstance(result, ToolReturn)


_RETURN = Lens(
    lambda result: result.return_value if _is_return(result) else result,
    lambda result, said: dataclasses.replace(result, return_value=said) if _is_return(result) else said,
)


class FaultyModel(WrapperModel):  # type: ignore[misc]  # the same
    def __init__(self, wrapped: Model, run: LiveRun) -> None:
        super().__init__(wrapped)
        self._run = run

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
        async def ask(asked: Any) -> Any:
            return await self.wrapped.request(asked, model_settings, model_request_parameters)

        return await self._asked(messages, model_request_parameters, ask)

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncIterator[Any]:
        """A stream is drained first, so that a fault meets the whole answer, and then told again event by event."""
        events: list[Any] = []

        async def ask(asked: Any) -> Any:
            async with self.wrapped.request_stream(
                asked, model_settings, model_request_parameters, run_context
            ) as stream:
                events.extend([event async for event in stream])
                return stream.get()

        held: list[Any] = []

        async def kept(asked: Any) -> Any:
            held.append(await ask(asked))
            return held[0]

        response = await self._asked(messages, model_request_parameters, kept)
        is_own = bool(held) and response is held[0]
        yield CompletedStreamedResponse(
            response,
            model_request_parameters=model_request_parameters,
            replay_events=_told_again(events) if is_own else True,
        )

    async def _asked(self, messages: Any, parameters: Any, ask: Any) -> Any:
        conversation = Conversation(messages, parameters)
        request = {"model": self.wrapped.model_name, "messages": conversation.told, **_tools(parameters)}
        call = ModelCall(self._run, "chat", request, _errors(self.wrapped.model_name))
        try:
            await asyncio.sleep(call.delay)
            call.give_up()
            asked = conversation.attacked(call.sent["messages"], call.request["messages"])
            with aside():
                response = await ask(asked)
            changed = call.answered(told_response(response))
            await asyncio.sleep(call.first_byte_delay)
        except BaseException as error:
            call.end(error)
            raise
        call.end()
        return response if changed is None else changed_response(response, *chat_said(changed))


def _told_again(events: list[Any]) -> Any:
    """Events that only the stream's own end may tell are left to it."""
    return [event for event in events if event.event_kind in ("part_start", "part_delta", "part_end")] or True


def _tools(parameters: Any) -> dict[str, Any]:
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters_json_schema,
            },
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
