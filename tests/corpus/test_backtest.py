"""Rules proposed from the clean dialogues of half of the models, tried on those of the other half."""

from __future__ import annotations

from pathlib import Path

import pytest

import bylaw
from bylaw.guard.proposals.report import render_rule_file
from tests.corpus.test_guard import RULES, Bank
from tests.support.sopbench import as_trace, halves, score
from tests.support.yaml_files import load_yaml

pytestmark = pytest.mark.corpus


@pytest.fixture(scope="module")
def bank(data: Path) -> Bank:
    return Bank(data)


@pytest.mark.parametrize(
    ("which", "every"), [(0, 3), *(pytest.param(which, 1, marks=pytest.mark.proof) for which in (0, 1))]
)
def test_proposals_from_one_half_of_the_models_hold_for_the_other(bank: Bank, which: int, every: int) -> None:
    mined, other = halves(bank)[which][::every], halves(bank)[1 - which][::every]
    clean = as_trace(dialogue for dialogue in mined if dialogue.is_clean)
    report = bylaw.propose(clean)
    found = score([one.rule for one in report.proposals], other)
    print(f"\nSOPBench bank, {len(report.proposals)} rules from {report.sessions:,} clean dialogues: {found}")
    if every == 1:
        print(f"  the rules written by hand, on the same: {score(load_yaml(RULES.read_text()), other)}")
    assert found.precision > 0.8 and found.recall > 0.3
    assert found.false / found.clean < 0.05


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.proof)])
def test_nothing_proposed_stops_what_it_was_mined_from(bank: Bank, tmp_path: Path, every: int) -> None:
    clean = as_trace(dialogue for dialogue in halves(bank)[0][::every] if dialogue.is_clean)
    report = bylaw.propose(clean, hold_out=0)
    rules = tmp_path / "rules.yaml"
    rules.write_text(render_rule_file(report).replace("mode: shadow", "mode: enforce"))
    tried = bylaw.backtest(rules, clean)
    assert len(tried.rules) == len(report.proposals) > 10
    assert tried.stops == 0 and tried.calls == report.calls
    assert [tally.rule for tally in tried.rules.values()] == [one.id for one in report.proposals]


def test_a_backtest_stops_what_the_guard_stops(bank: Bank) -> None:
    """The same rules, once fed call by call as a host would, once read from a trace."""
    dialogues = bank.dialogues[::10]
    tried = bylaw.backtest(RULES, as_trace(dialogues))
    guard = bylaw.Guard(RULES, shadow=True)
    stops = 0
    for dialogue in dialogues:
        for tool, arguments, result in dialogue.calls():
            if tool is None:
                continue
            decision = guard.decide(bylaw.Attempt(tool=tool, arguments=arguments, session=dialogue.id))
            stops += decision.would is not None
            guard.record(decision, result)
    assert stops > 100 and tried.coverage == 1
    assert stops <= tried.stops <= stops + 2  # a call that got no answer is in the trace only
