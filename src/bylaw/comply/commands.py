"""`bylaw comply` checks traces; `bylaw comply rules` and `bylaw comply diff` only read prompts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click
from msgspec.structs import replace

from bylaw.comply.model import JudgeError
from bylaw.errors import ExitCode, FeatureNotEnabledError, InputError
from bylaw.report.command_line import LazyCommand, LazyGroup, output_options, trace_format_option
from bylaw.report.diagnostics import print_diagnostics, report_bad_input
from bylaw.report.output import (
    OverwritesInput,
    Renderers,
    Target,
    file_target,
    open_target,
    refuse_inputs,
    write_reports,
)
from bylaw.report.progress import count_progress

if TYPE_CHECKING:
    from bylaw.comply.model import ComplianceResult, PromptRules
    from bylaw.model.diagnostic import Diagnostic
    from bylaw.model.events import Trace

    Review: TypeAlias = Callable[[ComplianceResult, str, Trace], ComplianceResult]


RENDERERS = Renderers(
    terminal="bylaw.comply.report:comply_terminal",
    json="bylaw.comply.report:comply_json",
    markdown="bylaw.comply.report:comply_markdown",
)
RULES_RENDERERS = Renderers(
    terminal="bylaw.comply.report:rules_terminal",
    json="bylaw.comply.report:rules_json",
    markdown="bylaw.comply.report:rules_markdown",
)
DIFF_RENDERERS = Renderers(
    terminal="bylaw.comply.report:diff_terminal",
    json="bylaw.comply.report:diff_json",
    markdown="bylaw.comply.report:diff_markdown",
)
_DEFAULT = "run"

prompt_option = click.option(
    "--prompt", "prompt_file", required=True, metavar="FILE", help="The system prompt, as text or Markdown."
)
tools_option = click.option(
    "--tools",
    "tools_file",
    metavar="FILE",
    help="The agent's tool schemas, as JSON or YAML: OpenAI's, Anthropic's or MCP's form.",
)
alias_option = click.option(
    "--alias",
    "alias_file",
    metavar="FILE",
    help="YAML or JSON: words of the prompt and the tools that they mean.",
)


# -- bylaw comply --prompt FILE TRACE… ---------------------------------------------------------------------------------


class _DefaultContext(click.Context):
    """Of the command that runs if none is named: messages show the group's name, which is what a user typed."""

    @property
    def command_path(self) -> str:
        return self.parent.command_path if self.parent is not None else super().command_path


class _DefaultCommand(click.Command):
    context_class = _DefaultContext


