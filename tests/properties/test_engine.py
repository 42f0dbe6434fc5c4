"""What holds for every rule and every trace."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bylaw.engine.compile import compile_rules
from bylaw.engine.evaluation import Evaluation
from bylaw.model.events import Event
from bylaw.model.verdict import Outcome
from bylaw.rules import load_rules
from tests.properties.strategies import rule_lists, traces
from tests.support.build import trace
from tests.support.judge import every_way


def same_everywhere(rules: list[dict[str, Any]], turns: list[dict[str, Any]], complete: bool) -> None:
    every_way(load_rules(rules).rules, trace(turns).events, complete)


@given(rule_lists, traces, st.booleans())
def test_engine_and_reference_agree_in_every_mode(
    rules: list[dict[str, Any]], turns: list[dict[str, Any]], complete: bool
) -> None:
    """Engine ≡ twin, index ≡ no index, peek changes nothing and foretells, snapshot → restore → same."""
    same_everywhere(rules, turns, complete)


@pytest.mark.proof
@settings(max_examples=20_000)
@given(rule_lists, traces, st.booleans())
def test_engine_and_reference_agree_in_every_mode_at_length(
    rules: list[dict[str, Any]], turns: list[dict[str, Any]], complete: bool
) -> None:
    same_everywhere(rules, turns, complete)


@given(rule_lists, traces, traces)
def test_a_violated_verdict_stays_violated(
    rules: list[dict[str, Any]], turns: list[dict[str, Any]], more: list[dict[str, Any]]
) -> None:
    """Whatever follows, a rule once broken is broken; only what the end decided may still change."""
    program = compile_rules(load_rules(rules).rules)
    broken = _broken_midway(program, trace(turns).events)
    assume(broken)
    evaluation = Evaluation(program)
    for event in trace([*turns, *more]).events:
        evaluation.step(event)
    evaluation.end()
    for rule in broken:
        assert evaluation.outcomes()[rule] in (Outcome.VIOLATED, Outcome.ERROR)


def _broken_midway(program: Any, events: tuple[Event, ...]) -> set[str]:
    evaluation = Evaluation(program)
    verdicts = [verdict for event in events for verdict in evaluation.step(event)]
    return {verdict.rule.id for verdict in verdicts if verdict.outcome is Outcome.VIOLATED}
