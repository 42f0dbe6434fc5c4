"""Reports of a comparison: whole in JSON, within a comment's size in Markdown, harmless in both."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from bylaw.diff.api import compare_versions
from bylaw.diff.model import Change, DiffReport
from bylaw.diff.report import json as diff_json
from bylaw.diff.report import markdown as diff_markdown
from bylaw.diff.report import terminal as diff_terminal
from bylaw.diff.report import wording
from bylaw.report.text import COMMENT_LIMIT, inline_code
from bylaw.rules import load_rules
from tests.support.build import trace

RULES = [{"id": f"rule-{i}", "kind": "no_call", "params": {"tool": "wipe"}} for i in range(300)]
HOSTILE = "``<img src=x>` @everyone [a](b) \x1b]0;owned\x07"


@cache
def large() -> DiffReport:
    baseline = [{"text": f"answer {i} " + "word " * 60, "calls": ["look"]} for i in range(60)]
    candidate = [{"text": HOSTILE * 8, "calls": [{"name": "wipe", "args": {"x": HOSTILE}}]} for _ in range(60)]
    rules = load_rules(RULES).rules
    return compare_versions([trace(baseline, name=HOSTILE)], [trace(candidate, name="candidate")], rules)


def test_markdown_fits_a_comment_and_says_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(diff_markdown.render_diff(large())) <= COMMENT_LIMIT
    monkeypatch.setattr(diff_markdown, "COMMENT_LIMIT", 20_000)
    text = diff_markdown.render_diff(large())
    assert len(text) <= 20_000
    assert text.startswith(diff_markdown.MARKER)
    assert "do not fit into a comment" in text


def test_nothing_from_a_trace_becomes_markup_or_steers_a_terminal() -> None:
    small = compare_versions(
        [trace([{"text": "a", "calls": ["look"]}])], [trace([{"text": HOSTILE, "calls": [HOSTILE]}])]
    )
    lines = diff_markdown.render_diff(small).split("\n")
    prose = "\n".join(line for line in lines if "- after" not in line)  # those quote inside code, where nothing acts
    assert "<img" not in prose.replace(diff_markdown.MARKER, "")
    assert "@everyone" not in prose
    assert "\x1b]" not in diff_terminal.render_diff(small)


@pytest.mark.parametrize("name", ["a`b", "`", "``x`", "a` and `b"])
def test_a_name_with_backticks_is_one_span_of_code(name: str) -> None:
    def side(value: int) -> list[dict[str, Any]]:
        return [{"session": f"s{i}", "calls": [{"name": f"run{name}", "args": {name: value}}]} for i in range(14)]

    report = compare_versions([trace(side(1))], [trace(side(2))], deterministic=True)
    [line] = [one for one in diff_markdown.render_diff(report).split("\n") if one.startswith("- ") and " gets " in one]
    for shown in (f"run{name}", f"{name} = 1"):
        assert f"{inline_code(shown)} " in line
    assert "\\`" not in line
    assert f"run{name} gets {name} = 1 less often" in " ".join(diff_terminal.render_diff(report).split())


def test_json_holds_every_regression() -> None:
    report = large()
    assert len(diff_json.diff_as_json(report)["policy"]["regressions"]) == 300 * 60


def _sessions(*turns: dict[str, Any], number: int = 3) -> list[dict[str, Any]]:
    return [{**turn, "session": f"s{i}"} for i in range(number) for turn in turns]


def _several_changes(fail_on: str) -> DiffReport:
    """Two severe changes, a moderate and a minor one."""
    before = [*_sessions({"calls": ["look"], "text": "a b c d"}, {"calls": ["confirm"]}, {"text": "Done."})]
    after = [turn for turn in before if turn["session"] != "s2" or "confirm" not in turn.get("calls", ())]
    after = [{**turn, "text": "It is done."} if turn.get("text") == "Done." else turn for turn in after]
    return compare_versions([trace(before)], [trace(after)], deterministic=True, fail_on=Change(fail_on))


@pytest.mark.parametrize("fail_on", ["minor", "moderate", "severe", "none"])
def test_the_verdict_counts_the_changes_that_the_report_lists(fail_on: str) -> None:
    report = _several_changes(fail_on)
    found = [change for change, _ in wording.changes(report)]
    reached = [change for change in found if fail_on != "none" and change.rank >= Change(fail_on).rank]
    assert len(set(found)) == 3, "changes of several severities"
    counted = f"and {len(found) - 1} more changes"
    if reached:
        counted = f"{len(reached)} of {len(found)} changes reach the threshold"
    assert f"; {counted}; worst: severe, threshold: {fail_on}" in wording.headline(report)
    listed = [line for line in wording.summary(report) if "deterministic)" in line]
    assert len(listed) == len(found)


def test_sections_count_what_their_title_names() -> None:
    before = _sessions({"text": "x", "calls": ["look"]}, number=6)
    report = compare_versions([trace(before)], [trace(before[:3])], deterministic=True)
    assert "sessions (3):\n  3 sessions have no counterpart" in diff_terminal.render_diff(report)
    assert "**Sessions** (3)" in diff_markdown.render_diff(report)
    wiped = [{**turn, "calls": ["wipe"]} for turn in before]
    report = compare_versions([trace(before)], [trace(wiped)], load_rules(RULES[:1]).rules, deterministic=True)
    assert len(report.policy.regressions) == 6
    shown = " ".join(diff_terminal.render_diff(report).split())
    assert "newly broken (6): rule-0 (error), trace session s0, turn 0" in shown
    assert "(and 5 more like it)" in shown
    assert "newly broken** (6)" in diff_markdown.render_diff(report)


def test_divergences_that_are_not_listed_are_counted() -> None:
    before = [{"session": f"s{i}", "text": "x", "calls": [f"tool{i}"]} for i in range(14)]
    after = [{"session": f"s{i}", "text": "x", "calls": [f"other{i}"]} for i in range(14)]
    report = compare_versions([trace(before)], [trace(after)], deterministic=True)
    shown = diff_terminal.render_diff(report)
    listed = shown.split("divergences (14):")[1].split("\n\n")[0]
    assert "  … and 4 more" in listed