@click.command(name="comply", cls=_DefaultCommand)
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option(
    "--prompt",
    "prompt_file",
    metavar="FILE",
    help="The system prompt, as text or Markdown; without it, the one that the traces hold.",
)
@tools_option
@alias_option
@click.option(
    "--embeddings",
    is_flag=True,
    help="Compare words of the prompt with tools by sentence embeddings too, offline; needs `pip install"
    " 'bylaw[embeddings]'`.",
)
@click.option("--rules", "rules_file", metavar="FILE", help="Check the rules of this file, made by --emit.")
@click.option("--emit", "emit_file", metavar="FILE", help="Write the rules to a rule file, for review and check-in.")
@click.option(
    "--judge", "judge_name", metavar="SPEC", help="Ask openai:MODEL or anthropic:MODEL about undecided rules."
)
@click.option("--judge-url", metavar="URL", help="The address of the judge, if not the provider's own.")
@click.option("--judge-batch", is_flag=True, help="Ask about all undecided rules of a trace at once.")
@click.option("--judge-cache", metavar="FOLDER", help="Cache the judge's answers in this folder.")
@click.option(
    "--timeout-ms",
    default=60_000,
    show_default=True,
    type=click.IntRange(1),
    metavar="MS",
    help="Timeout of the judge, per trace, in milliseconds.",
)
@trace_format_option
@click.option("--allow-vacuous", is_flag=True, help="Exit with 0 instead of 3 if nothing was checked.")
@output_options(RENDERERS)
def check_traces(
    traces: tuple[str, ...],
    prompt_file: str | None,
    tools_file: str | None,
    alias_file: str | None,
    embeddings: bool,
    rules_file: str | None,
    emit_file: str | None,
    judge_name: str | None,
    judge_url: str | None,
    judge_batch: bool,
    judge_cache: str | None,
    timeout_ms: int,
    trace_format: str | None,
    allow_vacuous: bool,
    targets: list[Target],
) -> ExitCode:
    """Check traces against the rules that the agent's own system prompt states.

    Offline and deterministic: a rule that the trace does not decide is undecided, never satisfied. --judge asks a model
    about those; it is off unless BYLAW_ENABLE_JUDGE is set to 1. TRACE is a file, a folder, a glob or - for standard
    input; each conversation in it is checked by itself.

    Exit codes: 0 no violation found, 1 a rule broken, 2 bad input, 3 nothing was checked, 4 the judge did not answer.
    """
    from bylaw.comply.inputs import RECORDED, read_prompt_file, shared_prompt
    from bylaw.comply.model import ComplyReport

    if prompt_file == "-" and "-" in traces:
        raise click.UsageError("standard input can be the prompt or a trace, not both")
    emitted = None if emit_file is None else file_target(emit_file)
    if emit_file is not None:
        refuse_inputs([emit_file], [*traces, *filter(None, (prompt_file, tools_file, alias_file, rules_file))])
        if any(target.file and os.path.realpath(target.file) == os.path.realpath(emit_file) for target in targets):
            raise OverwritesInput(f"`{emit_file}` is named for the rules and for the report")
    review = _open_judge(judge_name, judge_url, judge_cache, batch=judge_batch, timeout_ms=timeout_ms)
    try:
        text = "" if prompt_file is None else read_prompt_file(prompt_file)
        loaded, sizes, unread = _load(traces, trace_format)
        if prompt_file is None:
            try:
                text, prompt_file = shared_prompt(loaded), RECORDED
            except ValueError as problem:
                raise click.UsageError(str(problem)) from None
        prompt = _read_rules(text, loaded, tools_file, alias_file, rules_file, embeddings=embeddings)
    except InputError as problem:
        return report_bad_input("comply", problem.diagnostics, targets)
    if emitted is not None:
        from bylaw.comply.rule_file import render_rule_file

        with open_target(emitted) as out:
            out.write(render_rule_file(prompt, prompt_file, text))
    results, out_of_reach = _check(prompt, text, loaded, review)
    turns = (result.turns for result in results)
    empty = tuple(file for file, size in sizes.items() if not sum(islice(turns, size)))
    report = ComplyReport(
        prompt=prompt_file,
        text=text,
        sha256=prompt.sha256,
        results=results,
        traces=len(sizes),
        empty=empty,
        allow_vacuous=allow_vacuous,
        out_of_reach=out_of_reach,
        unread=tuple(unread),
    )
    write_reports(RENDERERS, targets, report)
    print_diagnostics([*unread, *(problem for trace in loaded for problem in trace.problems)])
    return ExitCode(report.exit_code)


def _open_judge(name: str | None, url: str | None, cache: str | None, *, batch: bool, timeout_ms: int) -> Review | None:
    if name is None:
        return None
    from bylaw.comply.judge.providers import open_judge
    from bylaw.comply.judge.session import AnswerCache, JudgeSession

    try:
        judge = open_judge(name, url=url)
    except (FeatureNotEnabledError, ValueError) as problem:
        raise click.UsageError(str(problem)) from None
    answers = AnswerCache(cache)

    def review(result: ComplianceResult, text: str, trace: Trace) -> ComplianceResult:
        return JudgeSession(judge, answers, text, trace, batch=batch, timeout_ms=timeout_ms).review(result)

    return review


def _load(patterns: tuple[str, ...], trace_format: str | None) -> tuple[list[Trace], dict[str, int], list[Diagnostic]]:
    """The sessions, their number in each file, and why other files were not read. Raises InputError if all were not."""
    from bylaw.comply.inputs import split_sessions
    from bylaw.traces import find_traces, load_trace

    names = find_traces(patterns)
    loaded: list[Trace] = []
    unread: list[Diagnostic] = []
    sizes: dict[str, int] = {}
    with count_progress("reading traces") as report:
        for number, name in enumerate(names, 1):
            try:
                sessions = split_sessions(load_trace(name, format=trace_format))
                loaded += sessions
                sizes[name] = len(sessions)
            except InputError as problem:
                unread += problem.diagnostics
            if report is not None:
                report(number, len(names))
    if unread and not loaded:
        raise InputError(unread)
    return loaded, sizes, unread


