"""No command writes its report over a file that it reads."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from bylaw.cli import main

TRACE = '{"type": "tool_call", "session": "s", "turn": 0, "call_id": "c", "name": "ls", "arguments": {}}\n'
RULES = "rules:\n  - {id: no-rm, kind: forbid_calls, params: {tools: [rm]}}\n"
CI = "ci:\n  check: {traces: [runs/a.jsonl], policy: [rules.yaml]}\n  diff: {baseline: b.jsonl, candidate: c.jsonl}\n"
PYTHON = "agent: {type: python, endpoint: 'desk.refunds:run', reset_function: 'state:reset', deps: 'deps:make'}\n"
COMMAND = """agent:
  type: command
  command: [python, serve.py]
  cwd: desk
  upstreams: {openai: model.yaml}
  mcp: {orders: {command: [python, orders.py]}}
"""
CONTRACT = """contract:
  name: desk
  invariants:
    - {id: answers, type: completes}
    - {id: secret, type: system_prompt_leak_probe, system_prompt_path: secret.md}
chaos_matrix: [{name: calm}]
golden_prompts: [hello]
"""
NAMED = {
    "python.yaml": CONTRACT + PYTHON,
    "command.yaml": CONTRACT + COMMAND,
    "module.yaml": CONTRACT + "agent: {type: command, command: python -m desk.serve}\n",
    "mistake.yaml": CONTRACT + "agent: {type: python, endpoint: 'state:reset', tools: 7}\n",
    "desk/__init__.py": "",
    "desk/refunds.py": "def run(prompt):\n    return 'ok'\n",
    "desk/serve.py": "print('ok')\n",
    "state.py": "def reset():\n    pass\n",
    "deps.py": "def make():\n    pass\n",
    "judge.py": "def score(response):\n    return 1.0\n",
    "model.yaml": "replies: []\n",
    "orders.py": "",
    "secret.md": "You are the desk.\n",
    "schema.json": '{"type": "object"}',
    "schema.yaml": "rules:\n  - {id: s, kind: must_match_json_schema, params: {schema_path: schema.json}}\n",
    "manifest/index.yaml": "kind: phrony.manifest.index\nincludes: [agents.yaml]\n",
    "manifest/agents.yaml": "agents: []\n",
    "judged.yaml": "ci:\n  diff: {baseline: b.jsonl, candidate: c.jsonl, judge: 'judge:score'}\n",
}
"""files that name others, and those that they name"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[Path, str]:
    """Every input that a command below names, and what is in it."""
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    for name in ("runs/a.jsonl", "b.jsonl", "c.jsonl"):
        Path(name).write_text(TRACE)
    for name in ("rules.yaml", "bylaw.yaml"):
        Path(name).write_text(RULES)
    Path("ci.yaml").write_text(CI)
    for name, text in NAMED.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    for name in ("prompt.md", "tools.json", "alias.yaml", "prices.yaml"):
        Path(name).write_text("{}")
    Path("link.jsonl").symlink_to("runs/a.jsonl")
    os.link("runs/a.jsonl", "hard.jsonl")
    return {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}


def _run(line: str) -> int | str | None:
    with pytest.raises(SystemExit) as end:
        main(line.split())
    return end.value.code


