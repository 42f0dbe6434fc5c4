"""The audit's hash chain: each row's hash covers the row and the hash before it, over all sessions and processes.

The hash is the SHA-256 of the canonical JSON (RFC 8785) of `{"at", "data", "previous", "seq"}`, in hex; before the
first row stands the id of the chain. So no row can be changed, dropped, moved or taken from another chain without
breaking a link after it. Two things need more than the rows:

- Rows cut off at the end leave an unbroken chain. The store keeps its head apart, and new rows continue that; whoever
  can write the rows can write the head too, so note it outside of the store, and pass it as one of `known`.
- Rows forgotten at the start leave an anchor: a row that has their last hash, and `previous` empty. What makes it
  believable is a row further on, written when they were forgotten, which vouches for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bylaw.guard.audit.model import ChainFault, ChainProblem
from bylaw.guard.stores.encoding import encode, encode_number
from bylaw.guard.stores.ports import AuditHead, AuditRow, GuardStore

START = "0" * 64
"""what stands before the first row of a chain without an id of its own"""

ANCHOR = {"kind": "anchor"}
"""the data of the row that stands for those forgotten: it has the last one's seq, time and hash, and no `previous`"""


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


def verify_chain(
    rows: Iterable[AuditRow], *, head: str | AuditHead | None = None, known: Sequence[AuditHead] = ()
) -> list[ChainProblem]:
    """Every problem of a whole chain, in order. `head`: where it ends, or the last hash, as the store keeps it or as it
    is known from elsewhere. `known`: where it once ended; it may have grown since."""
    check = ChainCheck(known)
    problems = [problem for row in rows for problem in check.step(row)]
    return problems + list(check.end(head))


def audit_rows(store: GuardStore, *, page: int = 1000) -> Iterator[AuditRow]:
    """The whole audit of a store, a page in memory at a time."""
    after = 0
    while rows := store.audit(after=after, limit=page):
        yield from rows
        after = rows[-1].seq


class ChainCheck:
    """A chain under inspection: row after row, then its end."""

    def __init__(self, known: Sequence[AuditHead] = ()) -> None:
        self._known = {head.seq: head for head in known}
        self._last: AuditRow | None = None
        self._last_is_whole = True
        """whether the last row's content has its hash"""
        self._first_row: AuditRow | None = None
        self._unvouched: AuditRow | None = None
        """the anchor, until a row vouches for it"""

    def step(self, row: AuditRow) -> Iterator[ChainProblem]:
        stands_for_others = self._last is None and is_anchor(row)
        computed = row.hash if stands_for_others else _hash(row)
        is_whole = computed == row.hash
        if self._last is None:
            yield from self._first(row)
        else:
            yield from self._link(self._last, row, is_whole)
        if not is_whole:
            yield ChainProblem(row.seq, "edited", "its content does not have its hash", computed, row.hash)
        elif is_anchor(row) and row.data != ANCHOR:
            yield ChainProblem(row.seq, "edited", "an anchor says nothing of its own", str(ANCHOR), str(row.data))
        self._look_for_voucher(row)
        yield from self._compare(row)
        self._last, self._last_is_whole = row, is_whole

    def end(self, head: str | AuditHead | None = None) -> Iterator[ChainProblem]:
        if self._unvouched is not None:
            yield ChainProblem(self._unvouched.seq, "unvouched", "rows before it are gone, and no row says why")
        if isinstance(head, AuditHead):
            yield from self._end_at(head)
        elif head is not None and head != self._end_hash:
            yield ChainProblem(self._end_seq, "last", "the chain does not end here", head, self._end_hash)
        for seq, known in sorted(self._known.items()):
            if seq > self._end_seq:
                yield ChainProblem(self._end_seq, "truncated", "the chain once went on", str(known), self._shown_end)
            elif seq:  # before the first row that is left
                message = "the head that is known from elsewhere was forgotten by pruning: note a newer one"
                yield ChainProblem(seq, "unknown-head", message, str(known))

    @property
    def _end_seq(self) -> int:
        return self._last.seq if self._last else 0

    @property
    def _end_hash(self) -> str:
        return self._last.hash if self._last else START

    @property
    def _shown_end(self) -> str:
        return f"{self._end_seq}:{self._end_hash}" if self._last else "no row"

    def _end_at(self, head: AuditHead) -> Iterator[ChainProblem]:
        first = self._first_row
        if first is not None and not is_anchor(first) and first.previous != head.chain:
            yield ChainProblem(first.seq, "spliced", "it begins another chain", head.chain, first.previous)
        if self._end_seq < head.seq:
            yield ChainProblem(self._end_seq, "truncated", "the chain went on", str(head), self._shown_end)
        elif self._end_seq > head.seq:
            yield ChainProblem(self._end_seq, "inserted", "the chain ended before", str(head), self._shown_end)
        elif self._last is not None and head.hash != self._end_hash:
            yield ChainProblem(self._end_seq, "last", "the chain does not end here", str(head), self._shown_end)
        elif self._last is None and head.hash != head.chain:
            yield ChainProblem(0, "truncated", "there are no rows, and the head is of some", str(head), self._shown_end)

    def _first(self, row: AuditRow) -> Iterator[ChainProblem]:
        self._first_row = row
        if is_anchor(row):
            self._unvouched = row
        elif row.seq != 1:
            yield ChainProblem(row.seq, "first", "it is not the first row, and no anchor stands for those before it")

    def _link(self, last: AuditRow, row: AuditRow, is_whole: bool) -> Iterator[ChainProblem]:
        if row.seq <= last.seq:
            yield ChainProblem(row.seq, "reordered", f"it comes after row {last.seq}", str(last.seq + 1), str(row.seq))
        elif row.seq > last.seq + 1:
            message = f"nothing stands between it and row {last.seq}"
            yield ChainProblem(row.seq, "dropped", message, str(last.seq + 1), str(row.seq))
        elif row.previous != last.hash:
            fault: ChainFault = "spliced" if is_whole and self._last_is_whole else "unlinked"
            how = "it continues another chain than" if fault == "spliced" else "it does not continue"
            yield ChainProblem(row.seq, fault, f"{how} row {last.seq}", last.hash, row.previous)

    def _compare(self, row: AuditRow) -> Iterator[ChainProblem]:
        known = self._known.pop(row.seq, None)
        if known is not None and known.hash != row.hash:
            message = "the chain that is known from elsewhere was another one here"
            yield ChainProblem(row.seq, "rewritten", message, known.hash, row.hash)

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
    except (AttributeError, TypeError, ValueError):
        return ""  # no row of ours looks like this
