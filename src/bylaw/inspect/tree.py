"""How deep an agent stands below the one that started it, as far as the trace tells."""

from __future__ import annotations

from bylaw.model.events import Origin

MOST = 10_000
"""runs and agents that are kept in mind"""
DEEPEST = 6
"""deeper ones are shown as deep as this"""


class Tree:
    def __init__(self) -> None:
        self._depths: dict[tuple[str, str], int] = {}
        self._known: dict[Origin, int] = {}

    def depth(self, origin: Origin) -> int:
        found = self._known.get(origin)
        if found is None:
            if len(self._known) >= MOST:
                self._known.clear()
                self._depths.clear()
            found = self._known[origin] = self._place(origin)
        return found

    def _place(self, origin: Origin) -> int:
        """One below its parent; a parent that was never met stands at the top itself."""
        parent = origin.parent_run or origin.parent_agent
        depth = 0 if parent is None else min(DEEPEST, self._depths.get((origin.session, parent), 0) + 1)
        for name in (origin.run, origin.agent):
            if name is not None:
                self._depths.setdefault((origin.session, name), depth)
        return depth
