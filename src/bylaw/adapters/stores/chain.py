"""The audit's hash chain: each row's hash covers the row and the hash before it, over all sessions and processes.

The hash is the SHA-256 of the canonical JSON (RFC 8785) of `{"at", "data", "previous", "seq"}`, in hex; before the
first row stand 64 zeros. So no row can be changed, dropped or moved without breaking a link after it. Two things need
a word from elsewhere:

- Rows cut off at the end leave an unbroken chain. Note the last hash outside of the store, and pass it as `head`.
- Rows forgotten at the start leave an anchor: a row that has their last hash, and `previous` empty. What makes it
  believable is a row further on, written when they were forgotten, which vouches for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bylaw.adapters.stores.encoding import encode, encode_number
from bylaw.model.stores import AuditRow, GuardStore

START = "0" * 64
"""what stands before the first row"""

ANCHOR = {"kind": "anchor"}
"""the data of the row that stands for those forgotten: it has the last one's seq, time and hash, and no `previous`"""

ChainFault: TypeAlias = Literal["first", "edited", "dropped", "reordered", "unlinked", "unvouched", "last"]


class ChainProblem(Struct, frozen=True):
    """Why the chain cannot be trusted, and the row where it shows."""

    seq: int
    fault: ChainFault
    message: str


def link(seq: int, at: float, text: bytes, previous: str) -> str:
    """The hash of a row whose data has this canonical JSON. Its parts are put together here rather than encoded anew:
    the keys are in canonical order."""
    row = b'{"at":%b,"data":%b,"previous":"%b","seq":%d}' % (encode_number(at), text, previous.encode(), seq)
    return hashlib.sha256(row).hexdigest()


def vouch(*, through: int, hash: str) -> dict[str, Any]:
    """The data of the row that says: everything up to `through`, which had this hash, is forgotten."""
    return {"kind": "prune", "through": through, "hash": hash}


def is_anchor(row: AuditRow) -> bool:
    return not row.previous


def verify_chain(rows: Iterable[AuditRow], *, head: str | None = None) -> list[ChainProblem]:
    """Every problem of a whole chain, in order. `head` is the last hash, as it is known from elsewhere."""
    check = _Check()
    problems = [problem for row in rows for problem in check.step(row)]
    return problems + list(check.end(head))


def audit_rows(store: GuardStore, *, page: int = 1000) -> Iterator[AuditRow]:
    """The whole audit of a store, a page in memory at a time."""
    after = 0
    while rows := store.audit(after=after, limit=page):
        yield from rows
        after = rows[-1].seq


class _Check:
    def __init__(self) -> None:
        self._last: AuditRow | None = None
        self._unvouched: AuditRow | None = None
        """the anchor, until a row vouches for it"""

    def step(self, row: AuditRow) -> Iterator[ChainProblem]:
        if self._last is None:
            yield from self._first(row)
        else:
            yield from self._link(self._last, row)
        if not (self._last is None and is_anchor(row)) and _hash(row) != row.hash:
            yield ChainProblem(row.seq, "edited", "its content does not have its hash")
        self._look_for_voucher(row)
        self._last = row

    def end(self, head: str | None) -> Iterator[ChainProblem]:
        if self._unvouched is not None:
            yield ChainProblem(self._unvouched.seq, "unvouched", "rows before it are gone, and no row says why")
        last = self._last.hash if self._last else START
        if head is not None and head != last:
            yield ChainProblem(self._last.seq if self._last else 0, "last", f"the chain ends in {last}, wanted {head}")

    def _first(self, row: AuditRow) -> Iterator[ChainProblem]:
        if is_anchor(row):
            self._unvouched = row
        elif row.seq != 1 or row.previous != START:
            yield ChainProblem(row.seq, "first", "it is not the first row, and no anchor stands for those before it")

    def _link(self, last: AuditRow, row: AuditRow) -> Iterator[ChainProblem]:
        if row.seq <= last.seq:
            yield ChainProblem(row.seq, "reordered", f"it comes after row {last.seq}")
        elif row.seq > last.seq + 1:
            yield ChainProblem(row.seq, "dropped", f"nothing stands between it and row {last.seq}")
        elif row.previous != last.hash:
            yield ChainProblem(row.seq, "unlinked", f"it does not continue row {last.seq}")

    def _look_for_voucher(self, row: AuditRow) -> None:
        """Rows are forgotten in steps, each with its anchor; the chain leads from there to what is vouched for."""
        missing = self._unvouched
        if missing is None or row is missing or row.data.get("kind") != "prune":
            return
        through, hash = row.data.get("through"), row.data.get("hash")
        if isinstance(through, int) and through >= missing.seq and (through > missing.seq or hash == missing.hash):
            self._unvouched = None


def _hash(row: AuditRow) -> str:
    try:
        return link(row.seq, row.at, encode(row.data), row.previous)
    except ValueError:
        return ""  # no row of ours looks like this
