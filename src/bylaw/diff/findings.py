"""The changes that the test confirms: a tool called less often, another argument value, a negation in answers.

One cause shows in many columns. A tool that is no longer called takes its argument names and values with it, so finer
columns that moved as far as a coarser one of the same tool are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from bylaw.diff.axes import RATE, Scale
from bylaw.diff.figures import OWN_ROW, Column
from bylaw.diff.judgement import Distance, Figure, Judgement
from bylaw.diff.model import Change, Finding

_COARSE_FIRST = ("calls", "argument names", "argument values", "values from nowhere")
TURNS = Scale(0.10, 0.30, 1.0)
_DISTANCES = {
    "calls": "the calls differ",
    "structure": "other tools or argument names",
    "numbers": "answers have other numbers",
    "answer": "answers decide otherwise",
}


def find_changes(judgement: Judgement, mended: Collection[str]) -> tuple[Finding, ...]:
    """Confirmed changes, the gravest first. `mended`: tools that a fixed rule missed, which never gate."""
    figures = [f for f in judgement.figures.values() if f.is_confirmed and f.column.what not in OWN_ROW]
    found = [
        _finding(figure, mended)
        for figure in _distinct(figures)
        if abs(figure.delta) > 1e-9 and figure.delta * (figure.column.direction or figure.delta) > 0
    ]
    explained = {finding.axis for finding in found}
    for measure, words in _DISTANCES.items():
        distance = judgement.distances.get(measure)
        axis = "answer" if measure in ("answer", "numbers") else "trajectory"
        if distance is not None and distance.is_confirmed and axis not in explained:
            found.append(_of_distance(distance, axis, words))
            explained.add(axis)
    if judgement.by_turn:
        found = [replace(one, text=one.text.replace("session", "turn")) for one in found]
    return tuple(sorted(found, key=lambda one: (-one.severity.rank, one.p, -one.sessions, one.what)))


def _distinct(figures: Sequence[Figure]) -> Iterator[Figure]:
    """Leave out what a coarser column of the same tool already says."""
    shown: dict[tuple[str, str], list[Figure]] = {}
    order = {what: rank for rank, what in enumerate(_COARSE_FIRST)}
    for figure in sorted(figures, key=lambda one: (order.get(one.column.what, 0), one.column)):
        column = figure.column
        before = shown.setdefault((column.axis, column.subject), [])
        is_told = column.what in order and any(
            abs(abs(one.delta) - abs(figure.delta)) < 1e-9 or one.column.what == "argument values" == column.what
            for one in before
            if order.get(one.column.what, 9) <= order[column.what] and _same_argument(one.column, column)
        )
        if not is_told:
            before.append(figure)
            yield figure


def _same_argument(one: Column, other: Column) -> bool:
    """Two values of the same argument, one for the other, are one change."""
    if one.what == other.what == "argument values":
        return one.detail.split("=", 1)[0] == other.detail.split("=", 1)[0]
    return True


def _finding(figure: Figure, mended: Collection[str]) -> Finding:
    column = figure.column
    is_mended = column.axis == "trajectory" and column.subject in mended
    scale = TURNS if column.what == "turns" else RATE
    worse = figure.delta if column.direction > 0 else abs(figure.delta)
    return Finding(
        axis=column.axis,
        what=column.what,
        tool=column.subject if column.axis == "trajectory" and column.what not in ("turns", "stop reason") else None,
        text=describe(figure),
        baseline=figure.baseline,
        candidate=figure.candidate,
        delta=figure.delta,
        sessions=figure.moved,
        of=figure.sessions,
        p=figure.p,
        severity=Change.NONE
        if is_mended
        else scale.grade(min(worse, 1.0) if scale is RATE else worse, figure.baseline),
        mends=is_mended,
    )


def describe(figure: Figure) -> str:
    """The change in words: `12 of 40 sessions no longer call confirm`."""
    column, subject = figure.column, figure.column.subject
    share = f"{figure.moved} of {figure.sessions}"
    rates = f"{figure.baseline:.2f} → {figure.candidate:.2f} per session"
    more = "more" if figure.delta > 0 else "less"
    match column.what:
        case "calls" if figure.candidate == 0:
            return f"`{subject}` is no longer called ({share} sessions)"
        case "calls" if figure.baseline == 0:
            return f"`{subject}` is new ({share} sessions call it)"
        case "calls":
            return f"`{subject}` is called {more} often in {share} sessions ({rates})"
        case "argument names":
            return f"`{column.detail}` is called {more} often in {share} sessions ({rates})"
        case "argument values":
            argument, value = column.detail.split("=", 1)
            return f"`{subject}` gets `{argument}: {value}` {more} often in {share} sessions ({rates})"
        case "values from nowhere":
            return f"`{subject}` gets values that nothing before mentions in {share} sessions ({rates})"
        case "errors":
            return f"`{subject}` ends in an error more often in {share} sessions ({rates})"
        case "turns":
            return f"more turns in {share} sessions ({rates})"
        case "stop reason":
            return f"stop reason `{subject}` {more} often in {share} sessions"
        case "negation":
            return f"{share} answers {'now deny' if figure.delta > 0 else 'no longer deny'} something"
        case "begins with":
            return f"{share} answers {'now begin' if figure.delta > 0 else 'no longer begin'} with “{subject}”"
        case "JSON":
            return f"{share} answers {'are now' if figure.delta > 0 else 'are no longer'} JSON"
        case "JSON key":
            return f"{share} answers {'now have' if figure.delta > 0 else 'no longer have'} the key `{column.detail}`"
        case "numbers from nowhere":
            return f"{share} answers have numbers that nothing before mentions ({rates})"
        case kind:
            return f"{share} answers {'now have' if figure.delta > 0 else 'no longer have'} the {kind} {subject}"


def _of_distance(found: Distance, axis: str, words: str) -> Finding:
    own = found.own or 0.0
    usual = "" if found.own is None else " more than the baseline's own sessions do"
    return Finding(
        axis=axis,
        what=found.measure,
        text=f"{words}{usual} ({found.changed} of {found.sessions} sessions)",
        baseline=own,
        candidate=found.across,
        delta=found.across - own,
        sessions=found.changed,
        of=found.sessions,
        p=found.p if found.p is not None else 1.0,
        severity=RATE.grade(found.across - own, 0.0),
    )
