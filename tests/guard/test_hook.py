"""`bylaw hook`: the payloads that coding agents send, and the answers that they understand."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from bylaw.guard.commands.hook import command as hook_command
from bylaw.guard.guard import Guard
from bylaw.guard.integrations import hooks
from bylaw.guard.integrations.hooks import run as hook_run
from bylaw.guard.integrations.hooks import service as hook_service
from bylaw.guard.integrations.hooks import settings
from bylaw.guard.integrations.hooks.payloads import CLIENTS, Answer, Client
from bylaw.guard.integrations.hooks.run import AT_THE_CLIENT, HookOptions, run_hook
from bylaw.guard.integrations.hooks.service import HookService, ServiceProblem
from bylaw.guard.integrations.json_files import FileProblem
from bylaw.guard.stores.records import EventRow
from tests.audit.support import verified
from tests.support.command import run_bylaw

pytestmark = pytest.mark.sampled(2)

RULES = """
guard:
  mode: hitl
  rules:
    - {id: no-force, when: {arg_regex: {path: command, pattern: 'push.*--force'}}, then: block, reason: no force pushes}
    - {id: ask-deploy, when: {arg_regex: {path: command, pattern: deploy}}, then: pause, reason: a deployment}
    - {id: two, when: {arg_regex: {path: command, pattern: 'drop table'}}, then: pause, approvals: 2}
    - {id: end, when: {arg_regex: {path: command, pattern: 'rm -rf'}}, then: terminate_session, reason: the end}
    - {id: failing, kind: temporal, params: {formula: "G !result(build, error = true)"}, then: block}
    - {id: cap, kind: max_calls, params: {tool: fetch, limit: 1}, then: block}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "bylaw.yaml").write_text(RULES)
    return tmp_path


