"""Faults: what goes wrong in a run, and at which calls of the agent; and attempts: the calls that they may hit.

This file has the faults as a contract states them. A `plan` decides which fault hits which call of one run and counts
what fired. HTTP requests pass `exchanges`, tools that are called by name pass `live_run`; `effects` and `texts` are the
pure functions that change values and texts. `recorder` writes down what the agent did.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Context, Decimal
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from bylaw.model.canonical import canonical_json
from bylaw.model.diagnostic import Span
from bylaw.model.events import Event, Origin, Response, ToolCall, ToolResult, Trace
from bylaw.wire.values import plain, plain_object, without_surrogates

NetworkMode: TypeAlias = Literal["reset", "dns_failure", "truncated_body", "slow_body", "jitter"]
ToolMode: TypeAlias = (
    Literal["timeout", "error", "malformed", "slow", "malicious_response", "wrong_data", "empty", "stale"] | NetworkMode
)
LlmMode: TypeAlias = (
    Literal[
        "timeout",
        "truncated_response",
        "rate_limit",
        "empty",
        "garbage",
        "response_drift",
        "stream_cut",
        "slow_first_token",
        "server_error",
        "malformed_tool_call",
    ]
    | NetworkMode
)
DriftType: TypeAlias = Literal[
    "json_field_rename", "verbosity_shift", "format_change", "refusal_rephrase", "tone_shift"
]
AttackType: TypeAlias = Literal[
    "overflow", "conflicting_context", "injection_via_context", "indirect_injection", "memory_poisoning"
]


class Timing(Struct, frozen=True, kw_only=True):
    """Which of the calls that a fault can hit it does hit. Each run counts calls from 1."""

    probability: float = 1.0
    after_calls: int = 0
    """the first calls that are not hit"""
    nth: tuple[int, ...] | None = None
    """only these calls; None: all"""


class Fault(Struct, frozen=True, kw_only=True):
    """What all faults share."""

    id: str
    """unique in its scenario; its place there, such as `tool_faults[0]`"""
    label: str
    """its name in reports, such as `search: error 503`"""
    timing: Timing = Timing()
    profile: str | None = None
    """the profile that it is part of: of its faults, one has to fire"""
    span: Span | None = None


class ToolFault(Fault, frozen=True, kw_only=True):
    """Hits a call of a tool by its name, or an HTTP request of a tool by its URL."""

    mode: ToolMode
    tool: str | None = None
    """a name, or a glob over names; `*` is every tool"""
    match_url: str | None = None
    """a glob over whole URLs; if set, HTTP requests are hit instead of named tools"""
    delay_ms: int | None = None
    """timeout, slow, slow_body, jitter: how long the call takes, at most; the reader fills in the default"""
    error_code: int = 503
    message: str | None = None
    payload: Any = None
    """malicious_response, wrong_data: the answer to give instead of a generated one"""


class LlmFault(Fault, frozen=True, kw_only=True):
    """Hits a request to the model."""

    mode: LlmMode
    max_tokens: int | None = None
    """truncated_response, stream_cut: how many words of the answer are left"""
    delay_ms: int | None = None
    error_code: int | None = None
    """server_error, rate_limit: the status; the reader fills in the default"""
    message: str | None = None
    drift_type: DriftType | None = None
    direction: str | None = None
    """verbosity_shift: `expand` or `compress`"""
    factor: float = 2.0


class ContextAttack(Fault, frozen=True, kw_only=True):
    """Puts text where the agent reads it: into its requests to the model, into tool results, or into the prompt."""

    type: AttackType
    payloads: tuple[str, ...] = ()
    """one of these is used, by the seed; the reader fills in the default"""
    inject_tokens: int | None = None
    """overflow: how many words of filler"""
    inject_at: int | None = None
    """memory_poisoning: the message to insert it before; None: before the first that is not the system's"""
    strategy: Literal["prepend", "append", "replace"] = "prepend"
    tool: str | None = None
    """indirect_injection: only results of this tool; None: of any"""


AnyFault: TypeAlias = ToolFault | LlmFault | ContextAttack


class Injection(Struct, frozen=True, kw_only=True):
    """The faults of one run. The same injection makes the same faults fire at the same calls."""

    faults: tuple[AnyFault, ...] = ()
    seed: int = 0
    run: str = "run"
    """the name of the run in its trace, which also varies the seed: scenario, prompt and repetition"""


# The attempts of an agent in one run, as the tools and models see them: which failed, and which took effect
#
# A trace says what the agent saw. A refund whose reply was lost took effect although the agent saw an error, so rules
# about recovery are judged on this record instead. `as_trace` writes it down as events, which the engine judges.


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


def current_attempt() -> Attempt | None:
    """The call of a tool that the calling code belongs to."""
    return _inside.get()


@contextmanager
def attempt_scope(attempt: Attempt) -> Iterator[None]:
    """The code in this block belongs to this call of a tool."""
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
