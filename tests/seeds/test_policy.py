"""What the documentation of a behaviour policy elsewhere states, one test a statement, run on Bylaw.

The rule files are that page's own, unchanged.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import bylaw
from tests.seeds.agentlog import Turn, judge, load, write
from tests.support.command import run_bylaw

OK, VIOLATED, VACUOUS, INCONCLUSIVE = "ok", "violated", "vacuous", "inconclusive"
NO_DELETION = {"kind": "no_call", "params": {"tool": "delete"}}

CONFIRM = """
rules:
  - id: confirm-large-refunds
    kind: must_call_before
    params:
      first: confirm_refund_amount
      second: issue_refund
    when:
      - { path: "request.params.amount", op: ">", value: 500 }
      - { path: "request.model", op: "==", value: "gpt-4.1" }
    severity: error
"""
LOCKED = """
rules:
  - id: amount-locked-after-confirmation
    kind: must_remain_consistent
    params: { path: "request.params.amount" }
    severity: error
"""
QUOTE = """
rules:
  - id: confirm-after-quote
    kind: must_followup
    params:
      trigger:
        - { path: "response.stop_reason", op: "==", value: "tool_use" }
        - { path: "response.content", op: "contains", value: "quote_total" }
      must: { kind: tool_call, tool_name: confirm_with_user }
    severity: error
"""
GROUNDING = """
rules:
  - id: rag-grounding
    kind: must_be_grounded
    params:
      retrieval_path: "request.metadata.retrieved_chunks"
      min_unigram_precision: 0.5
    severity: error
"""
STRUCTURED = """
rules:
  - id: structured-output
    kind: must_match_json_schema
    params:
      schema_path: schemas/refund_decision.schema.json
    severity: error
"""
BUDGET = """
rules:
  - id: per-conversation-budget
    kind: max_total_tokens
    params: { n: 4000 }
    scope: session
    severity: warning
