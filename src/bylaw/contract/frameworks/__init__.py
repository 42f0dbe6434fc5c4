"""Agent frameworks in this process: their tools by name, and their model calls.

A model call of a framework is translated into a wire format and passes the same interceptor as one over HTTP, so that
each fault is written once. Only the result is turned into the framework's own objects and errors. Models that speak the
format of OpenAI or Anthropic over HTTP are left to the HTTP patches, where their client's own retries happen as well.

Pydantic AI is patched from here, because `pydantic_ai` cannot be imported with its older releases. The framework itself
lets a capability wrap the tools and the model of a run. The patch adds one to each run in `Agent.iter`, which every way
of running an agent calls.
"""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import msgspec
from msgspec import Struct

from bylaw.contract.faults.live_run import LiveRun, current_run
from bylaw.wire.exchange import Incoming, Outgoing
from bylaw.wire.formats.base import Json
from bylaw.wire.listeners import ignore_exchanges
from bylaw.wire.patch_on_import import Patches, PatchOnImport
from bylaw.wire.values import one_line, plain

FRAMEWORKS = PatchOnImport(
    {
        "agents.models.interface": "bylaw.contract.frameworks.openai_agents",
        "agents.tool": "bylaw.contract.frameworks.openai_agents",
        "langchain_core.language_models.chat_models": "bylaw.contract.frameworks.langchain",
        "langchain_core.tools.base": "bylaw.contract.frameworks.langchain",
        "pydantic_ai.agent": __name__,
    }
)


def patch(module: Any, patches: Patches) -> None:
    """`module` is pydantic_ai.agent. Releases without capabilities that wrap models are not patched."""
    if why_no_pydantic_ai() is None:
        patches.replace(module.Agent, "iter", _iter)


def why_no_pydantic_ai() -> str | None:
    """Why faults cannot reach agents of the installed release; None if they can."""
    try:
        from pydantic_ai import capabilities
    except ImportError:
        capabilities = None
    if hasattr(getattr(capabilities, "AbstractCapability", None), "get_wrapper_model"):
        return None
    return "the installed release of Pydantic AI has no capabilities that wrap its models; a newer one has"


def _iter(original: Any) -> Any:
    @functools.wraps(original)
    def iter(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = current_run()
        if run is not None:
            from bylaw.contract.frameworks.pydantic_ai import FaultCapability

            kwargs["capabilities"] = [*(kwargs.get("capabilities") or ()), FaultCapability(run)]
        return original(self, *args, **kwargs)

    return iter


# One model call of a framework, as an HTTP exchange of its run


_PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses"}
_HOST = "http://model.invalid"
"""nothing is sent there: the framework asks its model itself"""


class ModelFailure(RuntimeError):
    """Raised by a model that was made to fail, if its framework has no error of its own for that."""


class Errors(Struct, frozen=True):
    """The errors of a framework for a model that failed."""

    broken: Callable[[Literal["timeout", "cut"]], Exception]
    status: Callable[[int, str, Any, dict[str, str]], Exception]
    """takes the status, the message, the provider's error object and the headers"""


class ModelCall:
    """Inside `recorded`: wait `delay`, call `fail`, ask the model, call `answered`, wait `first_byte_delay`."""

    def __init__(self, run: LiveRun, wire: Literal["chat", "responses"], request: Json, errors: Errors) -> None:
        self._errors = errors
        body = msgspec.json.encode(plain(request))
        self._sent = msgspec.json.decode(body)
        headers = {"content-type": "application/json"}
        self._exchange = run.begin(Outgoing("POST", _HOST + _PATHS[wire], headers, body))
        run.plan.models.discard(_HOST)
        self.delay = self._exchange.delay
        self.first_byte_delay = self._exchange.first_byte_delay
        self.alters = self._exchange.buffers
        """whether the answer must be complete before any of it is passed on"""

    @property
    def sent(self) -> Json:
        """The request without attacks."""
        return copy.deepcopy(self._sent)

    @property
    def request(self) -> Json:
        """The request with attacks, to send."""
        request: Json = msgspec.json.decode(self._exchange.request.body)
        return request

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record the call after this block, also if it fails."""
        try:
            yield
        except BaseException as error:
            self._exchange.end(error=one_line(error))
            raise
        self._exchange.end()

    async def begin(self) -> None:
        """Wait `delay` and call `fail`."""
        await asyncio.sleep(self.delay)
        self.fail()

    async def stream(
        self, source: AsyncIterator[Any], last: Callable[[list[Any]], Iterator[Any]]
    ) -> AsyncIterator[Any]:
        """Pass on the parts of a streamed answer, or only collect them if the fault needs the whole answer.

        `last` gets all parts and returns those to pass on at the end.
        """
        parts: list[Any] = []
        while True:
            with ignore_exchanges():
                part = await anext(source, None)
            if part is None:
                break
            parts.append(part)
            if not self.alters:
                yield part
        for part in last(parts):
            yield part

    def fail(self) -> None:
        """Raise what the fault raises instead of asking the model."""
        if self._exchange.fails is not None:
            raise self._errors.broken("timeout" if self._exchange.fails == "timeout" else "cut")
        reply = self._exchange.reply
        if reply is not None:
            error = msgspec.json.decode(reply.body)
            detail = error.get("error") if isinstance(error, dict) else None
            message = detail.get("message") if isinstance(detail, dict) else None
            raise self._errors.status(reply.status, str(message or "failed"), error, reply.headers)

    def answered(self, reply: Json) -> Json | None:
        """The model's answer as the fault changes it; None if it does not."""
        body = msgspec.json.encode(plain(reply))
        headers = {"content-type": "application/json"}
        if not self._exchange.buffers:
            self._exchange.head(200, headers)
            self._exchange.chunk(body)
            return None
        altered = self._exchange.answer(Incoming(200, headers, body))
        if self._exchange.cut_after is not None or self._exchange.fails is not None:
            raise self._errors.broken("cut")
        self.first_byte_delay += self._exchange.body_seconds
        if altered.body == body:
            return None
        changed: Json = msgspec.json.decode(altered.body)
        return changed


def chat_reply(model: str | None, text: str | None, calls: list[Json]) -> Json:
    """A model's answer as a chat completion; `calls` come from `chat_tool_call`."""
    message: Json = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": model or "model",
        "choices": [choice],
    }


def chat_tool_call(call_id: str | None, name: str, arguments: Any) -> Json:
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(plain(arguments)).decode()
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def chat_parts(reply: Json) -> tuple[str, list[Json], str]:
    """Text, calls and finish reason of a chat completion."""
    choice = reply["choices"][0]
    message = choice["message"]
    return message.get("content") or "", message.get("tool_calls") or [], choice.get("finish_reason") or "stop"


def align_messages(before: list[Json], after: list[Json]) -> list[tuple[int | None, Json]]:
    """Each message of an attacked conversation with its index before the attack; None for one that was inserted."""
    pairs: list[tuple[int | None, Json]] = []
    place = 0
    for at, message in enumerate(after):
        is_extra = len(after) - at > len(before) - place
        if place < len(before) and (message == before[place] or not is_extra):
            pairs.append((place, message))
            place += 1
        else:
            pairs.append((None, message))
    return pairs
