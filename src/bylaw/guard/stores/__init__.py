"""Stores of a guard: in memory, or in an SQLite file. Both pass tests/stores/conformance.py.

`records` are the nouns, `ports` the protocol of a store, `encoding` the JSON form of records, `chain` the hash chain of
the audit and what it says of them; `memory*` and `sqlite*` are the two stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bylaw.guard.stores.chain import ChainCheck, ChainProblem, verify_chain
from bylaw.guard.stores.memory import MemoryStore
from bylaw.guard.stores.ports import audit_rows
from bylaw.guard.stores.records import EventRow

if TYPE_CHECKING:
    from bylaw.guard.stores.sqlite import SqliteStore

__all__ = ["ChainCheck", "ChainProblem", "EventRow", "MemoryStore", "SqliteStore", "audit_rows", "verify_chain"]


def __getattr__(name: str) -> Any:
    if name != "SqliteStore":
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    from bylaw.guard.stores.sqlite import SqliteStore  # sqlite3 is loaded only if needed

    return SqliteStore
