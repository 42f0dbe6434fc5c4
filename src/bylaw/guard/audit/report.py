"""The report of an audit, rendered for people and programs, and single rows of the audit chain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import click
import msgspec
from msgspec import Struct, field

from bylaw.guard.stores.chain import ChainFault
from bylaw.guard.stores.ports import GuardStore, audit_rows
from bylaw.guard.stores.records import AuditHead, AuditRow
from bylaw.report.output import note_lines
from bylaw.report.text import printable, wrap

MOST_FINDINGS = 1_000
"""findings in a report; the others are counted"""
EXAMPLES = 5
"""rows named for each reason why verdicts could not be recomputed"""
_COLOURS = {0: "green", 1: "red", 3: "yellow"}
_MARKS = {0: "✓", 1: "✗", 3: "∅"}
_LONGEST_VALUE = 160
_LONGEST_ROW = 200


class AuditFinding(Struct, frozen=True, kw_only=True):
    """A row that was changed, or a decision that should have been different."""

    seq: int
    kind: ChainFault | Literal["verdict"]
    message: str
    expected: str | None = None
    found: str | None = None
    session: str | None = None
    table: str | None = None
    """the table of a record that is not the one that the chain vouches for; None for the chain itself"""


class Unrecomputed(Struct):
    """Rows whose verdict could not be recomputed for one reason."""

    rows: int = 0
    seqs: list[int] = field(default_factory=list)
    """the first few of them"""


class AuditReport(Struct, kw_only=True):
    """Whether the audit chain is intact, and whether its verdicts follow from it."""

    rows: int = 0
    decisions: int = 0
    recomputed: int = 0
    findings: list[AuditFinding] = field(default_factory=list)
    more: int = 0
    """findings that are only counted"""
    unrecomputed: dict[str, Unrecomputed] = field(default_factory=dict)
    """reason → rows"""
    head: AuditHead
    known: tuple[AuditHead, ...] = ()
    """heads from outside the store that the chain was compared with"""
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
        """0 only if everything was checked and is as it should be."""
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

    def leave_out(self, seq: int, reason: str, rows: int = 1) -> None:
        found = self.unrecomputed.setdefault(reason, Unrecomputed())
        found.rows += rows
        if len(found.seqs) < EXAMPLES:
            found.seqs.append(seq)


def render_json(report: AuditReport) -> str:
    summary: dict[str, Any] = {
        "job": "audit",
        "exit_code": report.exit_code,
        "verdict": headline(report),
        "intact": report.intact,
        "left_out": report.left_out,
        "anchored": bool(report.known),
    }
    return json.dumps({**summary, **msgspec.to_builtins(report)}, ensure_ascii=False, indent=2) + "\n"


def render_terminal(report: AuditReport) -> str:
    return "\n".join(_lines(report)) + "\n"


def headline(report: AuditReport) -> str:
    if report.findings:
        found = len(report.findings) + report.more
        return f"{found:,} finding{'' if found == 1 else 's'}: the audit cannot be trusted as it is"
    if not report.rows:
        return "nothing to verify: the audit has no rows"
    if report.left_out:
        return "the chain is intact, and not every verdict could be recomputed"
    return "the chain is intact, and every verdict follows from it"


def _lines(report: AuditReport) -> Iterator[str]:
    code = report.exit_code
    title = wrap(f"{_MARKS[code]} {headline(report)}", hanging="  ")
    yield from (click.style(line, fg=_COLOURS[code], bold=True) for line in title)
    yield from wrap(f"rows: {report.rows:,}, decisions: {report.decisions:,}, recomputed: {report.recomputed:,}")
    for finding in report.findings:
        where = f"row {finding.seq}" if finding.seq else "no row"
        where += f", session {finding.session}" if finding.session else ""
        kind, *rest = wrap(f"{finding.kind}  {where}: {finding.message}", hanging="  ")
        yield click.style(finding.kind, fg="red", bold=True) + kind.removeprefix(finding.kind)
        yield from rest
        for name, value in (("expected: ", finding.expected), ("found:    ", finding.found)):
            if value is not None:
                yield from wrap(_shorten_text(value, _LONGEST_VALUE), indent=f"    {name}", hanging=" " * 14)
    if report.more:
        yield f"and {report.more:,} more"
    if report.unrecomputed:
        yield click.style(f"not recomputed: {report.left_out:,}", bold=True)
    for reason, left in sorted(report.unrecomputed.items(), key=lambda item: -item[1].rows):
        seqs = ", ".join(map(str, left.seqs)) + (", …" if left.rows > len(left.seqs) else "")
        yield from wrap(f"{left.rows:,}: {reason} (row {seqs})", indent="    ", hanging="      ")
    yield f"head: {report.head}"
    if not report.known:
        note = "no known head was passed, so a file that was replaced as a whole would not be noticed (`--head`)"
        yield from note_lines([note])


def _shorten_text(text: str, longest: int) -> str:
    return printable(text if len(text) <= longest else f"{text[:longest]}…")


def select_rows(
    store: GuardStore, *, session: str | None = None, rule: str | None = None, since: float | None = None
) -> Iterator[AuditRow]:
    """`rule`: as in `is_about`."""
    for row in audit_rows(store):
        if since is not None and row.at < since:
            continue
        sessions = (None, row.data.get("session"), row.data.get("call_session") or row.data.get("session"))
        if session in sessions and (rule is None or is_about(row.data, rule)):
            yield row


def is_about(data: dict[str, Any], rule: str) -> bool:
    """Whether the row is a decision that the rule decided or matched, a call or an event that broke it, or one of its
    incidents."""
    decision = data.get("decision")
    if isinstance(decision, dict):
        return rule == decision.get("decided_by") or rule in (decision.get("matched") or ())
    return data.get("rule") == rule or any(one.get("rule") == rule for name in _BROKEN for one in _dicts(data, name))


_BROKEN = ("matches", "found")


def _dicts(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects of a list; an edited row may hold anything."""
    listed = data.get(name)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def row_line(row: AuditRow) -> str:
    """A row in one line, for people."""
    data = row.data
    parts = [str(row.seq), _time(row.at), str(data.get("kind", "?")), _describe_place(data), _subject(data)]
    text = "  ".join(part for part in parts if part)
    return printable(text) if data.get("kind") == "incident" else _shorten_text(text, _LONGEST_ROW)


