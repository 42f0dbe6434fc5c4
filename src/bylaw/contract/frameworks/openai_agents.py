"""Models and tools of the OpenAI Agents SDK.

Models are patched at `get_response` and `stream_response`, the two methods that every model implements: each class
derived from `Model` is patched where it defines them. The SDK uses the items of the Responses format, and so does the
exchange. Tools are patched at `FunctionTool.on_invoke_tool`, the attribute through which the SDK calls every function
tool. An error that a fault raises goes to the tool's own failure function, like any error of the tool.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

import msgspec

from bylaw.contract.faults.live_run import LiveRun, current_run, live_run_for
from bylaw.contract.frameworks import Errors, ModelCall
from bylaw.wire.formats.base import Json
from bylaw.wire.listeners import ignore_exchanges
from bylaw.wire.patch_on_import import Patches, subclasses

_ADDRESS = "http://model.invalid/v1/responses"
"""stated in the SDK's errors; nothing is sent there"""
_OVER_HTTP = ("agents.models.openai_chatcompletions", "agents.models.openai_responses")
_INVOKE = "on_invoke_tool"


def patch(module: Any, patches: Patches) -> None:
    """`module` is agents.models.interface or agents.tool; called again before each run, for new model classes.

    Another package named `agents` has neither class and is left alone.
    """
    model, tool = getattr(module, "Model", None), getattr(module, "FunctionTool", None)
    if module.__name__ == "agents.models.interface" and hasattr(model, "get_response"):
        for derived in subclasses(model):
            if derived.__module__ not in _OVER_HTTP:
                patches.replace(derived, "get_response", _response)
                patches.replace(derived, "stream_response", _stream)
    if module.__name__ == "agents.tool" and hasattr(tool, "__dataclass_fields__"):
        patches.add(tool, _INVOKE, _InvokeAttribute())


# Models


def _signature(original: Any) -> inspect.Signature:
    """The signature of a model's method; that of the interface where a model takes `*args, **kwargs`."""
    from agents.models.interface import Model

    own = inspect.signature(original)
    return own if "input" in own.parameters else inspect.signature(getattr(Model, original.__name__))


def _response(original: Any) -> Any:
    signature = _signature(original)

    @functools.wraps(original)
    async def get_response(*args: Any, **kwargs: Any) -> Any:
        run = current_run()
        if run is None:
            return await original(*args, **kwargs)
        asked = signature.bind(*args, **kwargs)
        call = _begin(run, asked)
        with call.recorded():
            await call.begin()
            with ignore_exchanges():
                response = await original(*asked.args, **asked.kwargs)
            changed = call.answered(_reply(response.output))
            await asyncio.sleep(call.first_byte_delay)
        return response if changed is None else dataclasses.replace(response, output=_items(response.output, changed))

    return get_response


