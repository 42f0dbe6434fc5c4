"""Calls to models that no recorded HTTP carried: models of a framework that run in this process, or speak otherwise.

A call of a framework's model that caused no recorded request is recorded from the framework's own messages. If it did
cause one, nothing is written here. Whole and streamed calls are recorded; of a stream that breaks off, the part that
was read. A call that fails is recorded as an error.
"""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any, TypeAlias

from msgspec.structs import replace

from bylaw.record.turns import ModelCall
from bylaw.wire.formats import format_named
from bylaw.wire.formats.base import Json
from bylaw.wire.patch_on_import import Patches, PatchOnImport, subclasses
from bylaw.wire.values import one_line, plain

carried: ContextVar[list[str] | None] = ContextVar("bylaw_carried", default=None)
"""what carried the calls of the framework's model that is being asked; None outside of such a call"""
Write: TypeAlias = Callable[[ModelCall | Exception], None]
_writers: list[Write] = []
"""none where nothing is recorded"""


def mark_carried() -> None:
    """A recorded request over HTTP carries the call that is being made."""
    seen = carried.get()
    if seen is not None:
        seen.append("http")


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
        patches.replace(module.BaseChatModel, "agenerate", _patch_answer(_calls_from_langchain))
        patches.replace(module.BaseChatModel, "stream", _langchain_stream)
        patches.replace(module.BaseChatModel, "astream", _langchain_astream)
        return
    model = getattr(module, "Model", None)
    if hasattr(model, "get_response"):
        _patch_classes(
            model, patches, {"get_response": _patch_answer(_calls_from_agents), "stream_response": _agents_stream}
        )
    elif hasattr(model, "request"):
        _patch_classes(
            model, patches, {"request": _patch_answer(_calls_from_pydantic), "request_stream": _pydantic_stream}
        )


def _patch_classes(base: Any, patches: Patches, methods: dict[str, Callable[[Any], Any]]) -> None:
    """Patch the methods of all models, those that are defined later included."""

    def patch_class(derived: Any) -> None:
        for name, make in methods.items():
            patches.replace(derived, name, make)

    def watch(original: Any) -> Any:
        def __init_subclass__(cls: Any, /, **kwargs: Any) -> None:
            if original is None:
                super(base, cls).__init_subclass__(**kwargs)
            else:
                original.__get__(None, cls)(**kwargs)
            patch_class(cls)

        return classmethod(__init_subclass__)

    for derived in subclasses(base):
        patch_class(derived)
    if "__init_subclass__" in vars(base):
        patches.replace(base, "__init_subclass__", watch)
    else:
        patches.add(base, "__init_subclass__", watch(None))


class _ModelRequest:
    """One call of a model: `step` is around each piece of its work, and `finish` records it unless HTTP carried it.

    A stream has many steps, and what the agent does between two of them is no part of the call.
    INVARIANT: nothing that goes wrong in reading reaches the agent.
    """

    def __init__(self, failed: Callable[[], Iterable[ModelCall]]) -> None:
        """`failed` reads the call where it failed without an answer."""
        self._began, self._clock, self._outer = time.time(), time.perf_counter(), carried.get()
        self._seen: list[str] = []
        self._failed = failed

    @contextmanager
    def step(self) -> Iterator[None]:
        token = carried.set(self._seen)
        try:
            yield
        except BaseException as error:  # cancelling counts too: the model was asked
            self.finish(self._failed, is_whole=False, error=one_line(error))
            raise
        finally:
            carried.reset(token)

    def finish(
        self, read: Callable[[], Iterable[ModelCall]], *, is_whole: bool = True, error: str | None = None
    ) -> None:
        if not self._seen:
            latency = (time.perf_counter() - self._clock) * 1000
            for write in _writers:
                try:
                    for call in list(read()):
                        times = {"began": self._began, "ended": time.time(), "latency_ms": latency}
                        write(replace(call, **times, is_whole=is_whole, error=error))
                except Exception as problem:
                    write(problem)
            self._seen.append("framework")
        if self._outer is not None:
            self._outer += self._seen


def _call(wire: str, request: Json, reply: Json | None) -> ModelCall:
    """`reply`: None if the call failed."""
    answer = None if reply is None else plain(reply)
    return ModelCall(format_named(wire), plain(request), answer, began=0, ended=0, latency_ms=0)


# LangChain


def _langchain(original: Any) -> Any:
    @functools.wraps(original)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        asking = _ModelRequest(lambda: _calls_from_langchain(self, args, kwargs, None))
        with asking.step():
            result = original(self, *args, **kwargs)
        asking.finish(lambda: _calls_from_langchain(self, args, kwargs, result))
        return result

    return generate