def _describe_place(data: dict[str, Any]) -> str:
    """The session; for an incident of a rule that counts further, whose calls it counts and the deciding one."""
    session, over = str(data.get("session", "-")), data.get("over")
    if over in ("agent", "all"):
        call = data.get("call_session")
        return ("all agents" if over == "all" else f"agent {session or '-'}") + (f", {call}" if call else "")
    return session


def _time(at: Any) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OSError, OverflowError, TypeError, ValueError):
        return str(at)


def _past_call(data: dict[str, Any], attempt: dict[str, Any]) -> str:
    call = f"{attempt.get('tool')} ({attempt['agent']})" if attempt.get("agent") else f"{attempt.get('tool')}"
    if "matches" not in data:
        return f"{call} ran before"
    rules = [one.get("rule") for one in _dicts(data, "matches") if one.get("then") != "allow" and not one.get("shadow")]
    stopped = f"; {', '.join(map(str, rules))} would have stopped it" if rules else ""
    return f"{call} ran unjudged{stopped}" + (", and the session is ended" if data.get("terminated") else "")


def _subject(data: dict[str, Any]) -> str:
    decision, attempt = data.get("decision"), data.get("attempt")
    if isinstance(decision, dict) and isinstance(attempt, dict):
        by, agent, version = (decision.get(name) for name in ("decided_by", "agent", "version"))
        who = f" ({agent or 'every agent'} {version})" if version else f" ({agent})" if agent else ""
        return f"{attempt.get('tool')}{who} → {decision.get('action')}" + (f" by {by}" if by else "")
    if data.get("kind") == "taken" and isinstance(attempt, dict):
        return _past_call(data, attempt)
    if "incident" in data:
        note = f"  note: {data['note']}" if data.get("note") else ""
        about = f"  {data['severity']}  `{data.get('rule')}`: {data.get('message')}" if "severity" in data else ""
        about = about or f"  `{data.get('rule')}`"
        return f"{data['incident']} {data.get('what')} by {data.get('by')}{about}{note}"
    if data.get("how") == "terminated":
        return "terminated" + (f" by {data['why']}" if data.get("why") else "")
    if "review" in data:
        who = f" by {data['by']}" if data.get("by") else ""
        return f"{data['review']} {data.get('what')}{who}" + (f"  {data['tool']}" if data.get("tool") else "")
    if data.get("kind") == "tool":
        who = f" by {data['by']}" if data.get("by") else ""
        return f"{data.get('server')}/{data.get('tool')} {data.get('what')}{who}"
    if "changes" in data:
        return f"{data.get('decisions')} decisions, {data['changes']} other changes of sessions"
    for names in (("result_of",), ("how", "why"), ("agent", "on"), ("call_id",), ("through",)):
        if names[0] in data:
            return " ".join(str(data[name]) for name in names if data.get(name) is not None)
    return ""
