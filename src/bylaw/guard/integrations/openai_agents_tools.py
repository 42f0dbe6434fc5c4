"""OpenAI Agents SDK: the agent with its function tools, those of MCP servers and its handoffs under the guard.

The guard decides in `needs_approval`, so a pause is an interruption: `result.interruptions`, then `state.approve(item)`
or `state.reject(item)`. The SDK cannot edit a call; edit its review, `guard.reviews.approve(review, edited=…)`, and
approve the item. Tools that run elsewhere, such as a web search of the provider, cannot be decided. They are refused
when the agent is made, unless `unguarded` names them.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Collection
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any

from agents import Agent, AgentHooks, FunctionTool, Handoff, handoff
from agents.agent_tool_state import get_agent_tool_state_scope, peek_agent_tool_run_result
from agents.exceptions import AgentsException

from bylaw.guard.guard import Guard
from bylaw.guard.integrations.calls import Answer, Calls
from bylaw.guard.model import Call, Denied
from bylaw.guard.tools import CannotRun, NotItsTool
from bylaw.model.rule import Action


class AgentDenied(Denied, AgentsException):  # type: ignore[misc]
    """`Denied` as it leaves a run: the SDK passes on its own exceptions and wraps all others."""


class Suspended(Exception):
    """An agent that is used as a tool waits for a person, and runs again later."""


class OpenAIAgentsCalls(Calls):
    suspends = (Suspended,)
    holds_denials = True
    unguarded: Collection[str] = ()

    def __init__(self, guard: Guard, **options: Any) -> None:
        super().__init__(guard, **options)
        self.agents: dict[int, tuple[Any, GuardedAgent]] = {}
        """by the id of the agent that was guarded, since agents may hand over to each other"""

    def guard_tool(self, tool: Any, find: Callable[[str], Any]) -> Any:
        """The tool under the guard. `find` returns another tool of the agent, for a person who chooses that one."""
        if not isinstance(tool, FunctionTool):
            if tool.name in self.unguarded:
                return tool
            raise TypeError(f"no guard can decide calls of `{tool.name}`: leave it out, or name it in unguarded=…")
        if hasattr(tool.on_invoke_tool, "guarded") or tool.name in self.unguarded:
            return tool
        asks_itself = tool.needs_approval

        async def needs_approval(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
            decision = await self.adecide(self.attempt(tool.name, arguments, call_id, context, None), hold=True)
            if decision.action is Action.PAUSE or isinstance(asks_itself, bool):
                return decision.action is Action.PAUSE or bool(asks_itself)
            return bool(await asks_itself(context, arguments, call_id))

        async def invoke_tool(context: Any, text: str) -> Any:
            attempt = self.attempt(tool.name, _parse_arguments(text), context.tool_call_id, context, None)
            decision = await self.adecide(
                attempt, Answer(approved=True)
            )  # a call that paused and comes here is approved

            async def invoke(call: Call) -> Any:
                other = tool if call.tool == tool.name else find(call.tool)
                if other is None:
                    raise NotItsTool(call.tool)
                run = getattr(other.on_invoke_tool, "guarded", other.on_invoke_tool)
                result = await run(context, json.dumps(call.arguments))  # as it was judged, a name once
                if other._is_agent_tool and _waits(context):
                    raise Suspended(result)
                return result

            try:
                return await self.arun(attempt, decision, invoke, lambda result: (result, None), str)
            except Suspended as waiting:
                return waiting.args[0]
            except Denied as denied:
                raise AgentDenied(denied.decision, denied.reason) from None

        invoke_tool.guarded = tool.on_invoke_tool  # type: ignore[attr-defined]
        return replace(tool, on_invoke_tool=invoke_tool, needs_approval=needs_approval)


@dataclass
class GuardedAgent(Agent[Any]):  # type: ignore[misc]
    calls: Any = None

    async def get_all_tools(self, run_context: Any) -> list[Any]:
        tools: list[Any] = []
        found = await super().get_all_tools(run_context)
        tools += [self.calls.guard_tool(tool, lambda name: _find_tool(tools, name)) for tool in found]
        return tools


def _get_handoffs(agent: GuardedAgent) -> list[Any]:
    """The list of the agent, in which those that were added meanwhile are guarded."""
    found: list[Any] = agent.__dict__["guarded_handoffs"]
    if agent.__dict__.get("calls") is not None:
        found[:] = [_guard_handoff(agent.calls, agent, one) for one in found]
    return found


def _set_handoffs(agent: GuardedAgent, handoffs: list[Any]) -> None:
    agent.__dict__["guarded_handoffs"] = [*handoffs]  # a copy of an agent hands over by itself


GuardedAgent.handoffs = property(_get_handoffs, _set_handoffs)  # not in the class: it would be a field's default

_refused: ContextVar[str | None] = ContextVar("bylaw refused handoff", default=None)
"""why the handoff that was invoked last does not happen"""


@dataclass
class GuardedHandoff(Handoff[Any, Any]):  # type: ignore[misc]
    """Decided as a call of the tool by which the model asks for it. If it is refused, it leads back to its agent."""

    source: Any = None
    inner: Any = None

    def get_transfer_message(self, agent: Any) -> str:
        return _refused.get() or super().get_transfer_message(agent)


class GuardHooks(AgentHooks[Any]):  # type: ignore[misc]
    """Passes on what the model says, and what the SDK has rejected, beside the hooks that the agent has."""

    def __init__(self, calls: OpenAIAgentsCalls, inner: Any) -> None:
        self._calls, self._inner = calls, inner or AgentHooks()
        for name in ("on_start", "on_end", "on_handoff", "on_tool_start", "on_tool_end"):
            setattr(self, name, getattr(self._inner, name))

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        for item in input_items:
            if isinstance(item, dict) and item.get("type") == "function_call_output":
                await self._calls.areject(str(item.get("call_id")), None, context, None)
        await self._inner.on_llm_start(context, agent, system_prompt, input_items)

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        parts = [part for item in response.output if item.type == "message" for part in item.content]
        text = "\n".join(part.text for part in parts if part.type == "output_text")
        calls = any(item.type.endswith("_call") for item in response.output)
        await self._calls.aobserve(text, calls=calls, model=None, context=context, default=None)
        await self._inner.on_llm_end(context, agent, response)


def guard_agent(calls: OpenAIAgentsCalls, agent: Any) -> GuardedAgent:
    if isinstance(agent, GuardedAgent) and calls.is_known(agent.calls):
        return agent
    if id(agent) in calls.agents:
        return calls.agents[id(agent)][1]
    if type(agent) is not Agent:
        raise TypeError(f"agent={agent!r:.80}: expected an agents.Agent")
    given = {one.name: getattr(agent, one.name) for one in fields(agent) if one.init}
    guarded = GuardedAgent(**given | {"handoffs": []}, calls=calls)
    guarded.hooks = GuardHooks(calls, agent.hooks)
    guarded.tools = [calls.guard_tool(tool, lambda name: _find_tool(guarded.tools, name)) for tool in agent.tools]
    calls.agents[id(agent)] = (agent, guarded)  # before its handoffs, which may lead back to it
    guarded.handoffs = agent.handoffs
    _get_handoffs(guarded)
    return guarded


def _guard_handoff(calls: OpenAIAgentsCalls, source: GuardedAgent, given: Any) -> Any:
    if isinstance(given, GuardedHandoff) and given.source is source:
        return given
    inner = given.inner if isinstance(given, GuardedHandoff) else given
    if not isinstance(inner, Handoff):
        inner = handoff(guard_agent(calls, inner))
    name = inner.tool_name
    if not calls.is_listed(name):
        calls.name_unlisted(name, "handoff")

    async def invoke(context: Any, text: str) -> Any:
        _refused.set(None)

        async def transfer(call: Call) -> Any:
            if call.tool != name:
                raise CannotRun(f"`{call.tool}` was approved in its place, which is not this handoff")
            judged = json.dumps(call.arguments) if text and text.strip() else text
            return guard_agent(calls, await inner.on_invoke_handoff(context, judged))

        def refuse(why: str) -> Any:
            _refused.set(why)
            return source

        attempt = calls.attempt(name, _parse_arguments(text or ""), None, context, None)
        try:
            return await calls.acall(attempt, transfer, lambda agent: ({"assistant": agent.name}, None), refuse)
        except Denied as denied:
            raise AgentDenied(denied.decision, denied.reason) from None

    own = {one.name: getattr(inner, one.name) for one in fields(Handoff) if one.init}
    guarded = GuardedHandoff(**own | {"on_invoke_handoff": invoke}, source=source, inner=inner)
    target = inner._agent_ref() if inner._agent_ref is not None else None
    if target is not None:  # where a run that is resumed looks for its agents
        guarded._agent_ref = weakref.ref(guard_agent(calls, target))
    return guarded


def _parse_arguments(text: str) -> Any:
    """Arguments that are no JSON stay a text, which the guard refuses as malformed."""
    try:
        return json.loads(text) if text.strip() else {}
    except ValueError:
        return text


def _waits(context: Any) -> bool:
    result = peek_agent_tool_run_result(context.tool_call, scope_id=get_agent_tool_state_scope(context))
    return bool(getattr(result, "interruptions", None))


def _find_tool(tools: list[Any], name: str) -> Any:
    return next((tool for tool in tools if tool.name == name and isinstance(tool, FunctionTool)), None)
