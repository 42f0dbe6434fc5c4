"""What lies beside the file of a session: `<session>/subagents/agent-<id>.jsonl` and `<session>/tool-results/`.

INVARIANT: nothing is read through a link, and nothing outside of that folder, whatever a file says.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

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
