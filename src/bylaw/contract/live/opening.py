"""The live agent that a contract describes. Nothing of the other kinds is imported."""

from __future__ import annotations

from pathlib import Path

from bylaw.contract.live_agent import AgentUnreachable, LiveAgent
from bylaw.contract.model import AgentSpec

_EXTRA = "reaching this agent needs the extra `contract`: pip install 'bylaw[contract]'"


def open_agent(spec: AgentSpec, base: Path) -> LiveAgent:
    """`base` is the folder of the contract's file. Raises AgentUnreachable where a library is missing."""
    if spec.type == "python":
        from bylaw.contract.live.python.agent import PythonAgent

        return PythonAgent(spec, base=base)
    try:
        if spec.endpoint is not None:
            from bylaw.contract.live.http_agent import HttpAgent

            return HttpAgent(spec, base=base)
        from bylaw.contract.live.command_agent import CommandAgent

        return CommandAgent(spec, base=base)
    except ModuleNotFoundError as error:
        if error.name not in ("h11", "httpx2", "trustme"):
            raise
        raise AgentUnreachable(f"{_EXTRA} (`{error.name}` is missing)") from None
