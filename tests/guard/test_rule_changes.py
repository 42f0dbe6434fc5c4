"""The rules are stored with their hash, and a change of rules says what it resets."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from bylaw.guard.decide.policy import load_content, rules_content
from bylaw.guard.policies import drop_repeated, guard_hash
from bylaw.guard.stores import MemoryStore
from tests.audit.support import verified
from tests.guard.support import attempt, guard, policies
from tests.guard.test_cases import _cases

CAP: dict[str, Any] = {"id": "cap", "kind": "max_calls", "params": {"tool": "pay", "limit": 2}, "then": "block"}
LOOK: dict[str, Any] = {"id": "look", "when": {"tool_name_in": ["look"]}, "then": "block"}


@pytest.mark.parametrize("case", [case for case in _cases() if "refused" not in case.values[0]])
def test_rules_are_loaded_from_their_stored_form(case: dict[str, Any]) -> None:
    made = drop_repeated(policies(case["policy"], case.get("mode")))
    content = rules_content(made)
    assert content is not None
    assert guard_hash(load_content(content)) == guard_hash(made)


def test_verdicts_are_recomputed_without_the_files() -> None:
    store = MemoryStore()
    for rules in ([CAP], [CAP, LOOK]):
        guarding = guard(rules, store=store)
        assert [guarding.decide(attempt("pay", session="s")).allowed for _ in range(2)][1] is (len(rules) == 1)
    report = verified(store)
    assert (report.recomputed, report.unrecomputed, report.exit_code) == (4, {}, 0)


@pytest.mark.parametrize(
    "rules, reset, added, removed",
    [
        ([{**CAP, "reason": "two are enough"}], [], [], []),
        ([CAP, LOOK], [], ["look"], []),
        ([{**CAP, "params": {"tool": "pay", "limit": 5}}], [], [], []),
        ([{**CAP, "params": {"tool": "wire", "limit": 2}}], ["cap"], [], []),
        ([LOOK], [], ["look"], ["cap"]),
    ],
)
def test_a_change_of_rules_says_what_it_resets(
    rules: Any, reset: list[str], added: list[str], removed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    before = guard([CAP], store=store)
    before.decide(attempt("pay", session="s"))
    with caplog.at_level(logging.WARNING, "bylaw"):
        after = guard(rules, store=store)
    assert ("count from zero" in caplog.text) == bool(reset)
    after.decide(attempt("send", session="s"))
    [row] = [row.data for row in store.audit() if row.data["kind"] == "rules"]
    assert row == {
        "kind": "rules",
        "how": "loaded",
        "before": before.policy,
        "policy": after.policy,
        "reset": reset,
        "added": added,
        "removed": removed,
    }
    guard(rules, store=store).decide(attempt("send", session="s"))
    assert len([row for row in store.audit() if row.data["kind"] == "rules"]) == 1
