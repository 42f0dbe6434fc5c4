"""Writes down what an agent did in one run, as the events of a trace.

Three sources tell of the same things: the model's wire, the tools that are called by name, and HTTP requests. So
everything is noted as it comes, from whatever thread, and put together once, when the run is over: a call that a model
issued and a tool executed is one call, and a result that a tool returned and the next request repeats is one result.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from msgspec import Struct

from bylaw.contract.live.recording import Recording
from bylaw.model.trace import Trace


class ModelTurn(Struct, frozen=True):
    at: float
    request: dict[str, Any]
    reply: dict[str, Any] | None
    """None: the model gave no answer that can be read"""
    latency_ms: float | None
    provider: str


class Called(Struct, frozen=True):
    at: float
    token: int
    name: str
    arguments: Any
    call_id: str | None


class Returned(Struct, frozen=True):
    at: float
    token: int
    content: Any
    is_error: bool
    latency_ms: float | None


class Noted(Struct, frozen=True):
    at: float
    label: str
    data: dict[str, Any]


class Recorder:
    """Of one run. Safe to tell from several threads."""

    def __init__(self, run: str, prompt: str) -> None:
        self.run = run
        self.prompt = prompt
        self._lock = threading.RLock()  # a reply that is thrown away may be ended by the garbage collector, anywhere
        self._told: list[ModelTurn | Called | Returned | Noted] = []
        self._tokens = 0

    @property
    def knows_tools(self) -> bool:
        """Whether a tool was called by name."""
        return self._tokens > 0

    def model_turn(
        self, request: dict[str, Any], reply: dict[str, Any] | None, latency_ms: float | None, provider: str
    ) -> None:
        """The model was asked. `provider` names the wire format: openai, openai_responses or anthropic."""
        self._tell(ModelTurn(time.time(), request, reply, latency_ms, provider))

    def tool_called(self, name: str, arguments: Any, call_id: str | None = None) -> int:
        """A tool began; the token is for `tool_returned`."""
        with self._lock:
            self._tokens += 1
            token = self._tokens
            self._told.append(Called(time.time(), token, name, arguments, call_id))
        return token

    def tool_returned(self, token: int, content: Any, is_error: bool = False, latency_ms: float | None = None) -> None:
        self._tell(Returned(time.time(), token, content, is_error, latency_ms))

    def note(self, label: str, data: dict[str, Any]) -> None:
        """Anything else, such as an HTTP request of a tool's."""
        self._tell(Noted(time.time(), label, data))

    def trace(self, answer: str | None, complete: bool) -> Trace:
        """All that was told, put together; `answer` is what the agent said in the end."""
        with self._lock:
            told = list(self._told)
        recording = Recording(self.run, self.prompt)
        for item in told:
            if isinstance(item, ModelTurn):
                recording.model_turn(item.at, item.request, item.reply, item.latency_ms, item.provider)
            elif isinstance(item, Called):
                recording.called(item.at, item.token, item.name, item.arguments, item.call_id)
            elif isinstance(item, Returned):
                recording.returned(item.at, item.token, item.content, item.is_error, item.latency_ms)
            else:
                recording.noted(item.at, item.label, item.data)
        return recording.finish(answer, complete=complete)

    def _tell(self, item: ModelTurn | Called | Returned | Noted) -> None:
        with self._lock:
            self._told.append(item)
