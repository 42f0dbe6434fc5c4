"""`bylaw.trajectory`: the trajectory axis alone, with the tokens that it compares.

A call is one token: `name(keys)#digest`, with the argument keys sorted, and the leading 8 bytes of the SHA-256 of the
arguments' canonical JSON as 16 hex digits. The distance of two turns is the edit distance of their tokens, divided by
the number of tokens of the longer turn. The axis is the mean over the aligned turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from bylaw.diff.axes import axis_rows
from bylaw.diff.judgement import judge_units
from bylaw.diff.model import AxisRow
from bylaw.diff.units import make_units
from bylaw.engine.compile import compile_rules
from bylaw.text.similarity import Lexicon
from bylaw.traces.comparison.compare import Comparisons, Group, pair_sessions
from bylaw.traces.comparison.recording import read_side
from bylaw.traces.source import Traces, as_sources


class TurnCalls(Struct, frozen=True, kw_only=True):
    """The calls of two aligned turns."""

    session: str
    """the baseline's session"""
    baseline_turn: int | None
    """index in the baseline's trace; None for an added turn"""
    candidate_turn: int | None
    """index in the candidate's trace; None for a missing turn"""
    baseline: tuple[str, ...]
    """one token per call"""
    candidate: tuple[str, ...]
    distance: float
    """in [0, 1]"""


class Trajectory(Struct, frozen=True, kw_only=True):
    """How far the tool calls of two versions are apart."""

    row: AxisRow
    """the axis as `bylaw.diff` reports it, judged alone: its severity is not corrected for other axes"""
    turns: tuple[TurnCalls, ...]
    """every aligned pair of turns, in order"""

    @property
    def distance(self) -> float | None:
        """The mean over the aligned turns, in [0, 1]; None where nothing was compared."""
        return self.row.candidate


def trajectory(baseline: Traces, candidate: Traces, *, deterministic: bool = False) -> Trajectory:
    """How far are the tool calls of two versions apart, and at which turns?

    The arguments are those of `diff`. With repeated runs in the baseline, `distance` stands beside `row.baseline`, the
    distance of the baseline's runs from each other.
    """
    program = compile_rules(())
    before, after = (read_side(as_sources(side), program) for side in (baseline, candidate))
    groups = pair_sessions(before.recordings, after.recordings).groups
    compare = Comparisons(
        Lexicon(step.text for side in (before, after) for one in side.recordings for step in one.steps)
    )
    units = make_units(groups)
    judgement = judge_units(units, compare, lambda _: [], deterministic=deterministic)
    row = next(row for row in axis_rows(judgement, units, "lexical") if row.axis == "trajectory")
    return Trajectory(row=row, turns=tuple(_turns(groups, compare)))


def _turns(groups: Sequence[Group], compare: Comparisons) -> Iterator[TurnCalls]:
    pairs = ((b, c) for group in groups for c in group.candidate for b in group.baseline)
    for comparison in (compare(b, c) for b, c in pairs):
        for (b, c), distance in zip(comparison.sides, comparison.trajectory(), strict=True):
            yield TurnCalls(
                session=comparison.baseline.session,
                baseline_turn=None if b is None else b.turn,
                candidate_turn=None if c is None else c.turn,
                baseline=() if b is None else b.tokens,
                candidate=() if c is None else c.tokens,
                distance=distance,
            )
