"""Bad input with a machine format: a whole diagnostic document, on standard output and in files, and exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import run_bylaw

GOOD = '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}\n'
RULES = "- {id: greet, kind: must_include_text, params: {text: goodbye}}\n"

BAD_INPUT = {
    "bad trace": ("check bad.jsonl -p rules.yaml", "check"),
    "no such trace": ("check nowhere.jsonl -p rules.yaml", "check"),
    "bad rules": ("check good.jsonl -p bad.yaml", "check"),
    "no rules": ("check good.jsonl", "check"),
    "bad trace after findings": ("check good.jsonl bad.jsonl -p rules.yaml --all", "check"),
    "bad trace in a diff": ("diff good.jsonl bad.jsonl", "diff"),
    "bad price list": ("diff good.jsonl good.jsonl --prices bad.yaml", "diff"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "good.jsonl": GOOD,
        "bad.jsonl": GOOD + "{broken\n" + GOOD,
        "rules.yaml": RULES,
        "bad.yaml": "- {kind: x}\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("where", ["standard output", "file"])
@pytest.mark.parametrize("name", BAD_INPUT)
def test_json_is_a_whole_document(name: str, where: str, folder: Path) -> None:
    command, job = BAD_INPUT[name]
    (folder / "out.json").write_text("an older report")
    target = ["--format", "json"] if where == "standard output" else ["--format", "json=out.json"]
    done = run_bylaw([*command.split(), *target], cwd=folder)
    document = json.loads(done.stdout if where == "standard output" else (folder / "out.json").read_text())
    assert done.returncode == document["exit_code"] == 2
    assert (document["schema"], document["job"]) == (f"bylaw.{job}/1", job)
    assert document["diagnostics"]
    assert all(problem["message"] in " ".join(done.stderr.split()) for problem in document["diagnostics"])


@pytest.mark.parametrize("name", [name for name, (command, _) in BAD_INPUT.items() if "--all" not in command])
def test_markdown_says_bad_input(name: str, folder: Path) -> None:
    command, job = BAD_INPUT[name]
    done = run_bylaw([*command.split(), "--format", "markdown"], cwd=folder)
    assert done.returncode == 2
    assert done.stdout.startswith(f"### ❌ Bylaw {job}: BAD INPUT\n\n- ")


@pytest.mark.parametrize(
    ("target", "first"), [("markdown=out", "### ❌ Bylaw lint: 1 file: "), ("terminal=out", "1 file: ")]
)
def test_a_file_of_lint_holds_every_problem(target: str, first: str, folder: Path) -> None:
    (folder / "bad.yaml").write_text("- {id: a, kind: no_cal}\n- {id: b, kind: no_call, params: {tol: x}}\n")
    done = run_bylaw(["lint", "bad.yaml", "--format", target], cwd=folder)
    text = (folder / "out").read_text()
    assert (done.returncode, text.startswith(first)) == (2, True)
    assert all(code in text for code in ("bad.yaml:1:", "unknown-kind", "bad.yaml:2:", "unknown-parameter"))


def test_findings_before_a_bad_trace_stay_in_the_document(folder: Path) -> None:
    arguments = ["check", "good.jsonl", "bad.jsonl", "-p", "rules.yaml", "--all", "--format", "json"]
    document = json.loads(run_bylaw(arguments, cwd=folder).stdout)
    assert [finding["trace"] for finding in document["findings"]] == ["good.jsonl"]
    assert [problem["line"] for problem in document["diagnostics"]] == [2]


@pytest.mark.parametrize("traces", ["bad.jsonl", "good.jsonl bad.jsonl", "nowhere.jsonl", "."])
def test_every_line_of_inspect_is_json_and_the_last_holds_the_diagnostics(traces: str, folder: Path) -> None:
    done = run_bylaw(["inspect", *traces.split(), "--format", "json"], cwd=folder)
    lines = [json.loads(line) for line in done.stdout.replace("\n  ", " ").replace("\n}", "}").splitlines()]
    assert done.returncode == lines[-1]["exit_code"] == 2
    assert lines[-1]["diagnostics"]
