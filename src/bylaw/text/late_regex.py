"""Patterns of our own that are compiled when they are first used.

A hook of a coding agent is a process for each call, and needs few of them. This module is apart from `regex`, since
importing RE2 takes long as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_METHODS = ("search", "match", "fullmatch", "finditer", "sub", "groups")


class LateRegex:
    """As a compiled pattern. `compile` is RE2's, unless another is given."""

    def __init__(self, pattern: str, compile: Callable[[str], Any] | None = None) -> None:
        self.pattern, self._compile = pattern, compile

    def __getattr__(self, name: str) -> Any:
        """Called once: after that the methods of the compiled pattern are found before this one."""
        if name not in _METHODS:
            raise AttributeError(name)
        if self._compile is None:
            from bylaw.text.regex import compile_regex

            self._compile = compile_regex
        compiled = self._compile(self.pattern)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)
