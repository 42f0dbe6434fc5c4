"""What an audit's verification finds: in the chain of its rows, and in the verdicts that they record."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct, field

from bylaw.guard.stores.ports import AuditHead, AuditRow

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
MOST_FINDINGS = 1_000
"""that a report holds; the others are counted"""
EXAMPLES = 5
"""rows named for each reason why verdicts could not be recomputed"""


class ChainProblem(Struct, frozen=True):
    """Why the chain cannot be trusted, and the row where it shows."""

    seq: int
    fault: ChainFault
    message: str
    expected: str | None = None
    found: str | None = None


class ChainInspector(Protocol):
    """Goes along a chain, row after row."""

    def step(self, row: AuditRow) -> Iterable[ChainProblem]: ...

    def end(self, head: AuditHead) -> Iterable[ChainProblem]: ...


class AuditFinding(Struct, frozen=True, kw_only=True):
    """Something that is not as it was written, or not as it should have been decided."""

    seq: int
    kind: ChainFault | Literal["verdict"]
    message: str
    expected: str | None = None
    found: str | None = None
    session: str | None = None


class Unrecomputed(Struct):
    """Rows whose verdict could not be recomputed for one reason."""

    rows: int = 0
    seqs: list[int] = field(default_factory=list)
    """the first few of them"""


class AuditReport(Struct, kw_only=True):
    """Whether an audit is as it was written, and whether its verdicts follow from it."""

    rows: int = 0
    decisions: int = 0
    recomputed: int = 0
    findings: list[AuditFinding] = field(default_factory=list)
    more: int = 0
    """findings beyond those held"""
    unrecomputed: dict[str, Unrecomputed] = field(default_factory=dict)
    """reason → rows"""
    head: AuditHead
    known: tuple[AuditHead, ...] = ()
    """heads from elsewhere that the chain was compared with"""
    allow_unrecomputed: bool = False

    @property
    def intact(self) -> bool:
        return not self.findings

    @property
    def left_out(self) -> int:
        """Verdicts that were not recomputed."""
        return sum(reason.rows for reason in self.unrecomputed.values())

    @property
    def exit_code(self) -> int:
        """0 only where everything was looked at and is as it should be."""
        if self.findings:
            return 1
        if not self.rows or (self.left_out and not self.allow_unrecomputed):
            return 3
        return 0

    def add(self, finding: AuditFinding) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(finding)
        else:
            self.more += 1

    def leave_out(self, seq: int, reason: str) -> None:
        found = self.unrecomputed.setdefault(reason, Unrecomputed())
        found.rows += 1
        if len(found.seqs) < EXAMPLES:
            found.seqs.append(seq)


def decision_rows(rows: Iterable[AuditRow]) -> Iterable[tuple[AuditRow, dict[str, Any]]]:
    """Rows that record a decision, with it."""
    for row in rows:
        decided = row.data.get("decision")
        if row.data.get("kind") == "decision" and isinstance(decided, dict):
            yield row, decided
