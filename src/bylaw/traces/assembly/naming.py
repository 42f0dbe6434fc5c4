"""Names for sessions that follow each other: their own where they have one of their own, else their number."""

from __future__ import annotations


class SessionNames:
    def __init__(self) -> None:
        self._number = 0
        self._taken: set[int] = set()
        """hashes: a file may hold millions of sessions"""

    def pick(self, wanted: str | None) -> str:
        """`wanted` if no earlier session has it, else the session's 1-based number."""
        self._number += 1
        name = wanted or str(self._number)
        if hash(name) in self._taken:
            name = str(self._number)
        while hash(name) in self._taken:
            name += "'"  # that number is taken as well, by a session that is called so
        self._taken.add(hash(name))
        return name