def _stream(original: Any) -> Any:
    signature = _signature(original)

    @functools.wraps(original)
    async def stream_response(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        run = current_run()
        asked = signature.bind(*args, **kwargs)
        if run is None:
            async for event in original(*asked.args, **asked.kwargs):
                yield event
            return
        call = _begin(run, asked)
        with call.recorded():
            await call.begin()
            await asyncio.sleep(call.first_byte_delay)
            source = original(*asked.args, **asked.kwargs)
            async for event in call.stream(source, functools.partial(_last_events, call)):
                yield event

    return stream_response


def _last_events(call: ModelCall, events: list[Any]) -> Iterator[Any]:
    """After the last event: nothing more, all events, or the last one as the fault changes it."""
    last = next((event for event in reversed(events) if hasattr(event, "response")), None)
    if last is None:
        return
    try:
        changed = call.answered(_reply(last.response.output))
    except Exception:  # the stream breaks off in the middle
        yield from events[: len(events) // 2]
        raise
    if changed is not None:
        output = _items(last.response.output, changed)
        yield last.model_copy(update={"response": last.response.model_copy(update={"output": output})})
    elif call.alters:
        yield from events


def _begin(run: LiveRun, asked: inspect.BoundArguments) -> ModelCall:
    """The call. An attack on the conversation is put into the arguments."""
    model = asked.args[0]
    request: Json = {"model": str(getattr(model, "model", type(model).__name__)), "input": asked.arguments["input"]}
    if asked.arguments.get("system_instructions"):
        request["instructions"] = asked.arguments["system_instructions"]
    tools = [{"type": "function", "name": tool.name} for tool in asked.arguments.get("tools") or ()]
    call = ModelCall(run, "responses", {**request, **({"tools": tools} if tools else {})}, _ERRORS)
    if call.request["input"] != call.sent["input"]:
        asked.arguments["input"] = call.request["input"]
    return call


def _reply(output: list[Any]) -> Json:
    items = [item.model_dump(exclude_unset=True) if hasattr(item, "model_dump") else item for item in output]
    return {"id": "resp-0", "object": "response", "status": "completed", "output": items}


def _items(output: list[Any], changed: Json) -> list[Any]:
    """The changed items as the SDK's own objects, each of the type of the item it was."""
    kinds = {(item.type, item.id): type(item) for item in output if hasattr(item, "model_dump")}
    return [
        kind.model_validate(item) if (kind := kinds.get((item.get("type"), item.get("id")))) else item
        for item in changed["output"]
    ]


def _make_error(kind: Literal["timeout", "cut"]) -> Exception:
    import openai

    request = _http().Request("POST", _ADDRESS)
    error: Exception = openai.APITimeoutError(request)
    return error if kind == "timeout" else openai.APIConnectionError(request=request)


def _status(code: int, message: str, error: Any, headers: dict[str, str]) -> Exception:
    import openai

    http = _http()
    response = http.Response(code, headers=headers, json=error, request=http.Request("POST", _ADDRESS))
    by_status = {429: openai.RateLimitError}
    kind = by_status.get(code, openai.InternalServerError if code >= 500 else openai.APIStatusError)
    failure: Exception = kind(f"Error code: {code} - {message}", response=response, body=error)
    return failure


def _http() -> Any:
    """The HTTP library of the installed client, whose objects its errors hold."""
    from openai import DefaultHttpxClient

    return importlib.import_module(DefaultHttpxClient.__mro__[-2].__module__.partition(".")[0])


_ERRORS = Errors(_make_error, _status)


# Tools


class _InvokeAttribute:
    """A data descriptor over the attribute of the tools. The value stays in their own dictionaries."""

    def __get__(self, tool: Any, _owner: Any = None) -> Any:
        if tool is None or _INVOKE not in tool.__dict__:
            raise AttributeError(_INVOKE)
        invoke = tool.__dict__[_INVOKE]
        if live_run_for(tool.name) is None:
            return invoke
        ours = tool.__dict__.get("_bylaw_invoke")
        if ours is None or ours.tool is not tool or ours.inner is not invoke:
            ours = tool.__dict__["_bylaw_invoke"] = _Invoke(tool, invoke)
        return ours

    def __set__(self, tool: Any, value: Any) -> None:
        tool.__dict__[_INVOKE] = value


class _Invoke:
    """Behaves like the SDK's own invoker."""

    def __init__(self, tool: Any, inner: Any) -> None:
        self.tool = tool
        self.inner = inner

    async def __call__(self, ctx: Any, input: str) -> Any:
        run = live_run_for(self.tool.name)
        if run is None:
            return await self.inner(ctx, input)
        is_reached = False

        async def reached() -> Any:
            nonlocal is_reached
            is_reached = True
            return await self.inner(ctx, input)

        try:
            call_id = getattr(ctx, "tool_call_id", None)
            return await run.acall_tool(self.tool.name, _arguments(input), reached, call_id=call_id)
        except Exception as error:
            if is_reached:  # an error of the tool itself, which its own invoker has handled
                raise
            return await self._handle_error(ctx, error)

    async def _handle_error(self, ctx: Any, error: Exception) -> Any:
        from agents import tool as module

        handle = getattr(module, "maybe_invoke_function_tool_failure_error_function", None)
        handled = None if handle is None else await handle(function_tool=self.tool, context=ctx, error=error)
        if handled is None:
            raise error
        return handled

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _arguments(text: str) -> Any:
    try:
        return msgspec.json.decode(text or "{}")
    except msgspec.DecodeError:
        return {"input": text}
