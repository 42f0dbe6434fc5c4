"""What came of writing a trace in another format."""

from __future__ import annotations

from msgspec import Struct

from bylaw.model.diagnostic import Diagnostic


class Conversion(Struct, frozen=True, kw_only=True):
    path: str
    """where it was written; nothing is there if there were no events"""
    format: str
    events: int = 0
    turns: int = 0
    sessions: int = 0
    complete: bool = True
    notes: tuple[str, ...] = ()
    """what the reader had to assume, and what the format cannot say"""
    problems: tuple[Diagnostic, ...] = ()
    skipped: int = 0
    """bad records that were passed over"""

    @property
    def exit_code(self) -> int:
        """What `bylaw convert` exits with: 0, or 3 where there was nothing to convert."""
        return 0 if self.events else 3
