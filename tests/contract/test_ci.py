"""`bylaw ci`: which parts run, what each weighs, and the one exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from bylaw.ci.file import load_ci
from bylaw.ci.report import RENDERERS, CiPart, CiReport, combine, failed_part
from bylaw.cli import cli
from bylaw.errors import ExitCode
from bylaw.lint.report import read_files

ROOT = Path(__file__).parent.parent.parent
REFUND = ROOT / "src" / "bylaw" / "demo" / "files"

AGENT = "def agent(prompt):\n    return 'fine'\n"
CONTRACT: dict[str, Any] = {
    "contract": {
        "name": "c",
        "invariants": [
            {"id": "talks", "type": "output_not_empty"},
            {"id": "says-fine", "type": "contains", "value": "fine"},
        ],
    },
    "chaos_matrix": [{"name": "calm"}],
    "agent": {"type": "python", "endpoint": "ci_agent:agent"},
    "golden_prompts": ["hello"],
}
RULES = {"rules": [{"id": "held", "kind": "max_turns", "params": {"n": 1000}}]}
BROKEN = {"id": "broken", "kind": "max_turns", "params": {"n": 1}, "scope": "trace"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ci_agent.py").write_text(AGENT)
    for name in ("v1.jsonl", "v2.jsonl"):
        (tmp_path / name).write_bytes((REFUND / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _ci(folder: Path, content: dict[str, Any], *arguments: str) -> tuple[int, dict[str, Any]]:
    (folder / "bylaw.yaml").write_text(yaml.safe_dump(content))
    done = CliRunner().invoke(cli, ["ci", "--format", "json", *arguments], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return int(done.return_value), json.loads(done.stdout)


def _parts(report: dict[str, Any]) -> dict[str, float]:
    return {part["name"]: part["score"] for part in report["parts"]}


def test_nothing_configured_exits_with_3(folder: Path) -> None:
    code, report = _ci(folder, RULES)
    assert (code, report["score"], report["parts"]) == (3, 0.0, [])
    assert len(report["left_out"]) == 3


def test_a_contract_alone_is_the_whole_score(folder: Path) -> None:
    code, report = _ci(folder, CONTRACT)
    assert (code, report["score"], report["contract_compliance"]) == (0, 100.0, 100.0)
    assert report["reports"]["contract"]["job"] == "contract"
    assert [why.split(":")[0] for why in report["left_out"]] == ["check", "diff"]


def test_without_scoring_all_parts_weigh_the_same(folder: Path) -> None:
    ci = {"ci": {"check": {"traces": "v1.jsonl"}, "diff": {"baseline": "v1.jsonl", "candidate": "v1.jsonl"}}}
    code, report = _ci(folder, {**CONTRACT, **RULES, **ci})
    assert (code, report["score"]) == (0, 100.0)
    assert _parts(report) == {"check": 100.0, "diff": 100.0, "contract": 100.0}
    assert {part["weight"] for part in report["parts"]} == {1.0}


def test_a_broken_rule_and_a_tripped_diff_fail(folder: Path) -> None:
    ci = {
        "ci": {
            "check": {"traces": ["v1.jsonl"]},
            "diff": {"baseline": "v1.jsonl", "candidate": "v2.jsonl", "deterministic": True},
        }
    }
    rules = {"rules": [*RULES["rules"], BROKEN]}
    code, report = _ci(folder, {**CONTRACT, **rules, **ci})
    assert code == 1
    assert _parts(report) == {"check": 50.0, "diff": 0.0, "contract": 100.0}
    assert report["score"] == 50.0


def test_scoring_gives_the_weights(folder: Path) -> None:
    ci = {"ci": {"check": {"traces": "v1.jsonl"}}, "scoring": {"check": 1, "contract_compliance": 3}}
    _, report = _ci(folder, {**CONTRACT, "rules": [*RULES["rules"], BROKEN], **ci})
    assert report["score"] == 87.5


def test_weights_of_parts_that_bylaw_does_not_run_are_ignored(folder: Path) -> None:
    scoring = {"scoring": {"mutation": 0.2, "chaos": 0.35, "contract": 0.35, "replay": 0.1}}
    code, report = _ci(folder, {**CONTRACT, **scoring})
    assert (code, report["score"]) == (0, 100.0)


def test_parts_that_all_weigh_nothing_exit_with_3(folder: Path) -> None:
    code, report = _ci(folder, {**CONTRACT, "scoring": {"check": 1, "contract": 0}})
    assert (code, report["score"]) == (3, 0.0)
    assert report["verdict"] == "NO SCORE: `scoring` gives every part that ran the weight 0"


@pytest.mark.parametrize("scoring", [{"check": 1}, {"mutation": 0.5, "chaos": 0.5}, {"weights": {"replay": 1.0}}])
def test_weights_of_parts_that_did_not_run_leave_the_others_equal(folder: Path, scoring: dict[str, Any]) -> None:
    code, report = _ci(folder, {**CONTRACT, "scoring": scoring})
    assert (code, report["score"], report["verdict"]) == (0, 100.0, "PASSED: score 100")
    assert any("gives no weight to what was run (contract)" in warning for warning in report["warnings"]) is (
        "check" in scoring
    )


def test_cells_that_hold_are_never_headlined_as_nothing_checked(folder: Path) -> None:
    """One invariant that shows nothing leaves the verdict open; it does not undo the others."""
    idle = {"id": "idle", "type": "rule", "rule": {"kind": "must_call_before", "params": {"first": "x", "second": "y"}}}
    invariants = [*CONTRACT["contract"]["invariants"], idle]
    code, report = _ci(folder, {**CONTRACT, "contract": {"name": "c", "invariants": invariants}})
    assert (code, report["contract_compliance"]) == (3, 66.67)
    assert report["verdict"] == "NOT SHOWN: score 66.67; contract did not pass"


def test_flags_configure_check_and_diff(folder: Path) -> None:
    code, report = _ci(folder, RULES, "--traces", "v1.jsonl", "--baseline", "v1.jsonl", "--candidate", "v1.jsonl")
    assert code == 0
    assert _parts(report) == {"check": 100.0, "diff": 100.0}


def test_a_part_that_cannot_run_fails(folder: Path) -> None:
    ci = {"ci": {"check": {"traces": "nowhere.jsonl"}}}
    code, report = _ci(folder, {**CONTRACT, **RULES, **ci})
    assert (code, _parts(report)) == (2, {"check": 0.0, "contract": 100.0})
    assert report["score"] == 50.0
    broken = {**CONTRACT, "agent": {"type": "python", "endpoint": "ci_agent:nobody"}}
    code, report = _ci(folder, broken)
    assert (code, report["score"], report["contract_compliance"]) == (4, 0.0, 0.0)


@pytest.mark.parametrize("command", ["ci", "contract"])
def test_an_extra_that_is_not_installed_is_bad_input(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = {"type": "command", "command": "cat"} if command == "ci" else {"endpoint": "http://localhost:1/"}
    (folder / "bylaw.yaml").write_text(yaml.safe_dump({**CONTRACT, "agent": agent}))
    for module in ("bylaw.contract.agents.external_agent", "bylaw.wire.proxy.child_environment"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "trustme", None)
    arguments = ["ci"] if command == "ci" else ["contract", "run"]
    done = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert done.return_value == 2, done.output
    assert "pip install 'bylaw[contract]'" in done.output


def test_a_bad_contract_is_bad_input(folder: Path) -> None:
    bad = {**CONTRACT, "chaos_matrix": []}
    code, report = _ci(folder, bad)
    assert (code, _parts(report)) == (2, {"contract": 0.0})
    assert "[empty-value]" in report["parts"][0]["problems"][0]


def test_one_list_has_the_warnings_of_the_file_and_of_the_parts(folder: Path) -> None:
    ci = {"ci": {"check": {"traces": "v1.jsonl"}}, "scoring": {"mutation": 0.2, "contract": 0.8}, "output": {}}
    (folder / "bylaw.yaml").write_text(yaml.safe_dump({**CONTRACT, **RULES, **ci}))
    done = CliRunner().invoke(cli, ["ci", "--format", "json", "--format", "markdown=r.md"], standalone_mode=False)
    warnings = json.loads(done.stdout)["warnings"]
    for code in ("key-not-used", "section-not-run"):
        assert sum(f"[{code}]" in warning for warning in warnings) == 1
        assert code in (folder / "r.md").read_text()
    assert done.stderr.splitlines() == [f"warning: {warning}" for warning in warnings]


def test_rules_that_never_trigger_exit_with_3(folder: Path) -> None:
    idle = {"rules": [{"id": "idle", "kind": "must_call_before", "params": {"first": "x", "second": "y"}}]}
    code, report = _ci(folder, {**idle, "ci": {"check": {"traces": "v1.jsonl"}}})
    assert (code, _parts(report)) == (3, {"check": 0.0})


IDLE = {"id": "idle", "kind": "must_call_before", "params": {"first": "a", "second": "b"}}
UNCHECKED = {"rules": [*RULES["rules"], IDLE]}
CHECK = {"ci": {"check": {"traces": "v1.jsonl"}}}


def test_a_pass_names_the_part_that_left_rules_unchecked(folder: Path) -> None:
    code, report = _ci(folder, {**UNCHECKED, **CHECK})
    assert (code, report["verdict"]) == (0, "PASSED, but not everything was checked (check): score 100")
    assert report["parts"][0]["verdict"] == "PASSED, but 1 of 2 rules was not checked: idle"
    assert report["parts"][0]["unchecked"] == ["idle"]


@pytest.mark.parametrize(
    ("more", "flags", "wanted"),
    [
        ({}, ["--strict"], 3),
        ({"strict": True}, [], 3),
        ({"strict": True}, ["--no-strict"], 0),
        ({"ci": {**CHECK["ci"], "strict": True}}, [], 3),
    ],
)
def test_strict_wants_every_rule_checked(folder: Path, more: dict[str, Any], flags: list[str], wanted: int) -> None:
    code, report = _ci(folder, {**UNCHECKED, **CHECK, **more}, *flags)
    assert (code, report["exit_code"], report["strict"]) == (wanted, wanted, wanted == 3)


def test_strict_counts_warnings(folder: Path) -> None:
    warned = {"rules": [{**RULES["rules"][0], "when": []}]}
    assert _ci(folder, {**warned, **CHECK})[0] == 0
    code, report = _ci(folder, {**warned, **CHECK}, "--strict")
    assert (code, report["verdict"]) == (3, "NOT SHOWN: score 100; check did not pass; 1 warning")


@pytest.mark.parametrize("flags", [["--traces", "odd.jsonl"], ["--baseline", "v1.jsonl", "--candidate", "odd.jsonl"]])
def test_strict_counts_warnings_about_traces_and_names_them(folder: Path, flags: list[str]) -> None:
    text = (folder / "v1.jsonl").read_text()
    (folder / "odd.jsonl").write_text(text.replace("My lamp", r"My \ud800 lamp", 1))
    (folder / "bylaw.yaml").write_text(yaml.safe_dump(RULES))
    done = CliRunner().invoke(cli, ["ci", *flags, "--strict"], standalone_mode=False)
    assert done.return_value == 3
    assert "odd.jsonl:1" in done.output
    assert "surrogate" in done.output


def test_min_score_applies_to_the_whole_and_to_the_contract(folder: Path) -> None:
    invariants = [*CONTRACT["contract"]["invariants"], {"id": "sings", "type": "contains", "value": "la"}]
    worse = {**CONTRACT, "contract": {"name": "c", "invariants": invariants}}
    assert _ci(folder, worse)[0] == 1
    assert _ci(folder, worse, "--min-score", "60")[0] == 0
    assert _ci(folder, worse, "--min-score", "70")[0] == 1
    assert _ci(folder, {**worse, "ci": {"min_score": 60}})[0] == 0


def test_the_whole_score_can_be_too_low_though_every_part_passed(folder: Path) -> None:
    rules = {"rules": [*RULES["rules"], {**BROKEN, "severity": "info"}], "ci": {"check": {"traces": "v1.jsonl"}}}
    code, report = _ci(folder, rules)
    assert (code, report["score"]) == (0, 50.0)
    code, report = _ci(folder, rules, "--min-score", "60")
    assert (code, [part["exit_code"] for part in report["parts"]]) == (1, [0])
    assert report["verdict"] == "FAILED: score 50, 60 required"


@pytest.mark.parametrize(
    ("codes", "wanted"), [([0, 0], 0), ([0, 3], 3), ([3, 4], 4), ([4, 1], 1), ([1, 2], 2), ([0, 4, 3, 1], 1)]
)
def test_exit_codes_combine_by_precedence(codes: list[int], wanted: int) -> None:
    parts = [failed_part("check", ExitCode(code), "x") for code in codes]
    assert combine(parts, weights={}, min_score=None, left_out=()).exit_code == wanted


def test_rounding_never_makes_a_score_of_100() -> None:
    parts = [
        CiPart(name="check", score=99.999, exit_code=0, verdict=""),
        CiPart(name="contract", score=100.0, exit_code=0, verdict=""),
    ]
    assert combine(parts, weights={}, min_score=None, left_out=()).score == 99.99


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("ci: []", "wrong-type", 1),
        ("ci:\n  chekc: {traces: x}", "unknown-key", 2),
        ("ci:\n  check: {}", "missing-key", 2),
        ("ci:\n  check: {traces: []}", "empty-value", 2),
        ("ci:\n  check: {traces: x, fail_on: sever}", "wrong-type", 2),
        ("ci:\n  diff: {baseline: x}", "missing-key", 2),
        ("ci:\n  diff: {baseline: x, candidate: y, fail_on: sever}", "wrong-type", 2),
        ("ci: {min_score: 101}", "wrong-type", 1),
        ("scoring: {check: 0}", "no-weight", 1),
        ("scoring: {check: -1}", "wrong-type", 1),
    ],
)
def test_mistakes_in_the_file_are_reported_with_their_line(folder: Path, text: str, code: str, line: int) -> None:
    (folder / "bylaw.yaml").write_text(text)
    (diagnostic,) = load_ci(folder / "bylaw.yaml").diagnostics
    assert diagnostic.span is not None
    assert (diagnostic.code, diagnostic.span.line) == (code, line)
    assert [one.code for one in read_files(["bylaw.yaml"]).diagnostics if one.is_error] == [code]
    done = CliRunner().invoke(cli, ["ci"], standalone_mode=False)
    assert done.return_value == ExitCode.BAD_INPUT


def test_a_missing_file_and_a_baseline_without_candidate_are_bad_input(folder: Path) -> None:
    assert CliRunner().invoke(cli, ["ci", "-c", "nowhere.yaml"], standalone_mode=False).return_value == 2
    (folder / "bylaw.yaml").write_text(yaml.safe_dump(RULES))
    half = CliRunner().invoke(cli, ["ci", "--baseline", "v1.jsonl"])
    assert "--baseline and --candidate go together" in half.output


@pytest.mark.parametrize("format", ["terminal", "markdown"])
def test_the_report_for_people_has_every_part(folder: Path, format: str) -> None:
    (folder / "bylaw.yaml").write_text(yaml.safe_dump(CONTRACT))
    done = CliRunner().invoke(cli, ["ci", "--format", format], standalone_mode=False)
    assert done.return_value == 0
    assert "PASSED: score 100" in done.stdout
    assert "left out: check" in done.stdout


def test_a_format_that_no_part_has_gets_the_summary_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bylaw.yaml").write_text(yaml.safe_dump(CONTRACT))
    monkeypatch.setitem(RENDERERS._functions, "csv", f"{__name__}:_render_csv")
    done = CliRunner().invoke(cli, ["ci", "--format", "csv"], standalone_mode=False)
    assert (done.return_value, done.stdout) == (0, "100.0,[]\n")


def _render_csv(report: CiReport, texts: dict[str, str]) -> str:
    return f"{report.score},{[*texts]}\n"


@pytest.mark.parametrize("torn", ["{", '{"neither": "nor"}'])
def test_one_unreadable_file_does_not_stop_the_others(folder: Path, torn: str) -> None:
    for side in ("old", "new"):
        (folder / side).mkdir()
        (folder / side / "v1.jsonl").write_bytes((folder / "v1.jsonl").read_bytes())
    (folder / "new" / "torn.json").write_text(torn)
    code, report = _ci(folder, RULES, "--traces", "new", "--baseline", "old", "--candidate", "new")
    assert (code, _parts(report)) == (2, {"check": 0.0, "diff": 0.0})
    for part in ("check", "diff"):
        own = report["reports"][part]
        assert own["verdict"].startswith("BAD INPUT: 1 "), "the others are reported"
        assert [one["file"] for one in own["unread"]] == ["new/torn.json"]
    assert report["reports"]["check"]["turns"] == 12
