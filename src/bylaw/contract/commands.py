"""`bylaw contract run`, `score`, `validate` and `import`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from msgspec.structs import replace

from bylaw.errors import ExitCode, InputError
from bylaw.report.command_line import FileName, LazyCommand, LazyGroup, output_options
from bylaw.report.diagnostics import print_diagnostics, report_bad_input
from bylaw.report.output import Renderers, Target, print_line, refuse_inputs, write_reports
from bylaw.report.text import count

if TYPE_CHECKING:
    from bylaw.contract.model import Contract, ContractFile
    from bylaw.contract.results import ContractReport
    from bylaw.model.ports import Embedder


RENDERERS = Renderers(
    terminal="bylaw.contract.report:render_terminal",
    json="bylaw.contract.report:render_json",
    markdown="bylaw.contract.report:render_markdown",
)
VALIDATION_RENDERERS = Renderers(
    terminal="bylaw.contract.report:validation_terminal",
    json="bylaw.contract.report:validation_json",
    markdown="bylaw.contract.report:validation_markdown",
)
DEFAULT_FILES = ("bylaw.yaml", "flakestorm.yaml", "flakestorm.yml")
"""the files that are looked for where none is named, the first first"""
FC = TypeVar("FC", bound=Callable[..., Any])

COMMANDS = {
    "run": LazyCommand("bylaw.contract.commands:run", "ask the agent in every scenario, and judge what it does"),
    "score": LazyCommand("bylaw.contract.commands:score", "run the contract and print only its score"),
    "import": LazyCommand("bylaw.contract.commands:import_file", "convert a Flakestorm file to a contract"),
    "validate": LazyCommand("bylaw.contract.commands:validate", "check the contract without running it"),
}


@click.group(name="contract", cls=LazyGroup, lazy=COMMANDS)
def command() -> None:
    """Test whether an agent keeps its rules while its tools, its model or its context fail."""


def config_option(function: FC) -> FC:
    """Add FILE and `--config FILE`; the command gets the file as `config`."""

    @functools.wraps(function)
    def command(*args: Any, file: str | None, config: str | None, **more: Any) -> Any:
        if file is not None and config is not None and file != config:
            raise click.UsageError(f"two files are named, `{file}` and `{config}`; name one")
        named = file or config or next((name for name in DEFAULT_FILES if Path(name).is_file()), None)
        if named is None:
            raise click.UsageError(f"no FILE given, and there is no `{DEFAULT_FILES[0]}` here")
        return function(*args, config=named, **more)

    option = click.option(
        "--config", "-c", metavar="FILE", help=f"The same as FILE (default: {', else '.join(DEFAULT_FILES)})."
    )
    argument = click.argument("file", required=False, metavar="[FILE]", type=FileName())
    return cast("FC", argument(option(command)))


_RUN_OPTIONS = (
    config_option,
    click.option(
        "--min-score",
        type=click.FloatRange(0, 100),
        metavar="SCORE",
        default=100.0,
        show_default=True,
        help="Minimum score to pass; with 0, only critical violations fail. A critical violation always fails.",
    ),
    click.option("--seed", type=int, metavar="N", help="Draw faults with this seed."),
    click.option("--runs", type=click.IntRange(1, 1000), metavar="N", help="Ask each prompt N times in each scenario."),
    click.option(
        "--scenario", "scenarios", multiple=True, metavar="NAME", help="Run only this scenario; can be repeated."
    ),
    click.option(
        "--invariant", "invariants", multiple=True, metavar="ID", help="Judge only this invariant; can be repeated."
    ),
    click.option("--traces", metavar="DIR", help="Write a trace of each run to this folder."),
    click.option(
        "--redact/--no-redact",
        default=True,
        show_default=True,
        help="Redact secrets in the report and in the traces.",
    ),
    click.option("--concurrency", type=click.IntRange(1, 1000), metavar="N", help="At most N runs at once."),
    click.option(
        "--timeout",
        type=click.IntRange(1),
        metavar="MS",
        help="How long the agent may take to answer, in milliseconds.",
    ),
)


def run_options(function: FC) -> FC:
    for option in reversed(_RUN_OPTIONS):
        function = option(function)
    return function


@click.command(name="run")
@run_options
@output_options(RENDERERS)
def run(targets: list[Target], **flags: Any) -> ExitCode:
    """Ask the agent in every scenario of the contract in FILE, and judge what it does.

    Exit codes: 0 passed, 1 an invariant was violated, 2 bad input, 3 something was not
    checked (no invariant applies, or a fault never fired), 4 the agent could not be reached or failed, 130 interrupted.
    """
    try:
        report = run_file(**flags)
    except InputError as problem:
        return report_bad_input("contract", problem.diagnostics, targets)
    write_reports(RENDERERS, targets, report)
    print_warnings(report.warnings, targets)
    return ExitCode(report.exit_code)


@click.command(name="score")
@run_options
def score(**flags: Any) -> ExitCode:
    """Run the contract and print its score, 0 to 100, alone on standard output. Exits as `run` does."""
    from bylaw.contract.report import headline, why_unjudged

    try:
        report = run_file(**flags)
    except InputError as problem:
        return report_bad_input("contract", problem.diagnostics, ())
    print_warnings(report.warnings)
    print_line(headline(report), err=True)
    for reason in why_unjudged(report):
        print_line(f"error: {reason}", err=True)
    click.echo(f"{report.score:.2f}")
    return ExitCode(report.exit_code)


@click.command(name="validate")
@config_option
@output_options(VALIDATION_RENDERERS)
def validate(config: str, targets: list[Target]) -> ExitCode:
    """Check the contract without running it: exit 0 if it can be run, 2 if not. Warnings do not fail.

    Which faults can reach the agent is checked as `run` does. So a Python agent is imported, and MCP servers are asked
    for their tools. If that fails, a warning says so.
    """
    from bylaw.contract.agents import open_agent
    from bylaw.contract.job import load_runnable
    from bylaw.contract.live_agent import (
        AgentUnreachable,
        check_conversations,
        check_reach,
        doubt_tools,
        why_out_of_reach,
    )
    from bylaw.contract.runs import count_parts

    unchecked: str | None = None
    try:
        file, contract = load_runnable(config)
        with _add_file_warnings(file):
            check_reach(contract, functools.partial(why_out_of_reach, contract.agent))
            try:
                agent = open_agent(contract.agent, Path(config).absolute().parent)
                agent.load()
            except AgentUnreachable as problem:
                unchecked = f"the agent cannot be loaded, so not every fault is known to reach it: {problem}"
            else:
                check_reach(contract, agent.refusal)
                check_conversations(contract, agent)
                file = replace(file, diagnostics=(*file.diagnostics, *doubt_tools(contract, agent)))
    except InputError as problem:
        return report_bad_input("contract", problem.diagnostics, targets)
    print_diagnostics(file.diagnostics)
    if unchecked is not None:
        print_line(f"warning: {unchecked}", err=True)
    write_reports(VALIDATION_RENDERERS, targets, file, count_parts(contract))
    return ExitCode.OK


def print_warnings(warnings: Sequence[str], targets: Sequence[Target] = ()) -> None:
    """Print the warnings of a report to stderr, unless the terminal shows the report itself."""
    if Target("terminal") not in targets:
        for warning in warnings:
            print_line(f"warning: {warning}", err=True)


def run_file(
    config: str,
    *,
    min_score: float,
    seed: int | None = None,
    runs: int | None = None,
    scenarios: tuple[str, ...] = (),
    invariants: tuple[str, ...] = (),
    traces: str | None = None,
    redact: bool = True,
    concurrency: int | None = None,
    timeout: int | None = None,
) -> ContractReport:
    """Run the contract of a file as the flags say; None and empty: as the file says.

    Raises InputError for problems in the file, and for faults that cannot reach the agent.
    """
    from bylaw.contract.job import file_warnings, load_runnable, open_and_run, trace_writer
    from bylaw.contract.runs import Options, narrow
    from bylaw.report.progress import count_progress

    file, whole = load_runnable(config)
    _check_names("scenario", scenarios, [scenario.name for scenario in whole.scenarios])
    _check_names("invariant", invariants, [invariant.id for invariant in whole.invariants])
    agent = replace(
        whole.agent,
        timeout_ms=timeout or whole.agent.timeout_ms,
        concurrency=concurrency or whole.agent.concurrency,
    )
    contract = replace(whole, agent=agent, runs=runs or whole.runs, seed=whole.seed if seed is None else seed)
    contract = narrow(contract, scenarios=scenarios, invariants=invariants)
    warnings = file_warnings(file)
    if (len(contract.scenarios), len(contract.invariants)) != (len(whole.scenarios), len(whole.invariants)):
        judged = f"{len(contract.invariants)} of {len(whole.invariants)} invariants"
        warnings += (
            f"only a part of the contract was run: {judged}, "
            f"{len(contract.scenarios)} of {len(whole.scenarios)} scenarios",
        )
    with _add_file_warnings(file), count_progress(contract.name) as on_progress:
        options = Options(
            min_score=min_score,
            concurrency=concurrency,
            embedder=_load_embedder(contract),
            keep_trace=None if traces is None else trace_writer(Path(traces)),
            redact=redact,
            on_progress=on_progress,
            warnings=warnings,
        )
        try:
            return open_and_run(contract, Path(config).absolute().parent, options, ends_children=True)
        except KeyboardInterrupt as stopped:
            print_warnings(stopped.args)
            raise


@contextlib.contextmanager
def _add_file_warnings(file: ContractFile) -> Iterator[None]:
    """Add the warnings about the file to the problems that the block finds."""
    try:
        yield
    except InputError as problem:
        raise InputError((*file.diagnostics, *problem.diagnostics)) from None


def _check_names(what: str, wanted: Sequence[str], names: Sequence[str]) -> None:
    from bylaw.rules.messages import did_you_mean

    for name in wanted:
        if name not in names:
            raise click.UsageError(f"the contract has no {what} `{name}`; {did_you_mean(name, names)}")


def _load_embedder(contract: Contract) -> Embedder | None:
    """Similarity by meaning where texts are compared and the extra is installed; else by words, as the report says."""
    from bylaw.contract.job import compares_texts
    from bylaw.text.similarity import load_embedder

    if not compares_texts(contract):
        return None
    try:
        return load_embedder()
    except InputError:
        return None


# `bylaw contract import`


class _AnyVariable(dict[str, str]):
    """Stands for environment variables that need not be set while a file is imported."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return "http://localhost"


