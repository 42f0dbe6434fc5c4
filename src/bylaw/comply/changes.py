"""Two versions of a prompt → which rules were added, dropped, loosened or tightened.

Rules are paired from the surest likeness to the loosest: the same engine rules, the same sentence but for its numbers,
the same action, a like sentence about the same tools. What a pair differs in says which way it went; where that cannot
be told it is `changed`, which counts as no better than loosened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from rapidfuzz import fuzz

from bylaw.comply.model import PromptDiff, PromptRule, RuleChange
from bylaw.model.canonical import canonical_json

ALIKE = 75
"""of 100; sentences below that are different rules"""
_RANKS = {"low": 0, "medium": 1, "high": 2, "critical": 3}
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_NUMBER_WORDS = {"zero": 0, "once": 1, "one": 1, "twice": 2, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_NUMBER_WORDS |= {"seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12}
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(_NUMBER_WORDS)})\b", re.IGNORECASE)
_MORE_IS_LOOSER = re.compile(
    r"at most|no more than|not more than|never more than|more than|up to|maximum|max\b|over\b|above|exceed|within"
    r"|beyond|greater than|larger than",
    re.IGNORECASE,
)
_MORE_IS_TIGHTER = re.compile(r"at least|minimum|min\b|under\b|below|less than|fewer than|no less than", re.IGNORECASE)
_TIMES = re.compile(r"# times?\b")
_IN_FORMULA = re.compile(r"\b(?:tool|result|seen)\(\s*([^,()]+)")
_TOOL_PARAMS = ("tool", "tools", "first", "second")
_ANY_OTHER = "any other"
"""how an exclusive rule names what it forbids: its tools are those that stay allowed"""


def compare_rules(
    before: Sequence[PromptRule],
    after: Sequence[PromptRule],
    *,
    names: tuple[str, str] = ("before", "after"),
    texts: tuple[str, str] = ("", ""),
    notes: Sequence[str] = (),
) -> PromptDiff:
    pairs, dropped, added = _paired(list(before), list(after))
    changes = [change for old, new in pairs if (change := _changed(old, new)) is not None]
    unchanged = len(pairs) - len(changes)
    changes += [RuleChange(kind="dropped", before=rule) for rule in dropped]
    changes += [RuleChange(kind="added", after=rule) for rule in added]
    changes.sort(key=lambda change: not change.worse)
    return PromptDiff(
        before=names[0], after=names[1], texts=texts, changes=tuple(changes), unchanged=unchanged, notes=tuple(notes)
    )


# -- which rules belong together ---------------------------------------------------------------------------------------

_Pairs = list[tuple[PromptRule, PromptRule]]


def _paired(before: list[PromptRule], after: list[PromptRule]) -> tuple[_Pairs, list[PromptRule], list[PromptRule]]:
    pairs: _Pairs = []
    keys: tuple[Callable[[PromptRule], Hashable | None], ...] = (_sentence, _engine, _pattern, _action)
    for key in keys:
        waiting: dict[Hashable, list[PromptRule]] = {}
        for rule in after:
            if (name := key(rule)) is not None:
                waiting.setdefault(name, []).append(rule)
        for rule in list(before):
            found = waiting.get(key(rule))
            if found:
                _take(rule, found.pop(0), before, after, pairs)
    for score, rule, other in sorted(_alike(before, after), key=lambda found: -found[0]):
        if score >= ALIKE and any(one is rule for one in before) and any(one is other for one in after):
            _take(rule, other, before, after, pairs)
    return pairs, before, after


def _take(
    rule: PromptRule, other: PromptRule, before: list[PromptRule], after: list[PromptRule], pairs: _Pairs
) -> None:
    pairs.append((rule, other))
    before[:] = [one for one in before if one is not rule]
    after[:] = [one for one in after if one is not other]


def _alike(before: Sequence[PromptRule], after: Sequence[PromptRule]) -> list[tuple[float, PromptRule, PromptRule]]:
    return [
        (_likeness(old, new), old, new)
        for old in before
        for new in after
        if bool(old.items) == bool(new.items) and (_tools(old) & _tools(new) or not _tools(old) | _tools(new))
    ]


def _likeness(old: PromptRule, new: PromptRule) -> float:
    """The same demand on more or fewer tools is the same rule, however much shorter its sentence is."""
    before, after = _tools(old), _tools(new)
    same_demand = (old.forbidden_action is None) == (new.forbidden_action is None) and old.trigger == new.trigger
    if before and after and same_demand and (before < after or after < before):
        return 100.0
    return float(fuzz.token_sort_ratio(old.description, new.description))


def _sentence(rule: PromptRule) -> Hashable | None:
    """The sentence too, so that equal engine rules of two sentences are not crossed."""
    return " ".join(rule.description.split()), _engine(rule)


def _engine(rule: PromptRule) -> bytes | None:
    return canonical_json([_meaning(one.item) for one in rule.items]) if rule.items else None


def _meaning(item: dict[str, Any]) -> dict[str, Any]:
    return {key: item[key] for key in ("kind", "params", "when", "scope") if key in item}


def _pattern(rule: PromptRule) -> str:
    text = _NUMBER_WORD.sub("#", _NUMBER.sub("#", rule.description))
    return " ".join(_TIMES.sub("#", text.lower()).split())


def _action(rule: PromptRule) -> Hashable | None:
    if rule.forbidden_action is None and rule.required_action is None:
        return None
    return rule.forbidden_action, rule.required_action, rule.trigger


def _tools(rule: PromptRule) -> frozenset[str]:
    """The tools that its engine rules name."""
    return frozenset(name for one in rule.items for name in _named(one.item.get("params")))


def _named(params: Any) -> Iterator[str]:
    if not isinstance(params, dict):
        return
    given = [params[key] for key in _TOOL_PARAMS if key in params]
    texts = [text for value in given for text in (value if isinstance(value, list) else [value])]
    formula = params.get("formula")
    texts += _IN_FORMULA.findall(formula) if isinstance(formula, str) else []
    for text in texts:
        if isinstance(text, str):
            yield from (name.strip().strip("'\"") for name in text.split("|") if name.strip() != "*")


# -- what became of one ------------------------------------------------------------------------------------------------


def _changed(old: PromptRule, new: PromptRule) -> RuleChange | None:
    if _engine(old) == _engine(new) and (old.items or _same_text(old, new)):
        return _reweighed(old, new)
    if old.items and not new.items:
        return RuleChange(kind="loosened", before=old, after=new, why="it can no longer be checked")
    if new.items and not old.items:
        return RuleChange(kind="tightened", before=old, after=new, why="it can be checked now")
    return _by_numbers(old, new) or _by_tools(old, new) or _by_weight(old, new)


def _same_text(old: PromptRule, new: PromptRule) -> bool:
    return " ".join(old.description.split()) == " ".join(new.description.split())


def _reweighed(old: PromptRule, new: PromptRule) -> RuleChange | None:
    """The same demand, said more or less strongly."""
    if old.severity == new.severity:
        return None
    weaker = _RANKS[new.severity] < _RANKS[old.severity]
    why = f"{old.severity} → {new.severity}"
    return RuleChange(kind="loosened" if weaker else "tightened", before=old, after=new, why=why)


def _by_weight(old: PromptRule, new: PromptRule) -> RuleChange:
    weaker = _RANKS[new.severity] < _RANKS[old.severity]
    why = f"{old.severity} → {new.severity}" if weaker else "it demands something else"
    return RuleChange(kind="loosened" if weaker else "changed", before=old, after=new, why=why)


def _by_numbers(old: PromptRule, new: PromptRule) -> RuleChange | None:
    if _pattern(old) != _pattern(new):
        return None
    before, after = _numbers(old.description), _numbers(new.description)
    moved = [(b, a) for b, a in zip(before, after, strict=True) if b[1] != a[1]]
    if not moved:
        return None
    why = ", ".join(f"{b[1]:g} → {a[1]:g}" for b, a in moved)
    ways = {_way(old.description[: b[0]], b[1], a[1]) for b, a in moved}
    kind = ways.pop() if len(ways) == 1 else None
    if kind == "loosened" or "loosened" in ways:
        return RuleChange(kind="loosened", before=old, after=new, why=why)
    return RuleChange(kind="tightened" if kind == "tightened" else "changed", before=old, after=new, why=why)


def _way(before_it: str, old: float, new: float) -> str | None:
    """Whether a bound that moved lets more pass: the nearest word before it says which kind of bound it is."""
    loose = max((match.end() for match in _MORE_IS_LOOSER.finditer(before_it)), default=-1)
    tight = max((match.end() for match in _MORE_IS_TIGHTER.finditer(before_it)), default=-1)
    if loose == tight:
        return None
    return "loosened" if (new > old) == (loose > tight) else "tightened"


def _numbers(text: str) -> list[tuple[int, float]]:
    """The numbers of a sentence, each with its place."""
    digits = [(match.start(), _value(match[0])) for match in _NUMBER.finditer(text)]
    words = [(match.start(), float(_NUMBER_WORDS[match[0].lower()])) for match in _NUMBER_WORD.finditer(text)]
    return sorted(digits + words)


def _value(text: str) -> float:
    """`1,500` is a number with a separator, `1.5` one with a fraction."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def _by_tools(old: PromptRule, new: PromptRule) -> RuleChange | None:
    """What is demanded of fewer tools is looser; what leaves only fewer of them is tighter."""
    before, after = _tools(old), _tools(new)
    if before == after or not (before and after) or not (before < after or after < before):
        return None
    names = ", ".join(f"`{name}`" for name in sorted(before ^ after))
    fewer = after < before
    why = f"no longer about {names}" if fewer else f"also about {names}"
    looser = fewer != (old.forbidden_action or "").endswith(_ANY_OTHER)
    return RuleChange(kind="loosened" if looser else "tightened", before=old, after=new, why=why)
