"""Answers of the judge, kept under rule, trace and judge: in memory, and in a folder where one is given."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from bylaw.comply.judge.transcript import Transcript
from bylaw.model.canonical import canonical_json

MOST = 1_000
"""answers held in memory"""
_LONGEST = 1 << 20


class Memory:
    """What is kept is the judge's own text: it is checked anew each time it is used."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._held: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: str) -> str | None:
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        if self._folder is None:
            return None
        with contextlib.suppress(OSError, ValueError), (self._folder / f"{key}.json").open("rb") as file:
            return file.read(_LONGEST).decode("utf-8")
        return None

    def keep(self, key: str, text: str) -> None:
        with self._lock:
            self._held[key] = text
            while len(self._held) > MOST:
                self._held.popitem(last=False)
        if self._folder is not None and len(text) < _LONGEST:
            self._write(self._folder, key, text)

    def _write(self, folder: Path, key: str, text: str) -> None:
        """A file appears whole or not at all. The folder not being writable costs money, not correctness."""
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            handle, draft = tempfile.mkstemp(dir=folder, prefix=f".{key}.")
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode("utf-8", "replace"))
            Path(draft).replace(folder / f"{key}.json")


def key_of(judge: str, instructions: str, prompt: str, rules: Sequence[tuple[str, str]], transcript: Transcript) -> str:
    whole = [judge, instructions, prompt, [list(rule) for rule in rules], transcript.digest]
    return hashlib.sha256(canonical_json(whole)).hexdigest()
