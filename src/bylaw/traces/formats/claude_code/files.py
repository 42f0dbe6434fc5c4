"""What lies beside the file of a session: `<session>/subagents/agent-<id>.jsonl` and `<session>/tool-results/`.

INVARIANT: nothing is read through a link, and nothing outside of that folder, whatever a file says.

Outputs that were too long for a session's file and stand in files of their own, below `<session>/tool-results/`.

The model was shown only their beginning. What the tool returned is the file.

Files that are open only while a piece of them is read: more may be read side by side than a process may open.

The files of a session's subagents, their lines put among those of the session by their times.
"""

from __future__ import annotations

import heapq
import io
import math
import os
import re
import stat
from collections.abc import Iterator
from typing import IO, Any, cast

import msgspec
from msgspec import Raw, Struct

from bylaw.traces.formats.chat_message import text_field
from bylaw.traces.formats.claude_code.lines import Branches, line_of, lines_of
from bylaw.traces.formats.record import Beside, Record
from bylaw.traces.formats.spans.attributes import moment
from bylaw.traces.records.files import Input, open_path
from bylaw.traces.records.jsontext import REFUSED, decode_quickly
from bylaw.traces.records.layout import Layout, Records
from bylaw.traces.records.problems import Problems

_PACKED = ("", ".gz", ".zst")
_LINES = ".jsonl"
_SUBAGENTS, _OUTPUTS = "subagents", "tool-results"
_MOST_LEVELS = 4
MOST_SUBAGENTS = 10_000
"""subagents of one session that are looked for"""


def folder_of(path: str) -> str | None:
    """The folder of the session that a file is about, whether it is the session's own file or a subagent's."""
    parts = os.path.dirname(os.path.abspath(path)).split(os.sep)
    if os.path.basename(path).startswith("agent-") and _SUBAGENTS in parts[-_MOST_LEVELS:]:
        return os.sep.join(parts[: len(parts) - 1 - parts[::-1].index(_SUBAGENTS)])
    stem = _stem(os.path.basename(path))
    return None if stem is None else os.path.join(os.path.dirname(path), stem)


def agent_of(path: str) -> str | None:
    """The id of the subagent whose file this is by its name."""
    stem = _stem(os.path.basename(path))
    return stem.removeprefix("agent-") if stem is not None and stem.startswith("agent-") else None


def subagents_in(folder: str) -> tuple[list[str], int]:
    """The files of a session's subagents, and how many were passed over because they are links, or too many."""
    found: list[str] = []
    passed = 0
    if not is_folder(folder):
        return found, passed
    waiting = [(os.path.join(folder, _SUBAGENTS), 0)]
    while waiting:
        where, level = waiting.pop()
        for entry in _entries(where):
            if entry.is_dir(follow_symlinks=False) and level < _MOST_LEVELS:
                waiting.append((entry.path, level + 1))
            elif agent_of(entry.path) is not None:
                wanted = entry.is_file(follow_symlinks=False) and len(found) < MOST_SUBAGENTS
                found += [entry.path] if wanted else []
                passed += not wanted
    return sorted(found), passed


def read_small(path: str, most: int) -> bytes | None:
    """A file of at most so many bytes; None where it is none, a link, or larger."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            return None
        with open(path, "rb") as file:
            return file.read(most)
    except (OSError, ValueError):
        return None


def output_path(folder: str, recorded: str) -> str | None:
    """Where an output is stored. Of the path that was recorded, maybe on another machine, only the name counts."""
    name = recorded.replace("\\", "/").rsplit("/", 1)[-1]
    where = os.path.join(folder, _OUTPUTS)
    if name in ("", ".", "..") or "\0" in name or not (is_folder(folder) and is_folder(where)):
        return None
    return os.path.join(where, name)


def is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def parts_of(path: str) -> list[str]:
    """What is read together with a file of Claude Code's, be it a session's own or a subagent's."""
    if agent_of(path) is not None:
        return [description_of(path)]
    folder = folder_of(path)
    if folder is None or not is_folder(folder):
        return []
    subagents, _ = subagents_in(folder)
    outputs = [entry.path for entry in _entries(os.path.join(folder, _OUTPUTS)) if entry.is_file(follow_symlinks=False)]
    return [*subagents, *map(description_of, subagents), *outputs]


def description_of(subagent: str) -> str:
    """The file that tells of a subagent, beside the subagent's own; it may not be there."""
    return subagent[: subagent.rindex(_LINES)] + ".meta.json"


