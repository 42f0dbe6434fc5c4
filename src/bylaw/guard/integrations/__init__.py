"""The guard inside other programs.

- `hooks`: coding agents that run a command before and after each tool call
- `mcp`: MCP servers, for any client
- the functions below: agent frameworks, each imported when its function is called
- `calls`: what a decision means in all of these but `hooks`, and the options that all adapters take (`CallOptions`)

A hook imports this package for every call, so nothing is imported here, not even `typing`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any, Unpack

    from bylaw.guard.guard import Guard
    from bylaw.guard.integrations.calls import CallOptions
    from bylaw.guard.integrations.crewai_hooks import GuardHooks
    from bylaw.guard.integrations.fastmcp_middleware import FastMCPMiddleware
    from bylaw.guard.integrations.google_adk_plugin import GuardPlugin
    from bylaw.guard.integrations.langchain_middleware import GuardMiddleware
    from bylaw.guard.integrations.openai_agents_tools import GuardedAgent
    from bylaw.guard.integrations.pydantic_ai_capability import GuardCapability


def autogen(guard: Guard, agent: Any, /, **options: Unpack[CallOptions]) -> Any:
    """The `AssistantAgent` of AutoGen, or a workbench, with its tools under the guard."""
    from bylaw.guard.integrations.autogen_workbench import guard_autogen
    from bylaw.guard.integrations.calls import Calls

    return guard_autogen(Calls(guard, **options), agent)


def claude_agent_sdk(guard: Guard, options: Any = None, **more: Unpack[CallOptions]) -> Any:
    """The `ClaudeAgentOptions` with hooks that decide every call, those of sub-agents included."""
    from bylaw.guard.integrations.claude_agent_sdk_hooks import ClaudeCalls, guard_options

    return guard_options(ClaudeCalls(guard, **more), options)


def crewai(guard: Guard, crew: Any = None, **options: Unpack[CallOptions]) -> GuardHooks:
    """Hooks that decide the calls of all crews in this process, or of one. `remove()` takes them away again."""
    from bylaw.guard.integrations.calls import Calls
    from bylaw.guard.integrations.crewai_hooks import GuardHooks

    return GuardHooks(Calls(guard, **options), crew)


def fastmcp(guard: Guard, **options: Unpack[CallOptions]) -> FastMCPMiddleware:
    """A middleware for a FastMCP server. Add it last, so that nothing changes a call after it was judged."""
    from bylaw.guard.integrations.calls import Calls
    from bylaw.guard.integrations.fastmcp_middleware import FastMCPMiddleware

    return FastMCPMiddleware(Calls(guard, **options))


def google_adk(guard: Guard, **options: Unpack[CallOptions]) -> GuardPlugin:
    """A plugin for a `Runner` or an `App` of Google ADK."""
    from bylaw.guard.integrations.google_adk_plugin import ADKCalls, GuardPlugin

    return GuardPlugin(ADKCalls(guard, **options))


def langchain(guard: Guard, **options: Unpack[CallOptions]) -> GuardMiddleware:
    """A middleware for `create_agent`, or the wrappers of a `ToolNode`."""
    from bylaw.guard.integrations.langchain_middleware import GuardMiddleware, LangChainCalls

    return GuardMiddleware(LangChainCalls(guard, **options))


def llama_index(guard: Guard, agent: Any, /, **options: Unpack[CallOptions]) -> Any:
    """The agent of LlamaIndex, or all agents of an `AgentWorkflow`, under the guard."""
    from bylaw.guard.integrations.llama_index_agents import LlamaIndexCalls, guard_workflow

    return guard_workflow(LlamaIndexCalls(guard, **options), agent)


def openai_agents(
    guard: Guard,
    agent: Any,
    /,
    *,
    unguarded: Collection[str] = (),
    **options: Unpack[CallOptions],
) -> GuardedAgent:
    """The agent of the OpenAI Agents SDK with its tools, and its handoffs, under the guard. `unguarded`: tools that run
    without a decision."""
    from bylaw.guard.integrations.openai_agents_tools import OpenAIAgentsCalls, guard_agent

    calls = OpenAIAgentsCalls(guard, **options)
    calls.unguarded = frozenset(unguarded)
    return guard_agent(calls, agent)


def pydantic_ai(guard: Guard, **options: Unpack[CallOptions]) -> GuardCapability:
    """A capability for a Pydantic AI agent."""
    from bylaw.guard.integrations.pydantic_ai_capability import GuardCapability, PydanticAICalls

    return GuardCapability(PydanticAICalls(guard, **options))


def smolagents(guard: Guard, agent: Any, /, **options: Unpack[CallOptions]) -> Any:
    """The agent of smolagents, and the agents that it manages, under the guard."""
    from bylaw.guard.integrations.calls import Calls
    from bylaw.guard.integrations.smolagents_agents import guard_agent

    return guard_agent(Calls(guard, **options), agent)
