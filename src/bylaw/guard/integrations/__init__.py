"""The guard inside other programs.

- `hooks`: coding agents that run a command before and after each tool call
- `langchain`, `openai_agents`, `pydantic_ai`: agent frameworks, imported when one of these functions is called
- `mcp_proxy`: MCP servers, for any client
- `calls`: what a decision means in all of these but `hooks`
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bylaw.guard.guard import Guard
    from bylaw.guard.integrations.langchain_middleware import GuardMiddleware
    from bylaw.guard.integrations.openai_agents_tools import GuardedAgent
    from bylaw.guard.integrations.pydantic_ai_capability import GuardCapability
    from bylaw.model.verdict import Verdict


def langchain(
    guard: Guard,
    *,
    agent: str | None = None,
    session: str | Callable[[Any], str] | None = None,
    approver: str = "approver",
    on_broken: Callable[[tuple[Verdict, ...]], object] | None = None,
) -> GuardMiddleware:
    """A middleware for `create_agent`, or the wrappers of a `ToolNode`.

    `agent`: whose rules apply. `session`: its name, or a function of the framework's context; by default the session
    that is entered, or else the framework's own. `approver`: who approves, where the framework does not say.
    `on_broken` receives rules that a result or a response has broken; by default they are logged.
    """
    from bylaw.guard.integrations.langchain_middleware import GuardMiddleware, LangChainCalls

    return GuardMiddleware(LangChainCalls(guard, agent=agent, session=session, approver=approver, on_broken=on_broken))


def openai_agents(
    guard: Guard,
    agent: Any,
    *,
    name: str | None = None,
    unguarded: Collection[str] = (),
    session: str | Callable[[Any], str] | None = None,
    approver: str = "approver",
    on_broken: Callable[[tuple[Verdict, ...]], object] | None = None,
) -> GuardedAgent:
    """The agent of the OpenAI Agents SDK with its tools, and its handoffs, under the guard.

    `name`: whose rules apply. `unguarded`: tools that run without a decision. The other options are those of
    `langchain`.
    """
    from bylaw.guard.integrations.openai_agents_tools import OpenAIAgentsCalls, guard_agent

    calls = OpenAIAgentsCalls(guard, agent=name, session=session, approver=approver, on_broken=on_broken)
    calls.unguarded = frozenset(unguarded)
    return guard_agent(calls, agent)


def pydantic_ai(
    guard: Guard,
    *,
    agent: str | None = None,
    session: str | Callable[[Any], str] | None = None,
    approver: str = "approver",
    on_broken: Callable[[tuple[Verdict, ...]], object] | None = None,
) -> GuardCapability:
    """A capability for a Pydantic AI agent. The options are those of `langchain`."""
    from bylaw.guard.integrations.pydantic_ai_capability import GuardCapability, PydanticAICalls

    return GuardCapability(PydanticAICalls(guard, agent=agent, session=session, approver=approver, on_broken=on_broken))
