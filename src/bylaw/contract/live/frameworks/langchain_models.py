"""LangChain's chat models.

The seam is the public `generate`, `agenerate`, `stream` and `astream` of `BaseChatModel`, which all ways of asking a
model come down to, `invoke` and the nodes of LangGraph included.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

from bylaw.contract.live.frameworks.model_call import (
    Errors,
    ModelCall,
    ModelFailure,
    aligned,
    chat_reply,
    chat_said,
    chat_tool_call,
)
from bylaw.wire.current import LiveRun, aside, current_run
from bylaw.wire.formats.base import Json
from bylaw.wire.patches.patches import Patches

_OVER_HTTP = ("langchain_anthropic", "langchain_deepseek", "langchain_openai", "langchain_xai")


def patch(module: Any, patches: Patches) -> None:
    """`module` is langchain_core.language_models.chat_models."""
    patches.replace(module.BaseChatModel, "generate", _generate)
    patches.replace(module.BaseChatModel, "agenerate", _agenerate)
    patches.replace(module.BaseChatModel, "stream", _stream)
    patches.replace(module.BaseChatModel, "astream", _astream)


def _run_of(model: Any) -> LiveRun | None:
    run = current_run()
    over_http = any(kind.__module__.partition(".")[0] in _OVER_HTTP for kind in type(model).__mro__)
    return None if over_http else run


def _generate(original: Any) -> Any:
    @functools.wraps(original)
    def generate(self: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        run = _run_of(self)
        if run is None or len(messages) != 1:
            return original(self, messages, *args, **kwargs)
        call, asked = _begun(run, self, messages[0], kwargs)
        try:
            run.wait(call.delay)
            call.give_up()
            with aside():
                result = original(self, [asked], *args, **kwargs)
            _answer(call, self, result)
            run.wait(call.first_byte_delay)
        except BaseException as error:
            call.end(error)
            raise
        call.end()
        return result

    return generate


def _agenerate(original: Any) -> Any:
    @functools.wraps(original)
    async def agenerate(self: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        run = _run_of(self)
        if run is None or len(messages) != 1:
            return await original(self, messages, *args, **kwargs)
        call, asked = _begun(run, self, messages[0], kwargs)
        try:
            await asyncio.sleep(call.delay)
            call.give_up()
            with aside():
                result = await original(self, [asked], *args, **kwargs)
            _answer(call, self, result)
            await asyncio.sleep(call.first_byte_delay)
        except BaseException as error:
            call.end(error)
            raise
        call.end()
        return result

    return agenerate


def _stream(original: Any) -> Any:
    @functools.wraps(original)
    def stream(self: Any, input: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        run = _run_of(self)
        if run is None:
            yield from original(self, input, *args, **kwargs)
            return
        call, asked = _begun(run, self, self._convert_input(input).to_messages(), kwargs)
        chunks: list[Any] = []
        try:
            run.wait(call.delay)
            call.give_up()
            run.wait(call.first_byte_delay)
            source = original(self, asked, *args, **kwargs)
            while True:
                with aside():
                    chunk = next(source, None)
                if chunk is None:
                    break
                chunks.append(chunk)
                if not call.alters:
                    yield chunk
            yield from _rest(call, self, chunks)
        except BaseException as error:
            call.end(error)
            raise
        call.end()

    return stream


def _astream(original: Any) -> Any:
    @functools.wraps(original)
    async def astream(self: Any, input: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        run = _run_of(self)
        if run is None:
            async for chunk in original(self, input, *args, **kwargs):
                yield chunk
            return
        call, asked = _begun(run, self, self._convert_input(input).to_messages(), kwargs)
        chunks: list[Any] = []
        try:
            await asyncio.sleep(call.delay)
            call.give_up()
            await asyncio.sleep(call.first_byte_delay)
            source = original(self, asked, *args, **kwargs)
            while True:
                with aside():
                    chunk = await anext(source, None)
                if chunk is None:
                    break
                chunks.append(chunk)
                if not call.alters:
                    yield chunk
            for chunk in _rest(call, self, chunks):
                yield chunk
        except BaseException as error:
            call.end(error)
            raise
        call.end()

    return astream


def _rest(call: ModelCall, model: Any, chunks: list[Any]) -> Iterator[Any]:
    """Once all has come: nothing more, all of it, or what the fault leaves of it."""
    if not chunks:
        return
    whole = functools.reduce(lambda left, right: left + right, chunks)
    try:
        changed = call.answered(_reply(model, whole))
    except Exception:  # the stream breaks off half-way
        yield from chunks[: len(chunks) // 2]
        raise
    if changed is not None:
        yield _changed_message(whole, changed)
    elif call.alters:
        yield from chunks


def _begun(run: LiveRun, model: Any, messages: Any, kwargs: dict[str, Any]) -> tuple[ModelCall, Any]:
    """The call, and the messages to send, attacks included."""
    from langchain_core.messages import AIMessage, HumanMessage, convert_to_openai_messages

    told: list[Json] = []
    owners: list[int] = []
    for at, message in enumerate(messages):
        shown = convert_to_openai_messages([message])
        told += shown
        owners += [at] * len(shown)
    request = {"model": _name(model), "messages": told, **({"tools": kwargs["tools"]} if kwargs.get("tools") else {})}
    call = ModelCall(run, "chat", request, _ERRORS)
    before, after = call.sent["messages"], call.request["messages"]
    if before == after:
        return call, messages
    asked: list[Any] = []
    for place, message in aligned(before, after):
        if place is None:
            asked.append((AIMessage if message["role"] == "assistant" else HumanMessage)(content=message["content"]))
        elif message == before[place]:
            asked += [messages[owners[place]]] if place == 0 or owners[place] != owners[place - 1] else []
        else:
            asked.append(messages[owners[place]].model_copy(update={"content": message["content"]}))
    return call, asked


def _answer(call: ModelCall, model: Any, result: Any) -> None:
    """Puts what the fault makes of the answer into the result."""
    if not result.generations or not result.generations[0]:
        return
    generation = result.generations[0][0]
    changed = call.answered(_reply(model, generation.message))
    if changed is not None:
        generation.message = _changed_message(generation.message, changed)
        generation.text = str(generation.message.text)


def _reply(model: Any, message: Any) -> Json:
    calls = [chat_tool_call(call["id"], call["name"], call["args"]) for call in getattr(message, "tool_calls", ())]
    text = message.content if isinstance(message.content, str) else str(message.text)
    return chat_reply(_name(model), text, calls)


def _changed_message(message: Any, reply: Json) -> Any:
    """The same message saying something else; arguments that are no JSON are LangChain's `invalid_tool_calls`."""
    text, calls, finish = chat_said(reply)
    valid: list[Any] = []
    invalid: list[Any] = []
    for call in calls:
        function = call["function"]
        try:
            valid.append({"id": call["id"], "name": function["name"], "args": json.loads(function["arguments"])})
        except ValueError:
            invalid.append({"id": call["id"], "name": function["name"], "args": function["arguments"], "error": None})
    metadata = {**message.response_metadata, "finish_reason": finish}
    kind = type(message)
    extra: dict[str, Any] = {"tool_call_chunks": []} if hasattr(message, "tool_call_chunks") else {}
    changed = kind(content=text, id=message.id, response_metadata=metadata, **extra)
    changed.tool_calls = [{**call, "type": "tool_call"} for call in valid]
    changed.invalid_tool_calls = [{**call, "type": "invalid_tool_call"} for call in invalid]
    return changed


def _name(model: Any) -> str:
    return str(getattr(model, "model_name", None) or getattr(model, "model", None) or model._llm_type)


def _broken(kind: Literal["timeout", "cut"]) -> Exception:
    if kind == "timeout":
        return TimeoutError("the model did not answer in time")
    return ConnectionError("the connection to the model was broken off")


_ERRORS = Errors(_broken, lambda status, message, _error, _headers: ModelFailure(f"{status}: {message}"))
