"""Reports of a comparison: whole in JSON, within a comment's size in Markdown, harmless in both."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from bylaw.diff.api import compare_versions
from bylaw.diff.model import DiffReport
from bylaw.diff.report import json as diff_json
from bylaw.diff.report import markdown as diff_markdown
from bylaw.diff.report import terminal as diff_terminal
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
