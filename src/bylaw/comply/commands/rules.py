"""`bylaw comply rules`"""

from __future__ import annotations

import click

from bylaw.comply.commands.inputs import (
    ALIAS_HELP,
    PROMPT_HELP,
    TOOLS_HELP,
    read_alias_file,
    read_prompt_file,
    read_tools_file,
)
from bylaw.comply.report import RULES_RENDERERS
from bylaw.errors import ExitCode, InputError
from bylaw.report.output import Target, output_options, write_reports
from bylaw.report.problems import refuse


@click.command(name="rules")
@click.option("--prompt", "prompt_file", required=True, metavar="FILE", help=PROMPT_HELP)
@click.option("--tools", "tools_file", metavar="FILE", help=TOOLS_HELP)
@click.option("--alias", "alias_file", metavar="FILE", help=ALIAS_HELP)
@output_options(RULES_RENDERERS)
def command(
    prompt_file: str,
    tools_file: str | None,
    alias_file: str | None,
    targets: list[Target],
) -> ExitCode:
    """List the rules that a prompt states, with their places, and why some cannot be checked.

    Exits 3 where no rule could be read.
    """
    from bylaw.comply.prompt.reading import read_prompt

    try:
        text = read_prompt_file(prompt_file)
        tools = () if tools_file is None else read_tools_file(tools_file)
        aliases = {} if alias_file is None else read_alias_file(alias_file)
    except InputError as problem:
        return refuse("comply rules", problem.diagnostics, targets)
    rules = read_prompt(text, tools=tools, aliases=aliases).rules
    write_reports(RULES_RENDERERS, targets, rules, prompt_file, text)
    return ExitCode.OK if rules else ExitCode.NOTHING_CHECKED
