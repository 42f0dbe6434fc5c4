"""Which faults can reach an agent that is not ours to look into."""

from __future__ import annotations

from fnmatch import fnmatchcase

from bylaw.contract.faults import AnyFault, ContextAttack, ToolFault
from bylaw.contract.model import AgentSpec

_UNSEEN = (
    "Bylaw does not see the calls of this agent; set `agent.command`, so that it is started behind Bylaw's proxy, or "
    "set `agent.proxy_port` and point the agent at that port"
)


def refusal(fault: AnyFault, spec: AgentSpec, *, tools: frozenset[str] | None, is_proxied: bool) -> str | None:
    """Why a fault could never hit this agent. `tools` are those of its MCP servers; None: nobody knows them."""
    if not is_proxied:
        in_prompt = isinstance(fault, ContextAttack) and fault.type != "indirect_injection"
        return None if in_prompt else _UNSEEN
    return _of_tool(fault, spec, tools) if isinstance(fault, ToolFault) else None


def _of_tool(fault: ToolFault, spec: AgentSpec, tools: frozenset[str] | None) -> str | None:
    if fault.match_url is not None:
        if fault.match_url.lower().startswith("https") and not spec.trusts_ca:
            return (
                "faults inside HTTPS need the agent to trust the certificates of Bylaw's proxy; where it does, set "
                "`agent.trusts_ca: true`"
            )
        return None
    name = fault.tool or "*"
    if name == "*" or tools is None or any(fnmatchcase(tool, name) for tool in tools):
        return None
    known = ", ".join(f"`{tool}`" for tool in sorted(tools)[:20])
    has = f"its MCP servers have {known}" if known else "it has no MCP server in `agent.mcp`"
    return f"no tool `{name}` is visible to the proxy: {has}; a tool that is an HTTP request is reached by `match_url`"
