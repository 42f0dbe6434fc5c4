"""Calls to models that no HTTP of this process carried: models of a framework that run here, or speak otherwise.

A call of a framework's model that caused no request over HTTP is recorded from the framework's own messages. If it did
cause one, that one was recorded, and nothing is written here. LangChain's models are recorded whole and streamed. A
streamed call of Pydantic AI or the OpenAI Agents SDK cannot be recorded so; it is counted as lost, with a warning.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

from bylaw.record.turns import ModelCall
from bylaw.wire.formats import format_named
from bylaw.wire.formats.base import Json
from bylaw.wire.patch_on_import import Patches, PatchOnImport
from bylaw.wire.values import plain

carried: ContextVar[list[str] | None] = ContextVar("bylaw_carried", default=None)
"""what carried the calls of the framework's model that is being asked; None outside of such a call"""
Write: TypeAlias = Callable[[ModelCall | Exception], None]
_writers: list[Write] = []
"""none where nothing is recorded"""


def set_writer(write: Write | None) -> None:
    """Set the function that writes a call to the recordings of the calling code, or counts it as lost."""
    _writers[:] = [] if write is None else [write]


FRAMEWORKS = PatchOnImport(
    {
        "agents.models.interface": __name__,
        "langchain_core.language_models.chat_models": __name__,
        "pydantic_ai.models": __name__,
    }
)


def patch(module: Any, patches: Patches) -> None:
    if module.__name__.startswith("langchain_core") and hasattr(module, "BaseChatModel"):
        patches.replace(module.BaseChatModel, "generate", _langchain)
        patches.replace(module.BaseChatModel, "agenerate", _alangchain)
        patches.replace(module.BaseChatModel, "stream", _langchain_stream)
        patches.replace(module.BaseChatModel, "astream", _langchain_astream)
        return
    model = getattr(module, "Model", None)
    if hasattr(model, "get_response") or hasattr(model, "request"):
        read, streamed = (_of_agents, "stream_response") if hasattr(model, "get_response") else (_of_pydantic, "")
        name = "get_response" if hasattr(model, "get_response") else "request"
        for derived in _derived(model):
            patches.replace(derived, name, functools.partial(_awaited, read))
            patches.replace(derived, streamed or "request_stream", _lost)


def _derived(kind: Any) -> Iterator[Any]:
    for derived in kind.__subclasses__():
        yield derived
        yield from _derived(derived)


@contextmanager
def _asking() -> Iterator[list[Callable[[], Iterable[ModelCall]]]]:
    """Record what the functions read that the block appends, unless HTTP carried the call.

    INVARIANT: nothing that goes wrong in reading reaches the agent.
    """
    began, clock, outer = time.time(), time.perf_counter(), carried.get()
    readers: list[Callable[[], Iterable[ModelCall]]] = []
    seen: list[str] = []
    token = carried.set(seen)
    try:
        yield readers
    finally:
        carried.reset(token)
        if readers and not seen:
            latency = (time.perf_counter() - clock) * 1000
            for write in _writers:
                try:
                    for call in [call for read in readers for call in read()]:
                        write(_timed(call, began, latency))
                except Exception as problem:
                    write(problem)
            seen.append("framework")
        if outer is not None:
            outer += seen


def _timed(call: ModelCall, began: float, latency_ms: float) -> ModelCall:
    return ModelCall(call.wire, call.request, call.reply, began=began, ended=time.time(), latency_ms=latency_ms)


def _call(wire: str, request: Json, reply: Json) -> ModelCall:
    return ModelCall(format_named(wire), plain(request), plain(reply), began=0, ended=0, latency_ms=0)


# LangChain


