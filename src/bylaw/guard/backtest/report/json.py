"""A backtest, a shadow report and proposals for programs."""

from __future__ import annotations

from typing import Any

import msgspec

from bylaw.guard.backtest.model import BacktestReport, ShadowReport
from bylaw.guard.backtest.report.wording import headline
from bylaw.guard.proposals.model import ProposalReport
from bylaw.report.json import diagnostic_as_json


def render_backtest(report: BacktestReport) -> str:
    fields: dict[str, Any] = msgspec.to_builtins(report)
    traces = [
        {**msgspec.to_builtins(trace), "problems": [diagnostic_as_json(d) for d in trace.problems]}
        for trace in report.traces
    ]
    told = {
        "exit_code": report.exit_code,
        "verdict": headline(report),
        "coverage": report.coverage,
        "stops": report.stops,
        "flipped": report.flipped,
    }
    return _document("backtest", {**told, **fields, "rules": list(fields["rules"].values()), "traces": traces})


def render_shadow(report: ShadowReport) -> str:
    rules = [{**msgspec.to_builtins(tally), "changes": tally.changes} for tally in report.rules.values()]
    return _document("shadow", {"decisions": report.decisions, "changed": report.changed, "rules": rules})


def render_proposals(report: ProposalReport) -> str:
    return _document("propose", {"exit_code": report.exit_code, **msgspec.to_builtins(report)})


def _document(job: str, fields: dict[str, Any]) -> str:
    whole = {"schema": f"bylaw.{job}/1", "job": job, **fields}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"
