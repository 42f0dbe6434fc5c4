"""What takes several commands on one store: ask, answer, resume; kill and revive; forget."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from bylaw.guard.stores import SqliteStore, audit_rows, verify_chain
from tests.support.command import run_bylaw

RULES = [
    {"id": "ask", "when": {"tool_name_in": ["pay"]}, "then": "pause", "reason": "money"},
    {"id": "never", "when": {"tool_name_in": ["drop"]}, "then": "block"},
]


class Shell:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "rules.json").write_text(json.dumps(RULES))

    def run(self, *arguments: str, given: Any = None) -> tuple[int, str, str]:
        text = "" if given is None else json.dumps(given)
        environment = {**os.environ, "NO_COLOR": "1"}
        done = run_bylaw(["guard", *arguments, "--store", "guard.db"], cwd=self._folder, stdin=text, env=environment)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    def decide(self, attempt: dict[str, Any], *more: str) -> tuple[int, dict[str, Any]]:
        code, out, _ = self.run("decide", "--policy", "rules.json", *more, given={"session": "s", **attempt})
        return code, json.loads(out)


def test_an_approved_call_resumes_once(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    call = {"tool": "pay", "arguments": {"n": 5}, "agent": "bot"}
    code, asked = shell.decide(call)
    assert code == 1 and asked["review"]
    code, out, _ = shell.run("reviews")
    assert code == 0 and asked["review"] in out and "pay" in out and "money" in out
    code, _, problem = shell.run("approve", asked["review"], "--by", "bot")
    assert code == 2 and "cannot answer its own review" in problem
    code, out, _ = shell.run("approve", asked["review"], "--by", "ann", "--note", "fine")
    assert code == 0 and "approved by ann" in out
    code, _, problem = shell.run("reject", asked["review"], "--by", "ben")
    assert code == 2 and "approved already" in problem
    assert shell.decide({**call, "arguments": {"n": 6}}, "--review", asked["review"])[0] == 1
    assert shell.decide(call, "--review", asked["review"])[0] == 0
    assert shell.decide(call, "--review", asked["review"])[0] == 1
    code, out, _ = shell.run("reviews", "--all", "--json")
    answered = next(one for one in map(json.loads, out.splitlines()) if one["id"] == asked["review"])
    assert code == 0 and answered["status"] == "used" and answered["decided_by"] == "ann"


def test_an_edit_is_judged_again(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    _, asked = shell.decide({"tool": "pay", "arguments": {}})
    assert shell.run("approve", asked["review"], "--by", "ann", "--edit", "{")[0] == 2
    assert shell.run("approve", asked["review"], "--by", "ann", "--edit", '{"tool": "drop"}')[0] == 2
    for bad in ("NaN", "1e999", '"\\ud800"'):  # it could never run
        edit = f'{{"tool": "pay", "arguments": {{"n": {bad}}}}}'
        assert shell.run("approve", asked["review"], "--by", "ann", "--edit", edit)[0] == 2
    edit = '{"tool": "drop", "arguments": {"n": 1}}'
    code, out, _ = shell.run("approve", asked["review"], "--by", "ann", "--edit", edit)
    assert code == 0 and 'approved by ann  drop({"n": 1})  in place of pay({})  session' in out
    assert 'drop({"n": 1})  in place of pay({})' in shell.run("reviews", "--all")[1]
    code, decision = shell.decide({"tool": "drop", "arguments": {"n": 1}}, "--review", asked["review"])
    assert code == 1 and decision["decided_by"] == "never"


def test_kill_stops_an_agent_until_it_is_revived(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert shell.decide({"tool": "look", "agent": "bot"})[0] == 0
    assert shell.run("kill", "--agent", "bot", "--why", "gone wild")[0] == 0
    code, decision = shell.decide({"tool": "look", "agent": "bot"})
    assert code == 1 and decision["decided_by"] == "kill-switch" and decision["reason"] == "gone wild"
    assert shell.decide({"tool": "look", "agent": "other"})[0] == 0
    assert shell.run("revive")[1].splitlines() == [
        "there was no kill of all agents to undo; still switched off (to be revived with --agent NAME):",
        "bot is switched off: gone wild",
    ]
    assert shell.run("revive", "--agent", "bot")[:2] == (0, "the kill of bot is undone\nno agent is switched off\n")
    assert shell.decide({"tool": "look", "agent": "bot"})[0] == 0


def test_a_switch_needs_a_name(tmp_path: Path) -> None:
    """As in `--agent "$AGENT"` where the variable is not set: such a switch would stop nobody."""
    shell = Shell(tmp_path)
    assert shell.decide({"tool": "look", "agent": "bot"})[0] == 0
    assert [shell.run(command, "--agent", "")[0] for command in ("kill", "revive")] == [2, 2]
    assert shell.run("switches")[1] == "no agent is switched off\n"


def test_prune_keeps_the_chain_whole(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for _ in range(3):
        shell.decide({"tool": "look"})
    code, out, _ = shell.run("prune", "--older-than", "0")
    assert code == 0 and "audit 3" in out
    shell.decide({"tool": "look"})
    store = SqliteStore(tmp_path / "guard.db")
    assert verify_chain(audit_rows(store)) == []
    store.close()
    for days in ("-1", "nan", "inf"):
        assert shell.run("prune", "--older-than", days)[0] == 2


def test_what_an_agent_says_does_not_steer_the_terminal_of_whoever_approves(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    hostile = {"tool": "pay", "arguments": {"n": 5, "to": "\u202eeve" + "x" * 200}, "session": "\x1b[2Jgone\n"}
    shell.decide(hostile)
    code, out, _ = shell.run("reviews")
    assert code == 0 and len(out.splitlines()) == 1
    assert "\x1b" not in out and "\u202e" not in out and "\\x1b[2Jgone\\n" in out and "x" * 200 in out


def test_reviews_beyond_the_limit_are_reported(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for n in range(3):
        shell.decide({"tool": "pay", "arguments": {"n": 5}, "session": f"s{n}"})
    code, out, problem = shell.run("reviews", "--limit", "2")
    assert code == 0 and len(out.splitlines()) == 2 and "more than 2: --limit shows the rest" in problem
    code, out, problem = shell.run("reviews", "--session", "s2")
    assert code == 0 and len(out.splitlines()) == 1 and not problem


def test_a_limit_beyond_all_bounds_is_refused(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.decide({"tool": "pay", "arguments": {"n": 5}})
    code, out, problem = shell.run("reviews", "--limit", "9" * 30)
    assert code == 2 and not out and "--limit" in problem and "Traceback" not in problem


def test_what_is_redacted_can_be_chosen(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    call = {"tool": "pay", "arguments": {"to": "ann@corp.example", "name": "Ann", "order": "A-17", "pin": "hunter22"}}
    chosen = ("--redact", "email", "--mask", "name", "--pattern", "order=A-[0-9]+", "--keep", "pin")
    _, asked = shell.decide(call, *chosen)
    edit = json.dumps({"tool": "pay", "arguments": {**call["arguments"], "order": "A-18"}})
    assert shell.run("approve", asked["review"], "--by", "lea", "--edit", edit, *chosen)[0] == 0
    stored = "".join(path.read_bytes().decode("latin-1") for path in tmp_path.glob("guard.db*"))
    assert "hunter22" in stored
    for removed in ("ann@corp", "Ann", "A-17", "A-18"):
        assert removed not in stored
    for mistake, why in (("--redact=mail", "is none of"), ("--pattern=A", "NAME=REGEX"), ("--pattern=a=(", "a")):
        code, _, problem = shell.run("decide", "--policy", "rules.json", mistake, given=call)
        assert code == 2 and why in problem
    done = run_bylaw(["guard", "decide", "-p", "rules.json", "--redact", "all"], cwd=tmp_path, stdin="{}")
    assert done.returncode == 2 and "no effect without --store" in done.stderr
