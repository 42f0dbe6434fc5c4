"""What commands print and exit with, how agents are reached, and how model answers drift."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.end_to_end.support import (
    ANSWERS,
    CALLS_FAIL,
    CALM,
    FABRICATING,
    GOOD,
    NEVER_INVENTS,
    ORDER,
    Folder,
    model_agent,
)

MATRIX = (CALM, CALLS_FAIL)
BOTH = (ANSWERS, NEVER_INVENTS)
DOWN = {"endpoint": "http://127.0.0.1:9/ask"}


def test_a_critical_violation_exits_with_1_whatever_the_least_score(folder: Folder) -> None:
    folder.write(agent=FABRICATING, invariants=BOTH, matrix=MATRIX)
    for command in ("run", "score"):
        assert folder.bylaw("contract", command, "--min-score", "0").returncode == 1


def test_score_prints_a_number_and_nothing_else(folder: Folder) -> None:
    done = folder.write(agent=FABRICATING, invariants=BOTH, matrix=MATRIX).bylaw("contract", "score")
    assert done.stdout == "40.00\n"


def test_ci_asks_the_agent_as_often_as_run_does(folder: Folder) -> None:
    """And where nothing is configured, it exits with 3."""
    with folder.server() as url:
        folder.write(agent={"endpoint": url}).run()
        alone = len(folder.asked())
        assert folder.run(command="ci").code == 0
        assert len(folder.asked()) == 2 * alone
    (folder.path / "bylaw.yaml").write_text("scoring: {contract: 1}\n")
    assert folder.bylaw("ci").returncode == 3


def test_every_format_agrees_with_the_exit_code(folder: Folder) -> None:
    folder.write(agent=FABRICATING, invariants=BOTH, matrix=MATRIX)
    for command in (("ci",), ("contract", "run")):
        done = folder.bylaw(*command, "--format", "terminal", "--format", "json=r.json", "--format", "markdown=r.md")
        reported = json.loads((folder.path / "r.json").read_text())
        assert (done.returncode, reported["exit_code"]) == (1, 1)
        for said in (done.stdout, (folder.path / "r.md").read_text()):
            assert ("FAILED" in said, "PASSED" in said) == (True, False)


def test_the_score_of_an_agent_that_is_down_is_0_with_exit_code_4(folder: Folder) -> None:
    done = folder.write(agent=DOWN).bylaw("contract", "score")
    assert (done.returncode, done.stdout) == (4, "0.00\n")
    assert "cannot connect" in done.stderr


def test_sections_that_are_not_run_cause_no_faults_and_a_warning(folder: Folder) -> None:
    """`chaos` and `mutations` at the top are named in a warning, unknown types in them included."""
    chaos = {"tool_faults": [{"tool": "*", "mode": "error"}]}
    mutations = {"types": ["custom"], "custom_templates": {"custom": "x"}}
    folder.write(agent=GOOD, chaos=chaos, mutations=mutations)
    done = folder.run()
    assert (done.code, done.answers("answers")) == (0, ["Order A-17 is shipped."])
    assert "`chaos`" in done.stderr
    assert "`mutations`" in done.stderr


def test_unknown_rules_profiles_and_scenarios_are_refused(folder: Folder) -> None:
    rule = {"id": "a", "type": "rule", "rule": "nowhere"}
    done = folder.write(invariants=[rule]).run()
    assert (done.code, done.codes) == (2, {"unknown-rule"})
    done = folder.write(matrix=["api_outrage"]).run()
    assert (done.code, done.codes) == (2, {"unknown-profile"})
    assert folder.write().bylaw("contract", "run", "--scenario", "nowhere").returncode == 2


@pytest.mark.parametrize("reached", ["http", "python"])
def test_a_trace_holds_the_prompt_that_was_sent(folder: Folder, reached: str) -> None:
    poisoned = {"name": "poisoned", "context_attacks": [{"type": "memory_poisoning", "payload": "POISON"}]}
    with folder.server() as url:
        folder.write(agent={"endpoint": url} if reached == "http" else "echo", matrix=[poisoned])
        done = folder.run("--traces", "kept")
    (kept,) = [one["trace"] for one in done.cell("answers", "poisoned")["evidence"]]
    assert "POISON" in (folder.path / kept).read_text()


def test_the_template_of_a_get_request_fills_the_query(folder: Folder) -> None:
    with folder.server() as url:
        agent = {"endpoint": url, "method": "GET", "request_template": '{"q": "{prompt}"}'}
        folder.write(agent=agent, golden_prompts=["a=b & c"]).run()
        assert folder.asked()[0] == {"path": "/?q=a%3Db+%26+c", "body": ""}


@pytest.mark.parametrize(
    ("mode", "path", "outcome"),
    [
        ("choices", "$.choices[0].message.content", "from the path"),
        ("choices", "choices.0.message.content", "from the path"),
        ("choices", "$.choices[1].message.content", None),
        ("null", "answer", None),
    ],
)
def test_the_answer_is_taken_from_response_path_only(folder: Folder, mode: str, path: str, outcome: str | None) -> None:
    with folder.server(mode) as url:
        done = folder.write(agent={"endpoint": url, "response_path": path}).run()
    assert done.answers("answers") == [outcome]
    if outcome is None:
        assert (done.code, "bad_answer" in done.cell("answers")["reason"]) == (1, True)


def test_a_python_agent_is_found_beside_its_contract(folder: Folder) -> None:
    """Also where the command is started elsewhere."""
    folder.write(agent="echo")
    assert folder.run().code == 0
    elsewhere = folder.path / "elsewhere"
    elsewhere.mkdir()
    away = Folder(elsewhere)
    for copy in elsewhere.glob("*.py"):
        copy.unlink()
    assert away.run("-c", "../bylaw.yaml").code == 0


def test_a_python_agent_has_a_timeout(folder: Folder) -> None:
    done = folder.write(agent={"endpoint": "clerks:sleepy", "timeout": 300}).run()
    assert (done.code, done.cells["answers", "calm"]) == (1, "violated")
    evidence = done.cell("answers")["evidence"]
    assert evidence
    assert all(one["latency_ms"] >= 300 for one in evidence)


def test_a_class_is_instantiated_or_refused(folder: Folder) -> None:
    assert folder.write(agent="Desk").run().answers("answers") == [f"I am made: {ORDER}"]
    done = folder.write(agent="Hollow").run()
    assert done.code == 4
    assert "Hollow" in done.report["stopped"]


def _drifted(folder: Folder, text: str, **fault: Any) -> str:
    """The model's answer as the agent gets it."""
    matrix = [{"name": "drift", "llm_faults": [fault]}]
    done = folder.write(agent=model_agent(folder, text), matrix=matrix).run("--traces", "kept")
    assert done.fired("drift") == [1]
    (kept,) = [one["trace"] for one in done.cell("answers", "drift")["evidence"]]
    from bylaw import load_trace

    return str(load_trace(folder.path / kept).turns[-1].response.text)


