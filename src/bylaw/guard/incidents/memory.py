"""What the rules remember of each session, between two batches: decoded as long as there is room, and in the store.

Live, all of it is written with each batch, and what is decoded only spares a look into the store. A replay that dies
begins anew, so there a session is written when it has to make room, and most are written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.decide.session import SessionState
from bylaw.guard.decide.written import dump, load
from bylaw.guard.incidents.model import Following
from bylaw.guard.incidents.unwritten import Rules
from bylaw.guard.stores.ports import EventRow, GuardStore

if TYPE_CHECKING:
    from bylaw.guard.incidents.sessions import Followed

ROOM = 64 << 20
"""bytes, roughly, of sessions that are kept decoded"""
MOST_IDLE = 20_000
"""events of other sessions after which a session is not kept decoded any more: most are over by then"""
_EACH, _EACH_CALL, _EACH_BYTE = 4_000, 1_000, 8
"""bytes that a session takes, an open call, and what is a byte when it is written"""
_SHORT = 32
"""events of a session whose rules cannot remember much"""


class _Held(Struct):
    record: Following
    state: SessionState
    size: int
    measured: int
    """events that were folded when it was measured"""
    told: int
    """what its size grew by since, for all that was told of it"""
    seen: int
    """how many events had been followed when it was last"""
    read: int
    """bytes that it was read from; 0 where it was followed from its beginning"""

    def has_doubled_by(self, told: int) -> bool:
        return self.told + told > self.size - self.told


class Memory:
    def __init__(self, rules: Rules, target: GuardStore, *, write_each: bool = True) -> None:
        """`write_each`: with each batch, as whoever has to survive it must."""
        self._rules, self._target, self._write_each = rules, target, write_each
        self._held: dict[str, _Held] = {}
        """the one that was followed last comes last"""
        self._taken: dict[str, _Held] = {}
        self._read: dict[str, int] = {}
        """sessions of this batch that were read from the store, with their size there"""
        self._size = self._events = 0

    def take(self, key: str) -> tuple[Following | None, SessionState | None]:
        """Taken out until it is kept again: the fold changes it in place."""
        held = self._held.pop(key, None)
        if held is not None:
            self._size -= held.size
            self._taken[key] = held
            return held.record, held.state
        stored = self._target.followed(Following, session=key, limit=1)
        if not stored:
            return None, None
        record = stored[0]
        self._read[key] = len(record.state)
        same = record.policy == self._rules.hash
        state = load(key, record.state, self._rules.policies.all) if same else None
        return replace(record, state=b""), state

    def to_write(self, batch: Sequence[Followed], events: int, at: float) -> list[Following]:
        """What has to be written now. `events`: how many the batch has."""
        self._events += events
        if self._write_each:
            return [replace(one.record, state=dump(one.state), at=at) for one in batch]
        for one in batch:
            self._keep(one.record, one.state, one.told)
        return [replace(one.record, state=dump(one.state), at=at) for one in self._crowded_out()]

    def written(self, batch: Sequence[Followed], records: Sequence[Following]) -> None:
        """After the commit: only what was written may be taken up again."""
        if self._write_each:
            for one, record in zip(batch, records, strict=True):
                self._keep(replace(record, state=b""), one.state, one.told)
            self._crowded_out()

    def forget(self) -> None:
        self._held.clear()
        self._taken.clear()
        self._read.clear()
        self._size = 0

    def _keep(self, record: Following, state: SessionState, told: int) -> None:
        """Measured when its events or its size may have doubled: meanwhile it has all that was told of it."""
        before, folded = self._taken.pop(record.id, None), record.folded
        read = self._read.pop(record.id, 0) if before is None else before.read
        if before is not None and before.measured <= folded < 2 * before.measured and not before.has_doubled_by(told):
            size, measured, told = before.size + told, before.measured, before.told + told
        else:
            size, measured, told = rough_size(state, short=folded < _SHORT) + _EACH_BYTE * read, folded, 0
        self._held[record.id] = _Held(record, state, size, measured, told, self._events, read)
        self._size += size

    def _crowded_out(self) -> list[_Held]:
        out: list[_Held] = []
        for held in self._held.values():
            if self._size <= ROOM and held.seen >= self._events - MOST_IDLE:
                break
            self._size -= held.size
            out.append(held)
        for held in out:
            del self._held[held.record.id]
        return out


def rough_size(state: SessionState, *, short: bool = False) -> int:
    """What a session takes in memory, more or less. That is not its size when it is written: what takes calls back
    shares most of it with the rest, unless it was read."""
    size = _EACH + sum(_EACH_CALL + _text_size(call.arguments) for call in state.open.values())
    for own in state.policies.values():
        size += sum(_EACH_CALL + (0 if one.text is None else len(one.text)) for one in own.log)
        size += sum(_text_size(getattr(one.event, "content", None)) for one in own.log)
        if not short:
            size += _EACH_BYTE * (len(own.attempts.snapshot()) + len(own.calls.snapshot()))
    return size


def told_size(row: EventRow) -> int:
    """Characters of the arguments or the content that the row tells of."""
    attempt = row.data.get("attempt")
    arguments = attempt.get("arguments") if isinstance(attempt, dict) else None
    return sum(map(_text_size, (arguments, row.data.get("content"), row.data.get("said"))))


def _text_size(value: Any) -> int:
    size, left = 0, [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, dict):
            left += (*one, *one.values())
        elif isinstance(one, list | tuple):
            left += one
    return size
