"""`bylaw guard follow`, `replay` and `incidents`, as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import bylaw
from tests.incidents.mail_receiver import receiving_mail
from tests.incidents.receiver import receiving
from tests.support.command import run_bylaw

RULES = """\
guard:
  mode: hitl
  rules:
    - id: burst
      when: {tool_name_in: [send], call_count_in_window_gt: {tool: send, value: 2, windowSeconds: 60}}
      then: pause
    - id: cap
      when: {tool_name_in: [pay], any_of: [{arg_gt: {path: amount, value: 500}}, {arg_missing: amount}]}
      then: block
      severity: critical
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(RULES)
    guard = bylaw.Guard(str(tmp_path / "rules.yaml"), store=tmp_path / "guard.db")
    for number in range(3):
        guard.decide(bylaw.Attempt(tool="send", arguments={"n": number}, session="s"))
    guard.decide(bylaw.Attempt(tool="pay", arguments={"amount": 900}, session="s", call_id="c-1"))
    return tmp_path


def run(folder: Path, *arguments: str, code: int = 0, **environment: str) -> str:
    done = run_bylaw(["guard", *arguments, "--store", "guard.db"], cwd=folder, env={**os.environ, **environment})
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_replay_writes_only_with_the_flag(folder: Path) -> None:
    shown = run(folder, "replay", "-p", "rules.yaml")
    assert "`burst` once" in shown and "`cap` once, 1 stopped" in shown and "4 events, 2 incidents" in shown
    assert run(folder, "incidents", "list") == "no incident is open\n"
    assert "2 detections written" in run(folder, "replay", "-p", "rules.yaml", "--write")
    assert len(run(folder, "incidents", "list").splitlines()) == 2
    assert run(folder, "replay", "-p", "rules.yaml", "--since", "2100-01-01T00:00:00Z", "--json") == ""
    assert "ISO 8601" in run(folder, "replay", "-p", "rules.yaml", "--since", "soon", code=2)


@pytest.mark.parametrize("log", ["no events", "no events that rules are about"])
def test_a_replay_that_checks_nothing_exits_3(tmp_path: Path, log: str) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    bylaw.Guard(str(tmp_path / "rules.yaml"), store=tmp_path / "guard.db").close()
    if log != "no events":
        run(tmp_path, "keys", "create", "ann", "--scope", "admin")
    for options in ([], ["--json"], ["--write"]):
        assert "nothing was checked" in run(tmp_path, "replay", "-p", "rules.yaml", *options, code=3)
    assert run(tmp_path, "follow", "-p", "rules.yaml", "--once") == ""


def test_an_incident_from_opening_to_its_end(folder: Path) -> None:
    assert "opened incident-" in run(folder, "follow", "-p", "rules.yaml", "--once")
    assert run(folder, "follow", "-p", "rules.yaml", "--once") == ""
    found = [json.loads(line) for line in run(folder, "incidents", "list", "--json").splitlines()]
    cap = next(one for one in found if one["rule"] == "cap")
    assert (cap["severity"], cap["call_id"], cap["tool"]) == ("critical", "c-1", "pay")
    assert "anomaly_alert pending  error  `burst`" in run(folder, "incidents", "alerts")
    run(folder, "incidents", "ack", cap["id"], "--by", "ann")
    assert "acknowledged already" in run(folder, "incidents", "ack", cap["id"], "--by", "ann", code=2)
    run(folder, "incidents", "assign", cap["id"], "bob", "--by", "ann")
    run(folder, "incidents", "note", cap["id"], "a test", "--by", "bob")
    assert "solved, assigned to bob" in run(folder, "incidents", "solve", cap["id"], "--by", "bob")
    shown = run(folder, "incidents", "show", cap["id"])
    assert "event 4 pay (call c-1), stopped by the guard" in shown
    assert "noted by bob: a test" in shown
    assert json.loads(run(folder, "incidents", "show", cap["id"], "--json"))["detections"][0]["seq"] == 4
    assert cap["id"] not in run(folder, "incidents", "list")
    assert cap["id"] in run(folder, "incidents", "list", "--all")
    assert "there is no incident" in run(folder, "incidents", "show", "incident-0", code=2)