def _stem(name: str) -> str | None:
    for packed in _PACKED:
        if name.endswith(_LINES + packed):
            return name.removesuffix(_LINES + packed) or None
    return None


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    if not is_folder(folder):
        return
    with os.scandir(folder) as entries:
        yield from entries


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


class _Reopened(io.RawIOBase):
    def __init__(self, path: str) -> None:
        self._path = path
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        with open(self._path, "rb", buffering=0) as file:
            file.seek(self._at)
            data = file.read(size) or b""
        self._at += len(data)
        return data

    def tell(self) -> int:
        return self._at


class _ReopenedInput(Input):
    def _open(self) -> IO[bytes]:
        return super()._open() if self.path is None else cast(IO[bytes], _Reopened(self.path))


def open_often(path: str) -> Input:
    """A file by its path. Raises InputError where there is none."""
    source = open_path(path)
    return source if source.path is None else _ReopenedInput(source.name, path=source.path)


_MOST_META = 1 << 16


class Part(Struct, eq=False):
    """One file of a session."""

    branches: Branches
    outputs: Outputs
    run: str | None = None
    """the subagent whose file it is; None: the session's own …"""
    agent: str | None = None
    """… its kind …"""
    caller: str | None = None
    """… and the call that started it, where a file beside it says so"""
    misdescribed: bool = False
    """that file is there, and cannot be read"""


class _Waiting(Struct, eq=False):
    """A subagent's file, from the next line on that was not told."""

    part: Part
    lines: Iterator[Record]
    next: Record | None = None


class Companions:
    def __init__(self, path: str | None, own: Part, problems: Problems) -> None:
        """Those of the session whose own file this is."""
        self.waiting: list[tuple[float, int, _Waiting]] = []
        self._passed = 0
        self._misdescribed = int(own.misdescribed)
        folder = None if path is None or agent_of(path) is not None else folder_of(path)
        if folder is None:
            return
        files, self._passed = subagents_in(folder)
        for number, file in enumerate(files):
            source = open_often(file)
            part = part_of(file, Branches(_raw(source)), own.outputs)
            self._misdescribed += part.misdescribed
            start = math.inf if part.branches.start is None else part.branches.start
            self.waiting.append((start, number, _Waiting(part, _lines(source, Beside(file, problems)))))
        heapq.heapify(self.waiting)

    def due(self, when: float | None) -> Iterator[tuple[Record, Part]]:
        """The lines from before a moment, in the order of time; None: all that are left."""
        while self.waiting:
            at, number, first = self.waiting[0]
            # what begins at that very moment was begun by what the session does then, and comes after it
            if when is not None and (at > when or (at == when and first.next is None)):
                return
            heapq.heappop(self.waiting)
            told, first.next = first.next, next(first.lines, None)
            if first.next is not None:
                heapq.heappush(self.waiting, (max(at, _time(first.next, at)), number, first))
            if told is not None:
                yield told, first.part

    def notes(self) -> list[str]:
        notes = []
        if self._passed:
            what = "1 file of a subagent is" if self._passed == 1 else f"{self._passed:,} files of subagents are"
            notes.append(f"{what} not read: a link, or beyond the {MOST_SUBAGENTS:,} that are")
        if self._misdescribed:
            count = self._misdescribed
            what = "1 `meta.json` of a subagent" if count == 1 else f"{count:,} `meta.json` of subagents"
            notes.append(f"{what} cannot be read: a subagent's kind, or the call that started it, may be missing")
        return notes


def part_of(path: str | None, branches: Branches, outputs: Outputs) -> Part:
    """What a file is by its name, and by what stands beside it."""
    run = None if path is None else agent_of(path)
    part = Part(branches, outputs, run)
    if path is None or run is None:
        return part
    beside = description_of(path)
    told = _described(beside)
    if told is not None:
        part.agent, part.caller = text_field(told, "agentType"), text_field(told, "toolUseId")
    else:
        part.misdescribed = os.path.lexists(beside)
    return part


def _described(path: str) -> dict[str, Any] | None:
    try:
        told = decode_quickly(read_small(path, _MOST_META) or b"")
    except REFUSED:
        return None
    return told if isinstance(told, dict) else None


def _raw(source: Input) -> Iterator[bytes]:
    ignored = Problems(source.name, skip_bad=True)
    return (raw for block in Records(source, Layout.LINES, ignored).blocks() for raw, _ in block)


def _lines(source: Input, problems: Problems) -> Iterator[Record]:
    for block in Records(source, Layout.LINES, problems).blocks():
        yield from lines_of(block, problems)


def _time(record: Record, otherwise: float) -> float:
    found = moment(line_of(record.value).timestamp)[0]
    return otherwise if found is None else found
