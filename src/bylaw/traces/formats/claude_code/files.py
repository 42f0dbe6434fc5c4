"""Sidecar files of a session: `<session>/subagents/agent-<id>.jsonl` and `<session>/tool-results/`.

Before version 2.1.2, the files of subagents are in the same folder as the session's file, and their first line names
the session. INVARIANT: no link is followed, and nothing else is read, no matter what a file says.
"""

from __future__ import annotations

import io
import math
import os
import re
import stat
from bisect import insort
from collections.abc import Iterator
from functools import lru_cache
from typing import IO, Any, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from bylaw.model.canonical import prepared
from bylaw.traces.assembly.content import Result
from bylaw.traces.formats.claude_code.lines import Branches, line_of, lines_of
from bylaw.traces.formats.record import Record, SidecarProblems, is_file, text_field
from bylaw.traces.formats.spans.attributes import moment
from bylaw.traces.records.files import Input, open_path
from bylaw.traces.records.jsontext import REFUSED, decode_quickly
from bylaw.traces.records.layout import Layout, Records
from bylaw.traces.records.problems import Problems
from bylaw.traces.records.repeats import SMALL, keep_repeats

MOST_SUBAGENTS = 10_000
"""subagents of one session that are read"""
MOST_OUTPUT = 16 << 20
"""bytes of one stored output"""
_MOST_META = 1 << 16
_MOST_FIRST = 1 << 20
_MOST_LEVELS = 4
_LINES = ".jsonl"
_PACKED = ("", ".gz", ".zst")
_SUBAGENTS, _OUTPUTS = "subagents", "tool-results"
_TAG = "<persisted-output>"
_SAVED = re.compile(r"(?:saved to:?|stored at:?)\s+(\S[^\r\n]*?)\.?(?:[\r\n]|$)", re.IGNORECASE)
_HEAD = 4096
"""characters in which the path of a stored output is searched for"""


def folder_of(path: str) -> str | None:
    """The folder of the session that a file belongs to, for the session's own file or a subagent's."""
    parts = os.path.dirname(os.path.abspath(path)).split(os.sep)
    if os.path.basename(path).startswith("agent-") and _SUBAGENTS in parts[-_MOST_LEVELS:]:
        return os.sep.join(parts[: len(parts) - 1 - parts[::-1].index(_SUBAGENTS)])
    stem = _stem(path)
    return None if stem is None else os.path.join(os.path.dirname(path), stem)


def parts_of(path: str) -> list[str]:
    """The files that are read together with a session's own file or a subagent's."""
    if _agent_of(path) is not None:
        return [_description_of(path)]
    folder = folder_of(path)
    if folder is None:
        return []
    subagents, _ = _subagents_in(folder)
    stored = _entries(os.path.join(folder, _OUTPUTS)) if _is_folder(folder) else ()
    outputs = [entry.path for entry in stored if entry.is_file(follow_symlinks=False)]
    return [*subagents, *map(_description_of, subagents), *outputs]


def _agent_of(path: str) -> str | None:
    """The id of the subagent whose file this is, by its name."""
    stem = _stem(path)
    return stem.removeprefix("agent-") if stem is not None and stem.startswith("agent-") else None


def _description_of(subagent: str) -> str:
    """The file that describes a subagent; it may not exist."""
    return subagent[: subagent.rindex(_LINES)] + ".meta.json"


def _stem(path: str) -> str | None:
    name = os.path.basename(path)
    for packed in _PACKED:
        if name.endswith(_LINES + packed):
            return name.removesuffix(_LINES + packed) or None
    return None


def _subagents_in(folder: str) -> tuple[list[str], int]:
    """The files of a session's subagents, and how many were skipped because they are links, or too many."""
    found: list[str] = []
    skipped = 0
    waiting = [(os.path.join(folder, _SUBAGENTS), 0)] if _is_folder(folder) else []
    while waiting:
        where, level = waiting.pop()
        for entry in _entries(where):
            if entry.is_dir(follow_symlinks=False) and level < _MOST_LEVELS:
                waiting.append((entry.path, level + 1))
            elif _agent_of(entry.path) is not None:
                wanted = entry.is_file(follow_symlinks=False) and len(found) < MOST_SUBAGENTS
                found += [entry.path] if wanted else []
                skipped += not wanted
    beside, session = os.path.split(folder)
    try:
        older = _subagents_beside(beside, os.stat(beside or ".").st_mtime_ns).get(session, [])
    except OSError:
        older = []  # a folder that cannot be listed
    files = [*sorted(found), *older]
    return files[:MOST_SUBAGENTS], skipped + max(0, len(files) - MOST_SUBAGENTS)


