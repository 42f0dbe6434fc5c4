"""`bylaw comply diff`"""

from __future__ import annotations

import click

from bylaw.comply.commands.inputs import ALIAS_HELP, TOOLS_HELP, read_alias_file, read_prompt_file, read_tools_file
from bylaw.comply.report import DIFF_RENDERERS
from bylaw.errors import ExitCode, InputError
from bylaw.report.output import Target, output_options, write_reports
from bylaw.report.problems import refuse


@click.command(name="diff")
@click.argument("before", metavar="OLD")
@click.argument("after", metavar="NEW")
@click.option("--tools", "tools_file", metavar="FILE", help=TOOLS_HELP)
@click.option("--alias", "alias_file", metavar="FILE", help=ALIAS_HELP)
@output_options(DIFF_RENDERERS)
def command(
    before: str,
    after: str,
    tools_file: str | None,
    alias_file: str | None,
    targets: list[Target],
) -> ExitCode:
    """Compare the rules of two versions of a prompt.

    Exits 1 where a rule was dropped or loosened, or changed in a way that cannot be told from that; 3 where neither
    prompt states a rule that could be read.
    """
    from bylaw.comply.changes import compare_rules
    from bylaw.comply.prompt.reading import read_prompt

    try:
        texts = read_prompt_file(before), read_prompt_file(after)
        tools = () if tools_file is None else read_tools_file(tools_file)
        aliases = {} if alias_file is None else read_alias_file(alias_file)
    except InputError as problem:
        return refuse("comply diff", problem.diagnostics, targets)
    old, new = (read_prompt(text, tools=tools, aliases=aliases) for text in texts)
    notes = [f"{name}: {note}" for name, side in ((before, old), (after, new)) for note in side.notes]
    diff = compare_rules(old.rules, new.rules, names=(before, after), texts=texts, notes=notes)
    write_reports(DIFF_RENDERERS, targets, diff)
    return ExitCode(diff.exit_code)
