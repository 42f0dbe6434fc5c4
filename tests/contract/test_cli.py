"""`bylaw contract` as a user runs it: real processes, and agents in files of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import bylaw
from tests.contract.end_to_end.support import free_port, wait_for
from tests.support.command import run_bylaw
from tests.support.yaml_files import load_yaml

AGENTS = """
import time
import bylaw

asked = []

@bylaw.tool
def price(item: str) -> str:
    return "42.50"

def good(prompt):
    print("a line on standard output")
    try:
        found = price("book")
    except Exception:
        return "I cannot look that up now (source: none)"
    return f"It costs ${found} (source: price list)"

def inventing(prompt):
    try:
        return f"It costs ${price('book')} (source: price list)"
    except Exception:
        return "It costs $19.99 (source: price list)"

def lonely(prompt):
    return "It costs nothing (source: me)"

def crashing(prompt):
    raise ValueError("boom")

def counting(prompt):
    asked.append(prompt)
    return f"This is ask {len(asked)} (source: me)"

def reset():
    asked.clear()

def bad_reset():
    raise RuntimeError("cannot reset")

def endless(prompt):
    open("asked", "w").close()
    time.sleep(600)

def coin(prompt):
    try:
        return f"{price('book')} (source: list)"
    except Exception:
        return "no (source: none)"
