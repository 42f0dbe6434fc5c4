"""The live agent that a contract describes. Nothing of the other kinds is imported."""

from __future__ import annotations

from pathlib import Path

from bylaw.model.contract import AgentSpec
from bylaw.model.live import AgentUnreachable, LiveAgent

_EXTRA = "reaching this agent needs the extra `contract`: pip install 'bylaw[contract]'"


def open_agent(spec: AgentSpec, base: Path) -> LiveAgent:
    """`base` is the folder of the contract's file. Raises AgentUnreachable where a library is missing."""
    if spec.type == "python":
        from bylaw.adapters.live.python.agent import PythonAgent

        return PythonAgent(spec, base=base)
    try:
        if spec.endpoint is not None:
            from bylaw.adapters.live.http_agent import HttpAgent

            return HttpAgent(spec, base=base)
        from bylaw.adapters.live.command_agent import CommandAgent

        return CommandAgent(spec, base=base)
    except ModuleNotFoundError as error:
        if error.name not in ("h11", "httpx2", "trustme"):
            raise
        raise AgentUnreachable(f"{_EXTRA} (`{error.name}` is missing)") from None
