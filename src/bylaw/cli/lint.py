"""`bylaw lint`"""

from __future__ import annotations

import click

from bylaw.cli.output import emit, opened, output_options, parse_targets
from bylaw.cli.problems import show_on_stderr
from bylaw.errors import ExitCode


@click.command(name="lint")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@output_options
def command(files: tuple[str, ...], formats: tuple[str, ...], output: str | None) -> ExitCode:
    """Check rule files without running them: exit 0 if they can be used, 2 if not. Warnings do not fail."""
    from bylaw.dialects import lint_files
    from bylaw.report.json import JsonStream, diagnostic_as_json

    targets = parse_targets(formats, output)
    diagnostics = lint_files(files)
    errors = sum(diagnostic.is_error for diagnostic in diagnostics)
    code = ExitCode.BAD_INPUT if errors else ExitCode.OK
    show_on_stderr(diagnostics)
    for target in targets:
        with opened(target) as out:
            if target.format == "json":
                fields = {"diagnostics": [diagnostic_as_json(diagnostic) for diagnostic in diagnostics]}
                JsonStream(out, "lint").end({"exit_code": int(code), **fields})
            else:
                emit(_summary(len(files), errors, len(diagnostics) - errors) + "\n", out)
    return code


def _summary(files: int, errors: int, warnings: int) -> str:
    from bylaw.report.wording import count

    return f"{count(files, 'file')}: {count(errors, 'error')}, {count(warnings, 'warning')}"