def _langchain_stream(original: Any) -> Any:
    @functools.wraps(original)
    def stream(self: Any, input: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        chunks: list[Any] = []
        asking = _ModelRequest(lambda: _calls_from_chunks(self, input, chunks, kwargs))
        source, is_whole = original(self, input, *args, **kwargs), False
        try:
            while True:
                with asking.step():
                    try:
                        chunk = next(source)
                    except StopIteration:
                        break
                chunks.append(chunk)
                yield chunk
            is_whole = True
        finally:
            asking.finish(lambda: _calls_from_chunks(self, input, chunks, kwargs), is_whole=is_whole)
            source.close()

    return stream


def _langchain_astream(original: Any) -> Any:
    @functools.wraps(original)
    async def astream(self: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        chunks: list[Any] = []
        asking = _ModelRequest(lambda: _calls_from_chunks(self, input, chunks, kwargs))
        source, is_whole = original(self, input, *args, **kwargs), False
        try:
            while True:
                with asking.step():
                    try:
                        chunk = await anext(source)
                    except StopAsyncIteration:
                        break
                chunks.append(chunk)
                yield chunk
            is_whole = True
        finally:
            asking.finish(lambda: _calls_from_chunks(self, input, chunks, kwargs), is_whole=is_whole)
            await source.aclose()

    return astream


def _calls_from_chunks(model: Any, input: Any, chunks: list[Any], kwargs: Any) -> list[ModelCall]:
    whole = functools.reduce(lambda left, right: left + right, chunks) if chunks else None
    return [_chat_call(model, model._convert_input(input).to_messages(), whole, kwargs)]


def _calls_from_langchain(model: Any, args: Any, kwargs: Any, result: Any) -> Iterator[ModelCall]:
    batches = args[0] if args else kwargs["messages"]
    if result is None:
        yield from (_chat_call(model, messages, None, kwargs) for messages in batches)
        return
    for messages, generations in zip(batches, result.generations, strict=False):
        if generations and hasattr(generations[0], "message"):
            yield _chat_call(model, messages, generations[0].message, kwargs)


def _chat_call(model: Any, messages: Any, message: Any, kwargs: Any) -> ModelCall:
    name = getattr(model, "model_name", None) or getattr(model, "model", None) or type(model).__name__
    request = {"model": name, "messages": [part for one in messages for part in _langchain_messages(one)]}
    if kwargs.get("tools"):
        request["tools"] = kwargs["tools"]
    return _chat("langchain", request, None if message is None else _langchain_messages(message)[0])


def _langchain_messages(message: Any) -> list[Json]:
    """A message as OpenAI's, with what LangChain leaves out there: failures of tools, and calls that are no JSON."""
    from langchain_core.messages import convert_to_openai_messages

    converted: list[Json] = convert_to_openai_messages([message])
    if getattr(message, "status", None) == "error":
        return [{**one, "is_error": True} for one in converted]
    invalid = getattr(message, "invalid_tool_calls", None) or ()
    for call in (one for one in invalid if isinstance(one["name"], str)):
        function = {"name": call["name"], "arguments": call["args"]}
        converted[0].setdefault("tool_calls", []).append({"id": call["id"], "type": "function", "function": function})
    return converted


def _chat(framework: str, request: Json, message: Json | None) -> ModelCall:
    if message is None:
        return _call("openai", request, None)
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    request = {**request, "metadata": {"carried_by": framework}}
    return _call("openai", request, {"model": request["model"], "choices": [choice]})


# Pydantic AI and the OpenAI Agents SDK


def _patch_answer(read: Callable[[Any, Any, Any, Any], Iterable[ModelCall]]) -> Callable[[Any], Any]:
    """A patch of a method that returns the whole answer, which `read` turns into calls."""

    def make(original: Any) -> Any:
        @functools.wraps(original)
        async def ask(self: Any, *args: Any, **kwargs: Any) -> Any:
            asking = _ModelRequest(lambda: read(self, args, kwargs, None))
            with asking.step():
                response = await original(self, *args, **kwargs)
            asking.finish(lambda: read(self, args, kwargs, response))
            return response

        return ask

    return make


def _pydantic_stream(original: Any) -> Any:
    @functools.wraps(original)
    @asynccontextmanager
    async def request_stream(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        asking = _ModelRequest(lambda: _calls_from_pydantic(self, args, kwargs, None))
        async with AsyncExitStack() as stack:
            with asking.step():  # a model that speaks HTTP sends its request here
                streamed = await stack.enter_async_context(original(self, *args, **kwargs))
            is_whole = False
            try:
                yield streamed
                is_whole = streamed.get().state == "complete"
            finally:
                asking.finish(lambda: _calls_from_pydantic(self, args, kwargs, streamed.get()), is_whole=is_whole)

    return request_stream


def _agents_stream(original: Any) -> Any:
    @functools.wraps(original)
    async def stream_response(self: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        pieces: list[str] = []
        asking = _ModelRequest(lambda: _calls_from_agents(self, args, kwargs, None))
        source, response = original(self, *args, **kwargs), None
        try:
            while True:
                with asking.step():
                    try:
                        event = await anext(source)
                    except StopAsyncIteration:
                        break
                if event.type == "response.output_text.delta":
                    pieces.append(event.delta)
                response = getattr(event, "response", None) if event.type in _ENDS else response
                yield event
        finally:
            block = {"type": "output_text", "text": "".join(pieces)}
            broken_off = [{"type": "message", "role": "assistant", "content": [block]}]
            said = response or SimpleNamespace(output=broken_off)
            asking.finish(lambda: _calls_from_agents(self, args, kwargs, said), is_whole=response is not None)
            if hasattr(source, "aclose"):
                await source.aclose()

    return stream_response


_ENDS = ("response.completed", "response.incomplete", "response.failed")


def _calls_from_agents(model: Any, args: Any, kwargs: Any, response: Any) -> list[ModelCall]:
    names = ("system_instructions", "input", "model_settings", "tools")
    asked = {**dict(zip(names, args, strict=False)), **kwargs}
    request = {"model": str(getattr(model, "model", type(model).__name__)), "input": asked.get("input") or ""}
    request |= {"instructions": asked.get("system_instructions"), "metadata": {"carried_by": "openai_agents"}}
    if response is None:
        return [_call("openai_responses", request, None)]
    output = [item.model_dump(exclude_unset=True) if hasattr(item, "model_dump") else item for item in response.output]
    return [_call("openai_responses", request, {"status": "completed", "model": request["model"], "output": output})]


def _calls_from_pydantic(model: Any, args: Any, kwargs: Any, response: Any) -> list[ModelCall]:
    messages = args[0] if args else kwargs["messages"]
    converted = [one for message in messages for one in _pydantic_messages(message)]
    said = None if response is None else next(_pydantic_messages(response))
    return [_chat("pydantic_ai", {"model": model.model_name, "messages": converted}, said)]


def _pydantic_messages(message: Any) -> Iterator[Json]:
    from bylaw.traces.formats.pydantic_ai import FAILED, NOT_CONTENT  # loads the readers of chats

    if message.kind == "response":
        text = "".join(part.content for part in message.parts if part.part_kind == "text")
        calls = [
            {"id": part.tool_call_id, "type": "function",
             "function": {"name": part.tool_name, "arguments": part.args_as_json_str()}}
            for part in message.parts if part.part_kind == "tool-call"
        ]  # fmt: skip
        own = [block for part in message.parts for block in _native_blocks(part)]
        content = [*own, *([{"type": "text", "text": text}] if text else ())] if own else text or None
        yield {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
        return
    if getattr(message, "instructions", None):
        yield {"role": "system", "content": message.instructions}
    for part in message.parts:
        if part.part_kind in ("system-prompt", "user-prompt"):
            role = "system" if part.part_kind == "system-prompt" else "user"
            yield {"role": role, "content": part.content if isinstance(part.content, str) else plain(part.content)}
        elif part.part_kind == "tool-return":
            failed = {"is_error": True} if getattr(part, "outcome", None) in FAILED else {}
            content = part.model_response_str()
            yield {"role": "tool", "tool_call_id": part.tool_call_id, "content": content, **failed}
        elif part.part_kind == "retry-prompt" and part.tool_name is not None:
            content = part.model_response()
            yield {"role": "tool", "tool_call_id": part.tool_call_id, "content": content, "is_error": True}
        elif part.part_kind not in NOT_CONTENT:
            yield {"role": "user", "content": plain(part.content)}


def _native_blocks(part: Any) -> Iterator[Json]:
    """A call that the provider has run itself, or its result."""
    if part.part_kind == "builtin-tool-call":
        given = {} if part.args is None else plain(part.args)
        yield {"type": "server_tool_use", "id": part.tool_call_id, "name": part.tool_name, "input": given}
    elif part.part_kind == "builtin-tool-return":
        yield {"type": "tool_result", "tool_use_id": part.tool_call_id, "content": plain(part.content)}