class _FirstLine(Struct, gc=False):
    sessionId: str | None = None


@lru_cache(maxsize=8)
def _subagents_beside(folder: str, changed: int) -> dict[str, list[str]]:
    """The files of subagents directly in a folder, by the session that their first line names.

    `changed`: when the folder changed; it is part of the cache's key, so that a changed folder is listed again.
    """
    found: dict[str, list[str]] = {}
    with os.scandir(folder or ".") as entries:
        names = [entry.name for entry in entries if entry.name.startswith("agent-") and entry.name.endswith(_LINES)]
    for path in (os.path.join(folder, name) for name in sorted(names)):
        if not is_file(path):
            continue
        try:
            with open(path, "rb") as file:
                session = msgspec.json.decode(file.readline(_MOST_FIRST), type=prepared(_FirstLine)).sessionId
        except (OSError, *REFUSED):
            continue
        if session is not None:
            found.setdefault(session, []).append(path)
    return found


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    if _is_folder(folder):
        with os.scandir(folder) as entries:
            yield from entries


def _read_small(path: str, most: int) -> bytes | None:
    """The content of a file; None if it does not exist, is a link, or is larger than `most` bytes."""
    try:
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most:
            return None
        with open(path, "rb") as file:
            return file.read(most)
    except (OSError, ValueError):
        return None


# Stored outputs


class _ResultInfo(Struct, gc=False):
    """The program's own record of a result."""

    persistedOutputPath: str | None = None


_decode_info = msgspec.json.Decoder(_ResultInfo).decode


class StoredOutputs:
    """Outputs that were too long for a session's file, and are stored in files of their own.

    The model was shown only their beginning. What the tool returned is the file.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._missing = 0

    def complete(self, result: Result, info: Raw) -> Result:
        """The result with its whole content, if it holds only the beginning."""
        recorded = _stored_path(result.content, info)
        if recorded is None:
            return result
        raw = self._read(recorded)
        if raw is None:
            self._missing += 1
            return result
        return replace(result, content=raw.decode(errors="replace"))

    def notes(self) -> list[str]:
        if not self._missing:
            return []
        what = "1 output is" if self._missing == 1 else f"{self._missing:,} outputs are"
        return [f"{what} cut short, for the file that holds all of it is not there or too long"]

    def _read(self, recorded: str) -> bytes | None:
        """Read the file of that name in this session's folder: the recorded path may be from another machine."""
        name = recorded.replace("\\", "/").rsplit("/", 1)[-1]
        if self._folder is None or name in ("", ".", "..") or "\0" in name:
            return None
        where = os.path.join(self._folder, _OUTPUTS)
        if not (_is_folder(self._folder) and _is_folder(where)):
            return None
        return _read_small(os.path.join(where, name), MOST_OUTPUT)


def _stored_path(content: Any, info: Raw) -> str | None:
    """The path of the stored output, if a result names one. A tool may print the same words, which is harmless: only
    files of the session's own folder are read."""
    text = content
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        text = content[0].get("text")
    if not isinstance(text, str):
        return None
    head = text[:_HEAD]
    if head.lstrip().startswith(_TAG):
        try:
            named = _decode_info(info).persistedOutputPath
        except REFUSED:
            named = None
        found = _SAVED.search(head)
        return named if named is not None else found[1] if found else ""
    if "tool-results" in head and (found := _SAVED.search(head)) is not None and "tool-results" in found[1]:
        return found[1]
    return None


# Files of subagents


class SessionFile(Struct, eq=False):
    """One file of a session."""

    branches: Branches
    outputs: StoredOutputs
    run: str | None = None
    """the subagent whose file it is, or None for the session's own …"""
    agent: str | None = None
    """… its kind …"""
    caller: str | None = None
    """… and the call that started it, if a sidecar file says so"""
    is_misdescribed: bool = False
    """that sidecar file exists, and cannot be read"""


