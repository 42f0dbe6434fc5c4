"""Pydantic AI's agents.

The framework itself lets a capability wrap the tools and the model of a run. The patch adds one to each run in
`Agent.iter`, which every way of running an agent calls. The capability is in a module of its own, because it cannot be
imported with older releases.
"""

from __future__ import annotations

import functools
from typing import Any

from bylaw.contract.faults.live_run import current_run
from bylaw.wire.patch_on_import import Patches


def patch(module: Any, patches: Patches) -> None:
    """`module` is pydantic_ai.agent. Releases without capabilities that wrap models are not patched."""
    if why_unreachable() is None:
        patches.replace(module.Agent, "iter", _iter)


def why_unreachable() -> str | None:
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
            from bylaw.contract.frameworks.pydantic_ai_capability import FaultCapability

            kwargs["capabilities"] = [*(kwargs.get("capabilities") or ()), FaultCapability(run)]
        return original(self, *args, **kwargs)

    return iter
