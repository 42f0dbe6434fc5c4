"""Keeps what agents print off standard output, which is for results: it goes to standard error."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from bylaw.wire.current import is_agent_code


class _AgentsAside:
    """Standard output, except for agent code."""

    def __init__(self, inner: TextIO) -> None:
        self.inner = inner
        self.users = 0

    def write(self, text: str) -> int:
        return self._stream().write(text)

    def writelines(self, lines: Any) -> None:
        self._stream().writelines(lines)

    def flush(self) -> None:
        self._stream().flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)

    def _stream(self) -> TextIO:
        return sys.stderr if is_agent_code() else self.inner


def keep_agents_aside() -> None:
    """Until `let_agents_print` has been called as often."""
    if not isinstance(sys.stdout, _AgentsAside):
        sys.stdout = _AgentsAside(sys.stdout)
    sys.stdout.users += 1


def let_agents_print(*, unless: bool = False) -> None:
    """`unless`: agent code is still running that was given up, and must not print among the results."""
    if isinstance(sys.stdout, _AgentsAside):
        sys.stdout.users -= 1
        if sys.stdout.users <= 0 and not unless:
            sys.stdout = sys.stdout.inner
