"""A live agent as a job sees it: ask it something while faults are injected, and learn all it did."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from bylaw.contract.faults import AnyFault
from bylaw.model.trace import Trace

FailureKind: TypeAlias = Literal["down", "timeout", "crash", "error", "bad_answer"]


class Failure(Struct, frozen=True):
    """Why there is no answer.

    `down`: it could not be reached. `timeout`: it took too long. `crash`: it raised, exited or broke off. `error`: it
    answered that it failed. `bad_answer`: what it sent cannot be read as an answer.
    """

    kind: FailureKind
    reason: str


class Injection(Struct, frozen=True, kw_only=True):
    """What goes wrong in one run. The same injection makes the same faults fire at the same calls."""

    faults: tuple[AnyFault, ...] = ()
    seed: int = 0
    run: str = "run"
    """names the run in its trace and stirs the seed: scenario, prompt and repetition"""


class AgentRun(Struct, frozen=True, kw_only=True):
    """All that is known of one run. Exactly one of `answer` and `failure` is None."""

    answer: str | None
    failure: Failure | None
    latency_ms: float
    """from asking to answering, without Bylaw's own preparations"""
    fired: dict[str, int]
    """how often each fault hit a call of the agent's, by its id; 0 where it never did"""
    trace: Trace


class AgentUnreachable(Exception):
    """The agent cannot be started, reset or reached at all; the message says why."""


class LiveAgent(Protocol):
    """The agent under test. `start` comes first, `stop` always follows it."""

    @property
    def name(self) -> str: ...

    @property
    def concurrency(self) -> int:
        """how many runs it takes at once"""
        ...

    @property
    def has_reset(self) -> bool: ...

    def refusal(self, fault: AnyFault) -> str | None:
        """Why this fault could never hit this agent; None where it can."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def reset(self) -> None:
        """Back to a clean state. Raises AgentUnreachable where that fails."""
        ...

    async def run(self, prompt: str, injection: Injection) -> AgentRun:
        """Never raises for what the agent does; cancelling it ends the run."""
        ...
