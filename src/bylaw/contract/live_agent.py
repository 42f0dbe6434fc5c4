"""A live agent as the contract job sees it: ask it a prompt while faults are injected, and get all it did."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from bylaw.contract.faults.attempts import Attempt
from bylaw.contract.faults.model import AnyFault, Injection
from bylaw.model.events import Trace

FailureKind: TypeAlias = Literal["down", "upstream", "timeout", "crash", "error", "bad_answer"]


class Failure(Struct, frozen=True):
    """Why there is no answer.

    `down`: it could not be reached. `upstream`: Bylaw's proxy could not reach its model. `timeout`: it took too long.
    `crash`: it raised, exited or broke the connection. `error`: it answered that it failed. `bad_answer`: what it sent
    cannot be read as an answer.
    """

    kind: FailureKind
    reason: str

    @property
    def is_not_the_agents(self) -> bool:
        """Whether it says nothing about the agent."""
        return self.kind in ("down", "upstream")


class AgentRun(Struct, frozen=True, kw_only=True):
    """The result of one run. Exactly one of `answer` and `failure` is None."""

    answer: str | None
    failure: Failure | None
    latency_ms: float
    """from prompt to answer, without Bylaw's own preparations"""
    fired: dict[str, int]
    """how often each fault hit a call of the agent, by the id of the fault; 0 if it never did"""
    fired_on_way_to_model: frozenset[str] = frozenset()
    """the tool faults that changed a result only in the request to the model: the agent's own code saw it unchanged"""
    fired_in_prompt: frozenset[str] = frozenset()
    """the attacks on the context that went into the prompt, because no request to a model was seen"""
    models: frozenset[str] = frozenset()
    """where its requests to models went"""
    answers: tuple[str, ...] = ()
    """of a conversation: the answers before the last one"""
    attempts: tuple[Attempt, ...] = ()
    """what it attempted, and what of that failed or took effect"""
    trace: Trace


class AgentUnreachable(Exception):
    """The agent cannot be started, reset or reached at all; the message says why."""


class LiveAgent(Protocol):
    """The agent under test. `start` comes first, `stop` always follows it."""

    @property
    def name(self) -> str: ...

    @property
    def concurrency(self) -> int:
        """how many runs it accepts at once"""
        ...

    @property
    def has_reset(self) -> bool: ...

    def refusal(self, fault: AnyFault) -> str | None:
        """Why this fault can never hit this agent; None if it can."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def reset(self) -> None:
        """Restore a clean state. Raises AgentUnreachable if that fails."""
        ...

    async def run(self, prompt: str, injection: Injection) -> AgentRun:
        """Never raises for anything that the agent does. Cancelling it ends the run.

        A `Conversation` is asked message by message.
        """
        ...
