"""The audit's hash chain, and what its links say about the other tables.

The hash of each row covers the row and the hash before it, over all sessions and processes.

The hash is the SHA-256 of the canonical JSON (RFC 8785) of `{"at", "data", "previous", "seq"}`, in hex; `previous` of
the first row is the id of the chain. A row that vouches for records of other tables also has `stored`. So no row can be
changed, dropped, moved or taken from another chain without breaking a later link. Two changes need more than the rows:

- Rows cut off at the end leave an unbroken chain. The store holds its head separately, and new rows continue the head.
  Anyone who can write the rows can also write the head, so note the head outside the store and pass it as `known`.
- Pruning rows at the start leaves an anchor: a row with their last hash and an empty `previous`. It is credible only if
  a later row, written when they were pruned, vouches for it.

The last row of a transaction has in `stored` a digest of each record that the transaction has written. So a session,
review, switch, rule set or record of the follow-up that was changed, deleted or added later, past the store, differs
from the chain. A digest has the beginning of the digest that it replaces before it, so that such a change is not hidden
by the next write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bylaw.guard.stores.encoding import encode, encode_number
from bylaw.guard.stores.records import AuditHead, AuditRow, FollowRecord, SessionRecord

ChainFault: TypeAlias = Literal[
    "edited",
    "dropped",
    "inserted",
    "reordered",
    "truncated",
    "spliced",
    "unlinked",
    "first",
    "unvouched",
    "last",
    "rewritten",
    "unknown-head",
]

START = "0" * 64
"""`previous` of the first row of a chain without an id"""
ANCHOR = {"kind": "anchor"}
"""the data of the row that replaces pruned ones; it has the seq, time and hash of the last, and no `previous`"""


class ChainProblem(Struct, frozen=True):
    """Why the chain cannot be trusted, and the row that shows it."""

    seq: int
    fault: ChainFault
    message: str
    expected: str | None = None
    found: str | None = None


def link(seq: int, at: float, text: bytes, previous: str, stored: bytes = b"") -> str:
    """The hash of a row whose data has this canonical JSON. The row is assembled here rather than encoded again: its
    keys are in canonical order."""
    row = b'{"at":%b,"data":%b,"previous":"%b","seq":%d' % (encode_number(at), text, previous.encode(), seq)
    return hashlib.sha256(row + (b',"stored":%b}' % stored if stored else b"}")).hexdigest()


PRUNED = {"kind": "prune"}
"""the data of a row that vouches for the records that a step of pruning has deleted, in its `stored`"""


def vouch(*, through: int, hash: str) -> dict[str, Any]:
    """The data of the row that says: all rows up to `through`, which had this hash, were pruned."""
    return {**PRUNED, "through": through, "hash": hash}


def is_anchor(row: AuditRow) -> bool:
    return not row.previous


def verify_chain(
    rows: Iterable[AuditRow], *, head: str | AuditHead | None = None, known: Sequence[AuditHead] = ()
) -> list[ChainProblem]:
    """Every problem of a whole chain, in order. `head`: the head or the last hash of the chain, from the store or from
    elsewhere. `known`: earlier heads."""
    check = ChainCheck(known)
    problems = [problem for row in rows for problem in check.step(row)]
    return problems + list(check.end(head))


class ChainCheck:
    """Checks a chain: `step` for each row, then `end`."""

    def __init__(self, known: Sequence[AuditHead] = ()) -> None:
        self._known = {head.seq: head for head in known}
        self._last: AuditRow | None = None
        self._last_is_whole = True
        """whether the content of the last row matches its hash"""
        self._first_row: AuditRow | None = None
        self._unvouched: AuditRow | None = None
        """the anchor, until a row vouches for it"""

    def step(self, row: AuditRow) -> Iterator[ChainProblem]:
        stands_for_others = self._last is None and is_anchor(row)
        computed = row.hash if stands_for_others else _hash(row)
        is_whole = computed == row.hash
        if self._last is not None:
            yield from self._link(self._last, row, is_whole)
        elif is_anchor(row):
            self._first_row = self._unvouched = row
        else:
            self._first_row = row
            if row.seq != 1:
                yield ChainProblem(row.seq, "first", "it is not row 1, and no anchor replaces the rows before it")
        if not is_whole:
            yield ChainProblem(row.seq, "edited", "content does not match its hash", computed, row.hash)
        elif is_anchor(row) and row.data != ANCHOR:
            yield ChainProblem(row.seq, "edited", "an anchor has no data of its own", str(ANCHOR), str(row.data))
        self._look_for_voucher(row)
        known = self._known.pop(row.seq, None)
        if known is not None and known.hash != row.hash:
            message = "this row had another hash when the known head was noted"
            yield ChainProblem(row.seq, "rewritten", message, known.hash, row.hash)
        self._last, self._last_is_whole = row, is_whole

    def end(self, head: str | AuditHead | None = None) -> Iterator[ChainProblem]:
        if self._unvouched is not None:
            yield ChainProblem(
                self._unvouched.seq, "unvouched", "rows before it are missing, and no row vouches for them"
            )
        if isinstance(head, AuditHead):
            yield from self._end_at(head)
        elif head is not None and head != self._end_hash:
            yield ChainProblem(self._end_seq, "last", "the chain does not end here", head, self._end_hash)
        for seq, known in sorted(self._known.items()):
            if seq > self._end_seq:
                yield ChainProblem(self._end_seq, "truncated", "the chain continued here", str(known), self._shown_end)
            elif seq:  # before the first remaining row
                message = "the known head was pruned: store a newer one"
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
            yield ChainProblem(self._end_seq, "truncated", "the head is a later row", str(head), self._shown_end)
        elif self._end_seq > head.seq:
            yield ChainProblem(self._end_seq, "inserted", "the head is an earlier row", str(head), self._shown_end)
        elif self._last is not None and head.hash != self._end_hash:
            yield ChainProblem(self._end_seq, "last", "the chain does not end here", str(head), self._shown_end)
        elif self._last is None and head.hash != head.chain:
            yield ChainProblem(0, "truncated", "there are no rows, but the head names one", str(head), self._shown_end)

    def _link(self, last: AuditRow, row: AuditRow, is_whole: bool) -> Iterator[ChainProblem]:
        if row.seq <= last.seq:
            yield ChainProblem(row.seq, "reordered", f"it comes after row {last.seq}", str(last.seq + 1), str(row.seq))
        elif row.seq > last.seq + 1:
            message = f"rows are missing between it and row {last.seq}"
            yield ChainProblem(row.seq, "dropped", message, str(last.seq + 1), str(row.seq))
        elif row.previous != last.hash:
            fault: ChainFault = "spliced" if is_whole and self._last_is_whole else "unlinked"
            how = "it continues another chain than" if fault == "spliced" else "it does not continue"
            yield ChainProblem(row.seq, fault, f"{how} row {last.seq}", last.hash, row.previous)

    def _look_for_voucher(self, row: AuditRow) -> None:
        """Rows are pruned in steps, each with its anchor; the chain leads from there to the row that vouches."""
        missing = self._unvouched
        if missing is None or row is missing or row.data.get("kind") != "prune":
            return
        through, hash = row.data.get("through"), row.data.get("hash")
        if isinstance(through, int) and through >= missing.seq and (through > missing.seq or hash == missing.hash):
            self._unvouched = None


def _hash(row: AuditRow) -> str:
    try:
        return link(row.seq, row.at, encode(row.data), row.previous, row.stored.encode("utf-8", "surrogatepass"))
    except (AttributeError, TypeError, ValueError):
        return ""  # no row that a store has written


# -- records of other tables in a link ---------------------------------------------------------------------------------

SESSIONS, REVIEWS, SWITCHES, FOLLOWED = "sessions", "reviews", "switches", "followed"
RULES, FLOOR, EVENTS = "rules", "floor", "events"
COMMITTED = (SESSIONS, REVIEWS, SWITCHES, FOLLOWED, RULES, FLOOR)
"""tables whose records are committed to one by one; an event has a twin in the chain instead"""
STORED = {"kind": "stored"}
"""the data of a link for a transaction that has added no other"""
NEW = "new"
"""in place of the digest before, for a record that was not there"""
UNREADABLE = ""
"""the digest of a record that no store has written"""
_SHORT = 16
"""digits that a digest has of the one before"""


class Commitments:
    """The digests of the records that one transaction has written."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, str | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def put(self, table: str, key: str, after: str | None, *, before: str | None = None) -> None:
        """`after`: the digest of the record as it is now; None if it was deleted. `before`: the digest of what was read
        in its place, or NEW; None if the record is vouched for as it is."""
        found = self._found.setdefault(table, {})
        if key in found:  # written twice with one link
            before = split(found[key])[0] or before
        found[key] = after if before is None else f"{before[:_SHORT] or 'unreadable'} {after or ''}"

    def take(self) -> bytes:
        """Return the digests as canonical JSON, `{table: {key: digest}}`, and forget them."""
        if not self._found:
            return b""
        found, self._found = self._found, {}
        if len(found) == 1 and SESSIONS in found and len(found[SESSIONS]) == 1:  # a decision: no need to look for more
            [(key, one)] = found[SESSIONS].items()
            if one is not None and key.isascii() and key.isprintable() and '"' not in key and "\\" not in key:
                return f'{{"{SESSIONS}":{{"{key}":"{one}"}}}}'.encode()
        return encode(found)


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\n".join(parts)).hexdigest()


UNTOUCHED = digest(b"0")
"""of the table `floor` before any session was pruned"""


def session_digest(record: SessionRecord) -> str:
    if record.terminated is None:
        return hashlib.sha256(b"%d 0\n\n%b" % (record.version, record.state)).hexdigest()
    return digest(b"%d 1" % record.version, record.terminated.encode("utf-8", "surrogatepass"), record.state)


def split(written: str | None) -> tuple[str, str | None]:
    """The beginning of the digest before ("": not said), and the digest; None if the record was deleted."""
    before, _, after = (written or "").rpartition(" ")
    return before, after or None


def switch_digest(why: str) -> str:
    return digest(why.encode("utf-8", "surrogatepass"))


def event_digest(session: str, kind: str, at: float, text: bytes) -> str:
    return digest(session.encode("utf-8", "surrogatepass"), kind.encode(), encode_number(at), text)


def followed_key(record: FollowRecord) -> str:
    return f"{type(record).__name__}/{record.id}"


def ranges(numbers: Iterable[int]) -> Iterator[str]:
    """`3-7` for each run of consecutive numbers: the keys of deleted events."""
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        yield f"{found[0]}-{found[-1]}"
