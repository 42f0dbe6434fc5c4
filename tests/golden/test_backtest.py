"""The reports of `bylaw guard backtest`, `guard shadow` and `guard propose`."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import bylaw
from bylaw.guard.backtest import RENDERERS
from bylaw.guard.backtest.report import (
    BacktestReport,
    Example,
    ShadowReport,
    ShadowTally,
    render_shadow_json,
    render_shadow_terminal,
)
from bylaw.guard.proposals.report import ProposalReport, render_json, render_rule_file, render_terminal
from tests.backtest.support import NO_RESULT, Session, trace
from tests.golden.conftest import Golden

RULES = [
    {
        "id": "verified",
        "kind": "temporal",
        "params": {"formula": "G (tool(refund, args.order = $o) -> O result(verify, args.order = $o, result = true))"},
        "scope": "session",
        "then": "block",
        "reason": "verify the `order` first | <b>",
    },
    {"id": "large", "when": {"arg_gt": {"path": "amount", "value": 500}}, "then": "pause", "mode": "shadow"},
    {"id": "idle", "when": {"tool_name_in": ["drop"]}, "then": "terminate_session"},
    {"id": "burst", "when": {"call_count_in_window_gt": {"value": 9, "windowSeconds": 60}}, "then": "block"},
]


def _backtest() -> BacktestReport:
    sessions = (
        Session("good").call("verify", {"order": 1}, True).call("refund", {"order": 1, "amount": 900}),
        Session("bad \x1b[31m@all").call("refund", {"order": 2, "amount": 5}).call("bye"),
        Session("lost").call("verify", {"order": 3}, NO_RESULT).call("refund", {"order": 3, "amount": "1,500"}),
        Session("unread").call("refund", None, raw_arguments="{order: 4"),
    )
    return bylaw.backtest(RULES, trace(*sessions), against=RULES[1:], fail_on="flips")


def _shadow() -> ShadowReport:
    example = Example(trace="", session="s1", tool="pay", call="pay(n=9)", action="pause", before="allow", why="a lot")
    tally = ShadowTally(
        rule="large", then="pause", line="rules.yaml:3:5", matched=4, sessions=2, changed={"allow → pause": 3}
    )
    return ShadowReport(decisions=12, changed=3, rules={"large": replace(tally, examples=[example])})


def _proposals() -> ProposalReport:
    sessions = [
        Session(f"s{n}").call("verify", {"order": n}, True).call("refund", {"order": n, "amount": 10 + n % 7})
        if n % 2
        else Session(f"s{n}").call("look").call("bye")
        for n in range(80)
    ]
    return bylaw.propose(trace(*sessions))


@pytest.mark.parametrize("format", RENDERERS)
def test_backtest(format: str, golden: Golden) -> None:
    golden("backtest", format, RENDERERS[format](_backtest()))


def test_shadow(golden: Golden) -> None:
    golden("shadow", "terminal", render_shadow_terminal(_shadow()))
    golden("shadow", "json", render_shadow_json(_shadow()))


def test_proposals(golden: Golden) -> None:
    report = _proposals()
    golden("proposals", "terminal", render_terminal(report))
    golden("proposals", "yaml", render_rule_file(report))
    golden("proposals", "json", render_json(report))
