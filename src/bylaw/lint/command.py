"""`bylaw lint`"""

from __future__ import annotations

import click

from bylaw.errors import ExitCode
from bylaw.report.command_line import output_options
from bylaw.report.diagnostics import print_diagnostics
from bylaw.report.output import Renderers, Target, write_reports

RENDERERS = Renderers(
    terminal="bylaw.lint.report:render_text",
    json="bylaw.lint.report:render_json",
    markdown="bylaw.lint.report:render_text",
)


@click.command(name="lint")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@output_options(RENDERERS)
def command(files: tuple[str, ...], targets: list[Target]) -> ExitCode:
    """Check rule files without running them: exit 0 if they can be used, 2 if not. Warnings do not count.

    Rules that contradict each other, can never be kept or are never triggered are found where the kind of rule allows
    it. The report names the rules that could not be analysed.
    """
    from bylaw.lint.report import lint

    report = lint(files)
    print_diagnostics(report.diagnostics)
    write_reports(RENDERERS, targets, report)
    return report.exit_code