def _langchain(original: Any) -> Any:
    @functools.wraps(original)
    def generate(self: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        with _asking() as readers:
            result = original(self, messages, *args, **kwargs)
            readers.append(lambda: _of_langchain(self, messages, result, kwargs))
        return result

    return generate


def _alangchain(original: Any) -> Any:
    @functools.wraps(original)
    async def agenerate(self: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        with _asking() as readers:
            result = await original(self, messages, *args, **kwargs)
            readers.append(lambda: _of_langchain(self, messages, result, kwargs))
        return result

    return agenerate


def _langchain_stream(original: Any) -> Any:
    @functools.wraps(original)
    def stream(self: Any, input: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        chunks: list[Any] = []
        with _asking() as readers:
            for chunk in original(self, input, *args, **kwargs):
                chunks.append(chunk)
                yield chunk
            readers.append(lambda: _of_chunks(self, input, chunks, kwargs))

    return stream


def _langchain_astream(original: Any) -> Any:
    @functools.wraps(original)
    async def astream(self: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        chunks: list[Any] = []
        with _asking() as readers:
            async for chunk in original(self, input, *args, **kwargs):
                chunks.append(chunk)
                yield chunk
            readers.append(lambda: _of_chunks(self, input, chunks, kwargs))

    return astream


def _of_chunks(model: Any, input: Any, chunks: list[Any], kwargs: Any) -> list[ModelCall]:
    if not chunks:
        return []
    whole = functools.reduce(lambda left, right: left + right, chunks)
    return [_chat_call(model, model._convert_input(input).to_messages(), whole, kwargs)]


def _of_langchain(model: Any, batches: Any, result: Any, kwargs: Any) -> Iterator[ModelCall]:
    for messages, generations in zip(batches, result.generations, strict=False):
        if generations and hasattr(generations[0], "message"):
            yield _chat_call(model, messages, generations[0].message, kwargs)


def _chat_call(model: Any, messages: Any, message: Any, kwargs: Any) -> ModelCall:
    from langchain_core.messages import convert_to_openai_messages

    name = getattr(model, "model_name", None) or getattr(model, "model", None) or type(model).__name__
    request = {"model": name, "messages": convert_to_openai_messages(messages)}
    if kwargs.get("tools"):
        request["tools"] = kwargs["tools"]
    return _chat("langchain", request, convert_to_openai_messages([message])[0])


def _chat(framework: str, request: Json, message: Json) -> ModelCall:
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    request = {**request, "metadata": {"carried_by": framework}}
    return _call("openai", request, {"model": request["model"], "choices": [choice]})


# Pydantic AI and the OpenAI Agents SDK


def _awaited(read: Any, original: Any) -> Any:
    @functools.wraps(original)
    async def ask(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _asking() as readers:
            response = await original(self, *args, **kwargs)
            readers.append(lambda: [read(self, args, kwargs, response)])
        return response

    return ask


def _lost(original: Any) -> Any:
    @functools.wraps(original)
    def stream(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_inner = carried.get() is not None
        over_http = any(kind.__module__.endswith(_OVER_HTTP) for kind in type(self).__mro__)
        for write in () if is_inner or over_http else _writers:
            name = type(self).__name__
            write(RuntimeError(f"a streamed answer of the model `{name}`, which no HTTP carries, cannot be recorded"))
        return original(self, *args, **kwargs)

    return stream


_OVER_HTTP = (".openai", ".anthropic", ".openai_chatcompletions", ".openai_responses", ".groq", ".mistral", ".wrapper")
"""modules of models that speak HTTP, or pass calls on to one that does"""


def _of_agents(model: Any, args: Any, kwargs: Any, response: Any) -> ModelCall:
    names = ("system_instructions", "input", "model_settings", "tools")
    asked = {**dict(zip(names, args, strict=False)), **kwargs}
    request = {"model": str(getattr(model, "model", type(model).__name__)), "input": asked.get("input") or ""}
    request |= {"instructions": asked.get("system_instructions"), "metadata": {"carried_by": "openai_agents"}}
    output = [item.model_dump(exclude_unset=True) if hasattr(item, "model_dump") else item for item in response.output]
    return _call("openai_responses", request, {"status": "completed", "model": request["model"], "output": output})


def _of_pydantic(model: Any, args: Any, kwargs: Any, response: Any) -> ModelCall:
    messages = args[0] if args else kwargs["messages"]
    converted = [one for message in messages for one in _pydantic_messages(message)]
    (said,) = _pydantic_messages(response)
    return _chat("pydantic_ai", {"model": model.model_name, "messages": converted}, said)


def _pydantic_messages(message: Any) -> Iterator[Json]:
    if message.kind == "response":
        text = "".join(part.content for part in message.parts if part.part_kind == "text")
        calls = [
            {"id": part.tool_call_id, "type": "function",
             "function": {"name": part.tool_name, "arguments": part.args_as_json_str()}}
            for part in message.parts if part.part_kind == "tool-call"
        ]  # fmt: skip
        yield {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
        return
    if getattr(message, "instructions", None):
        yield {"role": "system", "content": message.instructions}
    for part in message.parts:
        if part.part_kind in ("system-prompt", "user-prompt"):
            role = "system" if part.part_kind == "system-prompt" else "user"
            yield {"role": role, "content": part.content if isinstance(part.content, str) else plain(part.content)}
        elif part.part_kind == "tool-return":
            yield {"role": "tool", "tool_call_id": part.tool_call_id, "content": part.model_response_str()}
        else:
            yield {"role": "user", "content": plain(part.content)}
