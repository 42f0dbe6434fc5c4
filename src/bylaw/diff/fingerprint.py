"""The drift fingerprint: does the candidate behave like the baseline, over twelve measures at once?

responses → vectors → units (sessions, or turns where sessions are few) → one test over all dimensions → decision.

A dimension that is constant is left out, and so is one that a side does not record. Where even the clearest difference
could be chance, the decision is `too few to tell`; any other decision comes with the smallest shift that this number of
units can detect.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from bylaw.diff.hotelling import Matrix, detectable_shift, judge, smallest_p
from bylaw.diff.model import DimensionShift, Fingerprint
from bylaw.model.events import Response
from bylaw.text.refusals import is_refusal
from bylaw.text.statistics import ALPHA
from bylaw.traces.comparison.recording import arguments

DIMENSIONS: tuple[str, ...] = (
    "tool_calls",
    "distinct_tools",  # as a share of the calls
    "stop_end",
    "stop_tool",
    "stop_other",
    "log_output_tokens",
    "log_latency_ms",
    "refusal",
    "log_text_chars",
    "log_argument_keys",
    "error_words",
    "number_density",  # numbers as a share of the words
)
FEWEST_SESSIONS = 4
"""sessions on each side; with fewer, turns are compared"""
MOST_UNITS = 500
"""units on a side; of more, consecutive ones are averaged, which keeps the time linear"""

_END = frozenset({"end_turn", "stop", "stop_sequence", "complete", "completed", "eos", "end"})
_TOOL = frozenset({"tool_use", "tool_calls", "tool_call", "function_call", "tool-calls"})
_ERROR = re.compile(r"\b(?:errors?|exceptions?|traceback|failed|failure)\b")
_NUMBER = re.compile(r"\d[\d.,:]*")
_ROUNDING = 1e-12
"""a smaller relative spread is rounding"""


# -- vectors -----------------------------------------------------------------------------------------------------------


def vector(response: Response) -> list[float]:
    """One number for each of `DIMENSIONS`; NaN where it was not recorded."""
    calls = response.tool_calls
    usage = response.usage
    return [
        float(len(calls)),
        len({call.name for call in calls}) / len(calls) if calls else 0.0,
        *_stops(response.stop_reason),
        _log(usage.output_tokens if usage else None),
        _log(response.latency_ms),
        math.nan if response.text is None and response.stop_reason is None else float(is_refusal(response)),
        _log(None if response.text is None else len(response.text)),
        _log(sum(len(given) for call in calls if isinstance(given := arguments(call), dict))),
        *_words(response.text),
    ]


def _stops(reason: str | None) -> tuple[float, float, float]:
    if reason is None:
        return math.nan, math.nan, math.nan
    plain = reason.lower()
    end, tool = plain in _END, plain in _TOOL
    return float(end), float(tool), float(not end and not tool)


def _log(value: float | None) -> float:
    return math.nan if value is None else math.log1p(min(max(value, 0.0), 1e15))


def _words(text: str | None) -> tuple[float, float]:
    """Whether the text mentions errors, and its share of numbers."""
    if text is None:
        return math.nan, math.nan
    lower, count = text.lower(), len(text.split())
    # substring tests first: they are twenty times as fast as the regex, and mostly enough
    may_match = "error" in lower or "fail" in lower or "exception" in lower or "traceback" in lower
    has_errors = may_match and _ERROR.search(lower) is not None
    return float(has_errors), min(1.0, len(_NUMBER.findall(text)) / count) if count else 0.0


# -- units -------------------------------------------------------------------------------------------------------------


class _Units(Struct):
    """Both sides as one matrix with one row per unit, the baseline's rows first."""

    rows: Matrix
    baseline: int
    sessions: bool
    per_unit: int

    @property
    def candidate(self) -> int:
        return len(self.rows) - self.baseline


def _units(sides: Sequence[Sequence[Sequence[Response]]]) -> _Units:
    turns = [[np.array([vector(turn) for turn in session]) for session in side if session] for side in sides]
    by_session = min(len(side) for side in turns) >= FEWEST_SESSIONS
    empty = np.empty((0, len(DIMENSIONS)))
    if by_session:
        rows = [np.stack([_mean(session) for session in side]) for side in turns]
    else:
        rows = [np.concatenate([empty, *side]) for side in turns]
    size = _block_size(len(rows[0]), len(rows[1]))
    before, after = (_in_blocks(side, size) for side in rows)
    return _Units(np.concatenate([before, after]), len(before), by_session, size)


