"""`bylaw guard export`"""

from __future__ import annotations

import sys
from typing import Any, Literal

import click

from bylaw.errors import ExitCode, InputError
from bylaw.guard.commands.options import INPUT
from bylaw.report.diagnostics import print_diagnostics
from bylaw.report.output import emit, file_target, open_target


@click.command(name="export")
@click.argument("file")
@click.option(
    "--format",
    "form",
    type=click.Choice(["manifest", "json", "yaml"]),
    default="manifest",
    show_default=True,
    help="An agent manifest, or the file's own content as JSON or YAML.",
)
@INPUT
@click.option("--output", "-o", metavar="FILE", help="Write there instead of to standard output.")
def export(
    file: str, form: Literal["manifest", "json", "yaml"], inputs: dict[str, str], output: str | None
) -> ExitCode:
    """Print the guard rules of FILE for another tool.

    A manifest comes out as it went in, with the files of its index in one. Other guard files become a manifest: an
    agent and a version for each guard. The rules are checked first; exit 2 if they cannot be used, or if a manifest
    cannot say the same.
    """
    from bylaw.rules import dump_manifest, load_guard
    from bylaw.rules.guard.manifest_export import as_json_text, as_yaml_text, is_from_manifest
    from bylaw.rules.loader import load_content

    target = None if output is None else file_target(output)
    try:
        guards = load_guard(file, inputs=inputs)
        own = form != "manifest" and not is_from_manifest(guards)
        content: Any = load_content(file) if own else dump_manifest(guards, inputs=inputs)
    except InputError as problem:
        print_diagnostics(problem.diagnostics)
        return ExitCode.BAD_INPUT
    print_diagnostics(guards.diagnostics)
    text = as_json_text(content) if form == "json" else as_yaml_text(content, documents=not own)
    if target is None:
        emit(text, sys.stdout)
    else:
        with open_target(target) as opened:
            opened.write(text)
    return ExitCode.OK
