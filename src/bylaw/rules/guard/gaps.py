"""Warnings of guard rules that do less than they seem to.

A window counter is judged after the call unless the rule says `inline`, so at the attempt it does not hold. A rule that
bounds an argument does not hold of a call that leaves the argument out.
"""

from __future__ import annotations

from collections.abc import Callable

from bylaw.model.predicate import AllOf, AnyOf, ArgumentIs, CountOver, NotOf, Predicate
from bylaw.rules.guard.enforcement import Enforcement
from bylaw.rules.guard.paths import path_text
from bylaw.rules.guard.predicates import Leaf, When
from bylaw.rules.problems import Problems
from bylaw.rules.words import listing

_TRUE_WHEN_MISSING = frozenset({"!=", "not in", "missing"})
_LOOKED_AT = 3
"""arguments that a warning names; a rule may have thousands"""
_INLINE = "add `inline: true` to have it decide calls too, or count with `call_count_in_run_gt`"


def warn_of_gaps(when: When, enforcement: Enforcement, problems: Problems) -> None:
    if not enforcement.then.restricts:
        return
    if not enforcement.inline:
        _warn_of_windows(when, problems)
    _warn_of_omission(when, problems)


# windows


def _warn_of_windows(when: When, problems: Problems) -> None:
    windows = [leaf for leaf in when.leaves if _is_window(leaf.predicate)]
    if not windows:
        return
    if under := _first_under_not(when, windows):
        message = "a window counter under `not` keeps the rule from deciding any call: it is judged only afterwards"
        problems.warn(code="window-not-inline", message=message, at=under.at, help=_INLINE)
    elif _value(when.predicate, lambda leaf: False if _is_window(leaf) else None) is False:
        message = "a window counter is judged only afterwards, so this rule never decides a call"
        problems.warn(code="window-not-inline", message=message, at=windows[0].at, help=_INLINE)


def _first_under_not(when: When, windows: list[Leaf]) -> Leaf | None:
    negated = set(map(id, _under_not(when.predicate)))
    return next((leaf for leaf in windows if id(leaf.predicate) in negated), None)


def _under_not(predicate: Predicate, below: bool = False) -> list[Predicate]:
    match predicate:
        case AllOf(of=of) | AnyOf(of=of):
            return [leaf for one in of for leaf in _under_not(one, below)]
        case NotOf(of=inner):
            return _under_not(inner, True)
        case _:
            return [predicate] if below else []


def _is_window(predicate: Predicate) -> bool:
    return isinstance(predicate, CountOver) and predicate.over == "window"


# omission


def _warn_of_omission(when: When, problems: Problems) -> None:
    asked = {p.path for leaf in when.leaves if isinstance(p := leaf.predicate, ArgumentIs) and _asks_presence(p)}
    escaping = [leaf for leaf in when.leaves if _fails_when_missing(leaf, asked)]
    if not escaping or _value(when.predicate, _without_arguments) is not False:
        return
    alone = next((leaf for leaf in escaping[:_LOOKED_AT] if _decides_alone(leaf, when)), None)
    shown = [alone] if alone else escaping[:_LOOKED_AT]
    paths = list(dict.fromkeys(_path(leaf) for leaf in shown))
    problems.warn(
        code="escapes-by-omission",
        message=f"a call without {listing(paths)} escapes this rule",
        at=shown[0].at,
        help=f"to match it too, write `any_of: [{_shown(shown[0])}, {{arg_missing: {{path: {paths[0]}}}}}]`",
    )


def _fails_when_missing(leaf: Leaf, asked: set[tuple[str | None, ...]]) -> bool:
    predicate = leaf.predicate
    if not isinstance(predicate, ArgumentIs) or predicate.path in asked:
        return False
    return (predicate.op in _TRUE_WHEN_MISSING) == leaf.negated


def _asks_presence(predicate: ArgumentIs) -> bool:
    return predicate.op in ("missing", "present")


def _decides_alone(leaf: Leaf, when: When) -> bool:
    """Whether leaving out this one argument is enough."""
    assert isinstance(leaf.predicate, ArgumentIs)
    path = leaf.predicate.path

    def judge(one: Predicate) -> bool | None:
        return _without_arguments(one) if isinstance(one, ArgumentIs) and one.path == path else None

    return _value(when.predicate, judge) is False


def _without_arguments(predicate: Predicate) -> bool | None:
    return predicate.op in _TRUE_WHEN_MISSING if isinstance(predicate, ArgumentIs) else None


def _shown(leaf: Leaf) -> str:
    """The predicate in short, as it would stand in a group."""
    assert isinstance(leaf.predicate, ArgumentIs)
    short = f"{{{leaf.predicate.name.partition(' ')[0]}: …}}"
    return f"{{not: {short}}}" if leaf.negated else short


def _path(leaf: Leaf) -> str:
    assert isinstance(leaf.predicate, ArgumentIs)
    return path_text(leaf.predicate.path)


# three values


def _value(predicate: Predicate, judge: Callable[[Predicate], bool | None]) -> bool | None:
    """Kleene's: None where what `judge` knows of the leaves does not decide."""
    match predicate:
        case AllOf(of=of):
            return _all([_value(one, judge) for one in of])
        case AnyOf(of=of):
            return _negated(_all([_negated(_value(one, judge)) for one in of]))
        case NotOf(of=inner):
            return _negated(_value(inner, judge))
        case _:
            return judge(predicate)


def _all(values: list[bool | None]) -> bool | None:
    if False in values:
        return False
    return None if None in values else True


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value
