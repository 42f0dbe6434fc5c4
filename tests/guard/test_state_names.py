"""What rules remember is named by what they count: an edit of anything else resets nothing."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylaw.guard.decide.guard import BaseGuard
from bylaw.guard.model import Decision
from bylaw.guard.stores import MemoryStore
from tests.audit.support import verified
from tests.guard.strategies import Rules, arguments, mixed_rules, tools
from tests.guard.support import Clock, attempt, guard

ATTEMPTS = {"id": "few", "when": {"call_count_in_session_gt": {"tool": "pay", "value": 3}}, "then": "block"}
WINDOW = {
    "id": "few",
    "when": {"call_count_in_window_gt": {"tool": "pay", "value": 3, "window_seconds": 60}},
    "inline": True,
    "then": "block",
}
CALLS = {"id": "few", "kind": "max_calls", "params": {"tool": "pay", "limit": 3}, "then": "block"}
FORMULA = {"id": "few", "kind": "temporal", "params": {"at_most": 3, "of": "pay"}, "then": "block"}
LOOK = {"id": "look", "when": {"tool_name_in": ["look"]}, "then": "block"}
ORDER = {"id": "order", "kind": "must_call_before", "params": {"first": "verify", "then": "wire"}, "then": "block"}
COUNTS = pytest.mark.parametrize("rule", [ATTEMPTS, WINDOW, CALLS, FORMULA], ids=["count", "window", "kind", "formula"])


def _allowed(guards: list[BaseGuard], tries: int) -> int:
    return sum(guards[i % len(guards)].decide(attempt("pay")).allowed for i in range(tries))


@COUNTS
def test_replicas_whose_rules_differ_in_words_share_a_cap(rule: dict[str, Any]) -> None:
    store = MemoryStore()
    edited = [{**rule, "reason": "no more than three"}, {**rule, "id": "renamed", "severity": "critical"}]
    guards = [guard([one], store=store) for one in (rule, *edited)]
    assert len({one.policy for one in guards}) == 3
    assert _allowed(guards, 9) == 3


@COUNTS
@pytest.mark.parametrize("beside", [LOOK, ORDER, {**ATTEMPTS, "id": "other"}])
def test_a_rule_beside_it_resets_nothing(rule: dict[str, Any], beside: dict[str, Any]) -> None:
    store = MemoryStore()
    few, more = guard([rule], store=store), guard([beside, rule], store=store)
    assert _allowed([few, more, more], 9) == 3
    assert not guard([rule], store=store).decide(attempt("pay")).allowed


@COUNTS
def test_a_higher_limit_continues_the_count(rule: dict[str, Any]) -> None:
    higher = json.loads(json.dumps(rule).replace("3", "5"))
    store = MemoryStore()
    assert _allowed([guard([rule], store=store)], 3) == 3
    assert _allowed([guard([higher], store=store)], 6) == 2
    assert _allowed([guard([rule], store=store)], 2) == 0


def test_a_guard_without_the_rule_hands_its_count_on() -> None:
    store = MemoryStore()
    few, other = guard([CALLS, ATTEMPTS | {"id": "a"}], store=store), guard([LOOK, ORDER], store=store)
    assert _allowed([few], 2) == 2
    assert other.decide(attempt("send")).allowed
    assert not other.decide(attempt("wire")).allowed and other.decide(attempt("verify")).allowed
    assert _allowed([few], 3) == 1
    assert other.decide(attempt("wire")).allowed


def test_a_rule_that_counts_something_else_begins_empty_and_says_so() -> None:
    store = MemoryStore()
    assert _allowed([guard([FORMULA], store=store)], 4) == 3
    changed = guard([{**FORMULA, "params": {"at_most": 3, "of": "pay", "within": "1h"}}], store=store)
    decision = changed.decide(attempt("pay"))
    assert decision.allowed and any("the rules have changed" in note for note in decision.notes)
    same = guard([{**FORMULA, "reason": "new words"}], store=store).decide(attempt("look"))
    assert not any("the rules have changed" in note for note in same.notes)


def test_a_call_is_released_by_a_replica_with_other_words() -> None:
    store = MemoryStore()
    one, other = guard([FORMULA], store=store), guard([{**FORMULA, "reason": "new words"}], store=store)
    calls = [one.decide(attempt("pay")), other.decide(attempt("pay")), one.decide(attempt("pay"))]
    assert not other.decide(attempt("pay")).allowed
    assert other.release(calls[0])
    assert one.decide(attempt("pay")).allowed and not other.decide(attempt("pay")).allowed


def test_reservations_count_as_made_once_other_rules_have_written_the_session() -> None:
    """Never the other way round: a release gives back what was reserved, in all rules or in none."""
    store = MemoryStore()
    one, more = guard([CALLS], store=store), guard([CALLS, ORDER], store=store)
    calls = [one.decide(attempt("pay")) for _ in range(3)]
    assert not more.decide(attempt("pay")).allowed
    assert not more.release(calls[0])
    assert not more.decide(attempt("pay")).allowed and not one.decide(attempt("pay")).allowed


# -- one guard or several ---------------------------------------------------------------------------------------------


def _reworded(rules: Rules) -> Rules:
    turned = [{**rule, "reason": f"words {i}"} for i, rule in enumerate(rules)]
    return turned[1:] + turned[:1]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), tools, arguments),
        st.tuples(st.just("result"), st.integers(0, 3)),
        st.tuples(st.just("release"), st.integers(0, 3)),
    ),
    max_size=14,
)


def _played(guards: list[BaseGuard], steps: Any, chance: random.Random, clock: Clock) -> list[Any]:
    seen: list[Any] = []
    decided: list[Decision] = []
    for step in steps:
        clock.now += 1.0
        one = chance.choice(guards)
        if step[0] == "call":
            decided.append(one.decide(attempt(step[1], arguments=step[2])))
            seen.append((decided[-1].action, sorted(decided[-1].matched), decided[-1].counters))
        elif step[1] < len(decided) and decided[-1 - step[1]].allowed:
            name = "record" if step[0] == "result" else "release"
            before = decided[-1 - step[1]]
            seen.append(one.release(before) if name == "release" else sorted(v.rule.id for v in one.record(before, 1)))
    return seen


@given(mixed_rules, STEPS, st.integers(0, 99))
def test_replicas_decide_as_one_guard_does(rules: Rules, steps: Any, seed: int) -> None:
    clock, again = Clock(), Clock()
    alone = _played([guard(rules, store=MemoryStore(), clock=clock)], steps, random.Random(seed), clock)
    store = MemoryStore()
    several = [guard(one, store=store, clock=again) for one in (rules, _reworded(rules), rules)]
    assert _played(several, steps, random.Random(seed), again) == alone
    report = verified(store, rules, _reworded(rules))
    assert (report.findings, report.unrecomputed) == ([], {})
