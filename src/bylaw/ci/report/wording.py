"""Phrases about the whole gate that every renderer for people shares."""

from __future__ import annotations

from bylaw.ci.model import CiPart, CiReport

_VERDICTS = {
    0: "PASSED",
    1: "FAILED",
    2: "BAD INPUT",
    3: "NOTHING CHECKED",
    4: "OUT OF REACH",
}


def headline(report: CiReport) -> str:
    """The verdict in one line; says what the exit code says."""
    if not report.parts:
        return "NOTHING CHECKED: neither check nor diff nor contract is configured"
    wanted = "" if report.min_score is None else f", {report.min_score:g} wanted"
    failed = [part.name for part in report.parts if part.exit_code]
    return f"{_VERDICTS[report.exit_code]}: score {report.score:g}{wanted}" + (
        f"; {', '.join(failed)} did not pass" if failed else ""
    )


def weight(part: CiPart, report: CiReport) -> str:
    whole = sum(one.weight for one in report.parts)
    return f"{part.weight / whole:.0%}" if whole else "0%"
