"""Agent frameworks in this process: their tools by name, and their model calls.

A model call of a framework is translated into a wire format and passes the same interceptor as one over HTTP, so that
each fault is written once. Only the result is turned into the framework's own objects and errors. Models that speak the
format of OpenAI or Anthropic over HTTP are left to the HTTP patches, where their client's own retries happen as well.

Pydantic AI is patched from here, because `pydantic_ai` cannot be imported with its older releases. The framework itself
lets a capability wrap the tools and the model of a run. The patch adds one to each run in `Agent.iter`, which every way
of running an agent calls.
"""

from __future__ import annotations

import functools
from typing import Any

from bylaw.contract.faults.live_run import current_run
from bylaw.wire.patch_on_import import Patches, PatchOnImport

FRAMEWORKS = PatchOnImport(
    {
        "agents.models.interface": "bylaw.contract.frameworks.openai_agents",
        "agents.tool": "bylaw.contract.frameworks.openai_agents",
        "langchain_core.language_models.chat_models": "bylaw.contract.frameworks.langchain",
        "langchain_core.tools.base": "bylaw.contract.frameworks.langchain",
        "pydantic_ai.agent": __name__,
    }
)


def patch(module: Any, patches: Patches) -> None:
    """`module` is pydantic_ai.agent. Releases without capabilities that wrap models are not patched."""
    if why_no_pydantic_ai() is None:
        patches.replace(module.Agent, "iter", _iter)


def why_no_pydantic_ai() -> str | None:
    """Why faults cannot reach agents of the installed release; None if they can."""
    try:
        from pydantic_ai import capabilities
    except ImportError:
        capabilities = None
    if hasattr(getattr(capabilities, "AbstractCapability", None), "get_wrapper_model"):
        return None
    return "the installed release of Pydantic AI has no capabilities that wrap its models; a newer one has"


def _iter(original: Any) -> Any:
    @functools.wraps(original)
    def iter(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = current_run()
        if run is not None:
            from bylaw.contract.frameworks.pydantic_ai import FaultCapability

            kwargs["capabilities"] = [*(kwargs.get("capabilities") or ()), FaultCapability(run)]
        return original(self, *args, **kwargs)

    return iter
