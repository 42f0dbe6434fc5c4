"""AutoGen: the workbenches of an `AssistantAgent`, or of all agents of a team, under the guard.

An exception in a workbench would leave AutoGen waiting for ever, so the guard returns an error there, and what has to
end the agent is raised by its `on_messages_stream`. A call that pauses waits for `wait` seconds. Handoffs are no calls:
the agent that takes over has to be under the guard itself. Code of a `CodeExecutorAgent` cannot be decided.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from autogen_agentchat.agents import AssistantAgent, MessageFilterAgent, SocietyOfMindAgent, UserProxyAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import BaseGroupChat
from autogen_core.tools import TextResultContent, ToolResult, Workbench

from bylaw.guard.integrations.calls import Calls
from bylaw.guard.model import Call
from bylaw.guard.tools import NotItsTool

Refused = Callable[[Exception], object]


def guard_autogen(calls: Calls, guarded: Any) -> Any:
    """The same object: an agent, a team or a workbench."""
    if calls.is_known(getattr(guarded, "_bylaw", None)):
        return guarded
    if isinstance(guarded, AssistantAgent):
        _GuardedAgent(calls, guarded)
    elif isinstance(guarded, Workbench):
        _guard_workbench(calls, guarded, _raise)
    elif isinstance(guarded, BaseGroupChat):
        for one in guarded._participants:
            guard_autogen(calls, one)
    elif isinstance(guarded, MessageFilterAgent | SocietyOfMindAgent):
        guard_autogen(calls, getattr(guarded, "_wrapped_agent", None) or guarded._team)
    elif not isinstance(guarded, UserProxyAgent):
        raise TypeError(
            f"no guard can decide what {guarded!r:.80} does: expected an AssistantAgent, a team or a workbench"
        )
    return guarded


class _GuardedAgent:
    def __init__(self, calls: Calls, agent: Any) -> None:
        self.calls = calls
        self.problem: Exception | None = None
        self._stream = agent.on_messages_stream
        agent._bylaw, agent.on_messages_stream = calls, self.stream
        for workbench in agent._workbench:
            _guard_workbench(calls, workbench, self.end)

    def end(self, problem: Exception) -> None:
        self.problem = self.problem or problem

    async def stream(self, messages: Any, cancellation_token: Any) -> AsyncGenerator[Any, None]:
        self.problem = None
        async for item in self._stream(messages, cancellation_token):
            if self.problem is not None:
                raise self.problem
            if isinstance(item, Response) and isinstance(item.chat_message, TextMessage):
                text = item.chat_message.content
                await self.calls.aobserve(text, calls=False, model=None, context=messages, default=None)
            yield item


def _guard_workbench(calls: Calls, workbench: Any, end: Refused) -> None:
    if calls.is_known(getattr(workbench, "_bylaw", None)):
        return
    workbench._bylaw, unguarded = calls, workbench.call_tool
    streamed = getattr(workbench, "call_tool_stream", None)

    async def call_tool(
        name: str, arguments: Any = None, cancellation_token: Any = None, call_id: str | None = None
    ) -> Any:
        async def invoke(call: Call) -> Any:
            await _check(workbench, name, call)
            return await unguarded(call.tool, call.arguments, cancellation_token, call_id)

        return await _decide_and_call(calls, end, name, arguments, call_id, cancellation_token, invoke)

    async def call_tool_stream(
        name: str, arguments: Any = None, cancellation_token: Any = None, call_id: str | None = None
    ) -> AsyncGenerator[Any, None]:
        """Passes on what the tool says on its way after it is done, since nothing may run before the decision."""
        said: list[Any] = []

        async def invoke(call: Call) -> Any:
            await _check(workbench, name, call)
            result = None
            async for item in streamed(call.tool, call.arguments, cancellation_token, call_id):  # type: ignore[misc]
                if isinstance(item, ToolResult):
                    result = item
                else:
                    said.append(item)
            return result

        result = await _decide_and_call(calls, end, name, arguments, call_id, cancellation_token, invoke)
        for item in (*said, result):
            yield item

    workbench.call_tool = call_tool
    if streamed is not None:
        workbench.call_tool_stream = call_tool_stream


async def _decide_and_call(
    calls: Calls, end: Refused, name: str, arguments: Any, call_id: str | None, context: Any, invoke: Any
) -> Any:
    def refuse(reason: str) -> ToolResult:
        return ToolResult(name=name, result=[TextResultContent(content=reason)], is_error=True)

    try:
        given = dict(arguments) if arguments is not None else None
        attempt = calls.attempt(name, given, call_id, context, None)
        return await calls.acall(attempt, invoke, lambda result: (result.to_text(), result.is_error), refuse)
    except Exception as problem:
        end(problem)
        return refuse(f"{type(problem).__name__}: {problem}")


async def _check(workbench: Any, name: str, call: Call) -> None:
    if call.tool != name and call.tool not in [tool["name"] for tool in await workbench.list_tools()]:
        raise NotItsTool(call.tool, "workbench")


def _raise(problem: Exception) -> None:
    raise problem
