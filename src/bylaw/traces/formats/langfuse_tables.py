"""Langfuse's blob export: a folder or a file for each table. `traces` and `scores` are sidecars of `observations`.

Only names are looked at here; the caller checks what files hold. `observations_v2` holds what both `traces` and
`observations` do, and needs neither.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Set
from typing import Any

_TABLE, _WHOLE = "observations", "observations_v2"
_MOST_FILES = 10_000
SUFFIXES = tuple(suffix + packed for suffix in (".jsonl", ".ndjson", ".json", ".csv") for packed in ("", ".gz", ".zst"))


def is_table(path: str) -> bool:
    """Whether a CSV file may be Langfuse's, by its name."""
    return _table_of(path) in (_TABLE, _WHOLE)


def sidecar_of(path: str, table: str) -> str | None:
    """The file of another table that was written with this one; it may not exist."""
    return _other_table(path, table) if _table_of(path) == _TABLE else None


def sidecars_of(path: str, table: str) -> list[str]:
    """All files of another table: a trace may stand in one file and its observations in another."""
    other = sidecar_of(path, table)
    if other is None:
        return []
    folder = os.path.dirname(other)
    if os.path.basename(folder) != table or os.path.islink(folder) or not os.path.isdir(folder):
        return [other]
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))[:_MOST_FILES] if name.endswith(SUFFIXES)]


def sidecars_among(paths: Set[str], is_langfuse: Callable[[str], bool]) -> set[str]:
    """The files that are read as sidecars of another one of them, if both are Langfuse's by their content."""
    tables: dict[tuple[str, str | None], list[str]] = {}
    for path in paths:
        tables.setdefault((_export_folder(path), _table_of(path)), []).append(path)
    return {path for path in paths if any(map(is_langfuse, _owners(path, paths, tables))) and is_langfuse(path)}


def holds_observations(value: Any) -> bool:
    """Whether a row of `traces` holds its observations, not just their ids: then no other file does."""
    rows = value.get("data", [value]) if isinstance(value, dict) else value
    return any(
        isinstance(row, dict)
        and isinstance(observations := row.get("observations"), list)
        and any(isinstance(one, dict) for one in observations)
        for row in (rows if isinstance(rows, list) else ())
    )


def _owners(path: str, paths: Set[str], tables: dict[tuple[str, str | None], list[str]]) -> list[str]:
    table, place = _table_of(path), _export_folder(path)
    if table == _TABLE:
        return [whole] if (whole := _other_table(path, _WHOLE)) in paths else []
    if table in ("traces", "scores"):
        return [*tables.get((place, _TABLE), ()), *tables.get((place, _WHOLE), ())]
    return []


def _split_path(path: str) -> tuple[str, str, str]:
    """The parent folder, the name of the folder, and the name of the file."""
    folder, name = os.path.split(path)
    return os.path.dirname(folder), os.path.basename(folder), name


def _table_of(path: str) -> str | None:
    _, folder, name = _split_path(path)
    candidates = (name.partition(".")[0], folder)
    return next((word for word in candidates if word in (_TABLE, _WHOLE, "traces", "scores")), None)


def _export_folder(path: str) -> str:
    """The folder of an export: the one that holds the folders of its tables, or its files."""
    outer, _, name = _split_path(path)
    return os.path.dirname(path) if _table_of(name) is not None else outer


def _other_table(path: str, table: str) -> str:
    outer, _, name = _split_path(path)
    stem, dot, suffix = name.partition(".")
    if stem == _table_of(path):
        return os.path.join(os.path.dirname(path), table + dot + suffix)
    return os.path.join(outer, table, name)
