"""The figures of a session that can rise or fall: calls, errors, refusals, tokens, what the answer decides.

Each figure is a column of the test in `permutation`. A count that did not occur is zero; a measure that was not
recorded is absent, and so NaN in the test.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from bylaw.diff.calls import find_word, read_calls
from bylaw.diff.columns import AMOUNTS, OWN_ROW, Column
from bylaw.model.events import Response
from bylaw.text.decision_words import begins_with_no
from bylaw.text.decisions import Decisions, currencies, decisions, facts, is_courtesy, numbers, quantities
from bylaw.text.json_text import IN_TEXT, json_shape, written_keys
from bylaw.text.prices import Prices, cost_of
from bylaw.text.refusals import is_refusal, says_refusal
from bylaw.text.statistics import Matrix
from bylaw.traces.comparison.recording import Recording, Step

MOST_MEASURED = 1e12
"""milliseconds (thirty years) or tokens of a turn; more, or less than zero, is a mistake in the recording"""
_MOST_SEARCHED = 100_000
"""characters before an answer in which its numbers are looked for"""
_LOOKED_FOR = ("date", "time", "id", "e-mail address", "link", "phone number")
MOST_COLUMNS = 400
"""columns that are tested; of more, those that occur in most sessions"""

Judge = Callable[[Step], float | None]


class Measures(Struct):
    """How turns are measured, beyond what they record themselves."""

    prices: Prices | None = None
    judge: Judge | None = None

    def of_turn(self, step: Step) -> dict[str, float | None]:
        """NaN where the recorded value is a mistake."""
        found: dict[str, float | None] = {
            **{what: read(step.response) for what, read in _RECORDED.items()},
            "cost": cost_of(step.response, prices=self.prices),
            "judge": None if self.judge is None else self.judge(step),
        }
        return {what: value if value is None or is_usable(value) else math.nan for what, value in found.items()}


_RECORDED: dict[str, Callable[[Response], float | None]] = {
    "output tokens": lambda one: None if one.usage is None else one.usage.output_tokens,
    "reasoning tokens": lambda one: None if one.usage is None else one.usage.reasoning_tokens,
    "latency": lambda one: one.latency_ms,
    "cost": lambda one: None if one.usage is None else one.usage.input_tokens,
}
"""as recorded; of the cost the input, which is its other part"""


def count_unusable(recording: Recording, axis: str) -> int:
    """How many recorded values of an axis are mistakes, so that they count as not recorded."""
    if axis == "score":
        return int(recording.score is not None and math.isnan(recording.score))
    reads = [_RECORDED[what] for what in AMOUNTS if AMOUNTS[what] == axis]
    found = (read(step.response) for read in reads for step in recording.steps)
    return sum(value is not None and not is_usable(value) for value in found)


def is_usable(value: float) -> bool:
    """False for NaN too."""
    return 0 <= value < MOST_MEASURED


def figures(
    recording: Recording, measures: Measures, broken: Mapping[str, int] | None = None, *, is_turn: bool = False
) -> dict[Column, float]:
    """Every figure of one session. `broken`: how often it breaks each rule. `is_turn`: it is a turn of a replay, which
    ends no session.
    """
    found: defaultdict[Column, float] = defaultdict(float)
    for column, amount in read_calls(recording):
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
    if recording.score is not None and not math.isnan(recording.score):
        result[Column("score", "score")] = recording.score
    result |= _answer(recording)
    calls, text = (steps[-1].response.tool_calls, steps[-1].text.strip()) if steps else ((), "")
    if is_turn:
        result[Column("answer", "empty turn")] = float(not text and not calls)
    else:
        result[Column("answer", "no answer")] = float(not text or bool(calls))
        if recording.context.text:  # who says nothing makes up nothing
            for what in ("numbers", "dates", "addresses", "names", "currencies"):
                result.setdefault(Column("answer", f"{what} from nowhere"), 0.0)
        result |= _final_decision(recording)
    return result


def _final_decision(recording: Recording) -> dict[Column, float]:
    """How the session ends. The answer as a whole often denies something or other; "no" at its beginning is a decision.

    A session ends in what it says last. A courtesy after that ("Goodbye!") decides nothing and is passed over.
    """
    said = reversed(recording.answers)
    last = next((text for text in said if not is_courtesy(text)), recording.answers[-1] if recording.answers else "")
    stopped = bool(recording.steps) and is_refusal(recording.steps[-1].response)
    found = {Column("safety", "final refusal"): float(stopped or says_refusal(last))}
    begins = begins_with_no(last) if (json_shape(last) or (IN_TEXT,))[0] == IN_TEXT else False
    if begins is not None:  # "Yes, it is done" says no more than "It is done"
        found[Column("answer", "first word", "no")] = float(begins)
    return found


def _amounts(steps: Iterable[Step], measures: Measures) -> dict[Column, float]:
    sums: dict[str, list[float]] = {}
    for step in steps:
        for what, value in measures.of_turn(step).items():
            if value is not None:
                sums.setdefault(what, []).append(float(value))
    return {
        Column(AMOUNTS.get(what, what), what): total / (len(values) if what == "judge" else 1)
        for what, values in sums.items()
        if not math.isnan(total := math.fsum(values))  # the sum of the others would be too small
    }


def _answer(recording: Recording) -> dict[Column, float]:
    """What the answer decides."""
    decided = answer_decisions(recording)
    if decided is None:
        return {}
    found: dict[Column, float] = {Column("answer", "negation"): float(decided.is_negated)}
    if decided.says is not None:
        found[Column("answer", "yes or no")] = float(decided.says == "yes")
    for pair, side in decided.choices:
        found[Column("answer", "opposite", pair)] = float(pair.startswith(f"{side} "))
    shape = decided.shape or ("",)
    found[Column("conformance", "JSON")] = float(shape[0] not in ("", IN_TEXT))
    found[Column("conformance", "JSON in text")] = float(shape[0] == IN_TEXT)
    keys = (key for part in shape if isinstance(part, frozenset) for key in part)
    found |= {Column("conformance", "JSON key", "", key): 1.0 for key in keys}
    found |= {Column("conformance", "JSON type", "", one): 1.0 for one in decided.types}
    written = (one for text in recording.answers for one in written_keys(text))
    found |= {Column("conformance", what, "", key): 1.0 for what, key in written}
    for kind, spelling in decided.facts:
        if kind in ("amount", "quantity", "duration"):
            found[Column("answer", "currency" if kind == "amount" else "unit", spelling.rsplit(" ", 1)[1])] = 1.0
        found[Column("answer", kind, spelling)] = 1.0
    return found | _from_nowhere(recording)


def _from_nowhere(recording: Recording) -> dict[Column, float]:
    """How many numbers, dates, addresses and names of the answer nothing before mentions, and how many amounts are in a
    currency that was not mentioned with them.
    """
    end = recording.context.ends[-1]
    known = recording.context.text[max(0, end - _MOST_SEARCHED) : end]
    if not known:
        return {}
    said = frozenset[tuple[str, str]]().union(*(facts(text) for text in recording.answers))
    missing = {one for one in quantities(said) if find_word(one, known, 0, len(known)) < 0}
    others = {fact for fact in said if fact[0] in _LOOKED_FOR and fact[1] not in known}
    if missing or others:  # most are found as they stand
        mentioned = facts(known)
        missing -= numbers(known, mentioned)
        others -= mentioned
    named = {re.sub(r"['’]s$", "", spelling) for kind, spelling in said if kind == "name"}
    return {
        Column("answer", "names from nowhere"): sum(name not in known for name in named),
        Column("answer", "currencies from nowhere"): _other_currencies(said, known),
        Column("answer", "numbers from nowhere"): len(missing),
        Column("answer", "dates from nowhere"): sum(kind in ("date", "time") for kind, _ in others),
        Column("answer", "addresses from nowhere"): sum(kind not in ("date", "time") for kind, _ in others),
    }


def _other_currencies(said: frozenset[tuple[str, str]], known: str) -> int:
    """How many amounts were mentioned in other currencies only, or stand for a plain number where only other currencies
    are mentioned.
    """
    amounts = [spelling.rsplit(" ", 1) for kind, spelling in said if kind == "amount"]
    if not amounts:
        return 0
    mentioned, everywhere = currencies(known)
    return sum(
        currency not in mentioned.get(number.lstrip("-"), everywhere) and bool(everywhere)
        for number, currency in amounts
        if number.lstrip("-") in mentioned or find_word(number.lstrip("-"), known, 0, len(known)) >= 0
    )


def answer_decisions(recording: Recording) -> Decisions | None:
    return decisions(*recording.answers) if recording.answers else None


def table(sessions: Iterable[dict[Column, float]]) -> tuple[list[Column], Matrix]:
    """One row per session, one column per figure. Columns that occur once or are the same everywhere show nothing and
    are left out.
    """
    rows = list(sessions)
    occurrences = Counter(column for row in rows for column, value in row.items() if value)
    rows_of_axes = {column for row in rows for column in row if column.what in OWN_ROW}
    common = {column for column, count in occurrences.items() if count > 1 or len(rows) <= 2}
    common = {column for column in common if occurrences[column] < len(rows) or _varies(column, rows)} | rows_of_axes
    common = _without_repetition(common, rows)
    chosen = sorted(sorted(common, key=lambda column: (_rank(column), -occurrences[column], column))[:MOST_COLUMNS])
    values = np.array(
        [[row.get(column, math.nan if column.is_measure else 0.0) for column in chosen] for row in rows],
        dtype=np.float64,
    ).reshape(len(rows), len(chosen))
    return chosen, values


_PARTS = ("argument word", "argument type", "JSON type")
"""columns of which many say what another column says"""


def _without_repetition(columns: set[Column], rows: Sequence[dict[Column, float]]) -> set[Column]:
    """Without words and types that occur exactly as often as something else of the same tool or answer."""
    owners = {(column.axis, column.subject) for column in columns if column.what in _PARTS}
    seen: dict[Column, int] = {column: 0 for column in columns if (column.axis, column.subject) in owners}
    for number, row in enumerate(rows if seen else ()):
        for column in seen.keys() & row.keys():
            if row[column]:
                seen[column] = hash((seen[column], number, row[column]))
    first: dict[tuple[str, str, int], Column] = {}
    for column in sorted(seen, key=_plainest):
        first.setdefault((column.axis, column.subject, seen[column]), column)
    return columns - {column for column in seen if column.what in _PARTS} | set(first.values())


def _plainest(column: Column) -> tuple[bool, int, bool, Column]:
    """What is no part first, then what lies least deep, then words before signs."""
    path, _, word = column.detail.partition("=")
    return column.what in _PARTS, path.count(".") + path.count("["), not word[:1].isalpha(), column


def _rank(column: Column) -> int:
    """Columns with an open set of values go last if there are too many, and after them those that hardly ever vary."""
    if column.what == "argument order" or (column.what == "opposite" and column.subject.startswith("all ")):
        return 3
    open_sets = ("argument values", "argument fact", "argument name", "argument source", "order")
    return 2 * (column.what in _PARTS) or column.what in open_sets or (column.axis == "answer" and column.subject != "")


def _varies(column: Column, rows: Sequence[dict[Column, float]]) -> bool:
    """Whether it is not the same everywhere. `rows` all have it."""
    return any(row[column] != rows[0][column] for row in rows)