def describe_file(path: str | None, branches: Branches, outputs: StoredOutputs) -> SessionFile:
    """The role of a file, by its name and its sidecar file."""
    run = None if path is None else _agent_of(path)
    file = SessionFile(branches, outputs, run)
    if path is None or run is None:
        return file
    sidecar = _description_of(path)
    try:
        described = decode_quickly(_read_small(sidecar, _MOST_META) or b"")
    except REFUSED:
        described = None
    if isinstance(described, dict):
        file.agent, file.caller = text_field(described, "agentType"), text_field(described, "toolUseId")
    else:
        file.is_misdescribed = os.path.lexists(sidecar)
    return file


class _WaitingFile(Struct, eq=False):
    """A subagent's file, from the next line that was not read."""

    file: SessionFile
    lines: Iterator[Record]
    next: Record | None = None


class SubagentFiles:
    """The files of a session's subagents, their lines merged with those of the session by time."""

    def __init__(self, path: str | None, own: SessionFile, problems: Problems) -> None:
        """`path`: the session's own file."""
        self.waiting: list[tuple[float, int, _WaitingFile]] = []
        self.runs: set[str | None] = set()
        """the subagents whose files are read"""
        self._records: list[Records] = []
        self._skipped = 0
        self._misdescribed = int(own.is_misdescribed)
        folder = None if path is None or _agent_of(path) is not None else folder_of(path)
        if folder is None:
            return
        names, self._skipped = _subagents_in(folder)
        for number, name in enumerate(names):
            source = _open_reopened(name)
            ignored = Problems(source.name, skip_bad=True)
            blocks = Records(source, Layout.LINES, ignored).blocks()
            file = describe_file(name, Branches(raw for block in blocks for raw, _ in block), own.outputs)
            self.runs.add(file.run)
            self._misdescribed += file.is_misdescribed
            start = math.inf if file.branches.start is None else file.branches.start
            whole = SidecarProblems(name, problems)
            records = Records(source, Layout.LINES, whole)
            self._records.append(records)
            self.waiting.append((start, number, _WaitingFile(file, _lines(source, records, whole))))
        self.waiting.sort()

    def due(self, when: float | None) -> Iterator[tuple[Record, SessionFile]]:
        """The lines before a moment, in the order of time; None: all that are left."""
        while self.waiting:
            at, number, first = self.waiting[0]
            # what begins at that very moment was started by the session's line of that time, and comes after it
            if when is not None and (at > when or (at == when and first.next is None)):
                return
            del self.waiting[0]
            record, first.next = first.next, next(first.lines, None)
            if first.next is not None:
                follows = moment(line_of(first.next.value).timestamp)[0]
                insort(self.waiting, (max(at, at if follows is None else follows), number, first))
            if record is not None:
                yield record, first.file

    @property
    def is_cut(self) -> bool:
        """Whether a file ends too early, as far as they were read."""
        return any(records.cut for records in self._records)

    def notes(self) -> list[str]:
        notes = []
        if count := sum(records.cut_record for records in self._records):
            what = "the file of a subagent" if count == 1 else f"{count:,} files of subagents"
            notes.append(f"the last record of {what} is cut off and was left out")
        if self._skipped:
            what = "1 file of a subagent is" if self._skipped == 1 else f"{self._skipped:,} files of subagents are"
            notes.append(f"{what} not read: a link, or beyond the {MOST_SUBAGENTS:,} that are")
        if self._misdescribed:
            count = self._misdescribed
            what = "1 `meta.json` of a subagent" if count == 1 else f"{count:,} `meta.json` of subagents"
            notes.append(f"{what} cannot be read: a subagent's kind, or the call that started it, may be missing")
        return notes


def _lines(source: Input, records: Records, problems: Problems) -> Iterator[Record]:
    for block in records.blocks():
        yield from lines_of(keep_repeats(block, problems) if source.size <= SMALL else block, problems)


class _ReopenedFile(io.RawIOBase):
    """A file that is open only while a piece of it is read, because more are read in parallel than may be open."""

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
        return super()._open() if self.path is None else cast(IO[bytes], _ReopenedFile(self.path))


def _open_reopened(path: str) -> Input:
    source = open_path(path)
    return source if source.path is None else _ReopenedInput(source.name, path=source.path)
