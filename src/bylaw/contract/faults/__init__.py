"""Faults: what goes wrong in a run, and at which calls of the agent. This file has them as a contract states them.

A `plan` decides which fault hits which call of one run and counts what fired. HTTP requests pass `exchanges`, tools
that are called by name pass `live_run`; `effects` and `texts` are the pure functions that change values and texts.
`recorder` writes down what the agent did.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bylaw.model.diagnostic import Span

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
    """What goes wrong in one run. The same injection makes the same faults fire at the same calls."""

    faults: tuple[AnyFault, ...] = ()
    seed: int = 0
    run: str = "run"
    """the name of the run in its trace, which also varies the seed: scenario, prompt and repetition"""
