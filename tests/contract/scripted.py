"""A live agent that answers by a script, and what else tests of the job need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from bylaw.contract import model as checks
from bylaw.contract.faults import AnyFault, ContextAttack, Injection, LlmFault, ToolFault
from bylaw.contract.live_agent import AgentRun, AgentUnreachable, Failure
from bylaw.contract.model import AgentSpec, Contract, Invariant, Prompt, Scenario, Weight
from bylaw.model.events import Trace
from tests.support.build import trace

Answer = str | Failure | AgentRun | None
Script = Callable[[str, Injection], Answer]


def ran(
    answer: Answer, *, latency_ms: float = 5.0, fired: dict[str, int] | None = None, made: Trace | None = None
) -> AgentRun:
    """A run with this answer or failure."""
    if isinstance(answer, AgentRun):
        return answer
    failed = isinstance(answer, Failure)
    return AgentRun(
        answer=None if failed else answer,
        failure=answer if failed else None,
        latency_ms=latency_ms,
        fired=fired or {},
        trace=made or trace([{"text": None if failed else answer}], complete=not failed),
    )


class ScriptedAgent:
    """Every fault fires once in each run, unless it is named in `idle`."""

    name = "scripted"

    def __init__(
        self,
        script: Script | str,
        *,
        concurrency: int = 1,
        has_reset: bool = False,
        refused: Sequence[str] = (),
        idle: Sequence[str] = (),
        reset_fails_at: int | None = None,
    ) -> None:
        self.script: Script = script if callable(script) else lambda prompt, injection: script
        self.concurrency = concurrency
        self.has_reset = has_reset
        self.refused = refused
        self.idle = idle
        self.reset_fails_at = reset_fails_at
        self.asked: list[tuple[str, str]] = []
        """run and prompt, in order"""
        self.injections: list[Injection] = []
        self.log: list[str] = []
        self.running = 0
        self.most_at_once = 0

    def refusal(self, fault: AnyFault) -> str | None:
        return "start the agent with `agent.command`" if fault.id in self.refused else None

    async def start(self) -> None:
        self.log.append("start")

    async def stop(self) -> None:
        self.log.append("stop")

    async def reset(self) -> None:
        self.log.append("reset")
        if self.reset_fails_at == self.log.count("reset"):
            raise AgentUnreachable("the reset answered 500")

    async def run(self, prompt: str, injection: Injection) -> AgentRun:
        self.log.append("run")
        self.asked.append((injection.run, prompt))
        self.injections.append(injection)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        fired = {fault.id: int(fault.id not in self.idle) for fault in injection.faults}
        return ran(self.script(prompt, injection), fired=fired)


TOOL_DOWN = ToolFault(id="tool_faults[0]", label="search: error 503", mode="error", tool="search")
SLOW_MODEL = LlmFault(id="llm_faults[0]", label="model: garbage", mode="garbage")
POISON = ContextAttack(id="context_attacks[0]", label="memory poisoning", type="memory_poisoning")

CALM = Scenario(name="calm")
TOOLS = Scenario(name="tools down", tool_faults=(TOOL_DOWN,))
MODEL = Scenario(name="bad model", llm_faults=(SLOW_MODEL,))
POISONED = Scenario(name="poisoned", context_attacks=(POISON,))


def invariant(id: str = "i", check: checks.Check | None = None, **fields: Any) -> Invariant:
    return Invariant(id=id, type=fields.pop("type", "any"), check=check or checks.NotEmpty(), **fields)


def contract(
    *invariants: Invariant, scenarios: Sequence[Scenario] = (CALM,), prompts: Sequence[str] = ("hello",), **fields: Any
) -> Contract:
    return Contract(
        name="test",
        invariants=invariants or (invariant(),),
        scenarios=tuple(scenarios),
        prompts=tuple(Prompt(text) for text in prompts),
        agent=fields.pop("agent", AgentSpec(type="python", endpoint="agent:answer")),
        **fields,
    )


def severity(name: str) -> Weight:
    return Weight(name)
