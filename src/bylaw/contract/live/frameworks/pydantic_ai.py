"""Pydantic AI's agents.

The seam is the framework's own: a capability that wraps the tools and the model of a run. It is added to each run by
`Agent.iter`, which every way of running an agent comes down to.
"""

from __future__ import annotations

import functools
from typing import Any

from bylaw.wire.current import current_run
from bylaw.wire.patches.patches import Patches


def patch(module: Any, patches: Patches) -> None:
    """`module` is pydantic_ai.agent. Releases without capabilities that wrap models are left alone."""
    if missing_seam() is None:
        patches.replace(module.Agent, "iter", _iter)


def missing_seam() -> str | None:
    """Why faults cannot reach agents of the release that is installed; None where they can."""
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
            from bylaw.contract.live.frameworks.pydantic_ai_capability import Chaos

            kwargs["capabilities"] = [*(kwargs.get("capabilities") or ()), Chaos(run)]
        return original(self, *args, **kwargs)

    return iter
