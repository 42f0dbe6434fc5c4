"""LlamaIndex: an agent, or an `AgentWorkflow`, whose steps that call tools are guarded.

A pause is LlamaIndex's own: an `InputRequiredEvent` in the stream of events, with the attributes `review`, `tool`,
`arguments`, `reason` and `notes`. The workflow goes on with
`handler.ctx.send_event(HumanResponseEvent(review=…, response="approve" | "edit" | "reject", …))`; any other response is
for a review that was answered elsewhere. A `CodeActAgent` has one tool, `execute`, whose argument is the code.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import wraps
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, BaseWorkflowAgent
from llama_index.core.tools import ToolOutput
from llama_index.core.workflow import HumanResponseEvent, InputRequiredEvent
from workflows.runtime.types.results import WaitingForEvent

from bylaw.guard.integrations.calls import Answer, Calls, read_answer
from bylaw.guard.model import Attempt, Call, Decision
from bylaw.guard.tools import NotItsTool
from bylaw.model.rule import Action

_call_id: ContextVar[str | None] = ContextVar("bylaw call id", default=None)


class LlamaIndexCalls(Calls):
    suspends = (WaitingForEvent,)

    async def call_tool(self, context: Any, tool: Any, given: Any, call: Any, find: Any) -> Any:
        """`call` is the step's own function, which calls a tool; `find` returns another tool of the agent."""
        name = tool.metadata.get_name()
        attempt = self.attempt(name, given, _call_id.get(), context, None)
        decision = await self.adecide(attempt)
        if decision.action is Action.PAUSE and decision.review is not None:
            decision = await self.adecide(attempt, await _ask(context, attempt, decision))

        async def invoke(allowed: Call) -> Any:
            other = tool if allowed.tool == name else await find(allowed.tool)
            if other is None:
                raise NotItsTool(allowed.tool)
            return await call(context, other, allowed.arguments)

        def refuse(reason: str) -> ToolOutput:
            return ToolOutput(content=reason, tool_name=name, raw_input=given, raw_output=reason, is_error=True)

        return await self.arun(attempt, decision, invoke, lambda output: (output.content, output.is_error), refuse)

    async def said(self, context: Any, output: Any) -> None:
        await self.aobserve(
            output.response.content or "", calls=bool(output.tool_calls), model=None, context=context, default=None
        )


def guard_workflow(calls: LlamaIndexCalls, workflow: Any) -> Any:
    """The same object with guarded steps. The agents of an `AgentWorkflow` call no tools themselves."""
    if not isinstance(workflow, AgentWorkflow | BaseWorkflowAgent):
        raise TypeError(f"agent={workflow!r:.80}: expected an agent or an AgentWorkflow")
    plain: Any = type(workflow)
    if not calls.is_known(getattr(plain, "bylaw_calls", None)):
        object.__setattr__(workflow, "__class__", _guard_tool(calls, plain))
    return workflow


def _guard_tool(calls: LlamaIndexCalls, plain: Any) -> Any:
    @wraps(plain.call_tool)  # with its configuration as a step
    async def call_tool(self: Any, ctx: Any, ev: Any) -> Any:
        token = _call_id.set(ev.tool_id)
        try:
            return await plain.call_tool(self, ctx, ev)
        finally:
            _call_id.reset(token)

    async def _call_tool(self: Any, ctx: Any, tool: Any, tool_input: dict[str, Any]) -> Any:
        async def call(context: Any, tool: Any, given: Any) -> Any:
            return await plain._call_tool(self, context, tool, given)

        async def find(name: str) -> Any:
            agent = (await ctx.store.get("current_agent_name"),) if isinstance(self, AgentWorkflow) else ()
            return next((one for one in await self.get_tools(*agent, name) if one.metadata.get_name() == name), None)

        return await calls.call_tool(ctx, tool, tool_input, call, find)

    @wraps(plain.parse_agent_output)
    async def parse_agent_output(self: Any, ctx: Any, ev: Any) -> Any:
        await calls.said(ctx, ev)
        return await plain.parse_agent_output(self, ctx, ev)

    steps = {"call_tool": call_tool, "_call_tool": _call_tool, "parse_agent_output": parse_agent_output}
    guarded = type(plain)(f"Guarded{plain.__name__}", (plain,), {**steps, "__module__": __name__})
    guarded.bylaw_calls = calls
    return guarded


async def _ask(context: Any, attempt: Attempt, decision: Decision) -> Answer | None:
    """Raises WaitingForEvent; after the answer the step runs again from its beginning, up to here."""
    question = InputRequiredEvent(
        prefix=decision.reason,
        review=decision.review,
        tool=attempt.tool,
        arguments=attempt.arguments,
        reason=decision.reason,
        notes=[*decision.notes],
    )
    given = await context.wait_for_event(
        HumanResponseEvent,
        waiter_event=question,
        waiter_id=decision.review,
        requirements={"review": decision.review},
        timeout=None,
    )
    return read_answer(given.get("response", None), given, attempt.tool)