"""


# -- a policy beside the diff -----------------------------------------------------------------------------------------


def _two(folder: Path, baseline: list[Turn], candidate: list[Turn]) -> tuple[str, str]:
    sides = (write(folder / "baseline.agentlog", *baseline), write(folder / "candidate.agentlog", *candidate))
    return str(sides[0]), str(sides[1])


def test_a_policy_says_what_may_not_change_and_the_diff_says_what_did(tmp_path: Path) -> None:
    sides = _two(tmp_path, [{"text": "a"}, {"text": "b"}], [{"text": "a"}, {"text": "b", "calls": ["delete"]}])
    assert bylaw.diff(*sides).policy.regressions == ()
    assert [one.rule for one in bylaw.diff(*sides, load(NO_DELETION, tmp_path)).policy.regressions] == ["r"]


@pytest.mark.parametrize("bare", [False, True], ids=["under-rules", "bare-list"])
@pytest.mark.parametrize("suffix", ["yaml", "json"])
def test_a_policy_file_is_a_yaml_or_json_list_of_rules(suffix: str, bare: bool, tmp_path: Path) -> None:
    items = [{"id": "r", **NO_DELETION}]
    policy = tmp_path / f"policy.{suffix}"
    policy.write_text(json.dumps(items if bare else {"rules": items}), "utf-8")  # JSON is YAML too
    assert [rule.id for rule in bylaw.load_rules(policy).rules] == ["r"]


def _changes(folder: Path, baseline: list[Turn], candidate: list[Turn]) -> dict[str, list[Any]]:
    (folder / "policy.yaml").write_text(json.dumps([{"id": "r", **NO_DELETION}]), "utf-8")
    sides = _two(folder, baseline, candidate)
    done = run_bylaw(["diff", *sides, "--policy", "policy.yaml", "--format", "json"], cwd=folder)
    found: dict[str, list[Any]] = json.loads(done.stdout)["policy"]
    return found


def test_a_violation_that_only_the_candidate_has_is_a_regression(tmp_path: Path) -> None:
    found = _changes(tmp_path, [{"text": "a"}], [{"calls": ["delete"]}])
    assert (len(found["regressions"]), len(found["fixes"])) == (1, 0)


def test_a_violation_that_only_the_baseline_has_is_a_fix(tmp_path: Path) -> None:
    found = _changes(tmp_path, [{"calls": ["delete"]}], [{"text": "a"}])
    assert (len(found["regressions"]), len(found["fixes"])) == (0, 1)


def test_a_violation_of_both_sides_is_neither(tmp_path: Path) -> None:
    found = _changes(tmp_path, [{"calls": ["delete"]}], [{"calls": ["delete"]}])
    assert (len(found["regressions"]), len(found["fixes"])) == (0, 0)


# -- the twelve kinds -------------------------------------------------------------------------------------------------

AMOUNT = "request.params.amount"
PERSON = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
CHUNKS = {"request": {"metadata": {"chunks": ["refunds take five days"]}}}
FOLLOWUP = {
    "trigger": [{"path": "stop_reason", "op": "==", "value": "tool_use"}],
    "must": {"kind": "tool_call", "tool_name": "confirm"},
}
KINDS: dict[str, tuple[dict[str, Any], list[Turn], list[Turn]]] = {
    "must_call_before": (
        {"first": "confirm", "second": "refund"},
        [{"calls": ["confirm"]}, {"calls": ["refund"]}],
        [{"calls": ["refund"]}, {"calls": ["confirm"]}],
    ),
    "must_call_once": ({"tool": "pay"}, [{"calls": ["pay"]}], [{"calls": ["pay"]}, {"calls": ["pay"]}]),
    "no_call": ({"tool": "delete"}, [{"calls": ["look_up"]}], [{"calls": ["delete"]}]),
    "max_turns": ({"n": 2}, [{"text": "a"}, {"text": "b"}], [{"text": "a"}, {"text": "b"}, {"text": "c"}]),
    "required_stop_reason": (
        {"allowed": ["end_turn", "tool_use"]},
        [{"calls": ["a"]}, {"text": "b"}],
        [{"text": "a", "stop": "max_tokens"}, {"text": "b"}],
    ),
    "max_total_tokens": (
        {"n": 100},
        [{"text": "a", "usage": {"input_tokens": 60, "output_tokens": 40}}],
        [{"text": "a", "usage": {"input_tokens": 60, "output_tokens": 41}}],
    ),
    "must_include_text": ({"text": "terms"}, [{"text": "a"}, {"text": "the terms"}], [{"text": "a"}, {"text": "b"}]),
    "forbidden_text": ({"text": "SSN"}, [{"text": "a"}], [{"text": "a"}, {"text": "your SSN"}]),
    "must_match_json_schema": (
        {"schema": PERSON},
        [{"text": '{"age": 3}'}],
        [{"text": '{"age": 3}'}, {"text": "three"}],
    ),
    "must_remain_consistent": (
        {"path": AMOUNT},
        [{"text": "a", "request": {"params": {"amount": 5}}}] * 2,
        [{"text": "a", "request": {"params": {"amount": 5}}}, {"text": "a", "request": {"params": {"amount": 6}}}],
    ),
    "must_followup": (
        FOLLOWUP,
        [{"calls": ["quote"]}, {"calls": ["confirm"], "stop": "end_turn"}],
        [{"calls": ["quote"]}, {"text": "ok"}],
    ),
    "must_be_grounded": (
        {"retrieval_path": "request.metadata.chunks"},
        [{"text": "refunds take five days", **CHUNKS}],
        [{"text": "pigeons fly south", **CHUNKS}],
    ),
}


def test_there_are_the_twelve_kinds(tmp_path: Path) -> None:
    made = load([{"id": kind, "kind": kind, "params": params} for kind, (params, _, _) in KINDS.items()], tmp_path)
    assert sorted(rule.kind for rule in made.rules) == sorted(KINDS)
    assert len(KINDS) == 12


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_accepts_what_it_asserts(kind: str, tmp_path: Path) -> None:
    params, held, _ = KINDS[kind]
    assert judge({"kind": kind, "params": params}, tmp_path, *held) == (OK, [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_reports_what_breaks_it(kind: str, tmp_path: Path) -> None:
    params, _, broken = KINDS[kind]
    outcome, turns = judge({"kind": kind, "params": params}, tmp_path, *broken)
    assert outcome == VIOLATED
    assert len(turns) == 1


def test_an_order_whenever_both_are_present_is_only_if_both(tmp_path: Path) -> None:
    rule = {"kind": "must_call_before", "params": {"first": "confirm", "second": "refund", "only_if_both": True}}
    assert judge(rule, tmp_path, {"calls": ["refund"]}) == (VACUOUS, [])
    assert judge(rule, tmp_path, {"calls": ["refund"]}, {"calls": ["confirm"]}) == (VIOLATED, [0])


def test_a_file_of_that_product_reports_a_dropped_first_call(tmp_path: Path) -> None:
    """As its program and its own refund example do: "skipping confirmation is a critical violation"."""
    rules = "apiVersion: shadow.dev/v1alpha1" + CONFIRM.partition("    when:")[0].rstrip() + "\n"
    assert judge(rules, tmp_path, {"calls": ["issue_refund"]}) == (VIOLATED, [0])
    assert judge(rules, tmp_path, {"calls": ["confirm_refund_amount"]}, {"calls": ["issue_refund"]}) == (OK, [])


def test_a_tool_that_must_be_called_once_may_not_be_missing(tmp_path: Path) -> None:
    assert judge({"kind": "must_call_once", "params": {"tool": "pay"}}, tmp_path, {"text": "a"}) == (VIOLATED, [None])


def test_a_tool_that_must_be_called_once_is_counted_by_session(tmp_path: Path) -> None:
    rule = {"kind": "must_call_once", "params": {"tool": "pay"}, "scope": "session"}
    assert judge(rule, tmp_path, {"calls": ["pay"]}, {"calls": ["pay"], "fresh": True}) == (OK, [])


def test_every_response_ends_with_an_allowed_stop_reason(tmp_path: Path) -> None:
    rule = {"kind": "required_stop_reason", "params": {"allowed": "end_turn"}}
    turns: list[Turn] = [{"text": "a", "stop": "refusal"}, {"text": "b"}, {"text": "c", "stop": "max_tokens"}]
    assert judge(rule, tmp_path, *turns) == (VIOLATED, [0, 2])


# -- when -------------------------------------------------------------------------------------------------------------

ALWAYS = {"path": "request.model", "op": "==", "value": "m"}
NEVER = {"path": "request.model", "op": "==", "value": "other"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_carry_conditions(kind: str, tmp_path: Path) -> None:
    params, _, broken = KINDS[kind]
    rule = {"kind": kind, "params": params}
    assert judge({**rule, "when": [ALWAYS]}, tmp_path, *broken)[0] == VIOLATED
    assert judge({**rule, "when": [NEVER]}, tmp_path, *broken) == (VACUOUS, [])


def test_a_rule_fires_only_on_the_pairs_where_the_conditions_hold(tmp_path: Path) -> None:
    rule = {**NO_DELETION, "when": [{"path": "request.params.live", "op": "==", "value": True}]}
    turns: list[Turn] = [{"calls": ["delete"], "request": {"params": {"live": live}}} for live in (True, False, True)]
    assert judge(rule, tmp_path, *turns) == (VIOLATED, [0, 2])


def test_several_conditions_are_joined_by_and(tmp_path: Path) -> None:
    assert judge({**NO_DELETION, "when": [ALWAYS, NEVER]}, tmp_path, {"calls": ["delete"]}) == (VACUOUS, [])
    assert judge({**NO_DELETION, "when": [ALWAYS, ALWAYS]}, tmp_path, {"calls": ["delete"]}) == (VIOLATED, [0])


HOLDS = [
    ("==", 5, 5, 6),
    ("!=", 6, 5, 6),
    (">", 4, 5, 4),
    (">=", 5, 5, 4),
    ("<", 6, 5, 6),
    ("<=", 5, 5, 6),
    ("in", [4, 5], 5, 6),
    ("not_in", [6, 7], 5, 6),
    ("contains", "ell", "hello", "world"),
    ("not_contains", "ell", "world", "hello"),
]


@pytest.mark.parametrize(("op", "value", "yes", "no"), HOLDS, ids=[row[0] for row in HOLDS])
def test_an_operator_compares(op: str, value: Any, yes: Any, no: Any, tmp_path: Path) -> None:
    rule = {**NO_DELETION, "when": [{"path": AMOUNT, "op": op, "value": value}]}
    turns: list[Turn] = [{"calls": ["delete"], "request": {"params": {"amount": amount}}} for amount in (yes, no)]
    assert judge(rule, tmp_path, *turns) == (VIOLATED, [0])


@pytest.mark.parametrize(("op", "value"), [row[:2] for row in HOLDS], ids=[row[0] for row in HOLDS])
def test_a_missing_path_quietly_does_not_match(op: str, value: Any, tmp_path: Path) -> None:
    rule = {**NO_DELETION, "when": [{"path": AMOUNT, "op": op, "value": value}]}
    assert judge(rule, tmp_path, {"calls": ["delete"]}) == (VACUOUS, [])


PATHS = [
    ("request.model", "==", "m"),
    ("request.messages.0.role", "==", "user"),
    ("request.params.temperature", "==", 0.5),
    ("request.tools.0.name", "==", "delete"),
    ("response.content", "contains", "removed"),
    ("response.stop_reason", "==", "tool_use"),
    ("response.latency_ms", ">", 5),
    ("response.usage.output_tokens", "==", 5),
    ("model", "==", "m"),
    ("stop_reason", "==", "tool_use"),
]


@pytest.mark.parametrize(("path", "op", "value"), PATHS, ids=[row[0] for row in PATHS])
def test_a_path_leads_into_the_pair(path: str, op: str, value: Any, tmp_path: Path) -> None:
    rule = {**NO_DELETION, "when": [{"path": path, "op": op, "value": value}]}
    request = {"params": {"temperature": 0.5}, "tools": [{"name": "delete"}]}
    assert judge(rule, tmp_path, {"calls": ["delete"], "text": "removed", "request": request}) == (VIOLATED, [0])


def _refund(amount: int, model: str) -> Turn:
    return {"calls": ["issue_refund"], "request": {"model": model, "params": {"amount": amount}}}


@pytest.mark.parametrize(
    ("amount", "model", "wanted"),
    [(501, "gpt-4.1", VIOLATED), (500, "gpt-4.1", VACUOUS), (501, "gpt-4o", VACUOUS)],
    ids=["large-refund", "small-refund", "other-model"],
)
def test_the_example_of_conditions(amount: int, model: str, wanted: str, tmp_path: Path) -> None:
    assert judge(CONFIRM, tmp_path, _refund(amount, model))[0] == wanted


def test_the_example_of_conditions_is_kept_by_a_confirmation(tmp_path: Path) -> None:
    turns: list[Turn] = [{"calls": ["confirm_refund_amount"]}, _refund(900, "gpt-4.1")]
    assert judge(CONFIRM, tmp_path, *turns) == (OK, [])


# -- rules over several turns -----------------------------------------------------------------------------------------


def _amounts(*amounts: int | None) -> list[Turn]:
    return [{"text": "a", "request": {"params": {} if one is None else {"amount": one}}} for one in amounts]


def test_a_value_once_observed_must_stay(tmp_path: Path) -> None:
    assert judge(LOCKED, tmp_path, *_amounts(5, 5, 6, 5)) == (VIOLATED, [2])


def test_the_anchor_is_the_first_value(tmp_path: Path) -> None:
    assert judge(LOCKED, tmp_path, *_amounts(5, 6, 6)) == (VIOLATED, [1, 2])


def test_an_absent_value_is_no_change(tmp_path: Path) -> None:
    assert judge(LOCKED, tmp_path, *_amounts(None, 5, None, 5)) == (OK, [])


def test_the_example_of_a_followup_is_kept_by_the_tool_call(tmp_path: Path) -> None:
    quote: Turn = {"text": "quote_total: 90", "calls": ["quote"]}
    assert judge(QUOTE, tmp_path, quote, {"calls": ["confirm_with_user"]}) == (OK, [])


def test_the_example_of_a_followup_is_broken_by_any_other_next_pair(tmp_path: Path) -> None:
    quote: Turn = {"text": "quote_total: 90", "calls": ["quote"]}
    assert judge(QUOTE, tmp_path, quote, {"text": "Done."}, {"calls": ["confirm_with_user"]}) == (VIOLATED, [1])


def test_all_triggers_of_a_followup_must_hold(tmp_path: Path) -> None:
    assert judge(QUOTE, tmp_path, {"text": "quote_total: 90"}, {"text": "Done."}) == (VACUOUS, [])


def test_a_followup_may_ask_for_text(tmp_path: Path) -> None:
    params = {**FOLLOWUP, "must": {"kind": "text_includes", "text": "sure?"}}
    rule = {"kind": "must_followup", "params": params}
    assert judge(rule, tmp_path, {"calls": ["quote"]}, {"text": "Are you sure?"}) == (OK, [])
    assert judge(rule, tmp_path, {"calls": ["quote"]}, {"text": "Done."}) == (VIOLATED, [1])


def test_a_trigger_on_the_last_pair_is_a_violation(tmp_path: Path) -> None:
    assert judge(QUOTE, tmp_path, {"text": "quote_total: 90", "calls": ["quote"]}) == (VIOLATED, [0])


# -- grounding --------------------------------------------------------------------------------------------------------


def _answer(text: str, *chunks: str) -> Turn:
    return {"text": text, "request": {"metadata": {"retrieved_chunks": list(chunks)}}}


def test_a_response_shares_enough_words_with_the_chunks(tmp_path: Path) -> None:
    assert judge(GROUNDING, tmp_path, _answer("refunds take five days", "refunds: five days")) == (OK, [])
    assert judge(GROUNDING, tmp_path, _answer("pigeons fly south", "refunds: five days")) == (VIOLATED, [0])


def test_every_response_is_judged(tmp_path: Path) -> None:
    turns = [
        _answer("five days", "five days"),
        _answer("pigeons fly", "five days"),
        _answer("sparrows sing", "five days"),
    ]
    assert judge(GROUNDING, tmp_path, *turns) == (VIOLATED, [1, 2])


def test_half_of_the_words_is_enough_by_default(tmp_path: Path) -> None:
    rule = {"kind": "must_be_grounded", "params": {"retrieval_path": "request.metadata.retrieved_chunks"}}
    assert judge(rule, tmp_path, _answer("five days pigeons fly", "five days")) == (OK, [])
    assert judge(rule, tmp_path, _answer("five days pigeons fly south", "five days")) == (VIOLATED, [0])


def test_a_pair_without_retrieval_is_skipped(tmp_path: Path) -> None:
    assert judge(GROUNDING, tmp_path, {"text": "pigeons fly south"}) == (VACUOUS, [])


def test_words_are_compared_in_lower_case(tmp_path: Path) -> None:
    assert judge(GROUNDING, tmp_path, _answer("FIVE Days", "five days")) == (OK, [])


def test_words_are_alphanumeric(tmp_path: Path) -> None:
    assert judge(GROUNDING, tmp_path, _answer("five-days; (order_4711)!", "order 4711, five days")) == (OK, [])


def test_a_single_letter_is_no_word(tmp_path: Path) -> None:
    assert judge(GROUNDING, tmp_path, _answer("five days a b c d e f", "five days")) == (OK, [])


@pytest.mark.parametrize("text", ["the , .", "the", ", .", "the of and to", "a . ."])
def test_stop_words_and_punctuation_cannot_satisfy_the_rule(text: str, tmp_path: Path) -> None:
    outcome, _ = judge(GROUNDING, tmp_path, _answer(text, "the refund of a lamp and . , to"))
    assert outcome == INCONCLUSIVE


def test_an_answer_about_another_topic_is_caught(tmp_path: Path) -> None:
    chunk = "Orders can be refunded within thirty days of delivery"
    assert judge(GROUNDING, tmp_path, _answer("Bananas ripen faster beside apples", chunk)) == (VIOLATED, [0])


def test_a_paraphrase_in_other_words_is_not_recognised(tmp_path: Path) -> None:
    answer = _answer("We return your money inside one month", "Orders are refunded within thirty days")
    assert judge(GROUNDING, tmp_path, answer) == (VIOLATED, [0])


def test_an_unsupported_conclusion_in_the_right_words_is_not_caught(tmp_path: Path) -> None:
    answer = _answer("Refunds take five days, so delivery takes five days", "refunds take five days; delivery by post")
    assert judge(GROUNDING, tmp_path, answer) == (OK, [])


def test_a_contradicted_claim_is_not_caught(tmp_path: Path) -> None:
    assert judge(GROUNDING, tmp_path, _answer("refunds take five days", "refunds do not take five days")) == (OK, [])


def test_a_judge_can_be_paired_with_the_rule(tmp_path: Path) -> None:
    turns = [_answer("refunds take five days", "refunds do not take five days")] * 6
    sides = _two(tmp_path, [_answer("refunds do not take five days", "refunds do not take five days")] * 6, turns)
    report = bylaw.diff(
        *sides,
        load(GROUNDING, tmp_path),
        judge=lambda response: float("not" in (response.text or "")),
        deterministic=True,
    )
    [row] = [row for row in report.axes if row.axis == "judge"]
    assert report.policy.regressions == ()
    assert (row.baseline, row.candidate, row.severity.value) == (1.0, 0.0, "severe")


# -- structured output ------------------------------------------------------------------------------------------------

DECISION = {
    "type": "object",
    "properties": {"refund": {"type": "object", "properties": {"amount": {"type": "number"}}}},
    "required": ["refund"],
}


def _structured(folder: Path, *texts: str) -> tuple[str, list[int | None]]:
    (folder / "schemas").mkdir(exist_ok=True)
    (folder / "schemas" / "refund_decision.schema.json").write_text(json.dumps(DECISION), "utf-8")
    return judge(STRUCTURED, folder, *({"text": text} for text in texts))


def test_a_schema_may_stand_in_a_file(tmp_path: Path) -> None:
    assert _structured(tmp_path, '{"refund": {"amount": 5}}') == (OK, [])
    assert _structured(tmp_path, '{"refund": {"amount": "five"}}') == (VIOLATED, [0])


def test_a_schema_may_stand_in_the_rule(tmp_path: Path) -> None:
    rule = {"kind": "must_match_json_schema", "params": {"schema": DECISION}}
    assert judge(rule, tmp_path, {"text": '{"refund": {}}'}) == (OK, [])
    assert judge(rule, tmp_path, {"text": "[]"}) == (VIOLATED, [0])


def test_text_that_is_no_json_breaks_the_schema(tmp_path: Path) -> None:
    assert _structured(tmp_path, "I refunded it.", '{"refund": {}}', "{") == (VIOLATED, [0, 2])


def test_a_mismatch_names_the_dotted_path(tmp_path: Path) -> None:
    rule = {"kind": "must_match_json_schema", "params": {"schema": DECISION}}
    trace = write(tmp_path / "trace.agentlog", {"text": '{"refund": {"amount": "five"}}'})
    [finding] = bylaw.check(trace, load(rule, tmp_path)).findings
    assert "`refund.amount`" in finding.verdict.message


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_no_json_is_rejected(literal: str, tmp_path: Path) -> None:
    assert _structured(tmp_path, f'{{"refund": {{"amount": {literal}}}}}') == (VIOLATED, [0])


# -- severity and the gate --------------------------------------------------------------------------------------------

LEVELS = ("none", "minor", "moderate", "severe")
COUNTS_AS = {"info": "minor", "warning": "moderate", "error": "severe"}


def _regression(folder: Path, severity: str) -> None:
    """Two recordings whose only difference that matters is the broken rule, and the policy."""
    turns: list[Turn] = [{"text": f"answer {i}", "calls": ["look_up"]} for i in range(40)]
    _two(folder, turns, [*turns[:-1], {**turns[-1], "text": "answer 39 SSN"}])
    rule = {"id": "r", "kind": "forbidden_text", "params": {"text": "SSN"}, "severity": severity}
    (folder / "shadow-policy.yaml").write_text(json.dumps({"rules": [rule]}), "utf-8")


COMMAND = (
    *("diff", "baseline.agentlog", "candidate.agentlog", "--policy", "shadow-policy.yaml"),
    *("--deterministic", "--fail-on"),
)
"""one recording of each version: `--deterministic` says that a single difference is no chance"""


@pytest.mark.parametrize("severity", COUNTS_AS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_violation_trips_the_gate_at_its_level(level: str, severity: str, tmp_path: Path) -> None:
    _regression(tmp_path, severity)
    report = bylaw.diff(
        tmp_path / "baseline.agentlog",
        tmp_path / "candidate.agentlog",
        tmp_path / "shadow-policy.yaml",
        fail_on=level,  # type: ignore[arg-type]
        deterministic=True,
    )
    assert report.worst == COUNTS_AS[severity]
    trips = level != "none" and LEVELS.index(level) <= LEVELS.index(COUNTS_AS[severity])
    assert report.exit_code == int(trips)


def test_the_command_of_the_example_gates_the_merge(tmp_path: Path) -> None:
    _regression(tmp_path, "error")
    assert run_bylaw([*COMMAND, "severe"], cwd=tmp_path).returncode == 1
    _regression(tmp_path, "warning")
    assert run_bylaw([*COMMAND, "severe"], cwd=tmp_path).returncode == 0


def test_the_report_comes_before_the_verdict_of_the_gate(tmp_path: Path) -> None:
    _regression(tmp_path, "error")
    printed = run_bylaw([*COMMAND, "severe"], cwd=tmp_path).stdout
    assert printed.index("semantic") < printed.index("newly broken (1)") < printed.index("FAILED")


def test_a_gate_that_lets_pass_shows_the_same_report(tmp_path: Path) -> None:
    _regression(tmp_path, "error")
    done = run_bylaw([*COMMAND, "never"], cwd=tmp_path)
    assert (done.returncode, "newly broken (1)" in done.stdout) == (0, True)


def test_a_comment_on_a_blocked_merge_holds_the_explanation(tmp_path: Path) -> None:
    _regression(tmp_path, "error")
    done = run_bylaw([*COMMAND, "severe", "--format", "markdown"], cwd=tmp_path)
    assert done.returncode == 1
    assert "response contains forbidden text" in done.stdout


def test_an_axis_trips_the_gate_without_a_policy(tmp_path: Path) -> None:
    turns: list[Turn] = [{"text": "a", "calls": ["look_up"]}] * 20
    sides = _two(tmp_path, turns, [{"text": "a", "calls": ["delete"]}] * 20)
    assert run_bylaw(["diff", *sides, "--deterministic", "--fail-on", "severe"]).returncode == 1


def test_the_worst_of_axes_and_rules_decides(tmp_path: Path) -> None:
    turns: list[Turn] = [{"text": "a", "calls": ["look_up"]}] * 20
    sides = _two(tmp_path, turns, [{"text": "a", "calls": ["delete"]}] * 20)
    rules = load({**NO_DELETION, "severity": "info"}, tmp_path)
    report = bylaw.diff(*sides, rules, fail_on="severe", deterministic=True)
    assert {change.value for name, change in report.changes if name == "rule r"} == {"minor"}
    assert (report.worst.value, report.exit_code) == ("severe", 1)


# -- scope ------------------------------------------------------------------------------------------------------------


def test_a_rule_is_judged_over_the_trace_by_default(tmp_path: Path) -> None:
    rule = {"kind": "max_turns", "params": {"n": 2}}
    assert judge(rule, tmp_path, {"text": "a"}, {"text": "b", "fresh": True}, {"text": "c"}) == (VIOLATED, [2])


def test_a_rule_may_be_judged_session_by_session(tmp_path: Path) -> None:
    rule = {"kind": "max_turns", "params": {"n": 2}, "scope": "session"}
    assert judge(rule, tmp_path, {"text": "a"}, {"text": "b", "fresh": True}, {"text": "c"}) == (OK, [])


def _ten(tokens: int) -> list[Turn]:
    usage = {"input_tokens": tokens, "output_tokens": 0}
    return [{"calls": ["issue_refund"], "fresh": True, "usage": usage} for _ in range(10)]


def test_ten_conversations_in_one_file_are_ten_evaluations(tmp_path: Path) -> None:
    assert judge(BUDGET, tmp_path, *_ten(4000)) == (OK, [])
    assert len(bylaw.load_trace(tmp_path / "trace.agentlog").sessions) == 10


def test_each_of_ten_conversations_has_its_own_budget(tmp_path: Path) -> None:
    turns = _ten(4000)
    turns[3]["usage"] = turns[7]["usage"] = {"input_tokens": 4001, "output_tokens": 0}
    assert judge(BUDGET, tmp_path, *turns) == (VIOLATED, [3, 7])


def test_the_same_budget_over_the_trace_is_one_merged_evaluation(tmp_path: Path) -> None:
    outcome, turns = judge(BUDGET.replace("    scope: session\n", ""), tmp_path, *_ten(1000))
    assert (outcome, turns) == (VIOLATED, [4])


def test_a_call_in_one_conversation_does_not_serve_another(tmp_path: Path) -> None:
    rule = {"kind": "must_call_before", "params": {"first": "confirm", "second": "refund"}, "scope": "session"}
    turns: list[Turn] = [{"calls": ["confirm"]}, {"calls": ["refund"], "fresh": True}]
    assert judge(rule, tmp_path, *turns) == (VIOLATED, [1])
