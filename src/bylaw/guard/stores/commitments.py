"""What an audit link says about the other tables: a digest of each record that its transaction has written.

The last link of a transaction has them in `stored`, and its hash covers them. So a session, review, switch, rule set or
record of the follow-up that was changed, deleted or added later, past the store, differs from the chain. A digest has
the beginning of the digest that it replaces before it, so that such a change is not hidden by the next write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import groupby

from bylaw.guard.stores.encoding import encode, encode_number
from bylaw.guard.stores.records import FollowRecord, SessionRecord

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
    """Of one transaction."""

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
        """As canonical JSON, `{table: {key: digest}}`."""
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