@pytest.mark.parametrize(
    "line",
    [
        "check runs/a.jsonl -p rules.yaml --format json=runs/a.jsonl",
        "check runs/a.jsonl -p rules.yaml -o link.jsonl",
        "check runs/a.jsonl -p rules.yaml -o hard.jsonl",
        "check link.jsonl -p rules.yaml -o ./runs/../runs/a.jsonl",
        "check runs -p rules.yaml -o runs/a.jsonl",
        "check runs/*.jsonl -p rules.yaml -o runs/a.jsonl --all",
        "check runs -p rules.yaml -o rules.yaml",
        "check runs -o bylaw.yaml",
        "check runs/a.jsonl -p rules.yaml --strict --allow-vacuous -o rules.yaml",
        "diff b.jsonl c.jsonl -o b.jsonl",
        "diff b.jsonl c.jsonl --format markdown=c.jsonl",
        "diff b.jsonl c.jsonl --prices prices.yaml -o prices.yaml",
        "inspect b.jsonl -o b.jsonl",
        "inspect b.jsonl c.jsonl -o c.jsonl",
        "comply b.jsonl --prompt prompt.md -o prompt.md",
        "comply b.jsonl --prompt prompt.md --emit prompt.md",
        "comply b.jsonl --prompt prompt.md --emit b.jsonl",
        "comply b.jsonl --prompt prompt.md --tools tools.json --emit tools.json",
        "comply b.jsonl --prompt prompt.md --alias alias.yaml --emit alias.yaml",
        "comply b.jsonl --prompt prompt.md --rules rules.yaml --emit rules.yaml",
        "comply rules --prompt prompt.md -o prompt.md",
        "comply diff prompt.md alias.yaml -o alias.yaml",
        "lint rules.yaml -o rules.yaml",
        "ci ci.yaml -o ci.yaml",
        "ci ci.yaml -o runs/a.jsonl",
        "ci ci.yaml -o rules.yaml",
        "ci ci.yaml -o c.jsonl",
        "ci -c ci.yaml --traces b.jsonl -o b.jsonl",
        "contract run -o bylaw.yaml",
        "ci judged.yaml -o judge.py",
        "ci python.yaml -o desk/refunds.py",
        "ci schema.yaml --traces b.jsonl -o schema.json",
        "diff b.jsonl c.jsonl --judge judge:score -o judge.py",
        "check b.jsonl -p schema.yaml -o schema.json",
        "check b.jsonl -p manifest -o manifest/index.yaml",
        "check b.jsonl -p manifest -o manifest/agents.yaml",
        "lint schema.yaml -o schema.json",
        "contract run python.yaml -o desk/refunds.py",
        "contract run python.yaml --format json=desk/__init__.py",
        "contract run python.yaml -o state.py",
        "contract run python.yaml -o deps.py",
        "contract run python.yaml -o secret.md",
        "contract validate python.yaml -o desk/refunds.py",
        "contract run command.yaml -o desk/serve.py",
        "contract run module.yaml -o desk/serve.py",
        "contract run mistake.yaml -o state.py",
        "lint python.yaml -o desk/refunds.py",
        "contract run command.yaml -o model.yaml",
        "contract run command.yaml -o orders.py",
        "contract validate rules.yaml -o rules.yaml",
        "contract import rules.yaml -o rules.yaml --force",
        "guard backtest rules.yaml b.jsonl -o rules.yaml",
        "guard backtest rules.yaml b.jsonl --against bylaw.yaml -o bylaw.yaml",
        "guard propose b.jsonl --out b.jsonl",
        "guard propose runs --out runs/a.jsonl",
        "guard export rules.yaml -o rules.yaml",
    ],
)
def test_a_command_does_not_write_over_its_inputs(
    line: str, files: dict[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(line) == 2
    assert "would be overwritten, and it is an input" in " ".join(capsys.readouterr().err.split())
    assert {path: path.read_text() for path in files} == files


def test_standard_input_is_an_input_too(files: dict[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    kept = os.dup(0)
    try:
        with open("b.jsonl") as opened:
            os.dup2(opened.fileno(), 0)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        assert _run("check - -p rules.yaml -o b.jsonl") == 2
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    assert {path: path.read_text() for path in files} == files


def test_files_that_are_not_read_may_be_replaced(files: dict[Path, str]) -> None:
    for output in ("c.jsonl", "runs/report.md", "runs/report.json"):
        _run(f"check b.jsonl -p rules.yaml --format json={output}")
        assert Path(output).read_text().startswith("{\n")
    assert _run("check /dev/null -p rules.yaml -o /dev/null") != 0
    assert Path("b.jsonl").read_text() == TRACE


@pytest.mark.parametrize("line", ["check b.jsonl -p rules.yaml -o", "comply b.jsonl --prompt prompt.md --emit"])
def test_folders_and_links_to_themselves_are_no_files_to_write(
    line: str, files: dict[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("loop").symlink_to("loop")
    assert _run(f"{line} .") == 2
    assert "`.` is a folder" in capsys.readouterr().err
    assert _run(f"{line} loop") == 2
    assert "`loop` is a link that leads back to itself" in capsys.readouterr().err
    assert os.readlink("loop") == "loop"


def test_rules_and_report_do_not_go_to_one_file(files: dict[Path, str]) -> None:
    assert _run("comply b.jsonl --prompt prompt.md --emit new.yaml -o ./new.yaml") == 2
    assert not Path("new.yaml").exists()


@pytest.mark.parametrize(
    "line",
    [
        "check b.jsonl -p rules.yaml -o missing/../b.jsonl",
        "contract run python.yaml -o missing/../state.py",
        "comply b.jsonl --prompt prompt.md --emit missing/../prompt.md",
        "lint rules.yaml -o missing/../rules.yaml",
    ],
)
def test_a_path_through_a_missing_folder_is_no_file_to_write(
    line: str, files: dict[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(line) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert "does not exist" in err or "would be overwritten" in err
    assert {path: path.read_text() for path in files} == files


def test_an_output_that_the_command_of_the_agent_names_may_be_replaced(files: dict[Path, str]) -> None:
    agent = "agent: {type: command, command: [python, desk/serve.py, report, --log, log.txt]}\n"
    Path("logs.yaml").write_text(CONTRACT + agent)
    for _ in range(2):
        assert _run("contract validate logs.yaml -o report") == 0
        assert _run("contract validate logs.yaml -o log.txt") == 0
    assert _run("contract validate logs.yaml -o desk/serve.py") == 2