def test_mistakes_exit_2_and_name_the_cause(folder: Path) -> None:
    assert "BYLAW_WEBHOOK_SECRET" in run(
        folder,
        "follow",
        "-p",
        "rules.yaml",
        "--webhook",
        "http://127.0.0.1/",
        "--once",
        code=2,
        BYLAW_WEBHOOK_SECRET="",
    )
    assert "http" in run(folder, "follow", "-p", "rules.yaml", "--webhook", "ftp://x", code=2, BYLAW_WEBHOOK_SECRET="x")
    assert "needs --webhook" in run(folder, "follow", "-p", "rules.yaml", "--escalate-to", "http://127.0.0.1/", code=2)
    (folder / "bad.yaml").write_text("guard: {rules: [{id: x}]}")
    assert "bad.yaml" in run(folder, "replay", "-p", "bad.yaml", code=2)
    (folder / "guard.db").rename(folder / "elsewhere.db")
    assert "there is no store" in run(folder, "follow", "-p", "rules.yaml", code=2)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_follow_continues_until_it_is_stopped(folder: Path, how: signal.Signals) -> None:
    with receiving() as receiver:
        command = [sys.executable, "-m", "bylaw", "guard", "follow", "--store", "guard.db", "-p", "rules.yaml"]
        command += ["--poll", "0.05", "--webhook", receiver.address]
        environment = {**os.environ, "BYLAW_WEBHOOK_SECRET": "only for tests"}
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            _until(lambda: len(receiver.got) == 2)
            guard = bylaw.Guard(str(folder / "rules.yaml"), store=folder / "guard.db")
            guard.decide(bylaw.Attempt(tool="pay", arguments={"amount": 900}, session="t"))
            _until(lambda: len(receiver.got) == 3)
            process.send_signal(how)
            out, _ = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 0
    assert len(out.splitlines()) == 3
    _, headers, body = receiver.got[-1]
    assert bylaw.verify_webhook(body, headers["Bylaw-Signature"], "only for tests")


