"""The reset of an agent that lives outside of this process."""

from __future__ import annotations

from pathlib import Path

from bylaw.contract.live.python.loading import folder_first, load
from bylaw.contract.live.reset import reset_by_function, reset_by_request
from bylaw.contract.model import AgentSpec


class Resetter:
    def __init__(self, spec: AgentSpec, base: Path) -> None:
        self._spec = spec
        self._base = base

    @property
    def is_set(self) -> bool:
        return bool(self._spec.reset_endpoint or self._spec.reset_function)

    async def reset(self) -> None:
        """Raises AgentUnreachable."""
        if self._spec.reset_function:
            with folder_first(self._base):
                function = load(self._spec.reset_function, self._base)
                await reset_by_function(function, self._spec.reset_function)
        if self._spec.reset_endpoint:
            await reset_by_request(self._spec.reset_endpoint)
