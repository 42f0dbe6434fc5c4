"""How a run of an agent ended, as the job is told."""

from __future__ import annotations

from msgspec.structs import replace

from bylaw.contract.live.plan import Plan
from bylaw.contract.live.recorder import Recorder
from bylaw.contract.live_agent import AgentRun, Failure


def agent_run(
    outcome: str | Failure, latency_ms: float, plan: Plan, recorder: Recorder, notes: tuple[str, ...] = ()
) -> AgentRun:
    answer = outcome if isinstance(outcome, str) else None
    trace = recorder.trace(answer, complete=answer is not None)
    return AgentRun(
        answer=answer,
        failure=outcome if isinstance(outcome, Failure) else None,
        latency_ms=latency_ms,
        fired=plan.fired,
        trace=replace(trace, notes=(*trace.notes, *notes)),
    )
