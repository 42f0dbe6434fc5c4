"""`bylaw explain`"""

from __future__ import annotations

import difflib

import click

from bylaw.errors import ExitCode


def _complete(ctx: click.Context, parameter: click.Parameter, text: str) -> list[str]:
    from bylaw.lint.pages import codes
    from bylaw.rules.kinds import KINDS

    return [topic for topic in (*codes(), *sorted(KINDS)) if topic.startswith(text)]


def _first_sentence(page: str) -> str:
    """The first sentence below the title, without its full stop."""
    paragraph = page.split("\n\n")[1]
    return " ".join(paragraph.split()).partition(". ")[0].removesuffix(".")


@click.command(name="explain")
@click.argument("topic", required=False, metavar="CODE", shell_complete=_complete)
def command(topic: str | None) -> ExitCode:
    """Print the page for an error code such as `unknown-kind`, or for a rule kind such as `no_call`.

    Without CODE, list all codes and kinds, each with the first sentence of its page.
    """
    from bylaw.lint.pages import codes, explain
    from bylaw.rules.kinds import KINDS

    if topic is None:
        formatter = click.get_current_context().make_formatter()
        with formatter.section("error codes"):
            formatter.write_dl([(code, _first_sentence(explain(code) or "")) for code in codes()])
        with formatter.section("rule kinds"):
            formatter.write_dl([(kind, _first_sentence(KINDS[kind].page())) for kind in sorted(KINDS)])
        click.echo(formatter.getvalue().rstrip())
        return ExitCode.OK
    page = KINDS[topic].page() if topic in KINDS else explain(topic)
    if page is None:
        near = difflib.get_close_matches(topic, [*codes(), *KINDS], n=1)
        advice = f"; did you mean `{near[0]}`?" if near else "; `bylaw explain` lists them all"
        raise click.UsageError(f"no error code or rule kind `{topic}`{advice}")
    click.echo(page.rstrip())
    return ExitCode.OK
