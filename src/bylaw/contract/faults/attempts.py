"""What an agent attempted in one run, from the side of the tools and models: what failed, and what took effect.

A trace says what the agent saw. A refund whose reply was lost took effect although the agent saw an error, so rules
about recovery are judged on this record instead. `as_trace` writes it down as events, which the engine judges.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Context, Decimal
from typing import Any

import msgspec
from msgspec import Struct

from bylaw.contract.faults import AnyFault, ContextAttack
from bylaw.model.canonical import canonical_json
from bylaw.model.events import Event, Origin, Response, ToolCall, ToolResult, Trace
from bylaw.wire.values import plain, plain_object, without_surrogates

MODEL = "model"
"""the target of requests to a model"""
_PASSES = ("slow", "slow_body", "jitter", "slow_first_token", "wrong_data", "stale", "malicious_response",
           "response_drift")  # fmt: skip
"""modes after which the agent still has a result that looks whole"""


class Attempt(Struct):
    """One call of a tool, one HTTP request of a tool (`POST https://…`), or one request to a model."""

    target: str
    arguments: Any = None
    call_id: str | None = None
    """of a call that only the trace has the arguments of"""
    is_faulted: bool = False
    has_failed: bool = True
    """until it has ended well"""
    took_effect: bool = False

    def hit(self, fault: AnyFault) -> None:
        """A fault was put into it."""
        if not isinstance(fault, ContextAttack):
            self.is_faulted = True
            self.has_failed = fault.mode not in _PASSES

    def end(self, *, failed: bool, took_effect: bool) -> None:
        self.has_failed = failed or (self.is_faulted and self.has_failed)
        self.took_effect = took_effect

    def hit_inside(self) -> None:
        """A fault was put into a request that the tool made; how the tool ends decides whether that matters."""
        self.is_faulted, self.has_failed = True, False


def is_request(target: str) -> bool:
    """Whether it is an HTTP request, `GET https://…`, and no named tool and no model."""
    return "://" in target and " " in target


_inside: ContextVar[Attempt | None] = ContextVar("bylaw_attempt", default=None)


def inside() -> Attempt | None:
    """The call of a tool that the calling code belongs to."""
    return _inside.get()


@contextmanager
def call_of(attempt: Attempt) -> Iterator[None]:
    token = _inside.set(attempt)
    try:
        yield
    finally:
        _inside.reset(token)


class Attempts:
    """The attempts of one run, in the order in which they began. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[Attempt] = []

    def begin(self, target: str, arguments: Any = None, *, call_id: str | None = None) -> Attempt:
        attempt = Attempt(target, _comparable(arguments), call_id)
        with self._lock:
            self._all.append(attempt)
        return attempt

    def all(self) -> tuple[Attempt, ...]:
        with self._lock:
            return tuple(self._all)


def _comparable(arguments: Any) -> Any:
    """The arguments in JSON types, so that equal ones are the same: numbers without trailing zeros, no addresses."""
    try:
        value = msgspec.to_builtins(
            arguments, enc_hook=_comparable_object, str_keys=True, order="deterministic", builtin_types=(Decimal,)
        )
        return without_surrogates(_without_decimals(value))
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError):
        value = plain(arguments)
        return _ADDRESS.sub("", value) if isinstance(value, str) else value


def _comparable_object(value: Any) -> Any:
    found = plain_object(value)
    if not isinstance(found, str) or not _ADDRESS.search(found):
        return found
    return [_ADDRESS.sub("", found), getattr(value, "__dict__", {})]


def _without_decimals(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_decimals(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_decimals(inner) for inner in value]
    if isinstance(value, Decimal) and value.is_finite():
        return str(value.normalize(Context(prec=len(value.as_tuple().digits))))
    return str(value) if isinstance(value, Decimal) else value


_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")


def as_trace(attempts: Sequence[Attempt], answer: str | None, seen: Trace) -> Trace:
    """The attempts as events of two sessions; the answer ends both.

    `tools` holds no request to a model, because an agent asks its model before each call that it repeats. `model` holds
    everything, and only faults of the model count there. `seen` is the trace of the same run.
    """
    calls = calls_of(attempts, seen)
    events = [*_session("tools", attempts, answer, calls), *_session(MODEL, attempts, answer, calls)]
    return Trace(name=seen.name, format="attempts", events=tuple(events))


def calls_of(attempts: Sequence[Attempt], seen: Trace) -> list[tuple[str, str]]:
    """The target and the arguments of each attempt; equal for attempts at the same call. `seen`: as in `as_trace`."""
    arguments = {event.call_id: event.arguments for event in seen.events if isinstance(event, ToolCall)}
    known = (one.arguments if one.call_id is None else arguments.get(one.call_id, one.call_id) for one in attempts)
    texts = (canonical_json(plain(value)).decode("utf-8", "replace") for value in known)
    return [(attempt.target, text) for attempt, text in zip(attempts, texts, strict=True)]


def _session(
    name: str, attempts: Sequence[Attempt], answer: str | None, calls: Sequence[tuple[str, str]]
) -> Iterator[Event]:
    origin = Origin(name)
    yield Response(origin=origin, turn=0, text="", content=[])
    for number, attempt in enumerate(attempts):
        if name == "tools" and attempt.target == MODEL:
            continue
        call_id = str(number)
        call = ToolCall(
            origin=origin,
            turn=0,
            name=attempt.target,
            call_id=call_id,
            arguments={"target": attempt.target, "same": calls[number][1]},
        )
        yield call
        counts = (attempt.target == MODEL) is (name == MODEL)
        content = {"faulted": attempt.is_faulted and counts, "took_effect": attempt.took_effect and counts}
        yield ToolResult(
            origin=origin,
            turn=0,
            call_id=call_id,
            name=attempt.target,
            call=call,
            is_error=attempt.has_failed,
            content=content,
        )
    if answer is not None:
        yield Response(origin=origin, turn=1, text=answer, content=[{"type": "text", "text": answer}])