def _read_rules(
    text: str,
    traces: Sequence[Trace],
    tools_file: str | None,
    alias_file: str | None,
    rules_file: str | None,
    *,
    embeddings: bool,
) -> PromptRules:
    from bylaw.comply.inputs import (
        complete_tools,
        first_day,
        merge_tools,
        read_alias_file,
        read_tools_file,
        tools_called,
    )
    from bylaw.comply.prompt import extract_rules, read_prompt
    from bylaw.comply.rule_file import read_rule_file

    called = merge_tools(tools_called(trace.events) for trace in traces)
    described = () if tools_file is None else read_tools_file(tools_file)
    tools = called if tools_file is None else complete_tools(described, called, text)
    aliases = {} if alias_file is None else read_alias_file(alias_file)
    days = {first_day(trace) for trace in traces}
    embedder = None
    if embeddings:
        from bylaw.text.similarity import load_embedder

        embedder = load_embedder()
    today = days.pop() if len(days) == 1 else None
    stated = extract_rules(text, tools=described, aliases=aliases) if tools != described else ()  # as `comply rules`
    prompt = read_prompt(text, tools=tools, aliases=aliases, today=today, embedder=embedder, stated=stated)
    return prompt if rules_file is None else read_rule_file(rules_file, text, prompt.rules)


def _check(
    prompt: PromptRules, text: str, traces: Sequence[Trace], review: Review | None
) -> tuple[tuple[ComplianceResult, ...], bool]:
    """The result of each trace, and whether the judge did not answer; it is asked until then."""
    from bylaw.comply.decide import CompiledPrompt

    compiled = CompiledPrompt(prompt)
    results: list[ComplianceResult] = []
    out_of_reach = False
    for trace in traces:
        result = compiled.check(trace)
        if review is not None and out_of_reach:
            result = _degrade(result, "the judge was not asked: it did not answer before")
        elif review is not None:
            try:
                result = review(result, text, trace)
            except JudgeError as problem:
                out_of_reach = True
                result = problem.result or _degrade(result, str(problem))
        results.append(result)
    return tuple(results), out_of_reach


def _degrade(result: ComplianceResult, note: str) -> ComplianceResult:
    return replace(result, degraded=[*result.degraded, note])


# -- bylaw comply rules, bylaw comply diff -----------------------------------------------------------------------------


@click.command(name="rules")
@prompt_option
@tools_option
@alias_option
@output_options(RULES_RENDERERS, job="comply rules")
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
@output_options(DIFF_RENDERERS, job="comply diff")
def diff(before: str, after: str, tools_file: str | None, alias_file: str | None, targets: list[Target]) -> ExitCode:
    """Compare the rules of two versions of a prompt.

    Exits 1 if a rule was dropped or loosened, or changed so that it may allow more; 3 if no rule could be read from
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
    from bylaw.comply.prompt import read_prompt

    texts = [read_prompt_file(file) for file in prompt_files]
    tools = () if tools_file is None else read_tools_file(tools_file)
    aliases = {} if alias_file is None else read_alias_file(alias_file)
    return [(text, read_prompt(text, tools=tools, aliases=aliases)) for text in texts]


# -- the group ---------------------------------------------------------------------------------------------------------

COMMANDS = {
    "diff": LazyCommand("bylaw.comply.commands:diff", "compare the rules of two versions of a prompt"),
    "run": LazyCommand("bylaw.comply.commands:check_traces", ""),
    "rules": LazyCommand("bylaw.comply.commands:rules", "list the rules that a prompt states"),
}


class ComplyGroup(LazyGroup):
    """Runs the default command if the first argument is not the name of another one: `bylaw comply --prompt FILE`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in super().list_commands(ctx) if name != _DEFAULT]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        colours = ("--color", "--no-color")
        first = next((argument for argument in args if argument not in colours), None)
        if first in self.list_commands(ctx) or first in ctx.help_option_names:
            return super().parse_args(ctx, args)
        if first is not None and first.isalpha() and not Path(first).exists():
            self.refuse_near_command(ctx, first)
        return super().parse_args(ctx, [_DEFAULT, *args])

    def get_help(self, ctx: click.Context) -> str:
        """The help of the default command, followed by the names of the others."""
        default = self.get_command(ctx, _DEFAULT)
        assert default is not None
        with default.context_class(default, parent=ctx) as inner:
            formatter = inner.make_formatter()
            default.format_help(inner, formatter)
            self.format_commands(ctx, formatter)
        return formatter.getvalue().rstrip("\n")


@click.group(name="comply", cls=ComplyGroup, lazy=COMMANDS)
def command() -> None:
    """Check traces against the rules that the agent's own system prompt states."""
