"""`bylaw comply --prompt FILE TRACE…`"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click
from msgspec.structs import replace

from bylaw.comply.commands import alias_option, tools_option
from bylaw.comply.model import JudgeError
from bylaw.comply.report import RENDERERS
from bylaw.errors import ExitCode, FeatureNotEnabledError, InputError
from bylaw.report.command_line import output_options, trace_format_option
from bylaw.report.diagnostics import print_diagnostics, report_bad_input
from bylaw.report.output import Target, open_target, write_reports
from bylaw.report.progress import count_progress

if TYPE_CHECKING:
    from bylaw.comply.model import ComplianceResult, PromptRules
    from bylaw.model.diagnostic import Diagnostic
    from bylaw.model.trace import Trace

    Review: TypeAlias = Callable[[ComplianceResult, str, Trace], ComplianceResult]


@click.command(name="comply")
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
    help="Use sentence embeddings as a second vote on bindings, offline; needs `pip install 'bylaw[embeddings]'`.",
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
    "--timeout-ms", default=60_000, show_default=True, type=click.IntRange(1), help="Timeout of the judge, per trace."
)
@trace_format_option
@click.option("--allow-vacuous", is_flag=True, help="Exit with 0 instead of 3 if nothing was checked.")
@output_options(RENDERERS)
def command(
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
    from bylaw.comply.inputs import read_prompt_file
    from bylaw.comply.model import ComplyReport
    from bylaw.comply.recorded import RECORDED

    _check_paths(prompt_file, traces, emit_file)
    review = _open_judge(judge_name, judge_url, judge_cache, batch=judge_batch, timeout_ms=timeout_ms)
    try:
        text = "" if prompt_file is None else read_prompt_file(prompt_file)
        loaded, unread = _load(traces, trace_format)
        if prompt_file is None:
            text, prompt_file = _recorded_prompt(loaded), RECORDED
        prompt = _read_rules(text, loaded, tools_file, alias_file, rules_file, embeddings=embeddings)
    except InputError as problem:
        return report_bad_input("comply", problem.diagnostics, targets)
    if emit_file is not None:
        _emit_rules(prompt, prompt_file, text, emit_file)
    results, out_of_reach = _check(prompt, text, loaded, review)
    report = ComplyReport(
        prompt=prompt_file,
        text=text,
        sha256=prompt.sha256,
        results=results,
        allow_vacuous=allow_vacuous,
        out_of_reach=out_of_reach,
        unread=tuple(unread),
    )
    write_reports(RENDERERS, targets, report)
    print_diagnostics([*unread, *(problem for trace in loaded for problem in trace.problems)])
    return ExitCode(report.exit_code)


def _check_paths(prompt_file: str | None, traces: tuple[str, ...], emit_file: str | None) -> None:
    """Refuse bad paths before the work starts."""
    if prompt_file == "-" and "-" in traces:
        raise click.UsageError("standard input can be the prompt or a trace, not both")
    if emit_file is not None and not Path(emit_file).absolute().parent.is_dir():
        raise click.UsageError(f"the folder of `{emit_file}` does not exist")


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


def _load(patterns: tuple[str, ...], trace_format: str | None) -> tuple[list[Trace], list[Diagnostic]]:
    """The traces, and why some files could not be read. Raises InputError if none could."""
    from bylaw.comply.inputs import split_sessions
    from bylaw.traces import find_traces, load_trace

    names = find_traces(patterns)
    loaded: list[Trace] = []
    unread: list[Diagnostic] = []
    with count_progress("reading traces") as report:
        for number, name in enumerate(names, 1):
            try:
                loaded += split_sessions(load_trace(name, format=trace_format))
            except InputError as problem:
                unread += problem.diagnostics
            if report is not None:
                report(number, len(names))
    if unread and not loaded:
        raise InputError(unread)
    return loaded, unread


def _recorded_prompt(traces: Sequence[Trace]) -> str:
    from bylaw.comply.recorded import shared_prompt

    try:
        return shared_prompt(traces)
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None


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
    from bylaw.comply.prompt.reader import read_prompt
    from bylaw.comply.rule_file import read_rule_file

    called = merge_tools(tools_called(trace.events) for trace in traces)
    tools = called if tools_file is None else complete_tools(read_tools_file(tools_file), called, text)
    aliases = {} if alias_file is None else read_alias_file(alias_file)
    days = {first_day(trace) for trace in traces}
    embedder = None
    if embeddings:
        from bylaw.text.similarity import load_embedder

        embedder = load_embedder()
    today = days.pop() if len(days) == 1 else None
    prompt = read_prompt(text, tools=tools, aliases=aliases, today=today, embedder=embedder)
    return prompt if rules_file is None else read_rule_file(rules_file, text, prompt.rules)


def _emit_rules(prompt: PromptRules, file: str, text: str, target: str) -> None:
    from bylaw.comply.rule_file import render_rule_file

    with open_target(Target("yaml", target)) as out:
        out.write(render_rule_file(prompt, file, text))


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
