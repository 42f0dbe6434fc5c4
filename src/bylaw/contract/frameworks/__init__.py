"""Agent frameworks in this process: their tools by name, and their model calls.

A model call of a framework is translated into a wire format and passes the same interceptor as one over HTTP, so that
each fault is written once. Only the result is turned into the framework's own objects and errors. Models that speak the
format of OpenAI or Anthropic over HTTP are left to the HTTP patches, where their client's own retries happen as well.
"""

from __future__ import annotations

from bylaw.wire.patch_on_import import PatchOnImport

FRAMEWORKS = PatchOnImport(
    {
        "agents.models.interface": "bylaw.contract.frameworks.openai_agents",
        "agents.tool": "bylaw.contract.frameworks.openai_agents",
        "langchain_core.language_models.chat_models": "bylaw.contract.frameworks.langchain",
        "langchain_core.tools.base": "bylaw.contract.frameworks.langchain",
        "pydantic_ai.agent": "bylaw.contract.frameworks.pydantic_ai",
    }
)
