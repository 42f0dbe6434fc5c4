"""`bylaw comply --prompt FILE TRACE…`"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from bylaw.comply.commands.inputs import (
    ALIAS_HELP,
    PROMPT_HELP,
    TOOLS_HELP,
    read_alias_file,
    read_prompt_file,
    read_tools_file,
)
from bylaw.comply.report import RENDERERS
from bylaw.errors import ExitCode, FeatureNotEnabledError, InputError, JudgeUnreachable
from bylaw.report.output import Target, opened, output_options, write_reports
from bylaw.report.problems import refuse, show_on_stderr
from bylaw.report.trace_options import trace_format_option

if TYPE_CHECKING:
    from bylaw.comply.judge.memory import Memory
    from bylaw.comply.judge.model import Judge
    from bylaw.comply.model import ComplianceResult, PromptRules
    from bylaw.model.trace import Trace


@click.command(name="comply")
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option("--prompt", "prompt_file", required=True, metavar="FILE", help=PROMPT_HELP)
@click.option("--tools", "tools_file", metavar="FILE", help=TOOLS_HELP)
@click.option("--alias", "alias_file", metavar="FILE", help=ALIAS_HELP)
@click.option(
    "--rules", "rules_file", metavar="FILE", help="Check these rules, made by --emit, instead of reading anew."
)
@click.option(
    "--emit", "emit_file", metavar="FILE", help="Write the rules as a rule file, to be reviewed and checked in."
)
@click.option("--judge", "judge_name", metavar="SPEC", help="Ask openai:MODEL or anthropic:MODEL what stays undecided.")
@click.option("--judge-url", metavar="URL", help="Where the judge answers, if not at the provider's own address.")
@click.option("--judge-batch", is_flag=True, help="Ask about all undecided rules of a trace at once.")
@click.option("--judge-cache", metavar="FOLDER", help="Keep the judge's answers there.")
@click.option(
    "--timeout-ms", default=60_000, show_default=True, type=click.IntRange(1), help="For the judge, per trace."
)
@trace_format_option
@click.option("--allow-vacuous", is_flag=True, help="Accept that nothing was checked: exit 0 instead of 3.")
@output_options(RENDERERS)
def command(
    traces: tuple[str, ...],
    prompt_file: str,
    tools_file: str | None,
    alias_file: str | None,
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

    Offline and deterministic: a rule that cannot be told from the trace is undecided, never kept. --judge asks a model
    about those; it is off unless BYLAW_ENABLE_JUDGE is set to 1. TRACE is a file, a folder, a glob or - for standard
    input; each conversation in it is checked by itself.

    Exit codes: 0 no violation found, 1 a rule broken, 2 bad input, 3 nothing was checked, 4 the judge did not answer.
    """
    from bylaw.comply.judge.memory import Memory
    from bylaw.comply.model import ComplyReport

    _check_paths(prompt_file, traces, emit_file)
    judge = _judge(judge_name, judge_url)
    try:
        text = read_prompt_file(prompt_file)
        loaded = _load(traces, trace_format)
        prompt = _prompt(text, loaded, tools_file, alias_file, rules_file)
    except InputError as problem:
        return refuse("comply", problem.diagnostics, targets)
    if emit_file is not None:
        _emit_rules(prompt, prompt_file, text, emit_file)
    asking = _Asking(judge, Memory(judge_cache), text, judge_batch, timeout_ms / 1000)
    report = ComplyReport(
        prompt=prompt_file,
        text=text,
        sha256=prompt.sha256,
        results=asking.checked(prompt, loaded),
        allow_vacuous=allow_vacuous,
        out_of_reach=asking.out_of_reach,
    )
    write_reports(RENDERERS, targets, report)
    show_on_stderr([problem for trace in loaded for problem in trace.problems])
    return ExitCode(report.exit_code)


class _Asking:
    """Checks trace after trace, and asks the judge, if there is one, until it does not answer."""

    def __init__(self, judge: Judge | None, memory: Memory, text: str, batch: bool, seconds: float) -> None:
        self._judge = judge
        self._memory = memory
        self._text = text
        self._batch = batch
        self._seconds = seconds
        self.out_of_reach = False

    def checked(self, prompt: PromptRules, traces: Sequence[Trace]) -> tuple[ComplianceResult, ...]:
        from bylaw.comply.deciding import Compliance

        compliance = Compliance(prompt)
        return tuple(self._asked(compliance.check(trace), trace) for trace in traces)

    def _asked(self, result: ComplianceResult, trace: Trace) -> ComplianceResult:
        from bylaw.comply.judge.asking import Asking

        if self._judge is None:
            return result
        if self.out_of_reach:
            return replace(result, degraded=[*result.degraded, "the judge was not asked: it did not answer before"])
        deadline = time.monotonic() + self._seconds
        asking = Asking(self._judge, self._memory, self._text, trace, batch=self._batch, deadline=deadline)
        try:
            return asking.take(result)
        except (JudgeUnreachable, TimeoutError) as problem:
            self.out_of_reach = True
            so_far: ComplianceResult = getattr(problem, "result", None) or result
            return replace(so_far, degraded=[*so_far.degraded, str(problem)])


def _check_paths(prompt_file: str, traces: tuple[str, ...], emit_file: str | None) -> None:
    """Said before the work is done, not after."""
    if prompt_file == "-" and "-" in traces:
        raise click.UsageError("standard input can be the prompt or a trace, not both")
    if emit_file is not None and not Path(emit_file).absolute().parent.is_dir():
        raise click.UsageError(f"the folder of `{emit_file}` does not exist")


def _judge(name: str | None, url: str | None) -> Judge | None:
    from bylaw.comply.judge.providers import open_judge

    if name is None:
        return None
    try:
        return open_judge(name, url=url)
    except (FeatureNotEnabledError, ValueError) as problem:
        raise click.UsageError(str(problem)) from None


def _load(patterns: tuple[str, ...], trace_format: str | None) -> list[Trace]:
    from bylaw.comply.sessions import by_session
    from bylaw.traces import find_traces, load_trace

    found = (load_trace(name, format=trace_format) for name in find_traces(patterns))
    return [part for trace in found for part in by_session(trace)]


def _prompt(
    text: str, traces: Sequence[Trace], tools_file: str | None, alias_file: str | None, rules_file: str | None
) -> PromptRules:
    from bylaw.comply.prompt.pinned import read_pinned
    from bylaw.comply.prompt.reading import read_prompt
    from bylaw.comply.tools import completed, merged, tools_called

    seen = merged(tools_called(trace.events) for trace in traces)
    tools = seen if tools_file is None else completed(read_tools_file(tools_file), seen, text)
    aliases = {} if alias_file is None else read_alias_file(alias_file)
    prompt = read_prompt(text, tools=tools, aliases=aliases)
    return prompt if rules_file is None else read_pinned(rules_file, text, prompt.rules)


def _emit_rules(prompt: PromptRules, file: str, text: str, target: str) -> None:
    from bylaw.comply.report.rules import render_rule_file

    with opened(Target("yaml", target)) as out:
        out.write(render_rule_file(prompt, file, text))
