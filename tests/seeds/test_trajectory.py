"""What the documentation of a trajectory axis elsewhere states, one test a statement, run on Bylaw."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import bylaw
from tests.seeds.agentlog import Turn, load, write
from tests.support.command import run_bylaw

Calls = list[Any]


def sides(folder: Path, baseline: list[Turn], candidate: list[Turn]) -> tuple[Path, Path]:
    return write(folder / "baseline.agentlog", *baseline), write(folder / "candidate.agentlog", *candidate)


def compare(folder: Path, baseline: Calls, candidate: Calls) -> bylaw.Trajectory:
    """One turn with these calls on each side."""
    return bylaw.trajectory(*sides(folder, [{"calls": baseline}], [{"calls": candidate}]))


def tokens(folder: Path, *calls: Any) -> tuple[str, ...]:
    [turn] = compare(folder, list(calls), []).turns
    return turn.baseline


# -- the token --------------------------------------------------------------------------------------------------------


def test_each_response_gives_the_sequence_of_its_calls(tmp_path: Path) -> None:
    turns: list[Turn] = [{"calls": ["a", "b"]}, {"text": "hello"}, {"calls": ["c"]}]
    found = bylaw.trajectory(*sides(tmp_path, turns, turns))
    assert [[token.partition("(")[0] for token in turn.baseline] for turn in found.turns] == [["a", "b"], [], ["c"]]


def test_a_token_begins_with_the_name_of_the_tool(tmp_path: Path) -> None:
    assert tokens(tmp_path, ("delete_user", {}))[0].startswith("delete_user(")


def test_a_token_holds_the_sorted_argument_keys(tmp_path: Path) -> None:
    assert tokens(tmp_path, ("pay", {"to": 1, "amount": 2, "by": 3}))[0].startswith("pay(amount,by,to)#")


def test_a_token_ends_with_the_digest_of_the_values(tmp_path: Path) -> None:
    [token] = tokens(tmp_path, ("delete_user", {"id": "alice"}))
    assert token == "delete_user(id)#" + hashlib.sha256(b'{"id":"alice"}').hexdigest()[:16]


def test_the_digest_is_the_leading_8_bytes_of_sha_256(tmp_path: Path) -> None:
    [token] = tokens(tmp_path, ("f", {"x": 1}))
    digest = token.partition("#")[2]
    assert bytes.fromhex(digest) == hashlib.sha256(b'{"x":1}').digest()[:8]
    assert len(digest) == 16


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
        ({"a": {"d": 1, "c": [1, 2]}}, '{"a":{"c":[1,2],"d":1}}'),
        ({"a": "ü"}, '{"a":"ü"}'),
        ({"a": None, "b": True}, '{"a":null,"b":true}'),
        ({}, "{}"),
    ],
    ids=["sorted", "nested", "unescaped", "literals", "empty"],
)
def test_the_digest_is_over_canonical_json(given: dict[str, Any], canonical: str, tmp_path: Path) -> None:
    [token] = tokens(tmp_path, ("f", given))
    assert token.partition("#")[2] == hashlib.sha256(canonical.encode()).hexdigest()[:16]


def test_a_thousand_calls_have_a_thousand_digests(tmp_path: Path) -> None:
    made = tokens(tmp_path, *(("f", {"id": i}) for i in range(1000)))
    assert len(set(made)) == 1000


# -- the distance -----------------------------------------------------------------------------------------------------


def test_equal_calls_have_no_distance(tmp_path: Path) -> None:
    assert compare(tmp_path, ["a", ("b", {"x": 1})], ["a", ("b", {"x": 1})]).distance == 0


@pytest.mark.parametrize(
    ("baseline", "candidate", "distance"),
    [
        (["a", "b", "c"], ["a", "x", "c"], 1 / 3),
        (["a", "b", "c"], ["a", "c"], 1 / 3),
        (["a", "b"], ["a", "x", "b"], 1 / 3),
        (["k", "i", "t", "t", "e", "n"], ["s", "i", "t", "t", "i", "n", "g"], 3 / 7),
    ],
    ids=["replaced", "dropped", "added", "all-three"],
)
def test_the_distance_is_levenshteins(baseline: Calls, candidate: Calls, distance: float, tmp_path: Path) -> None:
    assert compare(tmp_path, baseline, candidate).distance == pytest.approx(distance)


@pytest.mark.parametrize("turned", [False, True], ids=["baseline-longer", "candidate-longer"])
def test_it_is_divided_by_the_longer_length(turned: bool, tmp_path: Path) -> None:
    longer, shorter = ["a", "b", "c", "d"], ["d"]
    found = compare(tmp_path, shorter, longer) if turned else compare(tmp_path, longer, shorter)
    assert found.distance == 3 / 4


@pytest.mark.parametrize(
    ("baseline", "candidate"), [(["a"], ["b"]), (["a"] * 5, ["b"]), ([], ["a"]), (["a", "b"], ["b", "a", "c"])]
)
def test_the_metric_lies_between_0_and_1(baseline: Calls, candidate: Calls, tmp_path: Path) -> None:
    distance = compare(tmp_path, baseline, candidate).distance
    assert distance is not None
    assert 0 < distance <= 1


def test_two_turns_without_calls_are_equal(tmp_path: Path) -> None:
    assert compare(tmp_path, [], []).distance == 0


def test_the_axis_of_the_diff_is_the_same_number(tmp_path: Path) -> None:
    both = sides(tmp_path, [{"calls": ["a"]}, {"calls": ["b"]}], [{"calls": ["a"]}, {"calls": ["c"]}])
    [row] = [row for row in bylaw.diff(*both).axes if row.axis == "trajectory"]
    assert (row.baseline, row.candidate) == (0.0, 0.5)
    assert bylaw.trajectory(*both).distance == row.candidate


def test_the_trajectory_is_the_second_axis(tmp_path: Path) -> None:
    report = bylaw.diff(*sides(tmp_path, [{"calls": ["a"]}], [{"calls": ["a"]}]))
    assert [row.axis for row in report.axes][:2] == ["semantic", "trajectory"]


# -- what it catches --------------------------------------------------------------------------------------------------

ALICE, BOB = ("delete_user", {"id": "alice"}), ("delete_user", {"id": "bob"})


def test_another_argument_value_is_a_change(tmp_path: Path) -> None:
    assert compare(tmp_path, [ALICE], [BOB]).distance == 1


def test_without_the_digest_it_would_be_none(tmp_path: Path) -> None:
    assert compare(tmp_path, [ALICE], [BOB]).row.structural == 0


def test_the_first_divergence_agrees_with_the_axis(tmp_path: Path) -> None:
    first = bylaw.diff(*sides(tmp_path, [{"calls": [ALICE]}], [{"calls": [BOB]}])).first_divergence
    assert first is not None
    assert (first.turn, first.kind) == (0, "decision")


@pytest.mark.parametrize(
    ("candidate", "structural"),
    [
        (["a", "b", "c"], True),
        (["a"], True),
        (["b", "a"], True),
        (["a", ("b", {"x": 1, "y": 2})], True),
        (["a", ("b", {})], True),
        (["a", ("b", {"x": 2})], False),
    ],
    ids=["tool-added", "tool-dropped", "tools-reordered", "key-added", "key-dropped", "value-changed"],
)
def test_the_axis_catches(candidate: Calls, structural: bool, tmp_path: Path) -> None:
    found = compare(tmp_path, ["a", ("b", {"x": 1})], candidate)
    assert found.distance
    assert bool(found.row.structural) is structural


# -- what it does not catch, and what does ----------------------------------------------------------------------------


def _answers(folder: Path, baseline: str, candidate: str) -> tuple[Path, Path]:
    """Eight conversations, with the same call and another answer."""
    both = (
        [{"text": text.format(i), "calls": [("f", {"i": i})], "fresh": True} for i in range(8)]
        for text in (baseline, candidate)
    )
    return sides(folder, *both)


def test_another_answer_with_the_same_calls_has_no_distance(tmp_path: Path) -> None:
    assert bylaw.trajectory(*_answers(tmp_path, "It is done.", "Nothing worked today.")).distance == 0


def test_another_answer_is_seen_by_the_semantic_axis(tmp_path: Path) -> None:
    report = bylaw.diff(*_answers(tmp_path, "It is done.", "Nothing worked today."))
    assert (report.axes[0].axis, report.axes[0].severity.value) == ("semantic", "minor")


@pytest.mark.parametrize(
    ("dimension", "elsewhere", "candidate"),
    [
        (
            "log_text_chars",
            "text_chars_log",
            "Your order {} is on its way, as I told you before, and it will be with you soon.",
        ),
        ("number_density", "numeric_token_density", "Order {} 17 23 42 99"),
        ("error_words", "error_token_flag", "Order {} failed: error."),
    ],
)
def test_another_answer_is_seen_by_the_fingerprint(
    dimension: str, elsewhere: str, candidate: str, tmp_path: Path
) -> None:
    fingerprint = bylaw.diff(*_answers(tmp_path, "Your order {} is here.", candidate)).fingerprint
    assert fingerprint is not None
    assert fingerprint.decision == "differs"
    assert dimension in [shift.dimension for shift in fingerprint.moved]
    page = (Path(__file__).parents[2] / "docs" / "reference" / "trajectory.md").read_text("utf-8")
    assert any(f"`{dimension}`" in line and f"`{elsewhere}`" in line for line in page.splitlines())


def test_the_fingerprint_is_hotellings_t_squared(tmp_path: Path) -> None:
    fingerprint = bylaw.diff(*_answers(tmp_path, "Your order {} is here.", "Order {} failed.")).fingerprint
    assert fingerprint is not None
    assert fingerprint.statistic is not None and fingerprint.p is not None
    assert fingerprint.statistic > 0
    assert fingerprint.p <= fingerprint.alpha


def test_an_order_that_is_not_allowed_is_seen_by_a_rule(tmp_path: Path) -> None:
    rule = {"kind": "must_call_before", "params": {"first": "verify", "second": "refund"}}
    both = sides(tmp_path, [{"calls": ["refund"]}], [{"calls": ["refund"]}])
    assert bylaw.trajectory(*both).distance == 0
    assert bylaw.check(both[1], load(rule, tmp_path)).exit_code == 1


def test_a_forbidden_call_is_seen_by_a_rule(tmp_path: Path) -> None:
    rule = {"kind": "no_call", "params": {"tool": "execute_sql"}}
    both = sides(tmp_path, [{"calls": ["execute_sql"]}], [{"calls": ["execute_sql"]}])
    assert bylaw.trajectory(*both).distance == 0
    assert bylaw.check(both[1], load(rule, tmp_path)).exit_code == 1


@pytest.mark.parametrize(
    ("formula", "exit_code"),
    [
        ("!tool_call:refund W tool_call:verify", 1),
        ("G !tool_call:execute_sql", 0),
        ("F stop_reason:end_turn", 0),
        ("G !text_contains:refunded", 1),
    ],
)
def test_a_formula_of_that_checker_is_read_as_it_is(formula: str, exit_code: int, tmp_path: Path) -> None:
    rules = json.dumps([{"id": "r", "kind": "temporal", "params": {"formula": formula}}])
    (tmp_path / "policy.json").write_text(rules, "utf-8")
    trace = write(tmp_path / "trace.agentlog", {"calls": ["refund"]}, {"text": "refunded"})
    assert run_bylaw(["check", trace, "--policy", tmp_path / "policy.json"]).returncode == exit_code


def test_the_first_moment_of_a_regression_is_the_first_divergence(tmp_path: Path) -> None:
    turns: list[Turn] = [{"calls": [("f", {"i": i})]} for i in range(9)]
    changed: list[Turn] = [*turns[:6], {"calls": ["g"]}, {"calls": ["h"]}, turns[8]]
    first = bylaw.diff(*sides(tmp_path, turns, changed)).first_divergence
    assert first is not None
    assert first.turn == 6


@pytest.mark.parametrize(
    ("kind", "candidate"),
    [
        ("structural", {"text": "The order is on its way.", "calls": ["f", "g"]}),
        ("decision", {"text": "The order is on its way.", "calls": ["f"], "stop": "max_tokens"}),
        ("style", {"text": "The order is on the way.", "calls": ["f"]}),
    ],
)
def test_a_divergence_is_structural_a_decision_or_style(kind: str, candidate: Turn, tmp_path: Path) -> None:
    baseline: Turn = {"text": "The order is on its way.", "calls": ["f"], "stop": "end_turn"}
    candidate = {"stop": "end_turn", **candidate}
    first = bylaw.diff(*sides(tmp_path, [baseline], [candidate])).first_divergence
    assert first is not None
    assert first.kind == kind
