"""`bylaw contract import`: a file of Flakestorm becomes a file of Bylaw."""

from __future__ import annotations

from pathlib import Path

import click

from bylaw.errors import ExitCode
from bylaw.report.command_line import FileName
from bylaw.report.diagnostics import print_diagnostics, report_bad_input
from bylaw.report.text import count


class _AnyVariable(dict[str, str]):
    """Stands for environment variables that need not be set while a file is imported."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return "http://localhost"


@click.command(name="import")
@click.argument("file", metavar="FILE", type=FileName())
@click.option("--output", "-o", default="bylaw.yaml", show_default=True, help="The file to write; - for stdout.")
@click.option("--force", is_flag=True, help="Overwrite a file that exists.")
def import_file(file: str, output: str, force: bool) -> ExitCode:
    """Make a contract from a file of Flakestorm, and say what was left out.

    Both of its versions are read. Its mutations become variations, its top-level invariants are judged where nothing
    goes wrong, and the sessions that it replays become golden prompts. Every key that is not converted is named. Exit
    codes: 0 the contract can be loaded, 2 FILE cannot be read, OUTPUT exists, or the contract needs a change first.
    """
    from bylaw.contract.file.loader import parse_contract
    from bylaw.contract.flakestorm import import_flakestorm
    from bylaw.contract.import_parts import read_data
    from bylaw.rules.files import NotRead
    from bylaw.rules.guard.manifest_export import as_yaml_text

    try:
        root = read_data(Path(file), file)
    except NotRead as problem:
        return report_bad_input("contract", (problem.diagnostic,), ())
    if not isinstance(root, dict):
        raise click.UsageError(f"`{file}` is not a file of Flakestorm: it is no mapping")
    if output != "-" and not force and Path(output).exists():
        raise click.UsageError(f"`{output}` exists; name another file with --output, or write over it with --force")
    imported = import_flakestorm(root, Path(file).absolute().parent)
    if not imported.file:
        click.echo("\n".join(f"note: {note}" for note in imported.notes), err=True)
        raise click.UsageError(f"`{file}` holds nothing that a contract is made of")
    text = as_yaml_text(imported.file)
    if output == "-":
        click.echo(text, nl=False)
    else:
        Path(output).write_text(text, "utf-8")
    made = parse_contract(text, file=output, base=Path(output).absolute().parent, environ=_AnyVariable())
    notes = [f"note: {note}" for note in imported.notes]
    contract = imported.file.get("contract", {})
    parts = f"{count(len(contract.get('invariants', ())), 'invariant')}, "
    parts += f"{count(len(imported.file.get('chaos_matrix', ())), 'scenario')}, "
    parts += count(len(imported.file.get("golden_prompts", ())), "golden prompt")
    click.echo("\n".join([f"{output}: {parts}", *notes]), err=output == "-")
    if "contract" in imported.file:
        print_diagnostics(made.diagnostics)
    return ExitCode.OK if made.ok else ExitCode.BAD_INPUT
