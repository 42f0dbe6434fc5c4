"""The comparison as a whole: read, pair, align, measure, judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from bylaw.diff.axes import AXES, Measure, judge_axis, measure_axes, nearest, structural_distance
from bylaw.diff.divergence import divergences
from bylaw.diff.fingerprint import compare as compare_fingerprints
from bylaw.diff.fingerprint_model import Fingerprint
from bylaw.diff.model import AxisRow, Change, DiffReport, SessionIssue
from bylaw.diff.policy import policy_diff
from bylaw.diff.rates import changed_sessions, tool_rates
from bylaw.engine.compile import compile_rules
from bylaw.model.events import Response
from bylaw.model.ports import Embedder, TextSimilarity, TraceSource
from bylaw.model.rule import Rule
from bylaw.text.embedded import EmbeddedTexts
from bylaw.text.lexical import Lexicon
from bylaw.text.prices import Prices
from bylaw.traces.comparison.pairing import Group, Pairing, pair_sessions
from bylaw.traces.comparison.sessions import Recording, Side, read_side


def diff(
    baseline: Iterable[TraceSource],
    candidate: Iterable[TraceSource],
    rules: Sequence[Rule] = (),
    *,
    fail_on: Change = Change.SEVERE,
    judge: Measure | None = None,
    prices: Prices | None = None,
    embedder: Embedder | None = None,
) -> DiffReport:
    """`judge` scores a turn, more is better; `prices` replace the shipped price list; `embedder` measures the semantic
    axis, while alignment and the weight of divergences stay with the words.
    """
    program = compile_rules(rules)
    before, after = read_side(baseline, program), read_side(candidate, program)
    pairing = pair_sessions(before.recordings, after.recordings)
    said = [step.text for side in (before, after) for r in side.recordings for step in r.steps if step.text]
    lexicon = Lexicon(said)
    texts: TextSimilarity = lexicon if embedder is None else EmbeddedTexts(embedder, said)
    comparisons = [one for group in pairing.groups for one in nearest(group, lexicon)]
    found, count = divergences(comparisons, lexicon)
    return DiffReport(
        axes=_axes(pairing.groups, lexicon, texts, judge, prices),
        semantic_measure=texts.name,
        tool_rates=tool_rates(pairing.groups, len(AXES)),
        changed_sessions=changed_sessions(pairing.groups, lexicon),
        divergences=found,
        divergence_count=count,
        policy=policy_diff(before, after, pairing.groups, comparisons),
        sessions=tuple(_issues(before, after, pairing)),
        fingerprint=_fingerprint(pairing.groups),
        groups=len(pairing.groups),
        turns=(before.turns, after.turns),
        repeats=any(group.has_repeats for group in pairing.groups),
        rules=len(rules),
        notes=(*before.notes, *after.notes),
        fail_on=fail_on,
    )


def _axes(
    groups: Sequence[Group], lexicon: Lexicon, texts: TextSimilarity, judge: Measure | None, prices: Prices | None
) -> tuple[AxisRow, ...]:
    measured = measure_axes(groups, lexicon, texts=texts, judge=judge, prices=prices)
    tests = len(measured) + 1  # the tool rates are one more look
    repeats = any(group.has_repeats for group in groups)
    rows = [judge_axis(axis, measured.get(axis), tests, repeats) for axis in AXES]
    structural = structural_distance(groups, lexicon)
    return tuple(_with_structure(row, structural) if row.axis == "trajectory" else row for row in rows)


def _with_structure(row: AxisRow, structural: float | None) -> AxisRow:
    return msgspec.structs.replace(row, structural=structural) if row.n else row


def _issues(before: Side, after: Side, pairing: Pairing) -> Iterator[SessionIssue]:
    """A session that is gone is a change as grave as any; one that is new only wants to be seen."""
    for name in before.empty:
        yield SessionIssue(what="empty", side="baseline", name=name, severity=Change.MODERATE)
    for name in after.empty:
        yield SessionIssue(what="empty", side="candidate", name=name, severity=Change.SEVERE)
    for recording in pairing.missing:
        yield SessionIssue(what="missing", side="candidate", name=recording.name, severity=Change.SEVERE)
    for recording in pairing.extra:
        yield SessionIssue(what="extra", side="candidate", name=recording.name, severity=Change.MINOR)


def _fingerprint(groups: Sequence[Group]) -> Fingerprint | None:
    if not groups:
        return None
    baseline = [recording for group in groups for recording in group.baseline]
    candidate = [recording for group in groups for recording in group.candidate]
    return compare_fingerprints(_responses(baseline), _responses(candidate))


def _responses(recordings: Sequence[Recording]) -> list[list[Response]]:
    return [[step.response for step in recording.steps] for recording in recordings]
