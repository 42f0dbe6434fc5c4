"""Frameworks that conflict with each other are tested in environments of their own: `test_environments.py`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

OWN = {
    "autogen": "autogen_agentchat",
    "claude_agent_sdk": "claude_agent_sdk",
    "crewai": "crewai",
    "fastmcp": "fastmcp",
    "google_adk": "google.adk",
    "llama_index": "llama_index.core",
    "smolagents": "smolagents",
}
"""what the tests of a framework import; they are collected where it is installed"""


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package above
        return False


REQUIREMENTS = Path(__file__).parent / "requirements"
collect_ignore = [f"test_{name}.py" for name, module in OWN.items() if not _is_installed(module)]
