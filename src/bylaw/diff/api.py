"""`bylaw.diff`, and the comparison it runs: read both sides, pair sessions, align turns, measure, judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Literal

from msgspec.structs import replace

from bylaw.diff.axes import axis_rows
from bylaw.diff.cases import sort_cases
from bylaw.diff.columns import AMOUNTS, JUDGED
from bylaw.diff.divergence import divergences
from bylaw.diff.expectations import (
    Expectation,
    apply_expectations,
    as_expectations,
    expected_tools,
    load_with_expectations,
)
from bylaw.diff.figures import Judge, Measures, count_unusable
from bylaw.diff.findings import find_changes
from bylaw.diff.fingerprint import compare as compare_fingerprints
from bylaw.diff.judge import SECONDS, NamedJudge, checked_score
from bylaw.diff.judgement import judge_units
from bylaw.diff.model import Change, DiffReport, Fingerprint, PolicyDiff, SessionIssue
from bylaw.diff.policy import CANDIDATE, broken_rules, policy_diff, rule_rates
from bylaw.diff.repairs import excused_calls
from bylaw.diff.units import Unit, fill_figures, has_exchanged_figures, make_units
from bylaw.engine.compile import Program, compile_rules
from bylaw.errors import ArgumentError, InputError
from bylaw.model.diagnostic import Diagnostic
from bylaw.model.events import Response
from bylaw.model.ports import Embedder, TextSimilarity, TraceSource
from bylaw.model.rule import Rule
from bylaw.report.diagnostics import summarize
from bylaw.report.text import count
from bylaw.rules.loader import Rules
from bylaw.text.prices import Prices
from bylaw.text.similarity import EmbeddedTexts, Lexicon
from bylaw.traces import find_traces, open_trace
from bylaw.traces.comparison.compare import Comparisons, Group, Pairing, pair_sessions
from bylaw.traces.comparison.recording import Side, read_side
from bylaw.traces.observed_names import SeenNames
from bylaw.traces.source import Traces, TraceStream, as_sources


def as_level(fail_on: str) -> Change:
    """The threshold of the gate: a change, or `never`, another word for `none`."""
    levels = {**{change.value: change for change in Change}, "never": Change.NONE}
    if not isinstance(fail_on, str):
        raise ArgumentError(f"fail_on={fail_on!r}: expected one of {', '.join(levels)}")
    level = levels.get(fail_on.lower())
    if level is None:
        raise ValueError(f"fail_on={fail_on!r}: expected one of {', '.join(levels)}")
    return level


def open_side(
    pattern: str, unread: list[Diagnostic], *, format: str | None = None, skip_bad: bool = False
) -> list[TraceStream]:
    """The traces of one side. `unread` gets the reasons why files cannot be opened; InputError if there is no file."""
    found = []
    for name in find_traces([pattern]):
        try:
            found.append(open_trace(name, format=format, skip_bad=skip_bad))
        except InputError as problem:
            unread += problem.diagnostics
    return found


def compare_versions(
    baseline: Iterable[TraceSource],
    candidate: Iterable[TraceSource],
    rules: Sequence[Rule] = (),
    *,
    fail_on: Change = Change.SEVERE,
    judge: Judge | None = None,
    prices: Prices | None = None,
    embedder: Embedder | None = None,
    deterministic: bool = False,
    expected: Sequence[Expectation] = (),
    strict: bool = False,
    unread: list[Diagnostic] | None = None,
    refuses_unread: bool = True,
) -> DiffReport:
    """`judge` scores a turn, more is better. `prices` replace the shipped price list.

    `embedder` measures the semantic axis; alignment and the weight of divergences still compare words.
    `deterministic`: nothing varies by chance, so that every difference is a change. `expected`: changes that are shown
    and do not gate. `strict`: an axis that only one side recorded is exit 3, and so are a guessed pair, too few
    recordings to confirm any change, and exchanged figures that cannot be judged. `unread`: why files could not be
    opened. Files that cannot be read are added to it and left out; InputError without it, or if a side has no other
    file.
    """
    program = compile_rules(rules)
    before, after = read_side(baseline, program, unread), read_side(candidate, program, unread)
    if unread and not (before.traces and after.traces):
        raise InputError(unread)
    pairing = pair_sessions(before.recordings, after.recordings)
    compare, texts = _text_measures(before, after, embedder)
    comparisons = [one for group in pairing.groups for one in compare.nearest(group)]
    policy = policy_diff(before, after, pairing.groups, comparisons)
    units, sessions = _measure(pairing.groups, policy, rules, (before, after), expected, Measures(prices, judge))
    judgement = judge_units(
        units, compare, lambda one: one.semantic(texts), sessions=sessions, deterministic=deterministic
    )
    p_values = {c.subject: f.p for c, f in judgement.figures.items() if c.what == "violations"}
    announced = apply_expectations(
        expected,
        axis_rows(judgement, units, texts.name),
        find_changes(judgement),
        rule_rates(before, after, policy, p_values, deterministic),
        tools=_tools(before, after) if expected else (),
        rules={rule.id for rule in rules},
    )
    tools = {one.tool for one in announced.findings if one.tool and one.expected is None and not one.mends}
    found, divergent = divergences(comparisons, compare.lexicon, tools)
    return DiffReport(
        axes=announced.axes,
        semantic_measure=texts.name,
        findings=announced.findings,
        divergences=found,
        divergence_count=divergent,
        policy=replace(policy, rates=announced.rates),
        sessions=tuple(_issues(before, after, pairing)),
        fingerprint=_fingerprint(units),
        groups=len(pairing.groups),
        turns=(before.turns, after.turns),
        repeats=judgement.has_repeats,
        by_turn=judgement.by_turn,
        deterministic=deterministic,
        confirmable=judgement.can_confirm,
        exchanged=0 if deterministic or judgement.has_repeats else _exchanged(pairing.groups),
        cases=sort_cases(units, judgement.measured, sessions, judgement.unexpected),
        unused_expectations=announced.unused,
        strict=strict,
        pairing=dict(Counter(group.matched_by for group in pairing.groups)),
        guessed=sum(group.is_guess for group in pairing.groups),
        unlike=any(group.is_unlike for group in pairing.groups),
        rules=len(rules),
        notes=(
            *_notes(before, after, pairing, program, unread or ()),
            *(["warning: the judge scored no response"] if judge and not _is_judged(units) else ()),
        ),
        judge_failure=judge.failure if isinstance(judge, NamedJudge) else None,
        unread=tuple(unread or ()),
        refuses_unread=refuses_unread,
        fail_on=fail_on,
    )


def _text_measures(before: Side, after: Side, embedder: Embedder | None) -> tuple[Comparisons, TextSimilarity]:
    """What compares turns by their words, and what measures the semantic axis."""
    answers = [step.text for side in (before, after) for r in side.recordings for step in r.steps if step.text]
    compare = Comparisons(Lexicon(answers))
    return compare, compare.lexicon if embedder is None else EmbeddedTexts(embedder, answers)


def _measure(
    groups: Sequence[Group],
    policy: PolicyDiff,
    rules: Sequence[Rule],
    sides: tuple[Side, Side],
    expected: Sequence[Expectation],
    measures: Measures,
) -> tuple[list[Unit], list[Unit]]:
    """The units with their figures, and the same by session: another list only in a replay, where units are turns."""
    broken = broken_rules(sides[0], decided_by=sides[1]), broken_rules(sides[1])
    left_out = expected_tools(expected, groups), excused_calls(policy, rules, groups, broken[CANDIDATE])
    units = make_units(groups, *left_out)
    fill_figures(units, measures, broken)
    if isinstance(measures.judge, NamedJudge) and measures.judge.failure:
        for row in (row for unit in units for row in (*unit.rows, *unit.rest)):
            row.pop(JUDGED, None)  # what it scored before it failed is no comparison
    if not any(unit.is_turn for unit in units):
        return units, units
    sessions = make_units(groups, *left_out, by_session=True)
    fill_figures(sessions, Measures(), broken)
    return units, sessions


def _exchanged(groups: Iterable[Group]) -> int:
    """The tasks in which figures exchange places between the sides."""
    return sum(any(has_exchanged_figures(b, c) for b in one.baseline for c in one.candidate) for one in groups)


def _is_judged(units: Iterable[Unit]) -> bool:
    return any(JUDGED in row for unit in units for row in unit.rows)


def _tools(*sides: Side) -> set[str]:
    """The tools that are called."""
    steps = (step for side in sides for recording in side.recordings for step in recording.steps)
    return {call.name for step in steps for call in step.response.tool_calls}


def _notes(
    before: Side, after: Side, pairing: Pairing, program: Program, unread: Iterable[Diagnostic]
) -> tuple[str, ...]:
    return (
        *(f"{one.file}: could not be read: {one.message}" for one in unread),
        *(*before.notes, *after.notes, *pairing.doubts, *_doubtful_names(program, before, after)),
        *_unusable_values(before, "baseline"),
        *_unusable_values(after, "candidate"),
    )


def _unusable_values(side: Side, name: str) -> Iterator[str]:
    """Values that no agent can have, such as a latency below zero: they are not compared."""
    for axis in (*AMOUNTS.values(), "score"):
        found = sum(count_unusable(one, axis) for one in side.recordings)
        if found:
            values = "a value" if found == 1 else f"{found:,} values"
            yield f"warning: {name}: {values} of {axis} below zero or too large, counted as not recorded"
    unread = sum(one.unread_scores for one in side.recordings)
    if unread:
        yield f"warning: {name}: {count(unread, 'score')} cannot be read: no number, share or grade such as `passed`"


def _doubtful_names(program: Program, *sides: Side) -> list[str]:
    """Names in rules that neither side has, and that are near one that occurs."""
    seen = SeenNames(rules=program.rules)
    for side in sides if program.rules else ():
        for recording in side.recordings:
            for step in recording.steps:
                seen.add(step.response)
    return [f"warning: {summarize(warning)}" for warning in seen.doubts(program)]


def _issues(before: Side, after: Side, pairing: Pairing) -> Iterator[SessionIssue]:
    """A lost session is a severe change, a new one a minor change."""
    for name in before.empty:
        yield SessionIssue(what="empty", side="baseline", name=name, severity=Change.MODERATE)
    for name in after.empty:
        yield SessionIssue(what="empty", side="candidate", name=name, severity=Change.SEVERE)
    for recording in pairing.missing:
        yield SessionIssue(what="missing", side="candidate", name=recording.name, severity=Change.SEVERE)
    for recording in pairing.extra:
        yield SessionIssue(what="extra", side="candidate", name=recording.name, severity=Change.MINOR)


def _fingerprint(units: Sequence[Unit]) -> Fingerprint | None:
    """Paired within tasks like everything else; by turns only in a replay."""
    if not units:
        return None
    tasks = [
        tuple([[step.response for step in one.steps] for one in side] for side in (unit.baseline, unit.candidate))
        for unit in units
    ]
    return compare_fingerprints(tasks, by_turn=all(unit.is_turn for unit in units))  # type: ignore[arg-type]


def as_step_judge(judge: Callable[[Response], float | None] | str | None, seconds: float = SECONDS) -> Judge | None:
    """A function of the caller raises what it raises; the failure of one that is named is part of the report."""
    if judge is None or isinstance(judge, str):
        return None if judge is None else NamedJudge(judge, seconds)
    return lambda step: checked_score(judge(step.response))


def diff(
    baseline: Traces,
    candidate: Traces,
    rules: Rules = (),
    *,
    fail_on: Literal["none", "never", "minor", "moderate", "severe"] = "severe",
    judge: Callable[[Response], float | None] | str | None = None,
    judge_timeout: float = SECONDS,
    prices: str | PathLike[str] | None = None,
    embeddings: bool = False,
    deterministic: bool = False,
    expect: Sequence[str | Mapping[str, str]] = (),
    strict: bool = False,
) -> DiffReport:
    """What changed between two versions of the agent, and did the change break or fix a rule?

    `judge` scores a response from 0 to 1, more is better; None where it has no opinion; or `module:function`, which
    has `judge_timeout` seconds for each response. `prices`: the path of a price list of your own. `embeddings` measures
    the semantic axis by sentence embeddings instead of words; needs `bylaw[embeddings]`. `deterministic`: nothing
    varies by chance (a replay, temperature 0), so that every difference is a change. `expect`: intended changes, beside
    those under `expected` in the rule file, such as `"tool confirm gone: the form asks now"`. `strict`: an axis that
    only one side recorded is exit 3, and so are a guessed pair, too few recordings to confirm any change, and figures
    that exchange places where the baseline was recorded once.
    """
    from bylaw.text.prices import load_prices
    from bylaw.text.similarity import load_embedder

    loaded, expected = load_with_expectations(rules)
    return compare_versions(
        as_sources(baseline),
        as_sources(candidate),
        loaded.rules,
        fail_on=as_level(fail_on),
        judge=as_step_judge(judge, judge_timeout),
        prices=None if prices is None else load_prices(prices),
        embedder=load_embedder() if embeddings else None,
        deterministic=deterministic,
        expected=(*expected, *as_expectations(expect)),
        strict=strict,
    )
