"""Outputs that were too long for a session's file and stand in files of their own, below `<session>/tool-results/`.

The model was shown only their beginning. What the tool returned is the file.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw, Struct

from bylaw.traces.formats.claude_code.folder import output_path, read_small
from bylaw.traces.records.jsontext import REFUSED

MOST = 16 << 20
"""bytes of one output"""
_TAG = "<persisted-output>"
_SAVED = re.compile(r"(?:saved to:?|stored at:?)\s+(\S[^\r\n]*?)\.?(?:[\r\n]|$)", re.IGNORECASE)
_HEAD = 4096
"""characters among which the path of a stored output stands"""


class _Told(Struct, gc=False):
    """What the program recorded of a result beside it."""

    persistedOutputPath: str | None = None


_decode_told = msgspec.json.Decoder(_Told).decode


class Outputs:
    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._absent = 0

    def whole(self, content: Any, told: Raw) -> Any:
        """What a tool returned, where `content` is only the beginning of it; else `content` itself."""
        recorded = _path_in(content, told)
        if recorded is None:
            return content
        path = None if self._folder is None else output_path(self._folder, recorded)
        raw = None if path is None else read_small(path, MOST)
        if raw is None:
            self._absent += 1
            return content
        return raw.decode(errors="replace")

    def notes(self) -> list[str]:
        if not self._absent:
            return []
        what = "1 output is" if self._absent == 1 else f"{self._absent:,} outputs are"
        return [f"{what} cut short, for the file that holds all of it is not there or too long"]


def _path_in(content: Any, told: Raw) -> str | None:
    """The path of the file, where a result says that there is one. A tool may print the same words: nearly no risk, for
    only files of the session's own folder are read."""
    text = content
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        text = content[0].get("text")
    if not isinstance(text, str):
        return None
    head = text[:_HEAD]
    if head.lstrip().startswith(_TAG):
        named, found = _named(told), _SAVED.search(head)
        return named if named is not None else found[1] if found else ""
    if "tool-results" in head and (found := _SAVED.search(head)) is not None and "tool-results" in found[1]:
        return found[1]
    return None


def _named(told: Raw) -> str | None:
    try:
        return _decode_told(told).persistedOutputPath
    except REFUSED:
        return None
