"""Models of the OpenAI Agents SDK.

The seam is `get_response` and `stream_response`, the two methods that every model implements: each class derived from
`Model` is patched where it defines them. The SDK speaks the items of the Responses format, and so does the exchange.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import importlib
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

from bylaw.contract.live.frameworks.model_call import Errors, ModelCall
from bylaw.wire.current import LiveRun, aside, current_run
from bylaw.wire.formats.base import Json
from bylaw.wire.patches.patches import Patches

_ADDRESS = "http://model.invalid/v1/responses"
"""stands in the SDK's errors; nothing is sent there"""
_OVER_HTTP = ("agents.models.openai_chatcompletions", "agents.models.openai_responses")


def patch(module: Any, patches: Patches) -> None:
    """`module` is agents.models.interface; called again before each run, for classes that came since."""
    kind = getattr(module, "Model", None)
    if not hasattr(kind, "get_response"):
        return
    for model in _derived(kind):
        if model.__module__ not in _OVER_HTTP:
            patches.replace(model, "get_response", _response)
            patches.replace(model, "stream_response", _stream)


def _derived(kind: Any) -> Iterator[Any]:
    for derived in kind.__subclasses__():
        yield derived
        yield from _derived(derived)


def _response(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    async def get_response(*args: Any, **kwargs: Any) -> Any:
        run = current_run()
        if run is None:
            return await original(*args, **kwargs)
        asked = signature.bind(*args, **kwargs)
        call = _begun(run, asked)
        try:
            await asyncio.sleep(call.delay)
            call.give_up()
            with aside():
                response = await original(*asked.args, **asked.kwargs)
            changed = call.answered(_told(response.output))
            await asyncio.sleep(call.first_byte_delay)
        except BaseException as error:
            call.end(error)
            raise
        call.end()
        return response if changed is None else dataclasses.replace(response, output=_items(response.output, changed))

    return get_response


def _stream(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    async def stream_response(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        run = current_run()
        asked = signature.bind(*args, **kwargs)
        if run is None:
            async for event in original(*asked.args, **asked.kwargs):
                yield event
            return
        call = _begun(run, asked)
        events: list[Any] = []
        try:
            await asyncio.sleep(call.delay)
            call.give_up()
            await asyncio.sleep(call.first_byte_delay)
            source = original(*asked.args, **asked.kwargs)
            while True:
                with aside():
                    event = await anext(source, None)
                if event is None:
                    break
                events.append(event)
                if not call.alters:
                    yield event
            for event in _rest(call, events):
                yield event
        except BaseException as error:
            call.end(error)
            raise
        call.end()

    return stream_response


def _rest(call: ModelCall, events: list[Any]) -> Iterator[Any]:
    """Once all has come: nothing more, all of it, or the end as the fault leaves it."""
    last = next((event for event in reversed(events) if hasattr(event, "response")), None)
    if last is None:
        return
    try:
        changed = call.answered(_told(last.response.output))
    except Exception:  # the stream breaks off half-way
        yield from events[: len(events) // 2]
        raise
    if changed is not None:
        output = _items(last.response.output, changed)
        yield last.model_copy(update={"response": last.response.model_copy(update={"output": output})})
    elif call.alters:
        yield from events


def _begun(run: LiveRun, asked: inspect.BoundArguments) -> ModelCall:
    """The call; an attack on the conversation is put into the arguments."""
    model = asked.args[0]
    request: Json = {"model": str(getattr(model, "model", type(model).__name__)), "input": asked.arguments["input"]}
    if asked.arguments.get("system_instructions"):
        request["instructions"] = asked.arguments["system_instructions"]
    tools = [{"type": "function", "name": tool.name} for tool in asked.arguments.get("tools") or ()]
    call = ModelCall(run, "responses", {**request, **({"tools": tools} if tools else {})}, _ERRORS)
    if call.request["input"] != call.sent["input"]:
        asked.arguments["input"] = call.request["input"]
    return call


def _told(output: list[Any]) -> Json:
    items = [item.model_dump(exclude_unset=True) if hasattr(item, "model_dump") else item for item in output]
    return {"id": "resp-0", "object": "response", "status": "completed", "output": items}


def _items(output: list[Any], changed: Json) -> list[Any]:
    """The changed items as the SDK's own objects, each of the type of the item it was."""
    kinds = {(item.type, item.id): type(item) for item in output if hasattr(item, "model_dump")}
    return [
        kind.model_validate(item) if (kind := kinds.get((item.get("type"), item.get("id")))) else item
        for item in changed["output"]
    ]


def _broken(kind: Literal["timeout", "cut"]) -> Exception:
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


_ERRORS = Errors(_broken, _status)