@click.command(name="import")
@click.argument("file", metavar="FILE", type=FileName())
@click.option(
    "--output", "-o", default="bylaw.yaml", show_default=True, metavar="FILE", help="File to write, or - for stdout."
)
@click.option("--force", is_flag=True, help="Overwrite a file that exists.")
def import_file(file: str, output: str, force: bool) -> ExitCode:
    """Convert a Flakestorm file to a contract, and say what was left out.

    Files of both Flakestorm versions are read. Mutations become variations, top-level invariants are judged in a
    scenario without faults, and replayed sessions become golden prompts. Every key that is not converted is
    named. Exit codes: 0 the contract can be loaded, 2 FILE cannot be read, OUTPUT exists, or the contract needs a
    change first.
    """
    from bylaw.contract.file.loader import parse_contract
    from bylaw.contract.flakestorm import import_flakestorm
    from bylaw.contract.import_parts import read_data
    from bylaw.files.atomic import write_atomic
    from bylaw.rules.guard.manifest_export import as_yaml_text

    refuse_inputs([output], [file])
    root = read_data(Path(file), file)
    if not isinstance(root, dict):
        raise click.UsageError(f"`{file}` is not a file of Flakestorm: it is no mapping")
    exists = f"`{output}` exists; name another file with --output, or write over it with --force"
    if output != "-" and not force and Path(output).exists():
        raise click.UsageError(exists)
    imported = import_flakestorm(root, Path(file).absolute().parent)
    notes = [f"note: {note}" for note in imported.notes]
    if not imported.file:
        for note in notes:
            print_line(note, err=True)
        raise click.UsageError(f"`{file}` holds nothing that a contract is made of")
    text = as_yaml_text(imported.file)
    if output == "-":
        click.echo(text, nl=False)
    else:
        try:
            write_atomic(output, text.encode(), overwrite=force)
        except FileExistsError:  # it was created in the meantime
            raise click.UsageError(exists) from None
    made = parse_contract(text, file=output, base=Path(output).absolute().parent, environ=_AnyVariable())
    contract = imported.file.get("contract", {})
    parts = f"{count(len(contract.get('invariants', ())), 'invariant')}, "
    parts += f"{count(len(imported.file.get('chaos_matrix', ())), 'scenario')}, "
    parts += count(len(imported.file.get("golden_prompts", ())), "golden prompt")
    for line in (f"{output}: {parts}", *notes):
        print_line(line, err=output == "-")
    if "contract" in imported.file:
        print_diagnostics(made.diagnostics)
    return ExitCode.OK if made.ok else ExitCode.BAD_INPUT
