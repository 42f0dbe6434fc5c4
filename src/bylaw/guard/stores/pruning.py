"""Forgets what is old in an SQLite file, in steps short enough that no decision waits for them.

What to forget is looked up beside the writers; each step then forgets a stretch of it, and looks again. Whatever stops
it between two steps leaves a whole store, whose next pruning goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bylaw.guard.stores.chain import ANCHOR, vouch
from bylaw.guard.stores.encoding import encode
from bylaw.guard.stores.transaction import SqliteTransaction

STEP = 500
"""rows forgotten in one transaction: a few milliseconds"""

_OLD_REVIEW = "touched_at < :before AND (NOT is_open OR expires_at < :before)"
_IDLE_SESSION = """touched_at < :before AND (terminated IS NULL OR length(state))
    AND NOT EXISTS (SELECT 1 FROM reviews WHERE reviews.session = sessions.session AND is_open)"""
_KEEP_FLOOR = f"""UPDATE floor SET version = max(version, (SELECT coalesce(max(version), 0) FROM sessions
    WHERE id BETWEEN :first AND :last AND {_IDLE_SESSION} AND terminated IS NULL))"""
_EMPTY_TERMINATED = f"""UPDATE sessions SET state = x'', version = version + 1
    WHERE id BETWEEN :first AND :last AND {_IDLE_SESSION} AND terminated IS NOT NULL"""
_LAST_OLD_LINK = """SELECT seq, hash FROM audit WHERE previous != ''
    AND seq < coalesce((SELECT seq FROM audit WHERE at >= :before ORDER BY seq LIMIT 1), :end)
    ORDER BY seq DESC LIMIT 1"""
_LINK = "SELECT at, hash FROM audit WHERE seq = :last"
_INSERT_ANCHOR = "INSERT INTO audit (seq, at, data, previous, hash) VALUES (?, ?, ?, '', ?)"
_END = 2**63 - 1


class Pruning:
    def __init__(
        self,
        transaction: Callable[[str], SqliteTransaction],
        read: Callable[[str, Any], list[tuple[Any, ...]]],
        *,
        before: float,
        now: float,
    ) -> None:
        self._transaction, self._read = transaction, read
        self._before, self._now = before, now

    def run(self) -> dict[str, int]:
        """Reviews before sessions: an open review keeps its session."""
        return {
            "events": self._forget("events", "seq", "at < :before"),
            "reviews": self._forget("reviews", "number", _OLD_REVIEW),
            "sessions": self._forget_sessions(),
            "followed": self._forget("followed", "number", "at < :before AND NOT is_open"),
            "audit": self._forget_audit(),
        }

    def _forget(self, table: str, key: str, condition: str) -> int:
        delete = f"DELETE FROM {table} WHERE {key} BETWEEN :first AND :last AND {condition}"
        return sum(self._step(stretch, delete) for stretch in self._stretches(table, key, condition))

    def _forget_sessions(self) -> int:
        delete = f"DELETE FROM sessions WHERE id BETWEEN :first AND :last AND {_IDLE_SESSION} AND terminated IS NULL"
        stretches = self._stretches("sessions", "id", _IDLE_SESSION)
        return sum(self._step(stretch, _KEEP_FLOOR, delete, _EMPTY_TERMINATED) for stretch in stretches)

    def _forget_audit(self) -> int:
        """The row that vouches for what will be gone comes first, so that every step leaves a chain that verifies."""
        old = self._read(_LAST_OLD_LINK, {"before": self._before, "end": _END})
        if not old:
            return 0
        through, hash = old[0]
        with self._transaction("") as transaction:
            transaction.append_audit(self._now, vouch(through=through, hash=hash))
        first = self._read("SELECT min(seq) FROM audit", {})[0][0]
        lasts = [*range(first + STEP, through, STEP), through]
        return sum(self._move_anchor(last) for last in lasts)

    def _move_anchor(self, last: int) -> int:
        with self._transaction("") as transaction:
            row = transaction.execute(_LINK, {"last": last}).fetchone()
            if row is None:  # forgotten by another process meanwhile
                return 0
            gone = transaction.execute("DELETE FROM audit WHERE seq <= ? AND previous != ''", (last,)).rowcount
            transaction.execute("DELETE FROM audit WHERE seq <= ?", (last,))
            transaction.execute(_INSERT_ANCHOR, (last, row[0], encode(ANCHOR).decode(), row[1]))
            return gone

    def _stretches(self, table: str, key: str, condition: str) -> Iterator[tuple[int, int]]:
        """First and last key of each STEP rows to forget."""
        query = f"SELECT {key} FROM {table} WHERE {condition} ORDER BY {key}"
        keys = [row[0] for row in self._read(query, {"before": self._before})]
        for start in range(0, len(keys), STEP):
            stretch = keys[start : start + STEP]
            yield stretch[0], stretch[-1]

    def _step(self, stretch: tuple[int, int], *statements: str) -> int:
        """How many rows were forgotten: each statement but that on the floor counts what it changed."""
        values = {"before": self._before, "first": stretch[0], "last": stretch[1]}
        with self._transaction("") as transaction:
            changed = {statement: transaction.execute(statement, values).rowcount for statement in statements}
        return sum(rows for statement, rows in changed.items() if statement != _KEEP_FLOOR)
