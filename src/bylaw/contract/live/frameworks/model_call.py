"""One call of a framework's model, as an exchange of the interceptor's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from bylaw.wire.current import LiveRun
from bylaw.wire.exchange import Incoming, Outgoing
from bylaw.wire.formats.base import Json
from bylaw.wire.listening import Passage
from bylaw.wire.values import one_line, plain

_PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses"}
_HOST = "http://model.invalid"
"""never asked: the framework asks its model itself"""


class ModelFailure(RuntimeError):
    """What a model raises that was made to fail, where its framework has no error of its own for it."""


class Errors(Struct, frozen=True):
    """How a framework says that its model failed."""

    broken: Callable[[Literal["timeout", "cut"]], Exception]
    status: Callable[[int, str, Any, dict[str, str]], Exception]
    """made of the status, the message, the provider's error object and the headers"""


class ModelCall:
    """Ask `delay` and `give_up` before the model, `answered` after it, and `end` in any case."""

    def __init__(self, run: LiveRun, wire: Literal["chat", "responses"], request: Json, errors: Errors) -> None:
        self._errors = errors
        body = msgspec.json.encode(plain(request))
        self._sent = msgspec.json.decode(body)
        headers = {"content-type": "application/json"}
        self._exchange = Passage(run, ()).begin(Outgoing("POST", _HOST + _PATHS[wire], headers, body))
        self.delay = self._exchange.delay
        self.first_byte_delay = self._exchange.first_byte_delay
        self.alters = self._exchange.buffers
        """whether the answer must be whole before any of it is handed on"""

    @property
    def sent(self) -> Json:
        """The request as it would have gone."""
        return copy.deepcopy(self._sent)

    @property
    def request(self) -> Json:
        """The request to send, attacks included."""
        request: Json = msgspec.json.decode(self._exchange.request.body)
        return request

    def give_up(self) -> None:
        """Raises what the fault raises instead of asking the model."""
        if self._exchange.fails is not None:
            raise self._errors.broken(self._exchange.fails)
        reply = self._exchange.reply
        if reply is not None:
            error = msgspec.json.decode(reply.body)
            detail = error.get("error") if isinstance(error, dict) else None
            message = detail.get("message") if isinstance(detail, dict) else None
            raise self._errors.status(reply.status, str(message or "failed"), error, reply.headers)

    def answered(self, reply: Json) -> Json | None:
        """What the fault makes of the model's answer; None where it leaves it as it is."""
        body = msgspec.json.encode(plain(reply))
        headers = {"content-type": "application/json"}
        if not self._exchange.buffers:
            self._exchange.head(200, headers)
            self._exchange.chunk(body)
            return None
        told = self._exchange.answer(Incoming(200, headers, body))
        if self._exchange.cut_after is not None:
            raise self._errors.broken("cut")
        if told.body == body:
            return None
        changed: Json = msgspec.json.decode(told.body)
        return changed

    def end(self, error: BaseException | None = None) -> None:
        self._exchange.end(error=None if error is None else one_line(error))


def chat_reply(model: str | None, text: str | None, calls: list[Json], *, finish: str | None = None) -> Json:
    """A model's answer as chat completions have it; `calls` are made by `chat_tool_call`."""
    message: Json = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": finish or ("tool_calls" if calls else "stop")}
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


def chat_said(reply: Json) -> tuple[str, list[Json], str]:
    """Text, calls and finish reason of a chat completion."""
    choice = reply["choices"][0]
    message = choice["message"]
    return message.get("content") or "", message.get("tool_calls") or [], choice.get("finish_reason") or "stop"


def aligned(before: list[Json], after: list[Json]) -> list[tuple[int | None, Json]]:
    """Each message of an attacked conversation with the place it had before; None for one that was put in."""
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
