"""The formats that can be written, and which one a file's name asks for."""

from __future__ import annotations

import os

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
