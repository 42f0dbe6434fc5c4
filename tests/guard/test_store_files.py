"""Which files the commands of the guard accept as a store, and what they write to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import bylaw
from bylaw.guard.stores import SqliteStore
from bylaw.guard.stores.ports import StoreUnavailable
from tests.support.command import run_bylaw

RULES = "guard: {mode: hitl, rules: [{id: ask, when: {tool_name_in: [pay]}, then: pause}]}\n"
LISTS = (
    "switches",
    "reviews",
    "shadow",
    "incidents list",
    "incidents alerts",
    "incidents outbox",
    "keys list",
    "mcp approve",
    "replay -p rules.yaml",
    "audit head",
    "audit show",
)
OTHERS = (
    "terminate s",
    "kill",
    "revive",
    "prune --older-than 1",
    "approve review-1 --by ann",
    "incidents show incident-1",
    "keys revoke k",
    "follow --once -p rules.yaml",
    "replay --write -p rules.yaml",
    "audit verify",
    "audit export",
)


def run(folder: Path, command: str, *, code: int) -> tuple[str, str]:
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "80"}
    done = run_bylaw(["guard", *command.split(), "--store", "guard.db"], cwd=folder, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(RULES)
    return tmp_path


def _without_tables(path: Path) -> None:
    with sqlite3.connect(path) as file:
        file.execute("VACUUM")
    file.close()
    assert path.stat().st_size


@pytest.mark.parametrize(
    ("command", "make"),
    [*((one, Path.touch) for one in (*LISTS, *OTHERS)), ("reviews", _without_tables), ("kill", _without_tables)],
)
def test_an_empty_file_is_no_store(folder: Path, command: str, make: Callable[[Path], None]) -> None:
    make(folder / "guard.db")
    before = files(folder)
    out, errors = run(folder, command, code=4)
    assert out == "" and "is empty: no guard has written to it" in " ".join(errors.split())
    assert files(folder) == before


def test_where_a_store_is_created_an_empty_file_becomes_one(folder: Path) -> None:
    (folder / "guard.db").touch()
    run(folder, "keys create ann --scope admin", code=0)
    assert "ann" in run(folder, "keys list", code=0)[0]
    (folder / "other.db").touch()
    guard = bylaw.Guard(str(folder / "rules.yaml"), store=folder / "other.db")
    assert guard.decide(bylaw.Attempt(tool="look", session="s")).allowed
    guard.close()


def test_a_store_that_must_exist_is_not_created(folder: Path) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        SqliteStore(folder / "guard.db", create=False)
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        SqliteStore(folder / "guard.db", read_only=True)
    assert files(folder).keys() == {"rules.yaml"}


@pytest.mark.parametrize("command", LISTS)
def test_a_list_needs_no_lock_and_writes_nothing(folder: Path, command: str) -> None:
    guard = bylaw.Guard(str(folder / "rules.yaml"), store=folder / "guard.db")
    guard.decide(bylaw.Attempt(tool="pay", session="s"))
    store = SqliteStore(folder / "guard.db")
    with store.transaction(""):  # another process writes
        used = run(folder, command, code=0)
    store.close()
    guard.close()
    before = files(folder)
    assert run(folder, command, code=0) == used
    assert files(folder) == before


def test_lines_about_a_store_that_cannot_be_used_fit_80_columns(folder: Path) -> None:
    (folder / "guard.db").write_bytes(b"rules:\n" * 1000)
    _, errors = run(folder, "reviews", code=4)
    assert "is damaged, or no SQLite file" in " ".join(errors.split())
    assert all(len(line) <= 80 or " " not in line.strip() for line in errors.splitlines())


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    done = run_bylaw(["guard", "switches", "--store", str(tmp_path)])
    assert done.returncode == 2 and "is a folder" in done.stderr