def _mean(rows: Matrix) -> Matrix:
    """Column means over the recorded values; NaN where there is none."""
    known = ~np.isnan(rows)
    counts = known.sum(axis=0)
    sums = np.where(known, rows, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _block_size(baseline: int, candidate: int) -> int:
    """How many rows to average into one, such that the smaller side keeps fifty if it has as many."""
    wanted = math.ceil(max(baseline, candidate) / MOST_UNITS)
    return max(1, min(wanted, min(baseline, candidate) // 50))


def _in_blocks(rows: Matrix, size: int) -> Matrix:
    if size == 1:
        return rows
    edges = range(size, len(rows) - size + 1, size)  # the remainder joins the last block
    return np.stack([_mean(block) for block in np.split(rows, edges)])


# -- the comparison ----------------------------------------------------------------------------------------------------


def compare(baseline: Sequence[Sequence[Response]], candidate: Sequence[Sequence[Response]]) -> Fingerprint:
    """The inner sequences are sessions. The same input gives the same result, to the last bit."""
    units = _units((baseline, candidate))
    recorded = _recorded(units)
    varying = recorded & _varying(units.rows)
    rows = units.rows[:, varying]
    rows = np.where(np.isnan(rows), _mean(rows), rows)  # a missing value becomes the mean of both sides
    return Fingerprint(
        unit="session" if units.sessions else "turn",
        per_unit=units.per_unit,
        baseline_units=units.baseline,
        candidate_units=units.candidate,
        alpha=ALPHA,
        moved=tuple(_shifts(rows, units.baseline, _names(varying))),
        constant=_names(recorded & ~varying),
        unrecorded=_names(~recorded),
        notes=() if units.sessions else (_TURNS,),
        **_decide(rows, units),
    )


def _decide(rows: Matrix, units: _Units) -> dict[str, Any]:
    """The decision and the figures behind it."""
    sizes = (units.baseline, units.candidate)
    smallest = smallest_p(*sizes)
    if smallest > ALPHA:
        return {"decision": "too few to tell", "smallest_p": smallest}
    dimensions = rows.shape[1]
    basis = {"smallest_p": smallest, "detectable_shift": detectable_shift(*sizes, max(1, dimensions))}
    if not dimensions:
        return {"decision": "no difference found", **basis}
    judged = judge(rows, units.baseline)
    decision = "differs" if judged.p <= ALPHA else "no difference found"
    return {"decision": decision, **basis, **msgspec.structs.asdict(judged)}


_TURNS = (
    f"fewer than {FEWEST_SESSIONS} sessions on a side, so turns are compared as if independent;"
    " turns of one session resemble each other, and p may be too small"
)


def _recorded(units: _Units) -> NDArray[np.bool_]:
    """Dimensions that both sides record somewhere."""
    known = ~np.isnan(units.rows)
    return np.asarray(known[: units.baseline].any(axis=0) & known[units.baseline :].any(axis=0))


def _varying(rows: Matrix) -> NDArray[np.bool_]:
    low, high = np.fmin.reduce(rows, axis=0, initial=np.inf), np.fmax.reduce(rows, axis=0, initial=-np.inf)
    return np.asarray(high - low > _ROUNDING * (1 + np.abs(high)))


def _names(chosen: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(name for name, is_chosen in zip(DIMENSIONS, chosen, strict=True) if is_chosen)


def _shifts(rows: Matrix, baseline: int, names: Sequence[str]) -> list[DimensionShift]:
    if not names or not 0 < baseline < len(rows):
        return []
    before, after = rows[:baseline], rows[baseline:]
    means = before.mean(axis=0), after.mean(axis=0)
    within = ((before - means[0]) ** 2).sum(axis=0) + ((after - means[1]) ** 2).sum(axis=0)
    spread = np.sqrt(within / max(1, len(rows) - 2))
    flat = spread <= _ROUNDING * (1 + np.abs(means[0]) + np.abs(means[1]))
    moved = [
        DimensionShift(dimension=name, baseline=b, candidate=c, shift=None if still else (c - b) / s)
        for name, b, c, s, still in zip(names, *(a.tolist() for a in (*means, spread, flat)), strict=True)
    ]
    return sorted(moved, key=lambda one: -math.inf if one.shift is None else -abs(one.shift))
