"""`bylaw lint`, `bylaw explain` and `bylaw schema`: the content of rule files, and problems in them.

`pages` has one Markdown page for each code a diagnostic can have: what it means, a wrong example, the right one, and
why. `schema` has the JSON Schema of the rule file, generated from the declarations in `bylaw.rules`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources

import click

from bylaw.errors import ExitCode
from bylaw.report.command_line import input_option, output_options, version_option
from bylaw.report.diagnostics import print_diagnostics
from bylaw.report.output import Renderers, Target, emit, open_target, write_reports
from bylaw.report.text import terminal_width, wrap

_FILES = resources.files("bylaw.lint")
RENDERERS = Renderers(
    terminal="bylaw.lint.report:render_text",
    json="bylaw.lint.report:render_json",
    markdown="bylaw.lint.report:render_markdown",
)


@click.command(name="lint")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@version_option
@input_option
@output_options(RENDERERS)
def lint(
    files: tuple[str, ...], version: str | dict[str, str] | None, inputs: dict[str, str], targets: list[Target]
) -> ExitCode:
    """Check rule files without running them: exit 0 if they can be used, 2 if not. Warnings do not change that.

    Rules that contradict each other, can never be kept or are never triggered are found where the kind of rule allows
    it. The report names the rules that could not be analysed.
    """
    from bylaw.lint.report import lint_report, render_text

    report = lint_report(files, inputs=inputs, version=version)
    print_diagnostics(report.diagnostics)
    for target in targets:
        if target.format == "terminal" and target.file is not None:
            with open_target(target) as out:
                emit(render_text(report, with_diagnostics=True), out)
        else:
            write_reports(RENDERERS, [target], report)
    return report.exit_code


def read_page(code: str) -> str | None:
    """The page for a code, or None where there is no such code."""
    return _FILES.joinpath("pages", f"{code}.md").read_text("utf-8") if code in codes() else None


@cache
def codes() -> tuple[str, ...]:
    """Every code that has a page, sorted."""
    names = (page.name for page in _FILES.joinpath("pages").iterdir())
    return tuple(sorted(name.removesuffix(".md") for name in names if name.endswith(".md")))


def _complete_topic(ctx: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    from bylaw.rules.kinds import KINDS

    return [topic for topic in (*codes(), *sorted(KINDS)) if topic.startswith(text)]


def _first_sentence(page: str) -> str:
    """The first sentence below the title, without its full stop."""
    paragraph = page.split("\n\n")[1]
    return " ".join(paragraph.split()).partition(". ")[0].removesuffix(".")


@click.command(name="explain")
@click.argument("topic", required=False, metavar="[CODE]", shell_complete=_complete_topic)
def explain(topic: str | None) -> ExitCode:
    """Print the page for an error code such as `unknown-kind`, or for a rule kind such as `no_call`.

    Without CODE, list all codes and kinds, each with the first sentence of its page.
    """
    from bylaw.rules.kinds import KINDS

    if topic is None:
        formatter = click.get_current_context().make_formatter()
        with formatter.section("error codes"):
            formatter.write_dl([(code, _first_sentence(read_page(code) or "")) for code in codes()])
        with formatter.section("rule kinds"):
            formatter.write_dl([(kind, _first_sentence(KINDS[kind].page())) for kind in sorted(KINDS)])
        click.echo(formatter.getvalue().rstrip())
        return ExitCode.OK
    page = KINDS[topic].page() if topic in KINDS else read_page(topic)
    if page is None:
        near = difflib.get_close_matches(topic, [*codes(), *KINDS], n=1)
        advice = f"; did you mean `{near[0]}`?" if near else "; `bylaw explain` lists them all"
        raise click.UsageError(f"no error code or rule kind `{topic}`{advice}")
    click.echo(wrap_page(page.rstrip(), terminal_width(widest=80)))
    return ExitCode.OK


_LIST_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) +")
_STANDS_ALONE = re.compile(r"\s*$|#| {4}")
"""a blank line, a heading, code"""
_BETWEEN_CELLS = re.compile(r"(?<!\\)\|")


def wrap_page(page: str, columns: int) -> str:
    """A page in Markdown with its prose wrapped and its tables as lists; headings and code are left as they are."""
    lines: list[str] = []
    paragraph: list[str] = []
    table: list[str] = []
    in_code = False

    def flush() -> None:
        if paragraph:
            item = _LIST_ITEM.match(paragraph[0])
            mark = item[0] if item else ""
            text = " ".join(line.strip() for line in [paragraph[0][len(mark) :], *paragraph[1:]])
            lines.extend(wrap(text, indent=mark, hanging=" " * len(mark), columns=columns))
        lines.extend(_table_lines(table, columns))
        paragraph.clear()
        table.clear()

    for line in page.split("\n"):
        is_fence = line.lstrip().startswith("```")
        is_continued = paragraph and line.startswith(" ") and line.strip()  # a further line of a list item
        if in_code or is_fence or (_STANDS_ALONE.match(line) and not is_continued):
            flush()
            lines.append(line)
            in_code ^= is_fence
            continue
        is_row = line.startswith("|")
        if _LIST_ITEM.match(line) or is_row != bool(table):
            flush()
        (table if is_row else paragraph).append(line)
    flush()
    return "\n".join(lines)


def _table_lines(table: Sequence[str], columns: int) -> Iterator[str]:
    """Each row of a table in two columns: its first cell, and the other cells joined by `; `."""
    rows = [[cell.strip().replace("\\|", "|") for cell in _BETWEEN_CELLS.split(row)[1:-1]] for row in table]
    rows = [row for row in rows if any(cell.strip("-:") for cell in row)]  # without the line below the head
    widest = max((len(name) for name, *_ in rows if len(name) <= columns * 3 // 8), default=0)
    hanging = " " * (widest + 4)
    for name, *cells in rows:
        text, lead = "; ".join(filter(None, cells)), f"  {name.ljust(widest)}  "
        if len(name) > widest:
            yield from wrap(name, indent="  ", hanging="    ", columns=columns)
            lead = hanging
        yield from wrap(text, indent=lead, hanging=hanging, columns=columns)


@click.command(name="schema")
def schema() -> ExitCode:
    """Print the JSON Schema of the rule file, so that an editor can complete and check it."""
    click.echo(_FILES.joinpath("schema", "rules.schema.json").read_text("utf-8").rstrip())
    return ExitCode.OK
