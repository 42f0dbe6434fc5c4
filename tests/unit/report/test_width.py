"""Reports and help fit the terminal: 80 columns by default, broken between words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bylaw.check.api import check
from bylaw.check.report import render_finding, render_terminal
from bylaw.cli import cli, main
from bylaw.diff.api import compare_versions
from bylaw.diff.report.terminal import render_diff
from bylaw.lint.commands import codes, read_page, wrap_page
from bylaw.lint.contradictions import Analysis
from bylaw.lint.report import LintReport, render_text
from bylaw.model.diagnostic import Diagnostic, Related, Span
from bylaw.report.diagnostics import render_diagnostic
from bylaw.report.text import terminal_width, width, wrap
from bylaw.rules import load_rules
from bylaw.rules.kinds import KINDS
from tests.support.build import trace

LONG = "every answer has to mention the order number and the amount, " * 4
RULES = [
    {
        "id": "a-rule-with-a-long-name-that-says-everything",
        "kind": "forbidden_text",
        "params": {"text": "secret"},
    },
    {"id": "described", "kind": "no_call", "params": {"tool": "delete"}, "description": LONG},
    {"id": "budget", "kind": "max_total_tokens", "params": {"n": 1}},
    *({"id": f"never-triggered-{i}", "kind": "no_call", "params": {"tool": "x"}} for i in range(20)),
]
BASELINE = [{"text": f"{LONG} {i}", "calls": ["look_up"], "tokens": [9, 90_000], "latency": 12_345.0} for i in range(6)]
CANDIDATE = [
    {"text": f"secret {LONG} {i}", "calls": [{"name": "delete", "args": {"why": LONG}}], "tokens": [9, 1_000_000]}
    for i in range(8)
]


def _reports() -> Iterator[str]:
    rules = load_rules(RULES).rules
    report = check([trace(CANDIDATE, name=f"run-{i}.jsonl") for i in range(3)], rules)
    yield render_terminal(report)
    yield from (render_finding(finding) for finding in report.findings)
    yield render_diff(compare_versions([trace(BASELINE, name="v1")], [trace(CANDIDATE, name="v2")], rules))
    span = Span("rules.yaml", 12, 150, 12, 160)
    yield render_diagnostic(
        Diagnostic(
            code="unknown-key",
            message=LONG,
            file="rules.yaml",
            span=span,
            excerpt="x" * 149 + "misspelled" + "y" * 100,
            help=LONG,
            related=(Related(span, LONG),),
        )
    )


@pytest.mark.parametrize("columns", [None, "60", "100"])
def test_reports_fit(columns: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    limit = int(columns or 80)
    assert terminal_width() == limit
    reports = list(_reports())
    assert len(reports) > 4
    too_long = [line for report in reports for line in click.unstyle(report).splitlines() if len(line) > limit]
    assert too_long == []


def test_a_cut_source_line_still_shows_the_spot() -> None:
    *_, report = _reports()
    lines = click.unstyle(report).splitlines()
    source = next(line for line in lines if "misspelled" in line)
    caret = lines[lines.index(source) + 1]
    assert caret.index("^") == source.index("misspelled")
    assert caret.count("^") == len("misspelled")


def test_words_that_are_too_long_are_not_broken() -> None:
    path = "/a/very/long/path/" * 10
    assert wrap(f"see {path} for more", columns=40) == ["see", path, "for more"]
    assert wrap("", indent="  ") == [""]
    assert wrap("one two", indent="- ", hanging="  ", columns=6) == ["- one", "  two"]


GOLDEN = Path(__file__).parent.parent.parent / "golden"


def _too_long(text: str) -> list[str]:
    """Lines of more than 80 columns that hold more than one word, which cannot be broken."""
    return [line for line in click.unstyle(text).splitlines() if len(line) > 80 and len(line.split()) > 1]


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.terminal.txt")), ids=lambda file: file.name)
def test_every_golden_report_fits_80_columns(file: Path) -> None:
    assert _too_long(file.read_text("utf-8")) == []


def test_the_comments_of_proposed_rules_fit_80_columns() -> None:
    lines = (GOLDEN / "proposals.yaml").read_text("utf-8").splitlines()
    comments = [line for line in lines if line.lstrip().startswith("#")]
    assert comments
    assert _too_long("\n".join(comments)) == []


def test_every_page_of_explain_fits_80_columns_but_for_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for topic in [*codes(), *KINDS]:
        shown = CliRunner().invoke(cli, ["explain", topic]).output
        page = KINDS[topic].page() if topic in KINDS else read_page(topic)
        assert page is not None
        lines = [line.strip("|-").replace("|", " ") if line.startswith("|") else line for line in page.splitlines()]
        assert _words(shown) == _words("\n".join(lines)), topic
        prose = re.sub(r"^```.*?^```", "", shown, flags=re.MULTILINE | re.DOTALL)
        assert _too_long(prose) == [], topic


def _words(text: str) -> list[str]:
    """The words; `required; ` in a list is a cell of its own in a table."""
    return [word.removesuffix(";") for word in text.split()]


def test_a_table_of_a_page_becomes_a_list() -> None:
    rows = ["| name | | is |", "|:---|---|---|", "| `a` | required | one two three |", "| `b` or `c` | | x \\| y |"]
    shown = ["  name        is", "  `a`         required; one two", "              three", "  `b` or `c`  x | y"]
    page = "\n".join(["one", "", *rows, "", "two"])
    assert wrap_page(page, 32).splitlines() == ["one", "", *shown, "", "two"]
    narrow = ["  name  is", "  `a`   required;", "        one two", "        three", "  `b` or `c`", "        x | y"]
    assert wrap_page(page, 16).splitlines() == ["one", "", *narrow, "", "two"]


def test_a_page_is_wrapped_around_its_code_and_lists() -> None:
    code = "```yaml\nx: a very long line\n\n- y\n```"
    page = f"# a\n\none two\nthree\n- four five\n  six\n- seven\n\n{code}"
    assert wrap_page(page, 15) == f"# a\n\none two three\n- four five six\n- seven\n\n{code}"
    assert wrap_page(page, 9) == f"# a\n\none two\nthree\n- four\n  five\n  six\n- seven\n\n{code}"


@pytest.mark.parametrize(
    "arguments",
    [["check", "--format", "jsno", "x"], ["explain", "a-code-that-is-so-long-that-it-cannot-stand-on-the-line-alone"]],
)
def test_a_usage_error_fits_80_columns(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(arguments)
    shown = capsys.readouterr().err
    assert "Error: " in shown
    assert _too_long(shown) == []


def test_lint_wraps_the_rules_that_it_did_not_analyse() -> None:
    reason = "contradiction analysis does not support `max_turns`"
    analysis = Analysis([], [], {f"a-rule-with-a-long-name-{n}": reason for n in range(9)}, {})
    shown = render_text(LintReport(("rules.yaml",), (), analysis, [LONG]))
    assert "not analysed" in shown
    assert _too_long(shown) == []


def _help_pages(command: click.Command, path: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    settings = {} if parent else command.context_settings
    context = click.Context(command, info_name=path.rsplit(maxsplit=1)[-1], parent=parent, **settings)
    yield path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _help_pages(child, f"{path} {name}", context)


def test_every_help_page_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    pages = dict(_help_pages(cli, "bylaw"))
    assert len(pages) > 20
    too_long = [(path, line) for path, page in pages.items() for line in page.splitlines() if len(line) > 80]
    assert too_long == []


def test_every_command_has_the_colour_flags() -> None:
    assert [path for path, page in _help_pages(cli, "bylaw") if "--color / --no-color" not in page] == []


def test_every_help_page_lists_each_command_once_with_a_whole_summary() -> None:
    pages = dict(_help_pages(cli, "bylaw"))
    assert [page for page in pages.values() if re.search(r"^  [a-z]+  .*\.\.\.$", page, re.MULTILINE)] == []
    for path in pages:
        group, _, name = path.rpartition(" ")
        assert not group or len(re.findall(rf"^  {name}  ", pages[group], re.MULTILINE)) == 1, path


def test_every_group_proposes_the_command_that_was_probably_meant() -> None:
    tried = 0
    for path in [path.split()[1:] for path, _ in _help_pages(cli, "bylaw")]:
        if path:
            result = CliRunner().invoke(cli, [*path[:-1], path[-1] + path[-1][-1]])  # the last letter is doubled
            assert result.exit_code == 2 and f"did you mean `{path[-1]}`?" in result.output, path
            tried += 1
    assert tried > 20


WIDE = "注文番号と金額を必ず確認してから、返金の手続きを行ってください。「至急」とは書かないこと。" * 4


def test_scripts_without_spaces_are_broken_by_their_width() -> None:
    lines = wrap(f"note: {WIDE} end", indent="  ", hanging="    ")
    assert all(60 < width(line) <= 80 for line in lines[:-1]) and width(lines[-1]) <= 80
    assert "".join(line.strip() for line in lines).replace(" ", "") == f"note:{WIDE}end"
    assert not any(line.strip().startswith(("。", "、", "」")) or line.endswith("「") for line in lines)
    emoji = "🙂" * 100
    assert [width(line) for line in wrap(emoji, columns=40)] == [40] * 5
    assert wrap("😀 two  words", columns=40) == ["😀 two  words"], "spaces stay"
    assert wrap("", indent="  ") == [""]
    cafe = "cafe\u0301 " * 20
    assert wrap(cafe.strip(), columns=49) == [" ".join(["cafe\u0301"] * 10)] * 2, "a mark takes no column"


@pytest.mark.parametrize(
    "word", ["/runs/" + "データ/" * 20 + "v1.jsonl", "id-" + "x" * 100, f"日本{'a' * 100}"], ids=["path", "id", "mixed"]
)
def test_ids_and_paths_stay_whole_among_wide_characters(word: str) -> None:
    lines = wrap(f"{WIDE} {word} {WIDE}")
    assert any(word.lstrip("日本") in line for line in lines)


def test_reports_on_texts_without_spaces_fit() -> None:
    rules = load_rules([{"id": "r", "kind": "no_call", "params": {"tool": "delete"}, "description": WIDE}]).rules
    turns = [{"text": f"{WIDE}{i}", "calls": [{"name": "delete", "args": {"why": WIDE}}]} for i in range(2)]
    before, after = trace([{"text": WIDE}, {"text": WIDE}], name="v1"), trace(turns, name="v2")
    shown = [render_terminal(check([after], rules)), render_diff(compare_versions([before], [after], rules))]
    for text in shown:
        lines = click.unstyle(text).splitlines()
        assert any(width(line) > len(line) for line in lines)
        assert [line for line in lines if width(line) > 80] == []
