"""The drift fingerprint: does the candidate behave like the baseline, over twelve measures at once?

responses → vectors → one vector per session → one test over all dimensions, relabelled within tasks → decision. In a
replay each turn is a task of its own.

A dimension that is constant is left out, and so is one that a side does not record. Where even the clearest difference
could be chance, the decision is `too few to tell`; any other decision comes with the smallest shift that this number of
sessions can detect.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from bylaw.diff.hotelling import detectable_shift, judge, smallest_p
from bylaw.diff.model import DimensionShift, Fingerprint
from bylaw.diff.permutation import labellings, value_differences
from bylaw.model.events import Response
from bylaw.text.refusals import is_refusal
from bylaw.text.statistics import ALPHA, Matrix
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
_CALLS = DIMENSIONS.index("tool_calls")
_OF_CALLS = (DIMENSIONS.index("distinct_tools"), DIMENSIONS.index("log_argument_keys"))
_LOGARITHMS = [place for place, name in enumerate(DIMENSIONS) if name.startswith("log_")]
MOST_TASKS = 2_000
"""of more, consecutive ones are averaged, which bounds the time"""

_END = frozenset({"end_turn", "stop", "stop_sequence", "complete", "completed", "eos", "end"})
_TOOL = frozenset({"tool_use", "tool_calls", "tool_call", "function_call", "tool-calls"})
_ERROR = re.compile(r"\b(?:errors?|exceptions?|traceback|failed|failure)\b")
_NUMBER = re.compile(r"\d[\d.,:]*")
_ROUNDING = 1e-12
"""a smaller relative spread is rounding"""


# -- vectors -----------------------------------------------------------------------------------------------------------


def vectors(session: Sequence[Response]) -> Matrix:
    """One row per response, one number for each of `DIMENSIONS`; NaN where it was not recorded.

    Filled row by row: as lists, the numbers of a long session would take several times the memory.
    """
    rows = np.empty((len(session), len(DIMENSIONS)))
    for place, turn in enumerate(session):
        rows[place] = _measure_response(turn)
    rows[:, _LOGARITHMS] = np.log1p(rows[:, _LOGARITHMS])
    return rows


def _measure_response(response: Response) -> tuple[float | None, ...]:
    """Before logarithms are taken; None is NaN in an array."""
    calls, text, usage = response.tool_calls, response.text, response.usage
    return (
        len(calls),
        len({call.name for call in calls}) / len(calls) if calls else 0.0,
        *_stops(response.stop_reason),
        _bound_value(usage.output_tokens if usage else None),
        _bound_value(response.latency_ms),
        None if text is None and response.stop_reason is None else is_refusal(response),
        None if text is None else len(text),
        sum(len(given) for call in calls if isinstance(given := arguments(call), dict)) if calls else 0,
        *_words(text),
    )


def _bound_value(value: float | None) -> float | None:
    return None if value is None else min(max(value, 0.0), 1e15)


def _stops(reason: str | None) -> tuple[float, float, float]:
    if reason is None:
        return math.nan, math.nan, math.nan
    plain = reason.lower()
    end, tool = plain in _END, plain in _TOOL
    return float(end), float(tool), float(not end and not tool)


def _words(text: str | None) -> tuple[float, float]:
    """Whether the text mentions errors, and its share of numbers."""
    if text is None:
        return math.nan, math.nan
    lower, count = text.lower(), len(text.split())
    # substring tests first: they are twenty times as fast as the regex, and mostly enough
    may_match = "error" in lower or "fail" in lower or "exception" in lower or "traceback" in lower
    has_errors = may_match and _ERROR.search(lower) is not None
    return float(has_errors), min(1.0, len(_NUMBER.findall(text)) / count) if count else 0.0


# -- the comparison ----------------------------------------------------------------------------------------------------

Sessions = Sequence[Sequence[Response]]
"""the turns of each session of a side"""


def compare(tasks: Sequence[tuple[Sessions, Sessions]], *, by_turn: bool = False) -> Fingerprint:
    """Each task has the baseline's and the candidate's sessions. The same input gives the same result, to the last bit.

    `by_turn`: the tasks are turns of a replay.
    """
    sides = [[_rows(side) for side in task] for task in tasks]
    sides = [task for task in sides if len(task[0]) and len(task[1])]
    size = math.ceil(len(sides) / MOST_TASKS) if all(len(side) == 1 for task in sides for side in task) else 1
    if size > 1:
        blocks = [sides[start : start + size] for start in range(0, len(sides), size)]
        sides = [[_mean(np.concatenate([task[i] for task in block]))[None] for i in (0, 1)] for block in blocks]
    empty = np.empty((0, len(DIMENSIONS)))
    before, after = (np.concatenate([empty, *(task[i] for task in sides)]) for i in (0, 1))
    recorded = np.asarray((~np.isnan(before)).any(axis=0) & (~np.isnan(after)).any(axis=0))
    varying = recorded & _varying_dimensions(np.concatenate([before, after]))
    names = _names(varying)
    return Fingerprint(
        unit="turn" if by_turn else "session",
        per_unit=size,
        baseline_units=len(before),
        candidate_units=len(after),
        alpha=ALPHA,
        moved=tuple(_shifts(before[:, varying], after[:, varying], names)),
        constant=_names(recorded & ~varying),
        unrecorded=_names(~recorded),
        **_decide([[side[:, varying] for side in task] for task in sides]),
    )


def _rows(sessions: Sessions) -> Matrix:
    rows = [_session_vector(vectors(session)) for session in sessions if session]
    return np.array(rows).reshape(len(rows), len(DIMENSIONS))


def _session_vector(vectors: Matrix) -> Matrix:
    """The mean over the turns. Calls are counted for the session as a whole and described over the turns that call, so
    that the same calls with one answer less are the same calls.
    """
    row = _mean(vectors)
    calling = vectors[vectors[:, _CALLS] > 0]
    row[_CALLS] = vectors[:, _CALLS].sum()
    for place in _OF_CALLS:
        row[place] = calling[:, place].mean() if len(calling) else 0.0
    return row


def _mean(rows: Matrix) -> Matrix:
    """Column means over the recorded values; NaN where there is none."""
    known = ~np.isnan(rows)
    counts = known.sum(axis=0)
    sums = np.where(known, rows, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _decide(tasks: Sequence[Sequence[Matrix]]) -> dict[str, Any]:
    """The decision and the figures behind it."""
    sizes = [(len(before), len(after)) for before, after in tasks]
    smallest = smallest_p(sizes)
    if smallest > ALPHA:
        return {"decision": "too few to tell", "smallest_p": smallest}
    dimensions = tasks[0][0].shape[1]
    both = [sum(side) for side in zip(*sizes, strict=True)]
    shift = detectable_shift(*both, max(1, dimensions), len(tasks), smallest)
    basis = {"smallest_p": smallest, "detectable_shift": shift}
    relabelled = [
        value_differences(np.concatenate(task), labellings(*size)) for task, size in zip(tasks, sizes, strict=True)
    ]
    if not dimensions or not any(task.any() for task in relabelled):
        return {"decision": "no difference found", **basis}
    judged = judge(relabelled, sum(both) - len(tasks) - 1)
    decision = "differs" if judged.p <= ALPHA else "no difference found"
    return {"decision": decision, **basis, **msgspec.structs.asdict(judged)}


def _varying_dimensions(rows: Matrix) -> NDArray[np.bool_]:
    low, high = np.fmin.reduce(rows, axis=0, initial=np.inf), np.fmax.reduce(rows, axis=0, initial=-np.inf)
    return np.asarray(high - low > _ROUNDING * (1 + np.abs(high)))


def _names(chosen: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(name for name, is_chosen in zip(DIMENSIONS, chosen, strict=True) if is_chosen)


def _shifts(before: Matrix, after: Matrix, names: Sequence[str]) -> list[DimensionShift]:
    if not names or not len(before) or not len(after):
        return []
    means = _mean(before), _mean(after)
    within = np.nansum((before - means[0]) ** 2, axis=0) + np.nansum((after - means[1]) ** 2, axis=0)
    spread = np.sqrt(within / max(1, len(before) + len(after) - 2))
    flat = spread <= _ROUNDING * (1 + np.abs(means[0]) + np.abs(means[1]))
    moved = [
        DimensionShift(dimension=name, baseline=b, candidate=c, shift=None if still else (c - b) / s)
        for name, b, c, s, still in zip(names, *(a.tolist() for a in (*means, spread, flat)), strict=True)
    ]
    return sorted(moved, key=lambda one: -math.inf if one.shift is None else -abs(one.shift))
