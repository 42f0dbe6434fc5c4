"""Which files are meant: names, folders, globs, and `-` for standard input."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence

from bylaw.adapters.importers.formats.claude_code.folder import without_parts
from bylaw.adapters.importers.formats.langfuse.tables import is_table, without_tables
from bylaw.adapters.importers.records.opening import no_such_file
from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic

SUFFIXES = tuple(
    suffix + packed for suffix in (".jsonl", ".ndjson", ".json", ".agentlog", ".eval") for packed in ("", ".gz", ".zst")
)

_TABLES = (".csv", ".csv.gz", ".csv.zst")
"""a folder may hold any: only those that are called what Langfuse calls them are meant"""


def find_traces(patterns: Sequence[str]) -> list[str]:
    """Every trace file that is meant, each once, in the order given. Raises InputError where there is none."""
    found: dict[str, None] = {}
    problems: list[Diagnostic] = []
    for pattern in patterns:
        names, problem = _find(pattern)
        found |= dict.fromkeys(names)
        if problem is not None:
            problems.append(problem)
    if problems:
        raise InputError(problems)
    return without_tables(list(found))


def _find(pattern: str) -> tuple[list[str], Diagnostic | None]:
    if pattern == "-":
        return [pattern], None
    if os.path.isdir(pattern):
        names = _in_folder(pattern)
        return names, None if names else _no_traces(pattern, "folder")
    # A file may be called `[1].jsonl`: what exists is meant, whatever it looks like.
    if os.path.exists(pattern):
        return [pattern], None
    if not glob.has_magic(pattern):
        return [], no_such_file(pattern)
    matches = sorted(glob.glob(pattern, recursive=True))
    names = without_parts([name for match in matches for name in _matched(match)])
    return names, None if names else _no_traces(pattern, "glob")


def _matched(match: str) -> list[str]:
    """A file that a glob names is meant, whatever its suffix; a folder stands for the traces in it."""
    return _in_folder(match) if os.path.isdir(match) else [match]


def _in_folder(folder: str) -> list[str]:
    """Links are followed, each folder once. A folder that cannot be entered is an error: it may hold what matters."""
    found: list[str] = []
    entered: set[str] = set()
    for where, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        entered.add(os.path.realpath(where))
        folders[:] = [name for name in folders if os.path.realpath(os.path.join(where, name)) not in entered]
        found += [os.path.join(where, name) for name in names if _is_trace(where, name)]
    return without_parts(sorted(found))


def _is_trace(folder: str, name: str) -> bool:
    lowered = name.lower()
    return lowered.endswith(SUFFIXES) or (lowered.endswith(_TABLES) and is_table(os.path.join(folder, lowered)))


def _refuse(problem: OSError) -> None:
    reason = (problem.strerror or "cannot be read").lower()
    raise InputError([Diagnostic(code="unreadable-file", message=f"this folder: {reason}", file=str(problem.filename))])


def _no_traces(pattern: str, noun: str) -> Diagnostic:
    return Diagnostic(
        code="no-traces",
        message=f"no trace file in {noun} `{pattern}`",
        file=pattern,
        help=f"a trace file ends in {', '.join(SUFFIXES[::3])}, with or without .gz or .zst",
    )
