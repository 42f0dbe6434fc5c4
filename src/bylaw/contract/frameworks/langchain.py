"""LangChain's chat models and tools, and with them LangGraph's.

Models are patched at the public `generate`, `agenerate`, `stream` and `astream` of `BaseChatModel`; `invoke` and the
nodes of LangGraph call these. Tools are patched at `BaseTool.run` and `arun`, which every call of a tool passes. The
fault is raised inside them, in `_run` and `_arun`, so that the tool's own `handle_tool_error` sees it. The call is made
on a copy of the tool, so that simultaneous calls do not get each other's faults.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

from bylaw.contract.faults.live_run import WHOLE, Lens, LiveRun, current_run, live_run_for
from bylaw.contract.frameworks import (
    Errors,
    ModelCall,
    ModelFailure,
    align_messages,
    chat_parts,
    chat_reply,
    chat_tool_call,
)
from bylaw.wire.formats.base import Json
from bylaw.wire.listeners import ignore_exchanges
from bylaw.wire.patch_on_import import Patches

_OVER_HTTP = ("langchain_anthropic", "langchain_deepseek", "langchain_openai", "langchain_xai")


def patch(module: Any, patches: Patches) -> None:
    """`module` is langchain_core.language_models.chat_models, or langchain_core.tools.base."""
    if hasattr(module, "BaseChatModel"):
        patches.replace(module.BaseChatModel, "generate", _generate)
        patches.replace(module.BaseChatModel, "agenerate", _agenerate)
        patches.replace(module.BaseChatModel, "stream", _stream)
        patches.replace(module.BaseChatModel, "astream", _astream)
    else:
        patches.replace(module.BaseTool, "run", _run_tool)
        patches.replace(module.BaseTool, "arun", _arun_tool)


# Models


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
        call, asked = _begin(run, self, messages[0], kwargs)
        with call.recorded():
            run.wait(call.delay)
            call.fail()
            with ignore_exchanges():
                result = original(self, [asked], *args, **kwargs)
            _alter_result(call, self, result)
            run.wait(call.first_byte_delay)
        return result

    return generate


def _agenerate(original: Any) -> Any:
    @functools.wraps(original)
    async def agenerate(self: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        run = _run_of(self)
        if run is None or len(messages) != 1:
            return await original(self, messages, *args, **kwargs)
        call, asked = _begin(run, self, messages[0], kwargs)
        with call.recorded():
            await call.begin()
            with ignore_exchanges():
                result = await original(self, [asked], *args, **kwargs)
            _alter_result(call, self, result)
            await asyncio.sleep(call.first_byte_delay)
        return result

    return agenerate


def _stream(original: Any) -> Any:
    @functools.wraps(original)
    def stream(self: Any, input: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        run = _run_of(self)
        if run is None:
            yield from original(self, input, *args, **kwargs)
            return
        call, asked = _begin(run, self, self._convert_input(input).to_messages(), kwargs)
        chunks: list[Any] = []
        with call.recorded():
            run.wait(call.delay)
            call.fail()
            run.wait(call.first_byte_delay)
            source = original(self, asked, *args, **kwargs)
            while True:
                with ignore_exchanges():
                    chunk = next(source, None)
                if chunk is None:
                    break
                chunks.append(chunk)
                if not call.alters:
                    yield chunk
            yield from _last_chunks(call, self, chunks)

    return stream


def _astream(original: Any) -> Any:
    @functools.wraps(original)
    async def astream(self: Any, input: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        run = _run_of(self)
        if run is None:
            async for chunk in original(self, input, *args, **kwargs):
                yield chunk
            return
        call, asked = _begin(run, self, self._convert_input(input).to_messages(), kwargs)
        with call.recorded():
            await call.begin()
            await asyncio.sleep(call.first_byte_delay)
            source = original(self, asked, *args, **kwargs)
            async for chunk in call.stream(source, functools.partial(_last_chunks, call, self)):
                yield chunk

    return astream


def _last_chunks(call: ModelCall, model: Any, chunks: list[Any]) -> Iterator[Any]:
    """After the last chunk: nothing more, all chunks, or what the fault leaves of them."""
    if not chunks:
        return
    whole = functools.reduce(lambda left, right: left + right, chunks)
    try:
        changed = call.answered(_reply(model, whole))
    except Exception:  # the stream breaks off in the middle
        yield from chunks[: len(chunks) // 2]
        raise
    if changed is not None:
        yield _changed_message(whole, changed)
    elif call.alters:
        yield from chunks


def _begin(run: LiveRun, model: Any, messages: Any, kwargs: dict[str, Any]) -> tuple[ModelCall, Any]:
    """The call, and the messages to send, with attacks."""
    from langchain_core.messages import AIMessage, HumanMessage, convert_to_openai_messages

    converted: list[Json] = []
    owners: list[int] = []
    """for each converted message: the index of the message it was converted from"""
    for at, message in enumerate(messages):
        parts = convert_to_openai_messages([message])
        converted += parts
        owners += [at] * len(parts)
    request: Json = {"model": _name(model), "messages": converted}
    if kwargs.get("tools"):
        request["tools"] = kwargs["tools"]
    call = ModelCall(run, "chat", request, _ERRORS)
    before, after = call.sent["messages"], call.request["messages"]
    if before == after:
        return call, messages
    asked: list[Any] = []
    for place, message in align_messages(before, after):
        if place is None:
            asked.append((AIMessage if message["role"] == "assistant" else HumanMessage)(content=message["content"]))
        elif message == before[place]:
            asked += [messages[owners[place]]] if place == 0 or owners[place] != owners[place - 1] else []
        else:
            asked.append(messages[owners[place]].model_copy(update={"content": message["content"]}))
    return call, asked


def _alter_result(call: ModelCall, model: Any, result: Any) -> None:
    """Put the answer into the result as the fault changes it."""
    if not result.generations or not result.generations[0]:
        return
    generation = result.generations[0][0]
    changed = call.answered(_reply(model, generation.message))
    if changed is not None:
        generation.message = _changed_message(generation.message, changed)
        generation.text = str(generation.message.text)


def _reply(model: Any, message: Any) -> Json:
    invalid = (one for one in getattr(message, "invalid_tool_calls", ()) if isinstance(one["name"], str))
    made = (*getattr(message, "tool_calls", ()), *invalid)
    calls = [chat_tool_call(call["id"], call["name"], call["args"]) for call in made]
    text = message.content if isinstance(message.content, str) else str(message.text)
    return chat_reply(_name(model), text, calls)


def _changed_message(message: Any, reply: Json) -> Any:
    """The same message with another answer; arguments that are not JSON become `invalid_tool_calls`."""
    text, calls, finish = chat_parts(reply)
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


def _make_error(kind: Literal["timeout", "cut"]) -> Exception:
    if kind == "timeout":
        return TimeoutError("the model did not answer in time")
    return ConnectionError("the connection to the model was broken off")


_ERRORS = Errors(_make_error, lambda status, message, _error, _headers: ModelFailure(f"{status}: {message}"))


# Tools


def _run_tool(original: Any) -> Any:
    @functools.wraps(original)
    def run(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        live = live_run_for(self.name)
        if live is None:
            return original(self, tool_input, *args, **kwargs)
        inner, arguments, call_id = self._run, _arguments(self, tool_input), kwargs.get("tool_call_id")

        @functools.wraps(inner)
        def _run(*values: Any, **named: Any) -> Any:
            return live.call_tool(
                self.name, arguments, lambda: inner(*values, **named), call_id=call_id, lens=_lens(self)
            )

        return original(_replace_method(self, "_run", _run), tool_input, *args, **kwargs)

    return run


def _arun_tool(original: Any) -> Any:
    @functools.wraps(original)
    async def arun(self: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        live = live_run_for(self.name)
        if live is None:
            return await original(self, tool_input, *args, **kwargs)
        inner, arguments, call_id = self._arun, _arguments(self, tool_input), kwargs.get("tool_call_id")

        @functools.wraps(inner)
        async def _arun(*values: Any, **named: Any) -> Any:
            return await live.acall_tool(
                self.name, arguments, lambda: inner(*values, **named), call_id=call_id, lens=_lens(self)
            )

        return await original(_replace_method(self, "_arun", _arun), tool_input, *args, **kwargs)

    return arun


def _replace_method(tool: Any, name: str, method: Any) -> Any:
    clone = copy.copy(tool)
    object.__setattr__(clone, "__dict__", {**clone.__dict__, name: method})
    return clone


def _arguments(tool: Any, tool_input: Any) -> Any:
    """The arguments without those that the framework injects, such as state and stores."""
    if not isinstance(tool_input, dict):
        return {"input": tool_input}
    return {name: value for name, value in tool_input.items() if name not in tool._injected_args_keys}


def _lens(tool: Any) -> Lens:
    """The part of a result that the model reads: its content, not its artifact or its message."""
    if tool.response_format != "content_and_artifact":
        return _MESSAGE
    return Lens(
        lambda result: result[0] if isinstance(result, tuple) and result else result,
        lambda result, value: (value, *result[1:]) if isinstance(result, tuple) and result else (value, None),
    )


def _is_message(result: Any) -> bool:
    from langchain_core.messages import BaseMessage

    return isinstance(result, BaseMessage)


_MESSAGE = Lens(
    lambda result: result.content if _is_message(result) else WHOLE.get(result),
    lambda result, value: result.model_copy(update={"content": value}) if _is_message(result) else value,
)