def test_drift_renames_json_fields_at_every_depth(folder: Folder) -> None:
    before = {f"field_{n}": n for n in range(8)} | {"inner": {"deep": [{"odd_name": 1}]}}
    after = json.loads(_drifted(folder, json.dumps(before), mode="response_drift", drift_type="json_field_rename"))
    assert not before.keys() & after.keys()
    assert not {"deep", "odd_name"} & _keys(after)
    assert list(after.values())[:8] == list(range(8))


def _keys(value: Any) -> set[str]:
    if isinstance(value, list):
        return {key for one in value for key in _keys(one)}
    return set(value) | _keys(list(value.values())) if isinstance(value, dict) else set()


def test_drift_expands_an_answer_by_its_factor(folder: Folder) -> None:
    text = "The order was sent on Monday and will be there soon."
    drift = {"mode": "response_drift", "drift_type": "verbosity_shift", "direction": "expand"}
    twice, fivefold = (len(_drifted(folder, text, **drift, factor=factor)) for factor in (2, 5))
    assert fivefold > 2 * twice > 3 * len(text)


def test_an_unknown_drift_type_is_refused(folder: Folder) -> None:
    fault = {"mode": "response_drift", "drift_type": "sideways"}
    done = folder.write(matrix=[{"name": "x", "llm_faults": [fault]}]).run()
    assert done.code == 2


def test_a_truncated_answer_keeps_its_lines(folder: Folder) -> None:
    text = "first line\nsecond line\nthird line"
    assert _drifted(folder, text, mode="truncated_response", max_tokens=4) == "first line\nsecond line"


def test_reports_escape_markup_and_control_characters(folder: Folder) -> None:
    evil = "<script>alert(1)</script> | [x](javascript:alert(1)) \x1b[31m"
    never = {"id": "a", "type": "contains", "value": "something else"}
    folder.write(agent="echo", invariants=[never], golden_prompts=[evil])
    said = folder.bylaw("contract", "run", "--format", "markdown").stdout
    assert "<script>" not in said.replace("`<script>", "")
    assert "\x1b" not in said + folder.bylaw("contract", "run").stdout
