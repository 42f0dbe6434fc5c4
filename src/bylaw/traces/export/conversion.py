"""What came of writing a trace in another format.

The formats that can be written, and which one a file's name asks for.
"""

from __future__ import annotations

import os

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


EXPORTS: dict[str, str] = {
    "bylaw": "Bylaw's own JSONL: a header, then one event a line",
    "atif": "ATIF: a trajectory of steps, one session a line",
    "otlp": "OpenTelemetry spans: OTLP JSON, one span a line",
}
SUFFIXES = {
    ".atif.json": "atif",
    ".atif.jsonl": "atif",
    ".otlp.json": "otlp",
    ".otlp.jsonl": "otlp",
    ".jsonl": "bylaw",
    ".ndjson": "bylaw",
}
"""the first that fits counts"""
SUFFIX_OF = {"bylaw": ".jsonl", "atif": ".atif.json", "otlp": ".otlp.jsonl"}
"""what a file of each is called in a folder"""


def format_for(path: str) -> str | None:
    """The format that a name asks for, packed or not; None where it says nothing."""
    name = os.path.basename(path).lower().removesuffix(".gz").removesuffix(".zst")
    return next((format for suffix, format in SUFFIXES.items() if name.endswith(suffix)), None)
