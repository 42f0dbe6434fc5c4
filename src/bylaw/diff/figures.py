"""The figures of a session that can rise or fall: calls, errors, refusals, tokens, what the answer decides.

Each figure is a column of the test in `permutation`. A count that did not occur is zero; a measure that was not
recorded is absent, and so NaN in the test.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from bylaw.model.canonical import canonical_json
from bylaw.text.decisions import MOST_TEXT, Decisions, decisions, numbers
from bylaw.text.prices import Prices, cost_of
from bylaw.text.refusals import is_refusal
from bylaw.text.statistics import Matrix
from bylaw.traces.comparison.recording import Recording, Step, arguments

ABSURD_LATENCY = 1e12
"""milliseconds (thirty years); a longer latency is a mistake in the recording and counts as not recorded"""
MOST_COLUMNS = 400
"""columns that are tested; of more, those that occur in most sessions"""
_MOST_VALUES = 2_000
"""argument values of a session that are columns"""
_LONG_VALUE = 200
"""characters of an argument value; longer ones are prose and belong to no column"""

Judge = Callable[[Step], float | None]


class Column(Struct, frozen=True, order=True):
    """One figure. `axis` is where it is reported."""

    axis: str
    what: str
    subject: str = ""
    """a tool, a stop reason, a rule, a name"""
    detail: str = ""
    """argument keys, or an argument and its value"""

    @property
    def direction(self) -> int:
        """1 where more is worse, -1 where less is worse, 0 where both count as a change."""
        return _DIRECTIONS.get(self.what, 0)

    @property
    def is_measure(self) -> bool:
        """Whether a session without it was not recorded, rather than zero."""
        return self.what in _MEASURES


_DIRECTIONS = {
    "errors": 1,
    "refusals": 1,
    "output tokens": 1,
    "reasoning tokens": 1,
    "latency": 1,
    "cost": 1,
    "turns": 1,
    "values from nowhere": 1,
    "numbers from nowhere": 1,
    "violations": 1,
    "score": -1,
    "judge": -1,
}
_MEASURES = frozenset(
    {
        "output tokens",
        "reasoning tokens",
        "latency",
        "cost",
        "score",
        "judge",
        "values from nowhere",
        "numbers from nowhere",
    }
)
OWN_ROW = frozenset(
    {"output tokens", "reasoning tokens", "latency", "cost", "refusals", "score", "judge", "violations"}
)
"""columns that the axes or the rules show themselves"""
AMOUNTS = {"output tokens": "verbosity", "latency": "latency", "cost": "cost", "reasoning tokens": "reasoning"}
"""what is added up over a session, and the axis that shows it"""


class Measures(Struct):
    """How turns are measured, beyond what they record themselves."""

    prices: Prices | None = None
    judge: Judge | None = None

    def of_turn(self, step: Step) -> dict[str, float | None]:
        usage, latency = step.response.usage, step.response.latency_ms
        return {
            "output tokens": None if usage is None else usage.output_tokens,
            "reasoning tokens": None if usage is None else usage.reasoning_tokens,
            "latency": latency if latency is not None and abs(latency) < ABSURD_LATENCY else None,
            "cost": cost_of(step.response, prices=self.prices),
            "judge": None if self.judge is None else self.judge(step),
        }


def figures(recording: Recording, measures: Measures, broken: Mapping[str, int] | None = None) -> dict[Column, float]:
    """Every figure of one session. `broken`: how often it breaks each rule."""
    found: defaultdict[Column, float] = defaultdict(float)
    for column, amount in _calls(recording):
        found[column] += amount
    steps = recording.steps
    found[Column("trajectory", "turns")] = len(steps)
    found[Column("safety", "refusals")] = sum(is_refusal(step.response) for step in steps) / max(1, len(steps))
    for step in steps:
        if step.response.stop_reason is not None:
            found[Column("trajectory", "stop reason", step.response.stop_reason)] += 1 / len(steps)
    for tool, count in recording.errors.items():
        found[Column("trajectory", "errors", tool)] += count
    for rule, count in (broken or {}).items():
        found[Column("rules", "violations", rule)] = min(1, count)
    result: dict[Column, float] = dict(found)
    result |= _amounts(steps, measures)
    if recording.score is not None:
        result[Column("score", "score")] = recording.score
    result |= _answer(recording)
    return result


def call_figures(recording: Recording, tools: Collection[str]) -> dict[Column, float]:
    """How these tools are called, and nothing else."""
    found: defaultdict[Column, float] = defaultdict(float)
    for column, amount in _calls(recording):
        if column.subject in tools and column.what != "values from nowhere":
            found[column] += amount
    return dict(found)


def _calls(recording: Recording) -> Iterator[tuple[Column, float]]:
    known, ends = recording.context
    values = 0
    for step, end in zip(recording.steps, ends, strict=False):
        for call, shape in zip(step.response.tool_calls, step.shape, strict=True):
            yield Column("trajectory", "calls", call.name), 1
            yield Column("trajectory", "argument names", call.name, shape), 1
            given = arguments(call)
            for path, value in _values(given) if values < _MOST_VALUES else ():
                values += 1
                yield Column("trajectory", "argument values", call.name, f"{path}={value}"), 1
            if known:
                strange = sum(_is_strange(value, known, end) for _, value in _values(given))
                yield Column("trajectory", "values from nowhere", call.name), strange


def _values(given: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """The argument's leaves: path and canonical JSON. Long texts are left out."""
    if isinstance(given, dict) and depth < 5:
        for key, value in given.items():
            yield from _values(value, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(given, list) and depth < 5:
        for value in given[:50]:
            yield from _values(value, f"{path}.*", depth + 1)
    else:
        text = canonical_json(given).decode(errors="replace")
        if len(text) <= _LONG_VALUE:
            yield path, text


def _is_strange(value: str, known: str, end: int) -> bool:
    """A text or number that nothing before it contains. Short values and true or false occur anywhere."""
    plain = value.strip('"').lower()
    return len(plain) > 2 and plain not in ("true", "false", "null") and known.find(plain, 0, end) < 0


def _amounts(steps: Iterable[Step], measures: Measures) -> dict[Column, float]:
    sums: dict[str, list[float]] = {}
    for step in steps:
        for what, value in measures.of_turn(step).items():
            if value is not None:
                sums.setdefault(what, []).append(float(value))
    return {
        Column(AMOUNTS.get(what, what), what): math.fsum(values) / (len(values) if what == "judge" else 1)
        for what, values in sums.items()
    }


def _answer(recording: Recording) -> dict[Column, float]:
    """What the last answer decides."""
    text = recording.answer
    if text is None:
        return {}
    decided = decisions(text)
    found: dict[Column, float] = {Column("answer", "negation"): float(decided.is_negated)}
    for word in ("yes", "no"):
        found[Column("answer", "begins with", word)] = float(decided.says == word)
    found[Column("conformance", "JSON")] = float(decided.shape is not None)
    if decided.shape is not None and decided.shape[0] == "object":
        found |= {Column("conformance", "JSON key", "", key): 1.0 for key in decided.shape[1]}
    for kind, spelling in decided.facts:
        if kind == "amount":
            found[Column("answer", "currency", spelling.rsplit(" ", 1)[1])] = 1.0
        if kind in ("name", "amount", "number", "date"):
            found[Column("answer", kind, spelling)] = 1.0
    known, _ = recording.context
    if known:
        found[Column("answer", "numbers from nowhere")] = len(numbers(text) - numbers(known))
    return found


def answer_decisions(recording: Recording) -> Decisions | None:
    return None if recording.answer is None else decisions(recording.answer[:MOST_TEXT])


def table(sessions: Iterable[dict[Column, float]]) -> tuple[list[Column], Matrix]:
    """One row per session, one column per figure. Columns that occur once can show nothing and are left out."""
    rows = list(sessions)
    occurrences = Counter(column for row in rows for column, value in row.items() if value)
    rows_of_axes = {column for row in rows for column in row if column.what in OWN_ROW}
    common = {column for column, count in occurrences.items() if count > 1 or len(rows) <= 2} | rows_of_axes
    chosen = sorted(sorted(common, key=lambda column: (_rank(column), -occurrences[column], column))[:MOST_COLUMNS])
    values = np.array(
        [[row.get(column, math.nan if column.is_measure else 0.0) for column in chosen] for row in rows],
        dtype=np.float64,
    ).reshape(len(rows), len(chosen))
    return chosen, values


def _rank(column: Column) -> int:
    """Columns with an open set of values go last if there are too many."""
    return column.what in ("argument values", "name", "amount", "number", "date")
