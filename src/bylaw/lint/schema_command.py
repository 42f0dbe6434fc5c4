"""`bylaw schema`"""

from __future__ import annotations

from importlib import resources

import click

from bylaw.errors import ExitCode


@click.command(name="schema")
def command() -> ExitCode:
    """Print the JSON Schema of the rule file, so that an editor can complete and check it."""
    click.echo(resources.files("bylaw.lint.schema").joinpath("rules.schema.json").read_text("utf-8").rstrip())
    return ExitCode.OK
