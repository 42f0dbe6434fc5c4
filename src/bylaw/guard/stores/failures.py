"""What SQLite's errors mean to whoever runs the guard."""

from __future__ import annotations

import sqlite3

from bylaw.guard.stores.ports import StoreUnavailable

_REASONS = {
    sqlite3.SQLITE_BUSY: "is locked by another process",
    sqlite3.SQLITE_LOCKED: "is locked by another process",
    sqlite3.SQLITE_READONLY: "cannot be written",
    sqlite3.SQLITE_PERM: "cannot be written",
    sqlite3.SQLITE_AUTH: "cannot be written",
    sqlite3.SQLITE_FULL: "has no room left: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be read or written",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is damaged, or no SQLite file",
    sqlite3.SQLITE_NOMEM: "does not fit into memory",
    sqlite3.SQLITE_TOOBIG: "cannot hold a value of this size",
}


def explain(error: sqlite3.Error) -> str:
    reason = _REASONS.get(_primary_code(error), "cannot be used")
    return f"{reason} ({error})"


def is_busy(error: sqlite3.Error) -> bool:
    return _primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def unavailable(path: str, reason: str) -> StoreUnavailable:
    return StoreUnavailable(f"the store `{path}` {reason}")


def _primary_code(error: sqlite3.Error) -> int:
    """The lowest byte; the others tell apart what is one and the same to a reader."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF
