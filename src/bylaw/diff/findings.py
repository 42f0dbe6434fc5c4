"""The changes that the test confirms: a tool called less often, another argument value, a negation in answers.

One cause shows in many columns. A tool that is no longer called takes its argument names and values with it, so finer
columns that moved as far as a coarser one of the same tool are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bylaw.diff.axes import RATE, Scale
from bylaw.diff.columns import OF_TOOL, OWN_ROW, Column
from bylaw.diff.judgement import Distance, Figure, Judgement
from bylaw.diff.model import Finding
from bylaw.diff.units import mean_change
from bylaw.report.text import inline_code
from bylaw.text.decisions import MENTIONED

_OF_ARGUMENTS = (
    "argument values",
    "argument fact",
    "argument name",
    "argument word",
    "argument type",
    "argument source",
)
_CALLED = ("calls", "called")
_COARSE_FIRST = (
    *_CALLED,
    "argument names",
    "argument negation",
    "argument opposite",
    *_OF_ARGUMENTS[:5],
    "values from nowhere",
    "argument source",
    "argument order",
)
_ENDS = ("final refusal", "no answer")
_MENTIONED = (*MENTIONED, "unit", "duration", "argument name")
_REPLACED = {**dict(zip(_MENTIONED, _MENTIONED, strict=True)), "names from nowhere": "name"}
"""columns that count only where a column of this kind moves the other way"""
_LONG = 240
"""characters of a value that are shown"""
_DENIALS = ("final refusal", "first word", "negation")
"""columns that one denial moves, the most telling first"""
TURNS = Scale(0.10, 0.30, 1.0)
_DISTANCES = {
    "calls": "the calls differ",
    "structure": "other tools or argument names",
    "numbers": "answers have other numbers",
    "answer": "answers decide otherwise",
}


def find_changes(judgement: Judgement) -> tuple[Finding, ...]:
    """Confirmed changes, the gravest first. What mends a rule is among them and does not gate."""
    figures = [f for f in judgement.figures.values() if f.is_confirmed and f.column.what not in OWN_ROW]
    figures = [f for f in figures if f.column.what not in _REPLACED or _is_replaced(f, judgement)]
    figures = [f for f in figures if not _goes_with_calls(f, judgement)]
    found = [
        _finding(figure)
        for figure in _distinct(figures)
        if abs(figure.delta) > 1e-9 and figure.delta * (figure.column.direction or figure.delta) > 0
    ]
    for measure, words in _DISTANCES.items():
        distance = judgement.distances.get(measure)
        axis = "answer" if measure in ("answer", "numbers") else "trajectory"
        if distance is not None and distance.is_confirmed:
            whole = _distance_finding(distance, axis, words, judgement.by_turn)
            known = (one for one in found if one.axis == axis and not one.mends)
            if all(one.severity.rank < whole.severity.rank for one in known):  # a small change explains no large one
                found.append(whole)
    return tuple(sorted(found, key=_gravity))


def _gravity(one: Finding) -> tuple[int, bool, float, int, str]:
    return -one.severity.rank, one.what not in _ENDS, one.p, -one.sessions, one.what


def _is_replaced(figure: Figure, judgement: Judgement) -> bool:
    """Whether another one of the kind came or went where this one did, in at least half of the cases: `Alice` for
    `Bob` is a decision. A name that is merely mentioned too, or no more, is none.
    """
    sign = 1 if figure.delta > 0 else -1
    moved = replaced = 0
    for unit in judgement.units if figure.of_turns else judgement.sessions:
        if sign * mean_change(unit, figure.column) > 0:
            moved += 1
            kind = _REPLACED[figure.column.what]
            others = {column for row in unit.rows for column in row if column.what == kind}
            replaced += any(sign * mean_change(unit, column) < 0 for column in others)
    return 2 * replaced >= moved


def _goes_with_calls(figure: Figure, judgement: Judgement) -> bool:
    """Whether arguments of a tool fall no further than its calls, which are expected to fall or are all gone: fewer
    calls take their values with them.
    """
    column = figure.column
    if figure.delta >= 0 or column.what not in _COARSE_FIRST or column.what in _CALLED:
        return False
    units = judgement.units if figure.of_turns else judgement.sessions
    calls = Column("trajectory", "calls", column.subject)
    if units and column.subject in units[0].expected:
        return sum(mean_change(unit, calls) for unit in units) / len(units) <= figure.delta + 1e-9
    of_calls = judgement.figures.get(calls)
    return (
        of_calls is not None
        and of_calls.is_confirmed
        and not of_calls.candidate
        and abs(of_calls.rest) >= abs(figure.rest) - 1e-9
    )


def _distinct(figures: Sequence[Figure]) -> Iterator[Figure]:
    """Leave out what a coarser column of the same tool already says."""
    shown: dict[tuple[str, str], list[Figure]] = {}
    order = {what: rank for rank, what in enumerate(_COARSE_FIRST)}
    ends = [one for one in figures if one.column.what in _ENDS]
    for figure in sorted(figures, key=lambda one: (order.get(one.column.what, len(order)), _is_plain(one), one.column)):
        column = figure.column
        before = shown.setdefault((column.axis, column.subject), [])
        is_told = column.what in order and any(
            abs(abs(one.delta) - abs(figure.delta)) < 1e-9 or one.column.what == column.what in _OF_ARGUMENTS
            for one in before
            if order.get(one.column.what, len(order)) <= order[column.what] and _same_argument(one.column, column)
        )
        if column.what == "order":
            calls = [one for tool in (column.subject, column.detail) for one in shown.get((column.axis, tool), ())]
            is_told = any(one.column.what in _CALLED and abs(one.delta) >= abs(figure.delta) - 1e-9 for one in calls)
        if column.what == "called":
            is_told = any(abs(one.delta) >= abs(figure.delta) - 1e-9 and one.delta * figure.delta > 0 for one in before)
        if column.what in _DENIALS:
            plainer = [one for one in figures if one.column.what in _DENIALS[: _DENIALS.index(column.what)]]
            is_told = any(one.column.subject != "yes" and one.delta >= figure.delta - 1e-9 > 0 for one in plainer)
        if column.axis in ("answer", "conformance") and figure.delta < 0:  # who refuses says nothing else
            is_told = is_told or any(one.delta >= -figure.delta - 1e-9 for one in ends)
        if not is_told:
            before.append(figure)
            yield figure


def _is_plain(figure: Figure) -> tuple[bool, bool]:
    """Of the words of an argument, one that came says more than one that went, and `rm` more than `-rf`."""
    if figure.column.what not in ("argument word", "argument type"):
        return False, False
    word = figure.column.detail.partition("=")[2]
    return figure.delta < 0, not word[:1].isalpha()


def _same_argument(one: Column, other: Column) -> bool:
    """Two values of the same argument, one for the other, are one change."""
    if one.what in _OF_ARGUMENTS and other.what in _OF_ARGUMENTS:
        return one.detail.split("=", 1)[0] == other.detail.split("=", 1)[0]
    return True


def _finding(figure: Figure) -> Finding:
    column = figure.column
    scale = TURNS if column.what == "turns" else RATE
    worse = abs(figure.rest)
    text = describe(figure)
    return Finding(
        axis=column.axis,
        what=column.what,
        tool=column.subject if column.axis == "trajectory" and column.what not in ("turns", "stop reason") else None,
        text=_say_turns(text) if figure.of_turns else text,
        baseline=figure.baseline,
        candidate=figure.candidate,
        delta=figure.delta,
        sessions=figure.moved,
        of=figure.sessions,
        p=figure.p,
        severity=scale.grade(min(worse, 1.0) if scale is RATE else worse, figure.baseline),
        mends=figure.is_mended,
    )


def _say_turns(text: str) -> str:
    return re.sub(r"^(\d+ of \d+) answers", r"\1 turns", text.replace("session", "turn"))


def describe(figure: Figure) -> str:
    """The change in words: `12 of 40 sessions no longer call confirm`."""
    column = _shorten_column(figure.column)
    subject = column.subject
    tool, detail = inline_code(subject), inline_code(column.detail)
    share = f"{figure.moved} of {figure.sessions}"
    rates = f"{figure.baseline:.2f} → {figure.candidate:.2f} per session"
    more = "more" if figure.delta > 0 else "less"
    match column.what:
        case "calls" if figure.candidate == 0:
            return f"{tool} is no longer called ({share} sessions)"
        case "calls" if figure.baseline == 0:
            return f"{tool} is new ({share} sessions call it)"
        case "calls":
            return f"{tool} is called {more} often in {share} sessions ({rates})"
        case "called":
            shares = f"{figure.baseline:.0%} → {figure.candidate:.0%} of sessions"
            return f"{share} sessions {'now' if figure.delta > 0 else 'no longer'} call {tool} ({shares})"
        case "argument names":
            return f"{detail} is called {more} often in {share} sessions ({rates})"
        case "argument values":
            value = inline_code(column.detail.replace("=", " = ", 1))
            return f"{tool} gets {value} {more} often in {share} sessions ({rates})"
        case "argument fact" | "argument name":
            argument, fact = _argument(column)
            return f"{tool} gets the {fact} in {argument} {more} often in {share} sessions ({rates})"
        case "argument word" | "argument type" as what:
            argument, word = _argument(column)
            a_type = f"{'an' if word == 'object' else 'a'} {word}" if word != "null" else "nothing"
            word = a_type if what == "argument type" else "a number below zero" if word == "-" else inline_code(word)
            if figure.baseline == 0:
                return f"{tool} is now called with {word} in {argument} in {share} sessions"
            if figure.candidate == 0:
                return f"{tool} is no longer called with {word} in {argument} in {share} sessions"
            return f"{tool} is called with {word} in {argument} {more} often in {share} sessions ({rates})"
        case "argument negation":
            denies = "now denies" if figure.delta > 0 else "no longer denies"
            return f"the {detail} of {tool} {denies} something in {share} sessions"
        case "argument opposite":
            argument, pair = _argument(column)
            one, other = pair.split(" or ") if figure.delta > 0 else reversed(pair.split(" or "))
            return f"the {argument} of {tool} now says “{one}” instead of “{other}” in {share} sessions"
        case "values from nowhere":
            return f"{tool} gets values that nothing before mentions in {share} sessions ({rates})"
        case "argument source":
            argument, word = _argument(column)
            return f"{tool} gets as {argument} what stands after “{word}” {more} often in {share} sessions"
        case "argument order":
            argument, other = _argument(column)
            of_tool, _, of_argument = other.partition(OF_TOOL)
            than = f"that of {inline_code(of_argument)}" + ("" if of_tool == subject else f" of {inline_code(of_tool)}")
            where = "before" if figure.delta > 0 else "after"
            return f"{tool} gets as {argument} a value mentioned {where} {than} more often in {share} sessions"
        case "order":
            before, after = (tool, detail) if (figure.baseline or figure.candidate) > 0 else (detail, tool)
            if figure.baseline * figure.candidate < 0:
                return f"{after} is now called before {before} in {share} sessions"
            less = "less" if abs(figure.candidate) < abs(figure.baseline) else "more"
            return f"{before} is called before {after} {less} often in {share} sessions"
        case "no answer":
            return f"{share} sessions now end without an answer"
        case "empty turn":
            return f"{share} sessions now have neither a call nor an answer"
        case "final refusal":
            return f"{share} sessions end in a refusal"
        case "first word":
            return f"{share} answers {'now begin' if figure.delta > 0 else 'no longer begin'} with “{subject}”"
        case "errors":
            return f"{tool} ends in an error more often in {share} sessions ({rates})"
        case "turns":
            return f"more turns in {share} sessions ({rates})"
        case "stop reason":
            return f"stop reason {tool} {more} often in {share} sessions"
        case "negation":
            return f"{share} answers {'now deny' if figure.delta > 0 else 'no longer deny'} something"
        case "yes or no":
            return f"{share} answers {'now say yes instead of no' if figure.delta > 0 else 'now say no instead of yes'}"
        case "opposite":
            one, other = subject.split(" or ") if figure.delta > 0 else reversed(subject.split(" or "))
            return f"{share} answers now say “{one}” instead of “{other}”"
        case "JSON":
            return f"{share} answers {'are now' if figure.delta > 0 else 'are no longer'} JSON"
        case "JSON key":
            return f"{share} answers {'now have' if figure.delta > 0 else 'no longer have'} the key {detail}"
        case "YAML key" | "table column" as what:
            return f"{share} answers {'now have' if figure.delta > 0 else 'no longer have'} the {what} {detail}"
        case "JSON in text":
            return f"{share} answers {'now have' if figure.delta > 0 else 'no longer have'} JSON between sentences"
        case "JSON type":
            path, _, kind = column.detail.rpartition(": ")
            kind = "null" if kind == "null" else f"{'an' if kind == 'object' else 'a'} {kind}"
            if not path:
                return f"{share} answers {'are now' if figure.delta > 0 else 'are no longer'} {kind}"
            return (
                f"{share} answers {'now have' if figure.delta > 0 else 'no longer have'} {kind} at {inline_code(path)}"
            )
        case "names from nowhere":
            return f"{share} answers have names that nothing before mentions in place of others ({rates})"
        case "currencies from nowhere":
            return f"{share} answers have amounts in another currency than was mentioned ({rates})"
        case "numbers from nowhere" | "dates from nowhere" | "addresses from nowhere" as what:
            things = {"addresses": "ids, links or addresses"}.get(what.split()[0], what.split()[0])
            return f"{share} answers have {things} that nothing before mentions ({rates})"
        case kind:
            return f"{share} answers {'now have' if figure.delta > 0 else 'no longer have'} the {kind} {subject}"


def _argument(column: Column) -> tuple[str, str]:
    """An argument as code, and its value, word or fact."""
    argument, _, rest = column.detail.partition("=")
    return inline_code(argument), rest


def _shorten_column(column: Column) -> Column:
    """An answer may hold a number of a million digits, and a headline may not."""

    def cut(text: str) -> str:
        return text if len(text) <= _LONG else f"{text[:_LONG]}… ({len(text):,} characters)"

    argument, equals, value = column.detail.partition("=")
    return Column(column.axis, column.what, cut(column.subject), f"{cut(argument)}{equals}{cut(value)}")


def _distance_finding(found: Distance, axis: str, words: str, by_turn: bool) -> Finding:
    own = found.own or 0.0
    units = "turns" if by_turn else "sessions"
    usual = "" if found.own is None else f" more than the baseline's own {units} do"
    return Finding(
        axis=axis,
        what=found.measure,
        text=f"{words}{usual} ({found.changed} of {found.sessions} {units})",
        baseline=own,
        candidate=found.across,
        delta=found.across - own,
        sessions=found.changed,
        of=found.sessions,
        p=found.p if found.p is not None else 1.0,
        severity=RATE.grade(found.across - own, 0.0),
    )