"""

CONTRACT: dict[str, Any] = {
    "contract": {
        "name": "prices",
        "invariants": [
            {"id": "cites", "type": "contains", "value": "source", "severity": "critical"},
            {
                "id": "never-invents",
                "type": "regex",
                "pattern": r"\$\d",
                "negate": True,
                "severity": "critical",
                "when": "tool_faults_active",
            },
            {"id": "finishes", "type": "completes"},
        ],
    },
    "chaos_matrix": [
        {"name": "calm"},
        {"name": "price down", "tool_faults": [{"tool": "price", "mode": "error", "error_code": 503}]},
    ],
    "golden_prompts": ["What does the book cost?"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop_agents.py").write_text(AGENTS)
    return tmp_path


def _write(folder: Path, agent: str, **agent_fields: Any) -> None:
    fields = {"type": "python", "endpoint": f"shop_agents:{agent}", "timeout": 5000, **agent_fields}
    (folder / "bylaw.yaml").write_text(yaml.safe_dump({**CONTRACT, "agent": fields}, sort_keys=False))


def _bylaw(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_bylaw([*arguments], cwd=folder, env={**os.environ, "NO_COLOR": "1"})


def _json(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = _bylaw(folder, "contract", "run", "--format", "json", *arguments)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def _cells(report: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {(cell["invariant"], cell["scenario"]): cell["outcome"] for cell in report["cells"]}


def test_a_good_agent_passes(folder: Path) -> None:
    _write(folder, "good")
    code, report = _json(folder)
    assert (code, report["exit_code"], report["score"], report["passed"]) == (0, 0, 100.0, True)
    assert (report["schema"], report["job"]) == ("bylaw.contract/1", "contract")
    down = next(cell for cell in report["cells"] if cell["scenario"] == "price down")
    assert [one["fired"] for one in down["faults"]] == [1]
    assert _cells(report)["never-invents", "calm"] == "not_applicable"


def test_an_inventing_agent_fails(folder: Path) -> None:
    _write(folder, "inventing")
    code, report = _json(folder, "--min-score", "0")
    assert (code, report["passed"]) == (1, False)
    assert _cells(report)["never-invents", "price down"] == "violated"
    assert "critical invariant `never-invents` violated" in report["verdict"]


def test_faults_that_never_fire_exit_with_3(folder: Path) -> None:
    """A fault that cannot fire is no pass: the tool is there, and is never called."""
    _write(folder, "lonely")
    code, report = _json(folder)
    assert code == 3
    assert _cells(report)["cites", "price down"] == "vacuous"
    assert _cells(report)["cites", "calm"] == "ok"


def test_the_reason_of_a_crash_is_reported(folder: Path) -> None:
    _write(folder, "crashing")
    code, report = _json(folder)
    assert code == 1
    assert _cells(report)["finishes", "calm"] == "violated"
    assert _cells(report)["cites", "calm"] == "error"
    assert "ValueError: boom" in report["cells"][0]["evidence"][0]["failure"]


def test_a_tool_that_does_not_exist_is_refused_up_front(folder: Path) -> None:
    _write(folder, "good")
    text = (folder / "bylaw.yaml").read_text().replace("tool: price", "tool: prise")
    (folder / "bylaw.yaml").write_text(text)
    done = _bylaw(folder, "contract", "run", "--format", "json")
    assert done.returncode == 2
    (diagnostic,) = json.loads(done.stdout)["diagnostics"]
    assert diagnostic["code"] == "fault-out-of-reach"
    assert diagnostic["line"] == next(n for n, line in enumerate(text.splitlines(), 1) if "tool: prise" in line)
    assert "error[fault-out-of-reach]" in done.stderr
    assert diagnostic["help"]


def test_an_agent_that_is_down_exits_with_4(folder: Path) -> None:
    _write(folder, "x")
    contract = {**CONTRACT, "chaos_matrix": [{"name": "calm"}], "agent": {"endpoint": "http://127.0.0.1:9/ask"}}
    (folder / "bylaw.yaml").write_text(yaml.safe_dump(contract))
    code, report = _json(folder, "--min-score", "0")
    assert (code, report["passed"], report["score"]) == (4, False, 0.0)
    assert set(_cells(report).values()) == {"error", "not_applicable"}


def test_an_agent_that_cannot_be_imported_exits_with_4(folder: Path) -> None:
    _write(folder, "nobody")
    code, report = _json(folder)
    assert (code, report["score"]) == (4, 0.0)
    assert "nobody" in report["stopped"]


def test_the_timeout_flag_limits_the_agent(folder: Path) -> None:
    _write(folder, "endless")
    started = time.monotonic()
    code, report = _json(folder, "--timeout", "200", "--scenario", "calm", "--invariant", "finishes")
    assert (code, _cells(report)) == (1, {("finishes", "calm"): "violated"})
    assert time.monotonic() - started < 300


def test_a_stateful_agent_is_warned_of(folder: Path) -> None:
    warning = "No reset_endpoint configured. Contract matrix cells may share state."
    _write(folder, "counting")
    assert warning in _bylaw(folder, "contract", "run", "--scenario", "calm").stdout
    _write(folder, "counting", reset_function="shop_agents:reset")
    done = _bylaw(folder, "contract", "run", "--scenario", "calm")
    assert (done.returncode, warning in done.stdout) == (0, False)
    _write(folder, "counting", reset_function="shop_agents:bad_reset")
    code, report = _json(folder)
    assert code == 4
    assert "cannot reset" in report["stopped"]


def test_score_prints_the_number_alone(folder: Path) -> None:
    _write(folder, "good")
    done = _bylaw(folder, "contract", "score")
    assert (done.stdout, done.returncode) == ("100.00\n", 0)
    _write(folder, "inventing")
    done = _bylaw(folder, "contract", "score")
    assert (done.stdout, done.returncode) == ("72.73\n", 1)
    _write(folder, "nobody")
    done = _bylaw(folder, "contract", "score")
    assert (done.stdout, done.returncode) == ("0.00\n", 4)


def test_filters_shrink_the_matrix_and_are_reported(folder: Path) -> None:
    _write(folder, "good")
    code, report = _json(folder, "--scenario", "price down", "--invariant", "cites", "--invariant", "finishes")
    assert code == 0
    assert set(_cells(report)) == {("cites", "price down"), ("finishes", "price down")}
    assert report["warnings"] == ["only a part of the contract was run: 2 of 3 invariants, 1 of 2 scenarios"]
    done = _bylaw(folder, "contract", "run", "--scenario", "prise down")
    assert done.returncode == 2
    assert "did you mean `price down`?" in done.stderr


def test_stored_traces_can_be_loaded(folder: Path) -> None:
    _write(folder, "inventing")
    code, report = _json(folder, "--traces", "kept", "--runs", "2")
    files = sorted((folder / "kept").glob("*.jsonl"))
    assert (code, len(files)) == (1, 4)
    cell = next(c for c in report["cells"] if (c["invariant"], c["scenario"]) == ("never-invents", "price down"))
    trace = bylaw.load_trace(folder / cell["evidence"][0]["trace"])
    assert [call.name for turn in trace.turns for call in turn.tool_calls] == ["price"]


def test_the_same_seed_gives_the_same_faults(folder: Path) -> None:
    _write(folder, "coin")
    text = load_yaml((folder / "bylaw.yaml").read_text())
    text["chaos_matrix"][1]["tool_faults"][0]["probability"] = 0.5
    (folder / "bylaw.yaml").write_text(yaml.safe_dump(text))

    def answers(seed: str) -> list[str]:
        _, report = _json(folder, "--seed", seed, "--runs", "12", "--scenario", "price down", "--invariant", "cites")
        return [one["answer"] for one in report["cells"][0]["evidence"]]

    first, second, third, other = answers("1"), answers("1"), answers("1"), answers("2")
    assert first == second == third != other
    assert len(set(first)) == 2


@pytest.mark.parametrize("command", [["contract", "run"], ["contract", "validate"], ["contract", "score"], ["ci"]])
def test_without_a_file_the_error_names_the_one_that_was_looked_for(command: list[str], tmp_path: Path) -> None:
    result = run_bylaw(command, cwd=tmp_path)
    assert result.returncode == 2
    assert "no FILE given, and there is no `bylaw.yaml` here" in result.stderr


def test_several_formats_are_written_to_files(folder: Path) -> None:
    _write(folder, "inventing")
    done = _bylaw(folder, "contract", "run", "--format", "terminal", "--format", "markdown=out.md")
    assert done.returncode == 1
    assert "✗ violated" in done.stdout
    assert "✗ FAILED: critical invariant `never-invents` violated, score 72.73" in done.stdout
    assert "a line on standard output" not in done.stdout
    assert "| never-invents | critical |" in (folder / "out.md").read_text()


def test_validate_counts_cells_and_reports_mistakes(folder: Path) -> None:
    _write(folder, "nobody")
    done = _bylaw(folder, "contract", "validate")
    assert done.returncode == 0
    assert "3 invariants × 2 scenarios = 5 applicable cells, 1 fault, 3 runs of the agent" in done.stdout
    done = _bylaw(folder, "contract", "validate", "--format", "json", "--format", "markdown=out.md")
    report = json.loads(done.stdout)
    assert (report["schema"], report["exit_code"], report["applicable_cells"]) == ("bylaw.contract/1", 0, 5)
    assert "5 applicable cells" in (folder / "out.md").read_text()
    with (folder / "bylaw.yaml").open("a") as file:
        file.write("output: {}\n")
    done = _bylaw(folder, "contract", "validate", "--format", "json", "--format", "markdown=out.md")
    assert [one["code"] for one in json.loads(done.stdout)["diagnostics"]] == ["section-not-run"]
    assert "the section \\`output\\`" in (folder / "out.md").read_text()
    (folder / "bylaw.yaml").write_text("contract: {name: x, invariants: [{id: a, type: contians, value: x}]}")
    done = _bylaw(folder, "contract", "validate", "--format", "json")
    assert done.returncode == 2
    assert "unknown-type" in {diagnostic["code"] for diagnostic in json.loads(done.stdout)["diagnostics"]}
    for command in ("run", "score", "validate"):
        done = _bylaw(folder, "contract", command, "-c", "nowhere.yaml")
        assert (done.returncode, done.stdout) == (2, "")
        assert "nowhere.yaml" in done.stderr


# -- agents in other programs -----------------------------------------------------------------------------------------

SHOP = Path(__file__).parent.parent.parent / "examples" / "agents"


@pytest.fixture
def orders() -> Iterator[str]:
    """The order service that the agents of `examples/agents` use."""
    port = free_port()
    server = subprocess.Popen([sys.executable, str(SHOP / "http" / "tool_server.py"), str(port)])
    wait_for(port)
    yield f"http://127.0.0.1:{port}"
    server.terminate()
    server.wait(timeout=300)


def _outside(folder: Path, orders: str, agent: dict[str, Any]) -> None:
    contract = {
        "contract": {
            "name": "shop",
            "invariants": [
                {"id": "finishes", "type": "completes"},
                {
                    "id": "never-invents",
                    "type": "regex",
                    "pattern": "(?i)could not look up",
                    "severity": "critical",
                    "when": "tool_faults_active",
                },
            ],
        },
        "chaos_matrix": [
            {"name": "calm"},
            {"name": "orders down", "tool_faults": [{"match_url": f"{orders}/*", "mode": "error", "error_code": 503}]},
        ],
        "agent": {"env": {"SHOP_URL": orders}, "timeout": 20000, **agent},
        "golden_prompts": ["Where is order A-17?"],
    }
    (folder / "bylaw.yaml").write_text(yaml.safe_dump(contract, sort_keys=False))


def _as_command(name: str) -> dict[str, Any]:
    return {"type": "command", "command": [sys.executable, str(SHOP / "command" / "agent.py"), name]}


def _as_server(name: str) -> dict[str, Any]:
    port = free_port()
    command = [sys.executable, str(SHOP / "http" / "agents.py"), name, str(port)]
    return {"type": "http", "endpoint": f"http://127.0.0.1:{port}/chat", "command": command}


@pytest.mark.parametrize("reached", [_as_command, _as_server])
def test_agents_in_other_processes_are_reached(
    folder: Path, orders: str, reached: Callable[[str], dict[str, Any]]
) -> None:
    """The proxy makes the agent's own request fail, and a good and an inventing agent come out apart."""
    _outside(folder, orders, reached("good"))
    code, report = _json(folder)
    assert (code, report["score"]) == (0, 100.0), report["verdict"]
    down = next(cell for cell in report["cells"] if cell["scenario"] == "orders down")
    assert down["faults"]
    assert all(one["fired"] >= 1 for one in down["faults"])
    _outside(folder, orders, reached("fabricating"))
    code, report = _json(folder)
    assert (code, _cells(report)["never-invents", "orders down"]) == (1, "violated")


