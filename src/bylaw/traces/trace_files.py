"""Finds trace files: names, folders, globs, and `-` for standard input.

Some files are parts of others, and are read with these. INVARIANT: a file is left out only if the content of another
file shows that its reader reads both, and if the user did not name the file. An event of an OpenHands session is left
out even if it is named, because `events/*.json` in a shell names all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from bylaw.errors import InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.traces.formats.claude_code.files import parts_of
from bylaw.traces.formats.detect import detect
from bylaw.traces.formats.langfuse_tables import holds_observations, is_table, sidecars_among
from bylaw.traces.records.files import open_path, why_unopened
from bylaw.traces.records.layout import sample, sniff

_PLAIN = (".jsonl", ".ndjson", ".json", ".agentlog", ".eval", ".traj", ".har")
SUFFIXES = tuple(suffix + packed for suffix in _PLAIN for packed in ("", ".gz", ".zst"))

_TABLES = (".csv", ".csv.gz", ".csv.zst")
"""only tables with Langfuse's names count, because a folder may hold any"""


def find_traces(patterns: Sequence[str]) -> list[str]:
    """Every trace file, each once, in the order given. Raises InputError if a pattern matches none."""
    found: dict[str, None] = {}
    problems: list[Diagnostic] = []
    for pattern in patterns:
        names, problem = match_pattern(pattern)
        found |= dict.fromkeys(names)
        if problem is not None:
            problems.append(problem)
    if problems:
        raise InputError(problems)
    named, parts, events = set(patterns), _parts_among(found), _events_among(found)
    kept = (name for name in found if name in named or os.path.abspath(name) not in parts)
    return [name for name in kept if os.path.abspath(name) not in events]


def _parts_among(names: Iterable[str]) -> set[str]:
    """The absolute paths of those files that are read together with another one of them."""
    paths = {os.path.abspath(name) for name in names}
    if len(paths) < 2:
        return set()
    look = cache(_sample)
    found = sidecars_among(paths, lambda path: detect(look(path)) == "langfuse")
    found = {path for path in found if not any(map(holds_observations, look(path)))}
    for path in paths:
        parts = paths.intersection(parts_of(path))
        if parts and detect(look(path)) == "claude-code":
            found |= parts
    inner = {os.path.dirname(os.path.dirname(path)) for path in paths}
    for path in paths:
        if os.path.basename(path).startswith("session-") and os.path.dirname(path) in inner:
            found |= paths.intersection(_gemini_parts(path, look(path)))
    return found


def _events_among(names: Iterable[str]) -> set[str]:
    """The same for the files of a session of OpenHands: the first event is read with all others."""
    folders = {os.path.dirname(path): path for path in map(os.path.abspath, names) if _is_event(path)}
    if not folders:
        return set()
    from bylaw.traces.formats.openhands import event_files, state_file

    found: set[str] = set()
    paths = set(map(os.path.abspath, names))
    for path in folders.values():
        first, *others = event_files(path) or [path]
        if first in paths and detect(_sample(first)) == "openhands":
            found |= {*others, state_file(first)}
    return found


def _is_event(path: str) -> bool:
    return os.path.basename(path).startswith("event-") and path.endswith(".json")


def _gemini_parts(path: str, values: list[Any]) -> Iterable[str]:
    """The sessions of subagents that are read with a session of Gemini CLI."""
    if detect(values) != "gemini-cli" or not isinstance(values[0], dict):
        return ()
    from bylaw.traces.formats.gemini_cli import subagent_files

    return subagent_files(path, values[0].get("sessionId")).values()


def _sample(path: str) -> list[Any]:
    if not os.path.isfile(path):
        return []  # a pipe cannot be read twice
    try:
        source = open_path(path)
        return list(sample(source, sniff(source)))
    except InputError:
        return []  # reported when it is read


def match_pattern(pattern: str) -> tuple[list[str], Diagnostic | None]:
    """The files that a name, a folder or a glob stands for, with those that are parts of others."""
    if pattern == "-":
        return [pattern], None
    if os.path.isdir(pattern):
        names = _in_folder(pattern)
        return names, None if names else _no_traces(pattern, "folder")
    # A file may be called `[1].jsonl`, so a path that exists is not a glob.
    if os.path.exists(pattern):
        return [pattern], None
    if not set(pattern) & set("*?["):
        return [], _why_missing(pattern)
    import glob  # few patterns are globs

    matches = sorted(glob.glob(pattern, recursive=True))
    found = [_in_folder(match) if os.path.isdir(match) else [match] for match in matches]
    names = [name for listed in found for name in listed if _may_be_read(name)]
    return names, None if names else _no_traces(pattern, "glob")


def _why_missing(name: str) -> Diagnostic:
    """Why there is nothing at this path, as far as we may look: a folder on the way may be closed to us."""
    try:
        os.stat(name)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        pass
    except OSError as error:
        return why_unopened(name, error)
    return why_unopened(name, FileNotFoundError())


def _in_folder(folder: str) -> list[str]:
    """The traces in a folder. Links are followed, each folder once. A folder that cannot be entered is an error."""
    found: list[str] = []
    entered: set[str] = set()
    for where, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        entered.add(os.path.realpath(where))
        folders[:] = [name for name in folders if os.path.realpath(os.path.join(where, name)) not in entered]
        for name in names:
            lowered = name.lower()
            if lowered.endswith(SUFFIXES) or (lowered.endswith(_TABLES) and is_table(os.path.join(where, lowered))):
                found.append(os.path.join(where, name))
    return sorted(filter(_may_be_read, found))


def _may_be_read(path: str) -> bool:
    """Not a pipe, a socket or a device: reading one may wait for ever. A broken link is reported when it is read."""
    return os.path.isfile(path) or not os.path.exists(path)


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
