"""`bylaw comply`: flags, reports, exit codes."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.cli import main
from tests.comply.support import (
    EVENTS,
    PROMPT,
    be_kind,
    drips,
    judge_that,
    look_up_first,
    never_drop,
    openai_says,
    verdict,
)
from tests.support.yaml_files import load_yaml


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "prompt.md").write_text(PROMPT)
    (tmp_path / "dropped.json").write_text(json.dumps(EVENTS))
    (tmp_path / "talked.json").write_text(json.dumps(EVENTS[3:]))
    return tmp_path


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def running(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exited:
            main(["comply", *arguments])
        printed = capsys.readouterr()
        return int(exited.value.code or 0), printed.out, printed.err

    return running


BASIC = ("--prompt", "prompt.md")


def test_the_prompt_is_taken_from_the_traces(run: Run, folder: Path) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "drop_table", "arguments": "{}"}}
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    for name, prompt in (("one", "Never call drop_table."), ("two", "Never call search."), ("none", None)):
        system = [{"role": "system", "content": [{"type": "text", "text": prompt}]}] if prompt else []
        (folder / f"{name}.json").write_text(json.dumps([*system, *said]))
    code, out, _ = run("one.json")
    assert (code, "never-drop-table  violated  certain · critical · system prompt:1:1" in out) == (1, True)
    code, _, err = run("one.json", "two.json")
    assert (code, "hold 2 different system prompts" in err) == (2, True)
    code, _, err = run("one.json", "none.json")
    assert (code, "no system prompt is recorded in `none.json`" in err) == (2, True)


@pytest.mark.parametrize("option", ["--tools", "--alias"])
def test_a_folder_in_place_of_a_file_is_named_as_such(run: Run, folder: Path, option: str) -> None:
    (folder / "names").mkdir()
    code, _, err = run("rules", *BASIC, option, "names")
    assert (code, "this is a folder, and a file is needed" in err, "manifest" in err) == (2, True, False)


# -- exit codes --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("two_rules")
def test_a_violation_exits_1(run: Run) -> None:
    code, out, _ = run(*BASIC, "dropped.json")
    assert code == 1
    assert out.startswith("✗ VIOLATED: 1 of 2 rules broken  (prompt.md: 2 rules, 1 trace, 1 session)")
    assert "✗ never-drop-table  violated  certain · critical · prompt.md:1:1" in out
    assert "dropped.json · turn 0 · event 1 · confidence 1.00" in out
    assert "? be-kind  undecided  medium · prompt.md:1:24" in out
    assert "open wording" in out
    assert "1 violated · 0 satisfied · 0 not triggered · 1 undecided · coverage 50%" in out


@pytest.mark.usefixtures("two_rules")
def test_no_violation_lists_what_is_undecided(run: Run) -> None:
    code, out, _ = run(*BASIC, "talked.json")
    assert code == 0
    assert out.startswith("! NO VIOLATION FOUND: 1 of 2 rules undecided")
    assert "? be-kind  undecided" in out


def _sessions(*said: str, cut: bool = False) -> str:
    """One chat on each line. `cut`: the last line is cut off."""
    chats = [[{"role": "user", "content": "hi"}, {"role": "assistant", "content": text}] for text in said]
    lines = [json.dumps({"id": f"s{i}", "messages": chat}) for i, chat in enumerate(chats)]
    return "\n".join([*lines[:-1], lines[-1][:20]] if cut else lines)


@pytest.mark.usefixtures("two_rules")
def test_the_headline_says_in_how_many_sessions_a_rule_is_undecided(run: Run, folder: Path) -> None:
    (folder / "cut.jsonl").write_text(_sessions("a", "b", "c", cut=True))
    code, out, _ = run(*BASIC, "cut.jsonl")
    shown = " ".join(out.split())
    assert code == 0
    why = "1 of 2 rules not decided in any session; 1 of 2 rules undecided in 1 of 2 sessions"
    assert shown.startswith(f"! NO VIOLATION FOUND: {why} (prompt.md: 2 rules, 1 trace, 2 sessions)")
    assert "Never call drop_table. in 1 of 2 sessions: the recording stopped early" in shown
    assert "rules by worst state: 0 violated · 0 satisfied · 0 not triggered · 2 undecided" in shown


def test_a_rule_that_some_sessions_do_not_trigger_is_not_called_undecided_in_them(
    run: Run, folder: Path, stated: Callable[..., None]
) -> None:
    stated(look_up_first())
    (folder / "cut.jsonl").write_text(_sessions("a", "b", "c", cut=True))
    code, out, _ = run(*BASIC, "--allow-vacuous", "cut.jsonl")
    shown = " ".join(out.split())
    assert (code, "NO VIOLATION FOUND: 1 of 1 rule not decided in any session (" in shown) == (0, True)
    assert "s0: 1 not triggered" in shown and "s1: 1 undecided" in shown


@pytest.mark.usefixtures("two_rules")
def test_the_headline_says_in_how_many_sessions_a_rule_is_broken(run: Run) -> None:
    code, out, _ = run(*BASIC, "dropped.json", "talked.json")
    assert (code, out.startswith("✗ VIOLATED: 1 of 2 rules broken, in 1 of 2 sessions\n  (prompt.md: ")) == (1, True)


@pytest.mark.usefixtures("two_rules")
def test_an_empty_trace_beside_one_that_was_checked_is_counted(run: Run, folder: Path) -> None:
    (folder / "empty.json").write_text(json.dumps(EVENTS[:1]))
    code, out, _ = run(*BASIC, "talked.json", "empty.json")
    assert (code, "NOTHING CHECKED in 1 of 2 traces: no turn of the agent in `empty.json`" in out) == (3, True)
    code, out, _ = run(*BASIC, "--allow-vacuous", "talked.json", "empty.json")
    assert (code, "NO VIOLATION FOUND: nothing checked in 1 of 2 traces; 1 of 2 rules" in out) == (0, True)


def test_nothing_checked_for_several_reasons(run: Run, stated: Callable[..., None]) -> None:
    stated(be_kind(), look_up_first())
    code, out, _ = run(*BASIC, "dropped.json")
    assert (code, "NOTHING CHECKED: 1 of 2 rules not triggered, 1 undecided" in out) == (3, True)


def test_no_decided_rule_exits_3(run: Run, stated: Callable[..., None]) -> None:
    stated(be_kind())
    code, out, _ = run(*BASIC, "dropped.json")
    assert (code, "NOTHING CHECKED: no rule could be decided" in out) == (3, True)


def test_no_triggered_rule_exits_3(run: Run, stated: Callable[..., None]) -> None:
    stated(look_up_first())
    code, out, _ = run(*BASIC, "dropped.json")
    assert (code, "NOTHING CHECKED: no rule was triggered" in out) == (3, True)
    assert run(*BASIC, "--allow-vacuous", "dropped.json")[0] == 0


@pytest.mark.usefixtures("two_rules")
def test_a_trace_without_a_turn_exits_3(run: Run, folder: Path) -> None:
    (folder / "empty.json").write_text(json.dumps(EVENTS[:1]))
    code, out, _ = run(*BASIC, "empty.json")
    assert (code, "NOTHING CHECKED: no turn of the agent" in out) == (3, True)


@pytest.mark.parametrize("text", ["", "The sky is blue.\n"])
def test_a_prompt_without_rules_exits_3(text: str, run: Run, folder: Path) -> None:
    (folder / "prompt.md").write_text(text)
    code, out, _ = run(*BASIC, "dropped.json")
    assert (code, "NOTHING CHECKED: no rule could be read" in out) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--prompt", "none.md", "dropped.json"), "no-such-file"),
        ((*BASIC, "none.json"), "no-such-file"),
        ((*BASIC, "--tools", "bad.json", "dropped.json"), "bad.json"),
        ((*BASIC, "--tools", "prompt.md", "dropped.json"), "must be a list of tools"),
        ((*BASIC, "--alias", "list.yaml", "dropped.json"), "must map words to tools"),
        ((*BASIC, "--alias", "seven.yaml", "dropped.json"), "must map to"),
        ((*BASIC, "--alias", "blank.yaml", "dropped.json"), "is not a word of a prompt"),
        ((*BASIC, "--rules", "list.yaml", "dropped.json"), "list.yaml"),
        ((*BASIC, "bad.json"), "bad.json"),
    ],
)
@pytest.mark.usefixtures("two_rules")
def test_bad_files_exit_2(arguments: tuple[str, ...], said: str, run: Run, folder: Path) -> None:
    (folder / "bad.json").write_text("{")
    (folder / "list.yaml").write_text("- a\n")
    (folder / "seven.yaml").write_text("verify: 7\n")
    (folder / "blank.yaml").write_text("'': verify\n")
    code, _, err = run(*arguments)
    assert (code, said in err) == (2, True), err


@pytest.mark.parametrize(
    "arguments",
    [
        ("dropped.json",),
        BASIC,
        (*BASIC, "--judge", "nobody", "dropped.json"),
        (*BASIC, "--from", "nothing", "dropped.json"),
        (*BASIC, "--timeout-ms", "0", "dropped.json"),
        (*BASIC, "--format", "xml", "dropped.json"),
        (*BASIC, "--emit", "no/such/folder/rules.yaml", "dropped.json"),
        ("--prompt", "-", "-"),
        (),
    ],
)
def test_bad_flags_exit_2(arguments: tuple[str, ...], run: Run) -> None:
    code, _, err = run(*arguments)
    assert (code, "Error" in err) == (2, True)


@pytest.mark.usefixtures("two_rules")
def test_bad_input_is_also_in_the_report(run: Run) -> None:
    code, out, _ = run("--prompt", "none.md", "--format", "json", "dropped.json")
    assert (code, json.loads(out)["exit_code"]) == (2, 2)


# -- several traces, several formats -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("two_rules")
def test_several_traces_are_reported_together(run: Run) -> None:
    code, out, _ = run(*BASIC, "dropped.json", "talked.json", "--format", "json")
    report = json.loads(out)
    assert code == report["exit_code"] == 1
    assert [result["trace"] for result in report["results"]] == ["dropped.json", "talked.json"]
    assert [result["detected"] for result in report["results"]] == [True, False]
    first = report["results"][0]
    assert first["violations"][0]["event_index"] == 1
    assert [rule["state"] for rule in first["extracted_rules"]] == ["violated", "undecided"]
    assert {"tokens_used", "cost_usd", "confidence", "coverage", "degraded"} <= first.keys()


@pytest.mark.usefixtures("two_rules")
def test_json_has_the_result_over_all_traces_on_top(run: Run) -> None:
    _, out, _ = run(*BASIC, "dropped.json", "talked.json", "--format", "json")
    report = json.loads(out)
    assert (report["schema"], report["detected"], report["confidence"]) == ("bylaw.comply/1", True, 1.0)
    assert [(one["rule_id"], one["trace"]) for one in report["violations"]] == [("never-drop-table", "dropped.json")]
    assert report["extracted_rules"][0] == {
        "rule_id": "never-drop-table",
        "description": "Never call drop_table.",
        "trigger": "always",
        "required_action": None,
        "forbidden_action": None,
        "severity": "critical",
    }
    assert (report["tokens_used"], report["cost_usd"], report["coverage"], report["degraded"]) == (0, 0.0, 0.5, [])


@pytest.mark.usefixtures("two_rules")
def test_json_says_of_each_rule_where_it_is_and_what_became_of_it(run: Run) -> None:
    _, out, _ = run(*BASIC, "dropped.json", "talked.json", "--format", "json")
    never, kind = json.loads(out)["rules"]
    assert (never["rule_id"], never["state"], never["confidence"]) == ("never-drop-table", "violated", 1.0)
    assert never["span"] == {"start": 0, "end": 22, "line": 1, "column": 1}
    assert never["traces"] == {"violated": 1, "satisfied": 1, "not_triggered": 0, "undecided": 0}
    assert (kind["state"], kind["reason"]) == ("undecided", "open wording")
    assert PROMPT[kind["span"]["start"] : kind["span"]["end"]] == "Be kind to the user."


@pytest.mark.usefixtures("two_rules")
def test_json_of_a_trace_is_the_result_of_the_python_call(run: Run) -> None:
    _, out, _ = run(*BASIC, "dropped.json", "--format", "json")
    (result,) = json.loads(out)["results"]
    called = bylaw.check_compliance_sync(PROMPT, EVENTS).to_dict()
    assert {**result, "trace": ""} == {**called, "trace": ""}


@pytest.mark.usefixtures("two_rules")
def test_each_conversation_of_a_file_is_checked_by_itself(run: Run, folder: Path) -> None:
    both = [{"id": "a", "events": EVENTS[3:]}, {"id": "b", "events": EVENTS}]
    (folder / "both.jsonl").write_text("\n".join(map(json.dumps, both)))
    _, out, _ = run(*BASIC, "both.jsonl", "--format", "json")
    results = json.loads(out)["results"]
    assert [(result["trace"], result["detected"]) for result in results] == [
        ("both.jsonl#a", False),
        ("both.jsonl#b", True),
    ]
    assert results[1]["violations"][0]["event_index"] == 1


@pytest.mark.usefixtures("two_rules")
def test_formats_agree(run: Run, folder: Path) -> None:
    code, out, _ = run(*BASIC, "dropped.json", "--format", "markdown", "--format", "json=report.json")
    assert code == 1
    assert out.startswith("### ❌ Bylaw comply: VIOLATED: 1 of 2 rules broken")
    assert json.loads((folder / "report.json").read_text())["verdict"] == "VIOLATED: 1 of 2 rules broken"
    assert "**be-kind**: open wording" in out
    assert "must never be called" in out


@pytest.mark.usefixtures("two_rules")
def test_text_of_a_trace_cannot_control_the_terminal(run: Run, folder: Path) -> None:
    event = {"type": "tool_call", "name": "drop_table", "args": {"name": "\x1b[31m\u202e"}}
    (folder / "nasty.json").write_text(json.dumps([event]))
    code, out, _ = run(*BASIC, "nasty.json")
    assert code == 1
    assert "\x1b" not in out
    assert "\u202e" not in out


# -- what stands beside ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("two_rules")
def test_emit_and_check_again(run: Run, folder: Path) -> None:
    assert run(*BASIC, "--emit", "rules.yaml", "dropped.json")[0] == 1
    assert load_yaml((folder / "rules.yaml").read_text())["rules"][0]["id"] == "never-drop-table"
    code, out, _ = run(*BASIC, "--rules", "rules.yaml", "dropped.json")
    assert (code, "another version" in out) == (1, False)
    (folder / "prompt.md").write_text(PROMPT + "\nMore.")
    code, out, _ = run(*BASIC, "--rules", "rules.yaml", "dropped.json")
    assert (code, "note: `rules.yaml` was made from another version of the prompt" in out) == (1, True)


@pytest.mark.usefixtures("two_rules")
def test_rules_are_listed(run: Run) -> None:
    code, out, _ = run("rules", *BASIC)
    assert code == 0
    assert "never-drop-table  certain · critical · no_call · prompt.md:1:1\n    Never call drop_table.\n" in out
    assert "    undecided: open wording\n" in out
    listed = json.loads(run("rules", *BASIC, "--format", "json")[1])["rules"]
    assert [(rule["rule_id"], rule["line"], rule["column"]) for rule in listed] == [
        ("never-drop-table", 1, 1),
        ("be-kind", 1, 24),
    ]
    assert run("rules", *BASIC, "--format", "markdown")[1].startswith("| rule |")


def test_listing_no_rules_exits_3(run: Run, stated: Callable[..., None]) -> None:
    stated()
    assert run("rules", *BASIC)[0] == 3


def test_diff_exits_1_where_a_rule_was_dropped(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_text = {"old": (never_drop(), be_kind()), "new": (be_kind(),)}
    monkeypatch.setattr("bylaw.comply.prompt.extract_rules", lambda prompt, **more: by_text[prompt.split()[-1]])
    for name in by_text:
        (folder / f"{name}.md").write_text(f"{PROMPT} {name}")
    code, out, _ = run("diff", "old.md", "new.md")
    assert code == 1
    assert out.startswith("✗ WEAKER: 1 dropped, 1 unchanged\ndropped  never-drop-table\n    - Never call drop_table.")
    code, out, _ = run("diff", "new.md", "old.md")
    assert (code, out.startswith("✓ AS STRONG: 1 added")) == (0, True)
    assert json.loads(run("diff", "old.md", "new.md", "--format", "json")[1])["changes"][0]["kind"] == "dropped"
    assert "- **dropped** never-drop-table" in run("diff", "old.md", "new.md", "--format", "markdown")[1]
    assert run("diff", "old.md", "none.md")[0] == 2


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_shows_the_default_command_and_the_others(flag: str, run: Run) -> None:
    code, out, _ = run(flag)
    assert code == 0
    assert out.startswith("Usage: bylaw comply [OPTIONS] TRACE...")
    assert "diff   compare the rules" in out


# -- the judge ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("two_rules")
def test_the_judge_is_off_by_default(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BYLAW_ENABLE_JUDGE", raising=False)
    code, _, err = run(*BASIC, "--judge", "openai:x", "dropped.json")
    assert (code, "BYLAW_ENABLE_JUDGE" in err) == (2, True)


@pytest.mark.usefixtures("two_rules", "judge_on")
def test_the_judge_decides_an_undecided_rule(run: Run, folder: Path) -> None:
    def reply(handler: Any) -> None:
        openai_says({"verdicts": [verdict(event_indexes=[0])]})(handler)

    with judge_that(reply) as (url, asked):
        flags = ("--judge", "openai:gpt-4o-mini", "--judge-url", url, "--judge-cache", "kept")
        code, out, _ = run(*BASIC, *flags, "talked.json")
        assert (code, "be-kind  violated  judged" in out) == (1, True)
        assert "the judge used 1,100 tokens" in out
        run(*BASIC, *flags, "talked.json")
        assert len(asked) == 1, "the folder keeps answers between runs"


@pytest.mark.usefixtures("two_rules", "judge_on")
def test_an_unreachable_judge_exits_4(run: Run) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    flags = ("--judge", "openai:x", "--judge-url", url)
    code, out, _ = run(*BASIC, *flags, "talked.json", "talked.json")
    assert (code, "OUT OF REACH" in out, "cannot be reached" in out) == (4, True, True)
    assert run(*BASIC, *flags, "dropped.json")[0] == 1, "what was found without it stands"


@pytest.mark.usefixtures("two_rules", "judge_on")
def test_a_judge_that_exceeds_the_timeout_exits_4(run: Run) -> None:
    with judge_that(drips(30)) as (url, _):
        flags = ("--judge", "openai:x", "--judge-url", url, "--timeout-ms", "200")
        code, out, _ = run(*BASIC, *flags, "talked.json")
        assert (code, "within timeout_ms=200: 0 of 1 questions were answered" in " ".join(out.split())) == (4, True)


@pytest.mark.usefixtures("two_rules", "judge_on")
def test_a_violation_is_not_lost_by_a_timeout(run: Run) -> None:
    with judge_that(drips(600)) as (url, _):
        flags = ("--judge", "openai:x", "--judge-url", url, "--timeout-ms", "200", "--format", "json")
        code, out, _ = run(*BASIC, *flags, "dropped.json")
    report = json.loads(out)
    assert (code, report["violations"][0]["rule_id"]) == (1, "never-drop-table")
    assert any("timeout_ms=200" in note for note in report["degraded"])


def test_one_unreadable_file_does_not_stop_the_others(run: Run, folder: Path) -> None:
    (folder / "torn.json").write_text("{")
    code, out, err = run(*BASIC, "dropped.json", "torn.json")
    assert code == 2, "the run is not green"
    assert "BAD INPUT: 1 file could not be read; 1 of " in out
    assert "torn.json: could not be read" in out
    assert "error[bad-json]" in err
    report = json.loads(run(*BASIC, "dropped.json", "torn.json", "--format", "json")[1])
    assert (report["exit_code"], report["detected"], report["unread"][0]["file"]) == (2, True, "torn.json")
    assert run(*BASIC, "torn.json")[0] == 2


# -- one file with several sessions, one prompt with several readings --------------------------------------------------


def test_counts_name_their_unit_and_agree(run: Run, folder: Path) -> None:
    """One file is one trace, however many sessions it holds."""
    sessions = [{"id": f"s{number}", "events": EVENTS} for number in range(12)]
    (folder / "many.jsonl").write_text("\n".join(map(json.dumps, sessions)))
    (folder / "drop.md").write_text("Never call drop_table. Never call purge_cache.")
    code, out, _ = run("--prompt", "drop.md", "many.jsonl")
    assert code == 1
    assert out.startswith(
        "✗ VIOLATED: 1 of 2 rules broken, in 12 of 12 sessions\n  (drop.md: 2 rules, 1 trace, 12 sess"
    )
    assert "rules by worst state: 1 violated · 1 satisfied · 0 not triggered · 0 undecided" in out
    assert "… and 7 more violations" in out
    assert "… and 2 more sessions" in out
    _, out, _ = run("--prompt", "drop.md", "many.jsonl", "--format", "markdown")
    assert "drop.md: 2 rules, 1 trace, 12 sessions" in out
    assert "… and 2 more sessions" in out


def test_an_id_means_the_same_sentence_with_and_without_traces(run: Run, folder: Path) -> None:
    prompt = (
        "Never issue a refund if the order is late.\n"
        "Never call issue_refund after cancel_order.\n"
        "Do not refund anything twice.\n"
        "Never call issue_refund if the amount is above 100.\n"
        "Never issue refunds.\n"
    )
    (folder / "refunds.md").write_text(prompt)
    call = {"type": "tool_call", "name": "issue_refund", "args": {"amount": 300, "order_id": "a"}}
    (folder / "refund.json").write_text(json.dumps([*EVENTS[:1], call, EVENTS[3]]))
    listed = json.loads(run("rules", "--prompt", "refunds.md", "--format", "json")[1])["rules"]
    checked = json.loads(run("--prompt", "refunds.md", "refund.json", "--format", "json")[1])["extracted_rules"]
    sentences = {rule["rule_id"]: rule["description"] for rule in listed}
    assert {rule["rule_id"]: rule["description"] for rule in checked} == sentences
    assert len(sentences) == 5
    in_python = bylaw.check_compliance_sync(prompt, json.loads((folder / "refund.json").read_text()))
    assert {rule.rule_id: rule.description for rule in in_python.extracted_rules} == sentences