def test_tool_faults_on_a_plain_url_are_refused(folder: Path, orders: str) -> None:
    agent = _as_server("good")
    _outside(folder, orders, {"type": "http", "endpoint": agent["endpoint"]})
    done = _bylaw(folder, "contract", "run")
    assert done.returncode == 2
    assert "error[fault-out-of-reach]" in done.stderr


def test_ctrl_c_exits_with_130(folder: Path) -> None:
    _write(folder, "endless", timeout=300000)
    process = subprocess.Popen(
        [sys.executable, "-m", "bylaw", "contract", "run"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while not (folder / "asked").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 130, stderr
    assert b"Traceback" not in stderr


def test_run_contract_from_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(folder, "inventing")
    monkeypatch.chdir(folder)
    report = bylaw.run_contract("bylaw.yaml", min_score=50, traces=folder / "kept", runs=2)
    assert (report.exit_code, report.score, report.passed) == (1, 72.73, False)
    assert len(list((folder / "kept").iterdir())) == 4
    (folder / "bylaw.yaml").write_text("contract: {}")
    with pytest.raises(bylaw.InputError):
        bylaw.run_contract(folder / "bylaw.yaml")


def test_validate_checks_reach_as_run_does(folder: Path) -> None:
    _write(folder, "good")
    text = (folder / "bylaw.yaml").read_text()
    (folder / "bylaw.yaml").write_text(text.replace("tool: price", "tool: prcie"))
    checked, run = (_bylaw(folder, "contract", command) for command in ("validate", "run"))
    assert (checked.returncode, run.returncode) == (2, 2)
    assert checked.stderr == run.stderr and "no tool of this agent is called" in checked.stderr


def test_validate_doubts_tools_that_the_agent_does_not_have(folder: Path) -> None:
    _write(folder, "good")
    text = (folder / "bylaw.yaml").read_text()
    tools = "[prcie, price, 'POST https://pay.example/*']"
    extra = f"  invariants:\n  - {{ id: once, no_duplicate_side_effects: {tools} }}\n"
    (folder / "bylaw.yaml").write_text(text.replace("  invariants:\n", extra, 1))
    done = _bylaw(folder, "contract", "validate", "--format", "json")
    (doubt,) = json.loads(done.stdout)["diagnostics"]
    assert (done.returncode, doubt["code"]) == (0, "unlikely-tool")
    assert "`once` names the tool `prcie`" in done.stderr and "did you mean `price`?" in done.stderr
