"""The agent under test, running: a Python object, a URL or a command.

`python_agent` and `external_agent` implement `contract.live_agent.LiveAgent`. A Python agent runs in this process,
where HTTP libraries and frameworks are patched. Agents with a URL or a command run behind the `chaos_proxy`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from bylaw.contract.live_agent import LiveAgent
from bylaw.contract.model import AgentSpec
from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic


class Loadable(LiveAgent, Protocol):
    def load(self) -> None:
        """Find out, without starting the agent, all that `refusal` needs. Raises AgentUnreachable."""
        ...


def open_agent(spec: AgentSpec, base: Path, *, ends_children: bool = False) -> Loadable:
    """The live agent that a contract describes; `base` is the folder of the contract's file.

    `ends_children`: whether all processes that the agent leaves behind are ended. If not, those of a Python agent, and
    those of a command that have lost its environment, are only named: other code of this program may have started them.

    Only the modules of that kind of agent are imported. Raises InputError where the extra is not installed.
    """
    if spec.type == "python":
        from bylaw.contract.agents.python_agent import PythonAgent

        return PythonAgent(spec, base=base, ends_children=ends_children)
    try:
        from bylaw.contract.agents.external_agent import CommandAgent, HttpAgent

        kind = CommandAgent if spec.endpoint is None else HttpAgent
        return kind(spec, base=base, ends_children=ends_children)
    except ModuleNotFoundError as error:
        if error.name not in ("h11", "httpx2", "trustme"):
            raise
        message = f"an agent with a URL or a command needs `{error.name}`, which is not installed"
        help = "pip install 'bylaw[contract]'"
        raise InputError([Diagnostic(code="missing-extra", message=message, file="agent", help=help)]) from None
