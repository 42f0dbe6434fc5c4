"""What an audit link says about the other tables: a digest of each record that its transaction has written.

The last link of a transaction has them in `stored`, and its hash covers them. So a session, review, switch, rule set or
record of the follow-up that was changed, deleted or added later, past the store, differs from the chain.
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


class Commitments:
    """Of one transaction."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, str | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def put(self, table: str, key: str, digest: str | None) -> None:
        """None: the record was deleted."""
        self._found.setdefault(table, {})[key] = digest

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


def continued(before: str, after: str) -> str:
    """The digest of a record, after the beginning of the digest of what it was before."""
    return f"{before[:16]} {after}"


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
