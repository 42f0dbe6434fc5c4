"""What a guard keeps, kept: in this process, or in an SQLite file. Both pass tests/stores/conformance.py.

`chain` is the audit's hash chain, whichever store holds it; `encoding` is how both write records down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bylaw.guard.audit.model import ChainProblem
from bylaw.guard.stores.chain import ChainCheck, audit_rows, verify_chain
from bylaw.guard.stores.memory import MemoryStore

if TYPE_CHECKING:
    from bylaw.guard.stores.sqlite import SqliteStore

__all__ = ["ChainCheck", "ChainProblem", "MemoryStore", "SqliteStore", "audit_rows", "verify_chain"]


def __getattr__(name: str) -> Any:
    if name != "SqliteStore":
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    from bylaw.guard.stores.sqlite import SqliteStore  # sqlite3 is a library of its own to load

    return SqliteStore
