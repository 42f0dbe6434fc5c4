"""Rules as one or more files gave them, with what was found wrong on the way."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from bylaw.model.diagnostic import Diagnostic
from bylaw.model.rule import Rule


class RuleSet(Struct, frozen=True):
    rules: tuple[Rule, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    """sorted by file, line, column; only warnings where the rules were loaded to be used"""
    files: tuple[str, ...] = ()
    """the names of the files read, in the order given"""

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    @property
    def ok(self) -> bool:
        """Whether no diagnostic is an error."""
        return not any(diagnostic.is_error for diagnostic in self.diagnostics)
