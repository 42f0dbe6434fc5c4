"""What a row says of a decision, beside what the guard says now."""

from __future__ import annotations

import json
from typing import Any

from bylaw.guard.audit.model import AuditFinding, AuditReport
from bylaw.guard.audit.sessions import Held
from bylaw.guard.decide.decided import as_written
from bylaw.guard.decision import Decision
from bylaw.guard.stores.ports import AuditRow

COMPARED = ("action", "decided_by", "matched", "would", "denial", "repeats", "counters", "blind")
_DIFFERS = "an earlier verdict of its session differs"


class Comparing:
    """Finds go to the report. After one, nothing of that session can be known any more."""

    def __init__(self, report: AuditReport) -> None:
        self._report = report

    def whole(self, row: AuditRow, decision: Decision, held: Held) -> None:
        written, again = row.data["decision"], as_written(decision)
        for name in COMPARED:
            if written.get(name) != again.get(name):
                self.differs(row, name, written.get(name), again.get(name), held)
                return
        self._report.recomputed += 1

    def without(self, unfollowed: set[str], row: AuditRow, decision: Decision, held: Held) -> None:
        """As far as it does not rest on these rules."""
        written, again = row.data["decision"], as_written(decision)
        told, found = ([rule for rule in one["matched"] if rule not in unfollowed] for one in (written, again))
        if told != found:
            self.differs(row, "matched", told, found, held)
            return
        names = ", ".join(f"`{rule}`" for rule in sorted(unfollowed))
        reason = f"{names} looked at what is not written down"
        self._report.leave_out(row.seq, reason)
        if written["action"] != again["action"]:
            held.lost = reason

    def differs(self, row: AuditRow, name: str, written: Any, again: Any, held: Held) -> None:
        held.lost = _DIFFERS
        self._report.add(
            AuditFinding(
                seq=row.seq,
                kind="verdict",
                message=f"its `{name}` does not follow from the rows before it",
                expected=_shown(again),
                found=_shown(written),
                session=row.data["session"],
            )
        )


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
