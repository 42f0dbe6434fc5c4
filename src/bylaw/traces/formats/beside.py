"""Files beside the one that is read, which say more about it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from bylaw.model.diagnostic import Diagnostic
from bylaw.traces.formats.reader import Record, records_of
from bylaw.traces.records.layout import Records, sniff
from bylaw.traces.records.opening import open_path
from bylaw.traces.records.problems import Problems


class Beside(Problems):
    """The problems of one file of several, which are those of the trace."""

    def __init__(self, file: str, whole: Problems) -> None:
        super().__init__(file, skip_bad=whole.skip_bad)
        self._whole = whole

    def bad(self, problem: Diagnostic) -> None:
        self._whole.bad(problem)

    def warn(self, problem: Diagnostic) -> None:
        self._whole.warn(problem)


def records_beside(path: str, whole: Problems) -> Iterator[Record]:
    """The records of another file; its problems are those of the trace."""
    source = open_path(path)
    problems = Beside(path, whole)
    for block in Records(source, sniff(source), problems).blocks():
        yield from records_of(block, problems)


def is_file(path: str) -> bool:
    """Whether this is a file, and no link to one that may lie anywhere."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False
