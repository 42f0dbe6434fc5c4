"""Secrets stay in the agent: neither the report nor a trace that is kept holds one, unless that is wanted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

import bylaw
from bylaw.contract.job import Options, run_on_agent
from bylaw.contract.live_agent import Failure
from bylaw.contract.model import KeepsRule
from bylaw.model.events import Trace
from bylaw.rules import parse_rules
from tests.contract.scripted import ScriptedAgent, contract, invariant, ran
from tests.support.build import trace
from tests.support.command import run_bylaw

KEY = "sk-live-4f9a8b7c6d5e4f3a2b1c0d9e"
PEM = f"-----BEGIN PRIVATE KEY-----\n{'QUJD' * 800}\n-----END PRIVATE KEY-----"

AGENT = f"""
import bylaw

@bylaw.tool
def log_in(user, password):
    return {{"api_key": "short", "token": "Bearer {KEY}"}}

def agent(prompt):
    found = log_in("ann", password="hunter22")
    return f"You are in: {{found['token']}}"

def crashing(prompt):
    raise ValueError("refused: {KEY}")
"""
LOG_IN = {"name": "log_in", "args": {"password": "hunter22"}}
SECRETS = (KEY, "hunter22", '"short"')


def _run(folder: Path, agent: str, *flags: str) -> tuple[str, str]:
    """What it said, and what it kept."""
    (folder / "clerk.py").write_text(AGENT)
    forbidden = {"kind": "no_call", "params": {"tool": "log_in"}}
    file = {
        "contract": {"name": "c", "invariants": [{"id": "stays-out", "type": "rule", "rule": forbidden}]},
        "chaos_matrix": [{"name": "calm"}],
        "agent": {"type": "python", "endpoint": f"clerk:{agent}"},
        "golden_prompts": [f"Log in with {KEY}"],
    }
    (folder / "bylaw.yaml").write_text(yaml.safe_dump(file))
    done = run_bylaw(
        ["contract", "run", "--format", "json", "--traces", "kept", *flags],
        cwd=folder,
        timeout=120,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert json.loads(done.stdout)["schema"] == "bylaw.contract/1"
    kept = sorted((folder / "kept").iterdir())
    assert kept
    return done.stdout + done.stderr, "\n".join(f"{one.name}\n{one.read_text('utf-8')}" for one in kept)


def test_secrets_are_in_neither(tmp_path: Path) -> None:
    for said in _run(tmp_path, "agent"):
        assert not [secret for secret in SECRETS if secret in said]
        assert "[redacted: " in said
        assert KEY.replace("_", "-")[:20] not in said


def test_a_crash_says_no_secret_either(tmp_path: Path) -> None:
    said, kept = _run(tmp_path, "crashing")
    assert KEY not in said + kept
    assert "ValueError: refused: [redacted: api key]" in said


def test_secrets_are_kept_where_that_is_wanted(tmp_path: Path) -> None:
    said, kept = _run(tmp_path, "agent", "--no-redact")
    assert KEY in said
    assert "hunter22" in said
    assert all(secret in kept for secret in SECRETS)


def test_a_redacted_trace_opens_again(tmp_path: Path) -> None:
    _run(tmp_path, "agent")
    (first, *_) = sorted((tmp_path / "kept").iterdir())
    (found,) = [one for turn in bylaw.load_trace(first).turns for one in turn.tool_calls]
    assert (found.name, found.arguments) == ("log_in", {"user": "ann", "password": "[redacted: secret]"})


def test_rules_see_what_was_really_done() -> None:
    """Redaction is for what is written down: a rule on the secret itself still finds it."""
    done = trace([{"calls": [LOG_IN]}])
    (rule,) = parse_rules("rules: [{id: a, kind: no_call, params: {tool: log_in}}]").rules
    check = KeepsRule(rule)
    report = run_on_agent(contract(invariant(check=check)), ScriptedAgent(lambda *_: ran("ok", made=done)))
    (one,) = report.cells[0].evidence
    assert report.exit_code == 1
    (pointer,) = one.events
    assert pointer.excerpt == 'log_in(password="[redacted: secret]")'


def _kept(made: Trace, **options: Any) -> Trace:
    found: list[Trace] = []

    def keep(run: str, trace: Trace) -> str:
        found.append(trace)
        return run

    run_on_agent(contract(), ScriptedAgent(lambda *_: ran("ok", made=made)), Options(keep_trace=keep, **options))
    return found[0]


def test_arguments_that_travel_as_text() -> None:
    sent = json.dumps({"user": "ann", "password": "hunter22"})
    message = {"role": "assistant", "tool_calls": [{"function": {"name": "log_in", "arguments": sent}}]}
    made = trace([{"request": {"messages": [message]}, "calls": [{**LOG_IN, "raw": sent}]}])
    assert "hunter22" not in repr(_kept(made))
    assert _kept(made, redact=False) == made


def test_a_call_stays_the_call_of_its_response() -> None:
    made = trace([{"calls": [LOG_IN], "results": ["log_in"]}])
    kept = _kept(made)
    (turn,) = kept.turns
    assert [event for event in kept.events if event.kind == "tool_call"] == list(turn.tool_calls)
    assert kept != made


def test_values_nested_deeper_than_anyone_can_read() -> None:
    deep: Any = "hunter22"
    for _ in range(5_000):
        deep = [deep]
    (turn,) = _kept(trace([{"text": None, "calls": [{"name": "log_in", "args": {"a": deep}}]}])).turns
    assert "hunter22" not in str(turn.tool_calls[0].arguments)


@pytest.mark.parametrize("before", [0, 900, 3_000])
def test_a_long_secret_is_not_shown_in_part(before: int) -> None:
    answer = "x" * before + " " + PEM
    report = run_on_agent(contract(), ScriptedAgent(answer))
    assert "QUJDQUJD" not in repr(report.cells[0].evidence)


def test_a_failure_is_shown_without_its_secret() -> None:
    report = run_on_agent(contract(), ScriptedAgent(lambda *_: Failure("error", f"HTTP 401: {KEY}")))
    assert KEY not in repr(report.cells)
    assert "HTTP 401" in report.cells[0].reason


@pytest.mark.parametrize("key", ["endpoint", "reset_endpoint"])
def test_what_a_variable_holds_is_not_shown(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the agent's name nor in why it is out of reach."""
    monkeypatch.setenv("TOKEN", "open-sesame")
    secret = "http://ann:$TOKEN@127.0.0.1:9/ask?key=$TOKEN"
    file = {
        "contract": {"name": "c", "invariants": [{"id": "a", "type": "completes"}]},
        "chaos_matrix": [{"name": "calm"}],
        "agent": {"endpoint": "http://127.0.0.1:9/ask", key: secret},
        "golden_prompts": ["hello", "hi", "good day"],
    }
    (tmp_path / "bylaw.yaml").write_text(yaml.safe_dump(file))
    report = bylaw.run_contract(tmp_path / "bylaw.yaml")
    assert report.exit_code == 4
    assert "open-sesame" not in repr(report)
    assert "http://127.0.0.1:9/ask?…" in repr(report)
