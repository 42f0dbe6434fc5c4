"""`bylaw comply rules` and `bylaw comply diff`: the rules of one prompt, and of two versions of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bylaw.comply.commands import alias_option, prompt_option, tools_option
from bylaw.comply.report import DIFF_RENDERERS, RULES_RENDERERS
from bylaw.errors import ExitCode, InputError
from bylaw.report.command_line import output_options
from bylaw.report.diagnostics import report_bad_input
from bylaw.report.output import Target, write_reports

if TYPE_CHECKING:
    from bylaw.comply.model import PromptRules


@click.command(name="rules")
@prompt_option
@tools_option
@alias_option
@output_options(RULES_RENDERERS)
def rules(prompt_file: str, tools_file: str | None, alias_file: str | None, targets: list[Target]) -> ExitCode:
    """List the rules that a prompt states, with their positions, and why some cannot be checked.

    Exits 3 if no rule could be read.
    """
    try:
        ((text, prompt),) = _read([prompt_file], tools_file, alias_file)
    except InputError as problem:
        return report_bad_input("comply rules", problem.diagnostics, targets)
    write_reports(RULES_RENDERERS, targets, prompt.rules, prompt_file, text)
    return ExitCode.OK if prompt.rules else ExitCode.NOTHING_CHECKED


@click.command(name="diff")
@click.argument("before", metavar="OLD")
@click.argument("after", metavar="NEW")
@tools_option
@alias_option
@output_options(DIFF_RENDERERS)
def diff(before: str, after: str, tools_file: str | None, alias_file: str | None, targets: list[Target]) -> ExitCode:
    """Compare the rules of two versions of a prompt.

    Exits 1 if a rule was dropped or loosened, or changed in a way that may be looser; 3 if no rule could be read from
    either prompt.
    """
    from bylaw.comply.changes import compare_rules

    try:
        (old_text, old), (new_text, new) = _read([before, after], tools_file, alias_file)
    except InputError as problem:
        return report_bad_input("comply diff", problem.diagnostics, targets)
    notes = [f"{name}: {note}" for name, side in ((before, old), (after, new)) for note in side.notes]
    found = compare_rules(old.rules, new.rules, names=(before, after), texts=(old_text, new_text), notes=notes)
    write_reports(DIFF_RENDERERS, targets, found)
    return ExitCode(found.exit_code)


def _read(prompt_files: list[str], tools_file: str | None, alias_file: str | None) -> list[tuple[str, PromptRules]]:
    """The text and the rules of each prompt. Raises InputError."""
    from bylaw.comply.inputs import read_alias_file, read_prompt_file, read_tools_file
    from bylaw.comply.prompt.reader import read_prompt

    texts = [read_prompt_file(file) for file in prompt_files]
    tools = () if tools_file is None else read_tools_file(tools_file)
    aliases = {} if alias_file is None else read_alias_file(alias_file)
    return [(text, read_prompt(text, tools=tools, aliases=aliases)) for text in texts]
