"""`bylaw explain`"""

from __future__ import annotations

import difflib

import click

from bylaw.errors import ExitCode


def _complete(ctx: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    from bylaw.lint.pages import codes
    from bylaw.rules.kinds import KINDS

    return [topic for topic in (*codes(), *sorted(KINDS)) if topic.startswith(text)]


@click.command(name="explain")
@click.argument("topic", required=False, metavar="CODE", shell_complete=_complete)
def command(topic: str | None) -> ExitCode:
    """Print the page for an error code such as `unknown-kind`, or for a rule kind such as `no_call`.

    Without CODE, list them all.
    """
    from bylaw.lint.pages import codes, explain
    from bylaw.rules.kinds import KINDS

    if topic is None:
        click.echo("\n".join(["error codes:", *(f"  {code}" for code in codes())]))
        click.echo("\n".join(["rule kinds:", *(f"  {kind}" for kind in sorted(KINDS))]))
        return ExitCode.OK
    page = KINDS[topic].page() if topic in KINDS else explain(topic)
    if page is None:
        near = difflib.get_close_matches(topic, [*codes(), *KINDS], n=1)
        advice = f"; did you mean `{near[0]}`?" if near else "; `bylaw explain` lists them all"
        raise click.UsageError(f"no error code or rule kind `{topic}`{advice}")
    click.echo(page.rstrip())
    return ExitCode.OK