def payload(client: Client, project: Path, tool: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    """As the client sends it before a call."""
    match client:
        case "claude-code":
            shape: dict[str, Any] = {
                "session_id": "5b1c", "transcript_path": "/t.jsonl", "cwd": str(project), "permission_mode": "default",
                "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": arguments, "tool_use_id": "toolu_1",
            }  # fmt: skip
        case "codex":
            shape = {
                "session_id": "5b1c", "turn_id": "1", "transcript_path": None, "cwd": str(project), "model": "m",
                "permission_mode": "default", "hook_event_name": "PreToolUse", "tool_name": tool,
                "tool_input": arguments, "tool_use_id": "call_1",
            }  # fmt: skip
        case "gemini":
            shape = {
                "session_id": "5b1c", "transcript_path": "/t.json", "cwd": str(project),
                "hook_event_name": "BeforeTool", "timestamp": "2026-11-01T10:00:00.000Z", "tool_name": tool,
                "tool_input": arguments,
            }  # fmt: skip
        case "cursor":
            shape = {
                "conversation_id": "5b1c", "generation_id": "g", "model": "m", "hook_event_name": "preToolUse",
                "cursor_version": "2.1", "workspace_roots": [str(project)], "cwd": str(project), "tool_name": tool,
                "tool_input": arguments, "tool_use_id": "t1",
            }  # fmt: skip
        case _:
            shape = {
                "sessionId": "5b1c", "timestamp": 1762000000000, "cwd": str(project), "toolName": tool,
                "toolArgs": json.dumps(arguments),
            }  # fmt: skip
    return {**shape, **more}


def after(client: Client, project: Path, tool: str, arguments: dict[str, Any], result: str) -> dict[str, Any]:
    shape = payload(client, project, tool, arguments)
    match client:
        case "gemini":
            return {**shape, "hook_event_name": "AfterTool", "tool_response": {"llmContent": result}}
        case "cursor":
            return {**shape, "hook_event_name": "postToolUse", "tool_output": json.dumps(result)}
        case "copilot":
            return {**shape, "toolResult": {"resultType": "success", "textResultForLlm": result}}
        case _:
            return {**shape, "hook_event_name": "PostToolUse", "tool_response": {"stdout": result}}


def hook(payload: Any, environment: dict[str, str] | None = None, **options: Any) -> Answer:
    text = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return run_hook(text, HookOptions(**options), environment or {})


def events(project: Path) -> list[EventRow]:
    guard = Guard(project / "bylaw.yaml", store=project / ".bylaw/guard.db")
    with guard:
        assert verified(guard.store, allow_unrecomputed=True).findings == []
        return list(guard.store.events())


DENIALS: dict[Client, Any] = {
    "claude-code": lambda said: said["hookSpecificOutput"]["permissionDecision"],
    "codex": lambda said: said["hookSpecificOutput"]["permissionDecision"],
    "gemini": lambda said: said["decision"],
    "cursor": lambda said: said["permission"],
    "copilot": lambda said: said["permissionDecision"],
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_call_is_decided_and_its_result_recorded(client: Client, project: Path) -> None:
    call = ("Bash", {"command": "git status"})
    assert hook(payload(client, project, *call)) == Answer("{}", "", 0)
    assert hook(after(client, project, *call, "clean")).code == 0
    decided, recorded = events(project)
    assert decided.session == "5b1c" and decided.data["attempt"]["arguments"] == {"command": "git status"}
    assert recorded.kind == "result" and recorded.data["result_of"] == decided.data["decision"]["call_id"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_blocked_call_exits_with_2_and_says_why(client: Client, project: Path) -> None:
    answer = hook(payload(client, project, "Bash", {"command": "git push --force"}))
    assert answer.code == 2 and "no force pushes" in answer.stderr
    assert DENIALS[client](json.loads(answer.stdout)) == "deny" and "no force pushes" in answer.stdout


@pytest.mark.parametrize("client", CLIENTS)
def test_a_paused_call_waits_and_runs_once_it_is_approved(client: Client, project: Path) -> None:
    mode = {"permission_mode": "bypassPermissions"} if client == "claude-code" else {}
    call = payload(client, project, "Bash", {"command": "deploy"}, **mode)
    answer = hook(call)
    assert answer.code == 2 and "waiting for a person: review-" in answer.stderr
    with Guard(project / "bylaw.yaml", store=project / ".bylaw/guard.db") as guard:
        [review] = guard.reviews.list(status="pending")
        guard.reviews.approve(review.id, by="ann")
    again = {**call, "tool_use_id": "another"} if "tool_use_id" in call else call
    assert hook(again) == Answer("{}", "", 0)
    assert hook(again).code == 2, "approved once"


def test_claude_code_asks_the_person_itself(project: Path) -> None:
    call = ("Bash", {"command": "deploy"})
    answer = hook(payload("claude-code", project, *call))
    said = json.loads(answer.stdout)["hookSpecificOutput"]
    assert (answer.code, said["permissionDecision"]) == (0, "ask") and "a deployment" in said[
        "permissionDecisionReason"
    ]
    assert hook(after("claude-code", project, *call, "done")).code == 0
    rows = [(row.kind, row.data.get("what"), row.data.get("by")) for row in events(project)]
    assert ("review", "approved", AT_THE_CLIENT) in rows and rows[-1][0] == "result"
    asked = payload("claude-code", project, "Bash", {"command": "drop table"}, tool_use_id="2")
    assert hook(asked).code == 2, "one person at the client is not two"


def test_cursor_asks_where_it_really_does(project: Path) -> None:
    shape = payload("cursor", project, "", {})
    shell = {**shape, "hook_event_name": "beforeShellExecution", "command": "deploy", "tool_use_id": ""}
    assert json.loads(hook(shell).stdout)["permission"] == "ask"
    ran = {**shape, "hook_event_name": "afterShellExecution", "command": "deploy", "output": "done", "tool_use_id": ""}
    assert hook(ran) == Answer()
    assert [row.kind for row in events(project)][-1] == "result"
    assert hook(payload("cursor", project, "Shell", {"command": "deploy"}, tool_use_id="9")).code == 2


def test_an_edited_approval_exchanges_the_arguments_or_blocks(project: Path) -> None:
    for client in ("claude-code", "codex"):
        call = payload(client, project, "Bash", {"command": f"deploy {client}"}, permission_mode="dontAsk")
        hook(call)
        with Guard(project / "bylaw.yaml", store=project / ".bylaw/guard.db") as guard:
            [review] = guard.reviews.list(status="pending")
            edit = {"tool": "Bash", "arguments": {"command": "deploy --dry-run"}}
            guard.reviews.approve(review.id, by="ann", edited=edit)
        answer = hook({**call, "tool_use_id": f"{client}2"})
        if client == "claude-code":
            said = json.loads(answer.stdout)["hookSpecificOutput"]
            assert (said["permissionDecision"], said["updatedInput"]) == ("allow", edit["arguments"])
        else:
            assert answer.code == 2 and "deploy --dry-run" in answer.stderr


def test_limits_hold_over_the_session_and_end_with_it(project: Path) -> None:
    def fetch(number: int) -> int:
        return hook(payload("claude-code", project, "fetch", {"n": number}, tool_use_id=f"t{number}")).code

    assert [fetch(1), fetch(2)] == [0, 2]
    about = {key: value for key, value in payload("claude-code", project, "", {}).items() if not key.startswith("tool")}
    assert hook({**about, "hook_event_name": "SessionStart", "source": "resume"}) == Answer("{}", "", 0)
    assert fetch(3) == 2
    assert hook({**about, "hook_event_name": "SessionEnd", "reason": "clear"}).code == 0
    assert fetch(4) == 0


def test_a_terminated_session_stays_so(project: Path) -> None:
    assert hook(payload("gemini", project, "Bash", {"command": "rm -rf /"})).code == 2
    assert hook(payload("gemini", project, "Bash", {"command": "ls"})).code == 2


def test_a_failed_call_is_recorded_as_one(project: Path) -> None:
    call = ("Bash", {"command": "false"})
    hook(payload("claude-code", project, *call))
    failure = {**payload("claude-code", project, *call), "hook_event_name": "PostToolUseFailure", "error": "exit 1"}
    assert hook(failure).code == 0
    assert events(project)[-1].data["is_error"] is True


@pytest.mark.parametrize("client", ["claude-code", "cursor"])
def test_the_model_is_told_what_a_result_breaks(client: Client, project: Path) -> None:
    hook(payload(client, project, "build", {}))
    event = "PostToolUseFailure" if client == "claude-code" else "postToolUseFailure"
    answer = hook({**payload(client, project, "build", {}), "hook_event_name": event, "error": "exit 1"})
    assert "has broken `failing`" in answer.stderr
    assert answer.code == 2 if client == "claude-code" else "failing" in json.loads(answer.stdout)["additional_context"]


def test_copilot_reports_failures_in_an_event_of_their_own(project: Path) -> None:
    """As Copilot CLI 1.0.102 sends it; `--event` is in the command that is installed."""
    assert "postToolUseFailure" in settings.DIALECTS["copilot"].events
    call = payload("copilot", project, "build", {"path": "/none"}, toolArgs={"path": "/none"})
    assert hook(call, event="preToolUse") == Answer()
    answer = hook({**call, "error": "Path does not exist"}, event="postToolUseFailure")
    assert events(project)[-1].data["is_error"] is True
    assert answer.code == 2 and "has broken `failing`" in answer.stderr, "the only way to tell its model"
    hook(call)
    assert hook({**call, "error": "Path does not exist"}) == answer, "without --event, by its keys"


@pytest.mark.parametrize("kind", ["success", "error", "denied"])
def test_copilot_in_the_form_of_vs_code(kind: str, project: Path) -> None:
    """Events with a capital letter, such as those of `.claude/settings.json`, which it reads as well."""
    shape: dict[str, Any] = {
        "session_id": "5b1c", "timestamp": "2026-11-01T10:00:00.000Z", "cwd": str(project), "tool_name": "bash",
        "hook_event_name": "PreToolUse", "tool_input": {"command": "ls"},
    }  # fmt: skip
    result = {"result_type": kind, "text_result_for_llm": "a file"}
    assert hook(shape, client="copilot") == Answer()
    assert hook({**shape, "hook_event_name": "PostToolUse", "tool_result": result}, client="copilot") == Answer()
    recorded = events(project)[-1].data
    assert recorded["content"] == result and recorded["is_error"] is (None if kind == "success" else True)


MIXED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no ids": ({}, {}),
    "an id before the call only": ({"tool_use_id": "t1"}, {}),
    "an id after the call only": ({}, {"tool_use_id": "t1"}),
}


@pytest.mark.parametrize("client", ["claude-code", "cursor"])
@pytest.mark.parametrize("case", MIXED)
def test_a_result_without_an_id_belongs_to_the_call_with_its_arguments(
    case: str, client: Client, project: Path
) -> None:
    secret = f"curl -H 'Authorization: Bearer {'a1b2c3d4' * 5}' https://shop.example"
    calls = [("Bash", {"command": "date"}), ("Bash", {"command": secret})]
    before, later = MIXED[case]
    for number, call in enumerate(calls):
        unnamed = {key: value for key, value in payload(client, project, *call).items() if key != "tool_use_id"}
        named = {key: f"{value}{number}" for key, value in before.items()}
        assert hook({**unnamed, **named}) == Answer()
    ids = [row.data["decision"]["call_id"] for row in events(project)]
    for call, id in zip(reversed(calls), reversed(ids), strict=True):
        result = {key: value for key, value in after(client, project, *call, "x").items() if key != "tool_use_id"}
        assert hook({**result, **later}) == Answer()
        assert events(project)[-1].data["result_of"] == id
        assert "bypassed" in hook({**result, **later}).stderr, "one result for one call"


ONLY_WHEN = "guard: {rules: [{id: a, when: {tool_name_in: [other]}, then: block}]}"
"""no rule that needs the results of calls"""


@pytest.mark.parametrize("client", CLIENTS)
def test_results_find_their_calls_if_no_rule_needs_them(client: Client, project: Path) -> None:
    (project / "bylaw.yaml").write_text(ONLY_WHEN)
    secret = f"curl -H 'Authorization: Bearer {'a1b2c3d4' * 5}' https://shop.example"
    commands: list[dict[str, Any]] = [{"command": "date"}, {"command": secret}, {"command": "date"}]
    calls = [("Bash", arguments) for arguments in commands]
    named = "tool_use_id" in payload(client, project, "", {})
    for number, call in enumerate(calls):
        ids = {"tool_use_id": f"t{number}"} if named else {}
        assert hook({**payload(client, project, *call), **ids}) == Answer()
    made = [row.data["decision"]["call_id"] for row in events(project)]
    for number in (1, 0, 2):
        more = {"tool_use_id": f"t{number}"} if named else {}
        assert hook({**after(client, project, *calls[number], "x"), **more}) == Answer()
        assert events(project)[-1].data["result_of"] == made[number]
    assert row_kinds(project) == ["decision"] * 3 + ["result"] * 3, "none of them is counted twice"
    if not named:
        assert "bypassed" in hook(after(client, project, *calls[0], "x")).stderr


def test_a_call_of_an_earlier_session_of_the_same_name_is_no_call_of_this_one(project: Path) -> None:
    (project / "bylaw.yaml").write_text(ONLY_WHEN)
    call = ("Bash", {"command": "date"})
    assert hook(payload("gemini", project, *call)) == Answer()
    about = {key: value for key, value in payload("gemini", project, "", {}).items() if not key.startswith("tool")}
    assert hook({**about, "hook_event_name": "SessionEnd", "reason": "exit"}).code == 0
    assert "bypassed" in hook(after("gemini", project, *call, "now")).stderr


def test_a_result_finds_its_call_however_many_came_after_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bylaw.guard.decide.session.MOST_USED", 1)
    monkeypatch.setattr("bylaw.guard.decide.session.MOST_OPEN", 1)
    for id in ("t1", "t2"):
        assert hook(payload("claude-code", project, "Bash", {"command": id}, tool_use_id=id)) == Answer()
    for id in ("t1", "t2"):
        assert hook({**after("claude-code", project, "Bash", {"command": id}, "x"), "tool_use_id": id}) == Answer()


def test_a_call_with_another_id_is_another_call(project: Path) -> None:
    call = ("Bash", {"command": "date"})
    assert hook(payload("claude-code", project, *call, tool_use_id="t1")) == Answer()
    assert "bypassed" in hook({**after("claude-code", project, *call, "now"), "tool_use_id": "t2"}).stderr


def test_two_equal_calls_without_ids_get_a_result_each(project: Path) -> None:
    call = ("Bash", {"command": "date"})
    for _ in range(2):
        hook(payload("gemini", project, *call))
    for _ in range(2):
        assert hook(after("gemini", project, *call, "now")) == Answer()
    assert len({row.data["result_of"] for row in events(project) if row.kind == "result"}) == 2
    assert "bypassed" in hook(after("gemini", project, *call, "now")).stderr


FAULTS: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b'{"session_id": ',
    "a list": b"[]",
    "no event": b'{"session_id": "s"}',
    "no UTF-8": b"\xff\xfe",
    "deep": b"[" * 200_000,
    "no session": b'{"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {}}',
    "no tool": b'{"hook_event_name": "PreToolUse", "session_id": "s", "tool_input": {}}',
    "a tool that is no text": b'{"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": []}',
    "wrong arguments": b'{"hook_event_name": "preToolUse", "session_id": "s", "tool_name": "x", "tool_input": 5}',
    "arguments as broken text": b'{"sessionId": "s", "toolName": "x", "toolArgs": "{"}',
    "another event": b'{"hook_event_name": "Stop", "session_id": "s"}',
    "NaN": b'{"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "x", "tool_input": {"n": NaN}}',
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_read_is_blocked(fault: str, project: Path) -> None:
    answer = hook(FAULTS[fault], policy=str(project / "bylaw.yaml"))
    assert answer.code == 2 and answer.stderr


@pytest.mark.parametrize("client", CLIENTS)
def test_without_rules_or_store_nothing_runs(client: Client, project: Path, tmp_path_factory: Any) -> None:
    call = payload(client, project, "Bash", {"command": "ls"})
    elsewhere = tmp_path_factory.mktemp("empty")
    assert "there is no `bylaw.yaml`" in hook({**call, "cwd": str(elsewhere), "workspace_roots": []}).stderr
    (project / ".bylaw").write_text("not a folder")
    answer = hook(call)
    assert answer.code == 2 and "the call is not allowed" in answer.stderr
    (project / "bylaw.yaml").write_text("guard: {rules: [{id: x, when: {tool_name: 5}, then: stop}]}")
    answer = hook(call)
    assert answer.code == 2 and "the rules cannot be used" in answer.stderr
    assert DENIALS[client](json.loads(answer.stdout)) == "deny"


@pytest.mark.parametrize("rules", ["guard: {rules: []}", "rules: [{id: a, kind: max_turns, params: {n: 5}}]"])
def test_rules_that_decide_nothing_allow_nothing(rules: str, project: Path, caplog: pytest.LogCaptureFixture) -> None:
    (project / "bylaw.yaml").write_text(rules)
    answer = hook(payload("claude-code", project, "Bash", {"command": "ls"}))
    assert answer.code == 2 and "decides calls" in answer.stderr and str(project / "bylaw.yaml") in answer.stderr
    assert "allowed" not in caplog.text, "the model reads what is logged"


def test_a_locked_store_and_a_failing_guard_block(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = payload("claude-code", project, "Bash", {"command": "ls"})
    assert hook(call).code == 0
    from bylaw.guard.stores import sqlite_file

    monkeypatch.setattr(sqlite_file, "wait_while_busy", lambda execute, statement, **_: execute(statement))
    other = sqlite3.connect(project / ".bylaw/guard.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert hook({**call, "tool_use_id": "2"}).code == 2
    other.execute("ROLLBACK")
    other.close()
    monkeypatch.setattr(Guard, "decide", lambda *_, **__: 1 / 0)
    answer = hook({**call, "tool_use_id": "3"})
    assert answer.code == 2 and "ZeroDivisionError" in answer.stderr


def test_rules_in_a_folder_below_do_not_replace_those_of_the_project(project: Path) -> None:
    below = project / "vendor"
    below.mkdir()
    (below / "bylaw.yaml").write_text("guard: {rules: []}")
    force = payload("claude-code", project, "Bash", {"command": "git push --force"}, cwd=str(below))
    assert hook(force).code == 2
    moved = {**force, "cwd": "/", "tool_use_id": "2"}
    assert hook(moved, {"CLAUDE_PROJECT_DIR": str(project)}).stderr.startswith("bylaw: no force pushes")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("scope", ["project", "user"])
def test_settings_are_added_and_removed(client: Client, scope: Any, tmp_path: Path) -> None:
    path = settings.settings_file(client, scope, tmp_path)
    path.parent.mkdir(parents=True)
    event = settings.DIALECTS[client].events[0]
    own = {"command": "mine.sh"} if client in ("cursor", "copilot") else {"hooks": [{"command": "mine.sh"}]}
    before = json.dumps({"zebra": [1, "ä"], "version": 1, "hooks": {"Stop": [own], event: [own]}, "a": {}}, indent=4)
    path.write_text(before := before.replace("\\u00e4", "ä") + "\n")
    assert settings.install(client, path) and not settings.install(client, path)
    assert set(settings.installed_events(client, path)) == set(settings.DIALECTS[client].events)
    found = json.loads(path.read_text())
    assert list(found) == ["zebra", "version", "hooks", "a"] and found["hooks"][event][0] == own
    assert "bylaw hook --client" in path.read_text() and path.read_text().startswith("{\n    ")
    assert settings.install(client, path, policy="my rules.yaml") and "'my rules.yaml' || exit 2" in path.read_text()
    assert settings.uninstall(client, path) and not settings.uninstall(client, path)
    assert path.read_text() == before


@pytest.mark.parametrize("client", CLIENTS)
def test_a_second_install_keeps_what_was_added_by_hand(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    settings.install(client, path, agent="coder")
    by_hand = (
        path.read_text().replace("bylaw hook", "/opt/bylaw hook").replace("--agent coder", "-p mine.yaml --agent=x")
    )
    path.write_text(by_hand.replace("--agent coder", "-p mine.yaml --agent=x"))
    assert settings.install(client, path, store="s.db") and not settings.install(client, path)
    assert "/opt/bylaw hook --client" in path.read_text()
    assert "--policy mine.yaml --store s.db --agent x || exit 2" in path.read_text()
    assert settings.install(client, path, agent="y") and "--agent y || exit 2" in path.read_text()


def test_settings_that_hold_nothing_else_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "hooks.json"
    assert settings.install("cursor", path) and settings.uninstall("cursor", path)
    assert not path.exists()


@pytest.mark.parametrize("text", ['{"hooks": [}', '{"hooks": []}', "[]", '{"hooks": {"PreToolUse": {}}}', "// x\n{}"])
def test_settings_that_cannot_be_edited_stay(text: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    with pytest.raises(FileProblem):
        settings.install("claude-code", path)
    assert path.read_text() == text


def test_the_commands(project: Path) -> None:
    def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        done = run_bylaw(["hook", *arguments], cwd=project, stdin=stdin)
        return done.returncode, done.stdout, done.stderr

    assert run("status", "claude-code")[0] == 1
    assert run("install", "claude-code")[0] == 0
    assert run("status", "claude-code")[0] == 0
    assert "removed from" in run("uninstall", "claude-code")[1]
    call = payload("claude-code", project, "Bash", {"command": "git push --force"})
    code, out, errors = run(stdin=json.dumps(call))
    assert code == 2 and errors.startswith("bylaw: no force pushes") and json.loads(out)
    assert run("--client", "nobody")[0] == 2


@pytest.mark.parametrize("policy", [None, "more.yaml"])
def test_install_says_if_there_are_no_rules(policy: str | None, tmp_path: Path) -> None:
    given = [] if policy is None else ["--policy", policy]
    for is_there in (False, True):
        done = run_bylaw(["hook", "install", "gemini", *given], cwd=tmp_path)
        assert done.returncode == 0
        assert ("every call will be blocked: there is no" in done.stderr) is not is_there
        (tmp_path / (policy or "bylaw.yaml")).write_text(RULES)


def test_a_hook_at_a_terminal_says_what_it_is(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    assert hooks.answer_event({}) == 2 and "a coding agent runs this" in capsys.readouterr().err


def test_a_hook_that_is_interrupted_says_so(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def interrupt(size: int) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False, buffer=SimpleNamespace(read=interrupt)))
    assert hooks.answer_event({}) == 2
    assert capsys.readouterr() == ("", "bylaw: the call is not allowed: interrupted\n")


def test_the_command_that_is_installed_blocks_where_bylaw_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    settings.install("claude-code", path)
    command = json.loads(path.read_text())["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    shell = ["/bin/sh", "-c", command]
    assert subprocess.run(shell, env={"PATH": "/nowhere"}, capture_output=True, check=False).returncode == 2


# -- the service


@pytest.fixture
def service(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[HookService]:
    path = tmp_path_factory.mktemp("run") / "b" / "s"
    monkeypatch.setenv(hooks.SOCKET, str(path))
    serving = HookService(str(path))
    thread = threading.Thread(target=serving.run)
    thread.start()
    yield serving
    serving.close()
    thread.join()


def _asked(payload: dict[str, Any], **options: str) -> Answer | None:
    found = hooks.ask_service(json.dumps(payload).encode(), options)
    return None if found is None else Answer(*found)


def test_the_service_answers_as_the_hook_does(
    service: HookService, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    force = payload("claude-code", project, "Bash", {"command": "git push --force"}, cwd=".")
    alone = hook(force, folder=str(project))
    assert _asked({**force, "session_id": "another"}) == alone and alone.code == 2
    assert _asked({**force, "tool_input": {"command": "ls"}, "tool_use_id": "3"}, policy="bylaw.yaml") == Answer()
    (project / "bylaw.yaml").write_text(RULES.replace("push.*--force", "ls"))
    assert _asked({**force, "tool_input": {"command": "ls"}, "tool_use_id": "4"}).code == 2, "the rules of now"  # type: ignore[union-attr]
    monkeypatch.chdir("/")
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(project))
    assert _asked({**force, "tool_input": {"command": "ls"}, "tool_use_id": "5"}).code == 2  # type: ignore[union-attr]


def test_a_service_of_another_version_and_a_broken_request_block(
    service: HookService, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = payload("claude-code", project, "Bash", {"command": "ls"})
    with monkeypatch.context() as patch:
        patch.setattr(hooks, "VERSION", b"bylaw-hook/0")
        assert _asked(call).code == 2  # type: ignore[union-attr]
    with monkeypatch.context() as patch:
        patch.setattr(hooks, "request", lambda *_: b"nonsense")
        assert _asked(call).code == 2  # type: ignore[union-attr]


def test_without_an_answer_the_hook_decides_by_itself(service: HookService, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServiceProblem, match="another process listens"):
        HookService(service.path)
    for reply in (b"", b"0 0", b"0 2 0\n{", b"x y z\n"):
        with pytest.raises(ValueError):
            hooks._read_reply(reply)
    folder = os.path.dirname(service.path)
    os.chmod(folder, 0o777)
    assert _asked({}) is None, "anybody could have put it there"
    with pytest.raises(ServiceProblem, match="open to others"):
        HookService(service.path)
    os.chmod(folder, 0o700)
    service.close()
    assert _asked({}) is None
    (Path(folder) / "s").write_text("no socket")
    assert _asked({}) is None


@pytest.mark.parametrize("how", ["the hook was stopped", "the hook has waited long enough"])
def test_an_event_whose_hook_does_not_wait_is_not_decided(
    how: str, project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(hooks.SOCKET, path := str(tmp_path_factory.mktemp("run") / "b" / "s"))
    stalled = HookService(path)
    call = payload("gemini", project, "fetch", {})  # a rule allows one
    if how == "the hook was stopped":
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(path)
            asking.sendall(hooks.request(json.dumps(call).encode(), {}))
    else:
        monkeypatch.setattr(hook_service, "_is_disconnected", lambda _: False)
        with monkeypatch.context() as patch:
            patch.setattr(hooks, "_PATIENCE", 0.01)
            assert _asked(call) is None
    thread = threading.Thread(target=stalled.run)
    thread.start()
    assert _asked({**call, "tool_name": "other"}) == Answer(), "it answers those that wait"
    stalled.close()
    thread.join()
    assert [row.data["attempt"]["tool"] for row in events(project)] == ["other"]


def test_a_session_starts_the_service(tmp_path: Path, project: Path) -> None:
    """As the command that `install --serve` writes, which has to leave nothing open that the client waits for."""
    path = tmp_path / "run" / "s"
    start = {"session_id": "5b1c", "cwd": str(project), "hook_event_name": "SessionStart"}
    done = run_bylaw(
        ["hook", "--client", "claude-code", "--serve"],
        stdin=json.dumps(start),
        cwd=project,
        env={**os.environ, hooks.SOCKET: str(path)},
    )
    assert (done.returncode, done.stdout) == (0, "{}\n")
    with socket.socket(socket.AF_UNIX) as asking:
        until = time.monotonic() + 60
        while asking.connect_ex(str(path)) and time.monotonic() < until:
            time.sleep(0.05)
        process = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    os.kill(process, signal.SIGTERM)


@pytest.mark.parametrize("how", ["idle", "updated"])
def test_a_service_ends_by_itself(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving = HookService(str(tmp_path / "run" / "s"), idle=0.01 if how == "idle" else None)
    installed = iter([1, 2])
    if how == "updated":
        monkeypatch.setattr(hook_service, "_installation_stamp", lambda: next(installed))
    serving.run()
    serving.close()
    assert not os.path.exists(serving.path)


@pytest.mark.parametrize("client", CLIENTS)
def test_install_serve_is_for_the_start_of_a_session(client: Client, tmp_path: Path) -> None:
    path = settings.settings_file(client, "project", tmp_path)

    def commands_with_it() -> int:
        return path.read_text().count("--serve ")

    one = 2 if client == "copilot" else 1  # for two shells
    assert settings.install(client, path, serve=True) and commands_with_it() == one
    assert not settings.install(client, path) and commands_with_it() == one, "it stays"
    hooks = json.loads(path.read_text())["hooks"]
    assert [event.lower() for event in hooks if "--serve" in json.dumps(hooks[event])] == ["sessionstart"]
    assert settings.install(client, path, serve=False) and commands_with_it() == 0


@pytest.mark.parametrize(
    "arguments",
    [["install", "codex"], ["--help"], ["--client", "nobody"], ["--policy=x"], ["--store", "--help"], ["a", "b"]],
)
def test_other_arguments_are_left_to_the_command_line(arguments: list[str]) -> None:
    assert hooks._plain_options(arguments) is None
    assert hooks._plain_options(["--client", "codex", "-p", "x"]) == {"client": "codex", "policy": "x"}


def _run_installed(payload: dict[str, Any], **more: Any) -> tuple[subprocess.CompletedProcess[bytes], set[str]]:
    """The hook as the client starts it, and the modules that it has imported when it ends."""
    code = """if True:
        import os, sys
        sys.argv[1:], leave = ["hook"], os._exit
        def show(code):
            os.write(2, b"\\n" + " ".join(sys.modules).encode())
            leave(code)
        os._exit = show
        from bylaw.__main__ import main
        main()"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input=json.dumps(payload).encode(), capture_output=True, check=False, **more)
    return done, set(done.stderr.decode().rpartition("\n")[2].split())


def test_a_hook_with_a_service_imports_next_to_nothing(service: HookService, project: Path) -> None:
    done, modules = _run_installed(payload("claude-code", project, "Bash", {"command": "ls"}), cwd=project)
    assert (done.returncode, done.stdout) == (0, b"{}\n")
    assert not modules & {"typing", "re", "json", "msgspec", "collections.abc", "pathlib", "logging"}
    assert len({name for name in modules if name.startswith("bylaw")}) <= 7


def test_a_hook_alone_imports_nothing_that_a_decision_does_not_need(project: Path) -> None:
    alone = {**os.environ, hooks.SOCKET: str(project / "none" / "s")}
    force = payload("claude-code", project, "Bash", {"command": "git push --force"})
    done, modules = _run_installed(force, cwd=project, env=alone)
    assert done.returncode == 2 and b"no force pushes" in done.stderr
    assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"
    needless = {"asyncio", "click", "jsonschema_rs", "numpy", "rapidfuzz", "rich", "socket", "subprocess", "tempfile"}
    assert not modules & needless


def test_a_hook_whose_answer_cannot_be_written_blocks(project: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        ran = subprocess.run(
            [sys.executable, "-m", "bylaw", "hook"],
            input=json.dumps(payload("claude-code", project, "Bash", {"command": "ls"})).encode(),
            stdout=closed,
            stderr=subprocess.PIPE,
            cwd=project,
            check=False,
        )
    assert ran.returncode == 2


def test_a_hook_without_streams_blocks(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", None)
        assert hooks.answer_event({}) == 2 and capsys.readouterr() == ("", "")
    assert hooks.answer_event({}) == 2 and "stdin is closed" in capsys.readouterr().err


# -- calls that the guard has not allowed


def row_kinds(project: Path) -> list[Any]:
    return [row.data.get("how") or row.data.get("what") or row.kind for row in events(project)]


DENIED: dict[str, tuple[Client, dict[str, Any], dict[str, Any]]] = {
    "a client that never asks": ("gemini", {}, {}),
    "a mode that never asks": ("claude-code", {"permission_mode": "bypassPermissions"}, {}),
    "another call than the one that was asked about": ("claude-code", {}, {"tool_use_id": "zz"}),
    "no id where the client gives one": ("claude-code", {}, {"tool_use_id": ""}),
    "codex": ("codex", {}, {}),
    "copilot": ("copilot", {}, {}),
}


@pytest.mark.parametrize("case", DENIED)
def test_a_result_of_a_call_that_was_not_allowed_approves_nothing(case: str, project: Path, caplog: Any) -> None:
    client, before, then = DENIED[case]
    call = ("Bash", {"command": "deploy"})
    hook(payload(client, project, *call, **before))
    answer = hook({**after(client, project, *call, "done"), **before, **then})
    assert "the guard was bypassed" in answer.stderr and "bypassed" in caplog.text
    found = row_kinds(project)
    assert "approved" not in found and found[-3:] == ["bypassed", "taken", "result"]
    with Guard(project / "bylaw.yaml", store=project / ".bylaw/guard.db") as guard:
        assert [review.status for review in guard.reviews.list()] == ["pending"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_hook_that_is_installed_twice_says_so_where_calls_have_ids(client: Client, project: Path) -> None:
    call = payload(client, project, "Bash", {"command": "ls"})
    assert hook(call) == Answer()
    again = hook(call)
    if "tool_use_id" in call:
        assert again.code == 2 and "if the hook is installed twice, remove one" in again.stderr
    else:
        assert again == Answer() and row_kinds(project) == ["decision"] * 2
    assert (
        "installed twice" not in hook(payload(client, project, "Bash", {"command": "rm -rf"}, tool_use_id="2")).stderr
    )


def test_a_result_of_a_blocked_or_unknown_call_is_recorded_as_a_bypass(project: Path) -> None:
    blocked = ("Bash", {"command": "git push --force"})
    hook(payload("claude-code", project, *blocked))
    assert "the guard was bypassed" in hook(after("claude-code", project, *blocked, "pushed")).stderr
    for client in CLIENTS:
        unknown = after(client, project, "fetch", {"n": client}, "x")
        unknown |= {"tool_use_id": client} if "tool_use_id" in unknown else {}
        assert "the guard was bypassed" in hook(unknown).stderr
    assert hook(payload("codex", project, "fetch", {}, tool_use_id="later")).code == 2, "they count"


CHANGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Bash": ({"command": "git push"}, {"command": "git push --force"}),
    "fetch": ({"n": 1}, {"n": 2}),
    "Write": ({"file": "a"}, {"file": "a", "command": "git push --force"}),
    "Other": ({"n": 1}, {"n": True}),
}
NAMED: list[Client] = ["claude-code", "codex", "cursor"]
"""clients that give ids to calls"""


@pytest.mark.parametrize("rules", ["as before", "that need no results"])
@pytest.mark.parametrize("client", NAMED)
@pytest.mark.parametrize("tool", CHANGED)
def test_a_call_that_ran_with_other_arguments_is_judged_and_counted_as_it_ran(
    tool: str, client: Client, rules: str, project: Path, caplog: Any
) -> None:
    if rules != "as before":
        (project / "bylaw.yaml").write_text(RULES.partition("    - {id: failing")[0])
    allowed, ran = CHANGED[tool]
    assert hook(payload(client, project, tool, allowed)) == Answer()
    answer = hook(after(client, project, tool, ran, "done"))
    assert "has run" in caplog.text and "with other arguments than the guard had allowed" in caplog.text
    is_stopped = "force" in str(ran)
    assert ("`no-force`: no force pushes would have stopped" in answer.stderr) is is_stopped
    assert is_stopped or answer == Answer(), "clients add to the arguments of some tools"
    assert row_kinds(project) == ["decision", "release", "taken", "changed", "result"]
    taken, result = (next(row for row in events(project) if row.kind == kind) for kind in ("taken", "result"))
    assert taken.data["attempt"]["arguments"] == ran and taken.data["call_id"] == result.data["result_of"]
    assert [match["rule"] for match in taken.data["matches"]] == ["no-force"] * is_stopped
    again = hook(after(client, project, tool, ran, "done"))
    assert again == Answer() and row_kinds(project)[-1] == "result", "a second result of the same call"
    assert row_kinds(project).count("taken") == 1
    if rules == "as before":
        code = hook(payload(client, project, "fetch", {}, tool_use_id="later")).code
        assert code == (2 if tool == "fetch" else 0), "one call has run"
        assert hook(payload(client, project, "fetch", {}, tool_use_id="last")).code == 2


def test_a_call_that_ran_with_other_arguments_opens_an_incident_if_a_rule_would_have_stopped_it(project: Path) -> None:
    for id, (allowed, ran) in {"1": CHANGED["Bash"], "2": CHANGED["fetch"]}.items():
        assert hook(payload("claude-code", project, "Bash", allowed, tool_use_id=id)) == Answer()
        hook({**after("claude-code", project, "Bash", ran, "done"), "tool_use_id": id})
    with Guard(project / "bylaw.yaml", store=project / ".bylaw/guard.db") as guard:
        assert [incident.rule for incident in guard.replay().incidents] == ["no-force"]


def test_arguments_that_were_approved_in_the_place_of_others_are_not_other_arguments(project: Path) -> None:
    call = payload("claude-code", project, "Bash", {"command": "deploy"}, permission_mode="dontAsk")
    hook(call)
    with Guard(project / "bylaw.yaml", store=project / ".bylaw/guard.db") as guard:
        [review] = guard.reviews.list(status="pending")
        edit = {"tool": "Bash", "arguments": {"command": "deploy --dry-run"}}
        guard.reviews.approve(review.id, by="ann", edited=edit)
    assert "updatedInput" in hook({**call, "tool_use_id": "2"}).stdout
    assert hook({**after("claude-code", project, "Bash", edit["arguments"], "x"), "tool_use_id": "2"}) == Answer()
    assert "changed" not in row_kinds(project)


def test_an_event_without_arguments_or_with_some_of_them_changes_no_call(project: Path) -> None:
    given = {"command": "ls", "timeout": 5}
    for id in ("1", "2", "3"):
        assert hook(payload("cursor", project, "Shell", given, tool_use_id=id)) == Answer()
    result = after("cursor", project, "Shell", given, "x")
    bare = {key: value for key, value in result.items() if key != "tool_input"}
    assert hook({**bare, "tool_use_id": "1"}) == Answer()
    shell = {**bare, "hook_event_name": "afterShellExecution", "output": "x"}
    assert hook({**shell, "command": "ls", "tool_use_id": "2"}) == Answer() and "changed" not in row_kinds(project)
    hook({**shell, "command": "ls -l", "tool_use_id": "3"})
    assert row_kinds(project).count("changed") == 1


def test_a_call_with_the_longest_id_can_be_changed(project: Path) -> None:
    for id in ("x" * 512, "y" * 512):
        assert hook(payload("codex", project, "Bash", {"command": "ls"}, tool_use_id=id)) == Answer()
        assert hook({**after("codex", project, "Bash", {"command": "date"}, "x"), "tool_use_id": id}) == Answer()
    assert row_kinds(project).count("changed") == 2


def test_a_call_that_the_client_itself_denied_is_no_bypass(project: Path) -> None:
    call = ("Shell", {"command": "deploy"})
    hook(payload("cursor", project, *call))
    failed = {**payload("cursor", project, *call), "hook_event_name": "postToolUseFailure", "error_message": "no"}
    assert hook({**failed, "failure_type": "permission_denied"}) == Answer()
    hook(payload("copilot", project, *call))
    assert hook({**after("copilot", project, *call, ""), "toolResult": {"resultType": "denied"}}) == Answer()
    assert "bypassed" not in row_kinds(project) and "approved" not in row_kinds(project)


def test_each_call_that_was_asked_about_is_approved_by_itself(project: Path) -> None:
    call = ("Bash", {"command": "deploy"})
    for id in ("1", "2"):
        assert "ask" in hook(payload("claude-code", project, *call, tool_use_id=id)).stdout
    for id in ("1", "2"):
        assert hook({**after("claude-code", project, *call, "done"), "tool_use_id": id}) == Answer()
    assert row_kinds(project).count("approved") == 2
    assert "bypassed" in hook({**after("claude-code", project, *call, "done"), "tool_use_id": "3"}).stderr
    assert hook(payload("claude-code", project, *call, tool_use_id="4", permission_mode="dontAsk")).code == 2


def test_a_question_without_an_id_is_answered_once(project: Path) -> None:
    shape = {**payload("cursor", project, "", {}), "command": "deploy", "tool_use_id": ""}
    assert "ask" in hook({**shape, "hook_event_name": "beforeShellExecution"}).stdout
    ran = {**shape, "hook_event_name": "afterShellExecution", "output": "done"}
    assert hook(ran) == Answer()
    assert "bypassed" in hook(ran).stderr and row_kinds(project).count("approved") == 1


# -- whose rules


LAX = "guard: {rules: [{id: no-force, when: {tool_name_in: [nothing]}, then: block}]}"


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("owner", [None, 65534])
def test_rules_above_the_project_add_to_its_own(
    named: bool, owner: int | None, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = project / "inner"
    inner.mkdir()
    (inner / "bylaw.yaml").write_text(RULES)
    above = project / "bylaw.yaml"
    above.write_text(LAX.replace("nothing", "fetch"))
    if owner is not None:
        monkeypatch.setattr(hook_run, "_is_ours", lambda found: False)
    environment = {"CLAUDE_PROJECT_DIR": str(inner)} if named else {}
    call = payload("claude-code", inner, "Bash", {"command": "git push --force"})
    assert hook(call, environment).stderr.startswith("bylaw: no force pushes")
    fetch = payload("claude-code", inner, "fetch", {}, tool_use_id="2")
    assert hook(fetch, environment).code == (2 if owner is None else 0), "rules of somebody else do not count"
    assert (inner / ".bylaw").exists() is (named or owner is not None)


NO_FILES: dict[str, Any] = {
    "a link that leads nowhere": lambda path: path.symlink_to("gone.yaml"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("case", NO_FILES)
def test_rules_that_are_there_and_no_file_are_not_left_out(
    case: str, named: bool, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = project / "inner"
    (inner / "below").mkdir(parents=True)
    NO_FILES[case](inner / "bylaw.yaml")
    for start in (inner, inner / "below"):
        call = payload("claude-code", start, "Bash", {"command": "ls"})
        answer = hook(call, {"CLAUDE_PROJECT_DIR": str(start)} if named else {}, folder=str(start))
        assert answer.code == 2 and f"`{inner / 'bylaw.yaml'}` is there" in answer.stderr
    assert hook(payload("claude-code", inner, "Bash", {}), policy=str(inner / "bylaw.yaml")).code == 2
    monkeypatch.setattr(hook_run, "_is_ours", lambda found: False)
    (inner / "below" / "bylaw.yaml").write_text(RULES)
    call = payload("claude-code", inner / "below", "Bash", {"command": "ls"}, tool_use_id="3")
    assert hook(call).code == 0, "somebody else does not decide what is above"


def test_rules_that_cannot_be_looked_for_block(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "lstat", refuse)
    answer = hook(payload("claude-code", project, "Bash", {"command": "ls"}))
    assert answer.code == 2 and "cannot be looked for: Permission denied" in answer.stderr


def test_whose_files_are_accepted_from_above(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "bylaw.yaml").write_text(LAX)
    assert hook_run.is_trusted(folder / "below" / "bylaw.yaml")
    folder.chmod(0o777)
    assert not hook_run.is_trusted(folder / "below" / "bylaw.yaml")
    folder.chmod(0o1777)
    assert hook_run.is_trusted(folder / "below" / "bylaw.yaml")
    (folder / "below" / "bylaw.yaml").chmod(0o666)
    assert not hook_run.is_trusted(folder / "below" / "bylaw.yaml")


@pytest.mark.parametrize("client", CLIENTS)
def test_the_folder_that_the_payload_names_does_not_replace_that_of_the_hook(
    client: Client, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lax = tmp_path_factory.mktemp("lax")
    (lax / "bylaw.yaml").write_text(LAX)
    force = payload(client, lax, "Bash", {"command": "git push --force"})
    if client == "cursor":
        force["workspace_roots"] = [str(lax), str(project)]
    assert hook(force, folder=str(project)).stderr.startswith("bylaw: no force pushes")
    again = {**force, "tool_use_id": "2"}
    assert hook(again, folder=str(lax), root=str(project)).stderr.startswith("bylaw: no force pushes")
    allowed = payload(client, project, "Bash", {"command": "git push --force"}, tool_use_id="3")
    if client == "cursor":
        del allowed["workspace_roots"]
    assert hook(allowed, folder=str(project), root=str(lax)).code == 0, "the root that was named decides alone"
    assert "is no folder" in hook(force, root=str(lax / "gone")).stderr
    assert hook(force, root="").code == 2, "an empty variable names no folder"


def test_the_project_is_in_the_command_of_clients_that_do_not_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for client in CLIENTS:
        assert CliRunner().invoke(hook_command, ["install", client]).exit_code == 0
        text = settings.settings_file(client, "project", tmp_path).read_text()
        assert (f"--root {tmp_path}" in text) is (client in ("codex", "copilot"))


@pytest.mark.parametrize(
    "fault",
    [
        '{"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Bash", '
        '"tool_input": {"command": "git push --force", "command": "ls"}}',
        '{"session_id": "s", "hook_event_name": "PostToolUse", "hook_event_name": "PreToolUse", "tool_name": "x"}',
        json.dumps({"sessionId": "s", "toolName": "bash", "toolArgs": '{"command": "rm", "command": "ls"}'}),
    ],
)
def test_a_key_that_is_given_twice_is_refused(fault: str, project: Path) -> None:
    answer = hook(fault.encode(), policy=str(project / "bylaw.yaml"))
    assert answer.code == 2 and "is given twice" in answer.stderr