def _until(done: object, seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def test_the_same_in_python(folder: Path) -> None:
    guard = bylaw.Guard(str(folder / "rules.yaml"), store=folder / "guard.db")
    replayed = guard.replay()
    guard.follower().once()
    assert [one.id for one in guard.incidents.list()] == [one.id for one in replayed.incidents]
    guard.incidents.solve(replayed.incidents[0].id, by="ann")
    assert [one.status for one in guard.incidents.list()] == ["solved", "unresolved"]
    with pytest.raises(ValueError, match="without a store"):
        bylaw.Guard(str(folder / "rules.yaml")).replay()


def test_a_notification_that_nobody_takes_is_reported_and_can_be_sent_again(folder: Path) -> None:
    with receiving() as receiver:
        receiver.answers = [403, 403]
        follow = ("follow", "-p", "rules.yaml", "--once", "--webhook", receiver.address)
        shown = run(folder, *follow, code=4, BYLAW_WEBHOOK_SECRET="s")
        assert shown.count("not delivered: incident.opened:") == 2 and "answered 403" in shown
        listed = run(folder, "incidents", "outbox").splitlines()
        assert len(listed) == 2 and all(
            "  failed  to the first recipient, 1 try, webhook: answered 403" in one for one in listed
        )
        assert "pending  to the first" in run(folder, "incidents", "resend", listed[0].split()[0])
        assert "the notification is pending" in run(folder, "incidents", "resend", listed[0].split()[0], code=2)
        assert run(folder, *follow, BYLAW_WEBHOOK_SECRET="s") == ""
    assert len(run(folder, "incidents", "outbox").splitlines()) == 1
    assert len(run(folder, "incidents", "outbox", "--all", "--json").splitlines()) == 2


def test_the_list_can_be_narrowed(folder: Path) -> None:
    run(folder, "follow", "-p", "rules.yaml", "--once")
    assert "`cap`" in run(folder, "incidents", "list", "--rule", "cap")
    assert "`cap`" in run(folder, "incidents", "list", "--severity", "critical")
    assert run(folder, "incidents", "list", "--assignee", "bob") == "no incident is open\n"
    shown = run(folder, "incidents", "list", "--limit", "1")
    assert len(shown.splitlines()) == 2 and "more than 1: --limit shows the rest" in shown


def test_an_alert_is_acknowledged_and_solved_incidents_are_listed(folder: Path) -> None:
    run(folder, "follow", "-p", "rules.yaml", "--once")
    alert = json.loads(run(folder, "incidents", "alerts", "--json"))
    assert (alert["kind"], alert["status"]) == ("anomaly_alert", "pending")
    assert "anomaly_alert acknowledged" in run(folder, "incidents", "ack", alert["id"], "--by", "ann")
    assert "the alert is acknowledged already" in run(folder, "incidents", "ack", alert["id"], "--by", "ann", code=2)
    assert run(folder, "incidents", "list", "--status", "solved") == "no incident is solved\n"
    run(folder, "incidents", "solve", alert["incident"], "--by", "ann", "--note", "x" * 300)
    assert alert["incident"] in run(folder, "incidents", "list", "--status", "solved")
    assert alert["incident"] not in run(folder, "incidents", "list")


def test_the_audit_shows_incidents_whole(folder: Path) -> None:
    run(folder, "follow", "-p", "rules.yaml", "--once")
    incident = json.loads(run(folder, "incidents", "list", "--json").splitlines()[0])["id"]
    note = "announced: " + "x" * 300
    run(folder, "incidents", "solve", incident, "--by", "ann", "--note", note)
    shown = run(folder, "audit", "show", "--rule", "burst")
    opened, solved = (line.partition("incident  ")[2] for line in shown.splitlines() if "  incident  s  " in line)
    assert opened.startswith(f"s  {incident} opened by follow-up  error  `burst`: ") and "over 2" in opened
    assert solved.startswith(f"s  {incident} solved by ann  error  `burst`: ") and solved.endswith(f"  note: {note}")


def test_an_alert_over_all_agents_is_shown_with_its_call(folder: Path) -> None:
    window = "{tool: look, value: 0, windowSeconds: 60, over: all}"
    rule = f"{{id: wide, when: {{call_count_in_window_gt: {window}}}, then: pause}}"
    (folder / "wide.yaml").write_text(f"guard:\n  mode: hitl\n  rules:\n    - {rule}\n", "utf-8")
    guard = bylaw.Guard(folder / "wide.yaml", store=folder / "guard.db")
    assert guard.decide(bylaw.Attempt(tool="look", session="s9")).allowed
    run(folder, "follow", "-p", "wide.yaml", "--once")
    (alert,) = (json.loads(line) for line in run(folder, "incidents", "alerts", "--json").splitlines())
    assert (alert["over"], alert["session"], alert["call_session"]) == ("all", "", "s9")
    listed = run(folder, "incidents", "alerts")
    assert "`wide`  all agents, session s9: " in listed
    shown = run(folder, "incidents", "show", alert["id"])
    assert shown.startswith(listed) and alert["incident"] in shown and "call" in shown
    assert json.loads(run(folder, "incidents", "show", alert["id"], "--json"))["alert"]["id"] == alert["id"]
    assert "assigned to bob" in run(folder, "incidents", "assign", alert["id"], "bob", "--by", "ann")
    assert alert["incident"] in run(folder, "incidents", "list", "--session", "s9")
    assert run(folder, "incidents", "list", "--session", "s8") == "no incident is open\n"
    assert run(folder, "incidents", "list", "--session", "s8", "--all") == "there is no incident\n"
    assert "solved" in run(folder, "incidents", "solve", alert["id"], "--by", "ann")
    assert "there is no alert `alert-0`" in run(folder, "incidents", "show", "alert-0", code=2)
    assert "  incident  all agents, s9  " in run(folder, "audit", "show", "--session", "s9")


def test_a_session_is_terminated_from_the_command_line(folder: Path) -> None:
    guard = bylaw.Guard(folder / "rules.yaml", store=folder / "guard.db")
    assert guard.decide(bylaw.Attempt(tool="look", session="s")).allowed
    said = run(folder, "terminate", "s", "--by", "ann", "--why", "it loops")
    assert said == "session s was ended by ann: it loops\n"
    stopped = guard.decide(bylaw.Attempt(tool="look", session="s"))
    assert (stopped.action.value, stopped.reason) == ("terminate_session", "the session was ended by ann: it loops")
    assert guard.decide(bylaw.Attempt(tool="look", session="t")).allowed
    assert "ended already by ann" in run(folder, "terminate", "s", code=2)
    assert "has never seen the session never-seen" in run(folder, "terminate", "never-seen", code=2)
    run(folder, "terminate", "never-seen", "--force")
    assert not guard.decide(bylaw.Attempt(tool="look", session="never-seen")).allowed
    assert "every verdict follows" in run(folder, "audit", "verify", "-p", "rules.yaml")
    assert "  session  s  terminated by ann: it loops\n" in run(folder, "audit", "show", "--session", "s")


def test_a_review_is_a_task_of_its_kind_in_json(folder: Path) -> None:
    text = RULES.replace("then: block", "then: pause")
    (folder / "rules.yaml").write_text(text)
    guard = bylaw.Guard(folder / "rules.yaml", store=folder / "guard.db")
    guard.decide(bylaw.Attempt(tool="pay", arguments={"amount": 900}, session="p"))
    assert json.loads(run(folder, "reviews", "--json"))["kind"] == "anomaly_review"
    rows = [json.loads(row)["data"] for row in run(folder, "audit", "export", "--session", "p").splitlines()]
    assert [row["task"] for row in rows if row["kind"] == "review"] == ["anomaly_review"]


def test_a_file_names_the_channels_of_follow(folder: Path) -> None:
    with receiving() as room, receiving_mail() as box:
        email = {
            "host": "localhost",
            "port": box.port,
            "security": "plain",
            "sender": "b@a.example",
            "to": ["a@a.example"],
        }
        (folder / "notify.yaml").write_text(json.dumps({"notify": {"slack": "THE_ROOM", "email": email}}))
        follow = ("follow", "-p", "rules.yaml", "--once", "--config", "notify.yaml")
        assert "$THE_ROOM holds no address" in run(folder, *follow, code=2, THE_ROOM="")
        run(folder, *follow, THE_ROOM=room.address)
    assert len(room.got) == len(box.got) == 2 and "The rule" in box.got[0]["Subject"]
