"""The files of a session's subagents, their lines put among those of the session by their times."""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from bylaw.traces.formats.beside import Beside
from bylaw.traces.formats.chat.message import text_field
from bylaw.traces.formats.claude_code.branches import Branches
from bylaw.traces.formats.claude_code.folder import (
    MOST_SUBAGENTS,
    agent_of,
    description_of,
    folder_of,
    read_small,
    subagents_in,
)
from bylaw.traces.formats.claude_code.outputs import Outputs
from bylaw.traces.formats.claude_code.reopened import open_often
from bylaw.traces.formats.claude_code.wire import line_of, lines_of
from bylaw.traces.formats.reader import Record
from bylaw.traces.formats.spans.times import moment
from bylaw.traces.records.jsontext import REFUSED, decode_quickly
from bylaw.traces.records.layout import Layout, Records
from bylaw.traces.records.opening import Input
from bylaw.traces.records.problems import Problems

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
