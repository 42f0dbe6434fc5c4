"""Two versions of a prompt → which rules were added, dropped, loosened or tightened.

Rules are paired by the closest match first: the same sentence and engine rules, the same engine rules, the same
sentence except for its numbers, the same sentence but for an exception, the same action, a similar sentence about the
same tools. The differences of a pair decide its kind. If they do not, it is `changed`, which counts like loosened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from rapidfuzz import fuzz

from bylaw.comply.model import ChangeKind, PromptDiff, PromptRule, RuleChange
from bylaw.model.canonical import canonical_json

LEAST_SIMILARITY = 75
"""of 100; sentences below it are different rules"""
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
_EXCEPTION = re.compile(
    r"[,;]?\s*\b(?:unless|except(?:ing|ion)?|excluding|other than|apart from|save for|without|with the exception of"
    r"|but not|if not)\b.*$",
    re.IGNORECASE | re.DOTALL,
)
_NEXT_EXCEPTION = re.compile(
    r"[.!\s]*(?P<words>(?:(?:the )?(?:only |sole |one )?exceptions?\b|except\b|unless\b"
    r"|(?:however|but|that said|nevertheless)\b[^.\n]*\b(?:may|can|allowed|permitted|fine|ok|okay)\b)[^.\n]*)",
    re.IGNORECASE,
)
_TIMES = re.compile(r"# times?\b")
_IN_FORMULA = re.compile(r"\b(?:tool|result|seen)\(\s*([^,()]+)")
_TOOL_PARAMS = ("tool", "tools", "first", "second")
_ANY_OTHER = "any other"
"""the forbidden action of an exclusive rule, whose tools are those that stay allowed"""


def compare_rules(
    before: Sequence[PromptRule],
    after: Sequence[PromptRule],
    *,
    names: tuple[str, str] = ("before", "after"),
    texts: tuple[str, str] = ("", ""),
    notes: Sequence[str] = (),
) -> PromptDiff:
    pairs, dropped, added = _pair(list(before), list(after))
    found = [(old, new, _compare_exceptions(old, new, texts) or _compare(old, new)) for old, new in pairs]
    changes = [RuleChange(kind=one[0], before=old, after=new, why=one[1]) for old, new, one in found if one]
    unchanged = len(pairs) - len(changes)
    changes += [RuleChange(kind="dropped", before=rule) for rule in dropped]
    changes += [RuleChange(kind="added", after=rule) for rule in added]
    changes.sort(key=lambda change: not change.worse)
    return PromptDiff(
        before=names[0], after=names[1], texts=texts, changes=tuple(changes), unchanged=unchanged, notes=tuple(notes)
    )


# -- pairs -------------------------------------------------------------------------------------------------------------

_Pairs = list[tuple[PromptRule, PromptRule]]


def _pair(before: list[PromptRule], after: list[PromptRule]) -> tuple[_Pairs, list[PromptRule], list[PromptRule]]:
    """The pairs, and the rules of both that are left over."""
    pairs: _Pairs = []

    def take(old: PromptRule, new: PromptRule) -> None:
        pairs.append((old, new))
        before[:] = [one for one in before if one is not old]
        after[:] = [one for one in after if one is not new]

    keys: tuple[Callable[[PromptRule], Hashable | None], ...] = (_sentence, _engine_rules, _pattern, _core, _action)
    for key in keys:
        waiting: dict[Hashable, list[PromptRule]] = {}
        for rule in after:
            if (name := key(rule)) is not None:
                waiting.setdefault(name, []).append(rule)
        for rule in list(before):
            if found := waiting.get(key(rule)):
                take(rule, found.pop(0))
    similar = [(score, old, new) for old in before for new in after if (score := _similarity(old, new))]
    for _, old, new in sorted(similar, key=lambda found: -found[0]):
        if any(one is old for one in before) and any(one is new for one in after):
            take(old, new)
    return pairs, before, after


def _sentence(rule: PromptRule) -> Hashable:
    """With the engine rules, so that a sentence that occurs twice is paired with its equal."""
    return " ".join(rule.description.split()), _engine_rules(rule)


def _engine_rules(rule: PromptRule) -> bytes | None:
    keys = ("kind", "params", "when", "scope")
    items = [{key: one.item[key] for key in keys if key in one.item} for one in rule.items]
    for item in items:
        if isinstance(params := item.get("params"), dict):
            item["params"] = {key: value for key, value in params.items() if key != "message"}
    return canonical_json(items) if items else None


def _core(rule: PromptRule) -> str:
    """The sentence without its exception."""
    return _EXCEPTION.sub("", rule.description).rstrip(" .!").lower()


def _pattern(rule: PromptRule) -> str:
    return _mask_numbers(rule.description)


def _mask_numbers(text: str) -> str:
    """The text with `#` for each number."""
    text = _NUMBER_WORD.sub("#", _NUMBER.sub("#", text))
    return " ".join(_TIMES.sub("#", text.lower()).split())


def _action(rule: PromptRule) -> Hashable | None:
    if rule.forbidden_action is None and rule.required_action is None:
        return None
    return tuple(_mask_numbers(text or "") for text in (rule.forbidden_action, rule.required_action, rule.trigger))


def _similarity(old: PromptRule, new: PromptRule) -> float:
    """From 0 to 100. The same demand on more or fewer tools is the same rule, even if its sentence is longer."""
    before, after = _tools(old), _tools(new)
    if bool(old.items) != bool(new.items) or ((before or after) and not before & after):
        return 0.0
    is_same_demand = (old.forbidden_action is None) == (new.forbidden_action is None) and old.trigger == new.trigger
    if is_same_demand and before and after and (before < after or after < before):
        return 100.0
    score = float(fuzz.token_sort_ratio(old.description, new.description))
    return score if score >= LEAST_SIMILARITY else 0.0


def _tools(rule: PromptRule) -> frozenset[str]:
    """The tools that its engine rules name."""
    texts: list[Any] = []
    for one in rule.items:
        params = one.item.get("params")
        for key, value in (params if isinstance(params, dict) else {}).items():
            if key in _TOOL_PARAMS:
                texts += value if isinstance(value, list) else [value]
            elif key == "formula" and isinstance(value, str):
                texts += _IN_FORMULA.findall(value)
    names = (name.strip() for text in texts if isinstance(text, str) for name in text.split("|"))
    return frozenset(name.strip("'\"") for name in names if name != "*")


# -- changes -----------------------------------------------------------------------------------------------------------


_Change = tuple[ChangeKind, str]
"""how a pair differs, and why"""


def _compare(old: PromptRule, new: PromptRule) -> _Change | None:
    same_text = " ".join(old.description.split()) == " ".join(new.description.split())
    if _engine_rules(old) == _engine_rules(new) and (old.items or same_text):
        return _compare_severity(old, new)
    if old.items and not new.items:
        return "loosened", "it can no longer be checked"
    if new.items and not old.items:
        return "tightened", "it can be checked now"
    if change := _compare_numbers(old, new) or _compare_tools(old, new):
        return change
    change = _compare_severity(old, new)
    return change if change and change[0] == "loosened" else ("changed", "it demands something else")


def _compare_exceptions(old: PromptRule, new: PromptRule, texts: tuple[str, str]) -> _Change | None:
    """`never do it` became `never do it unless …`, or the next sentence makes an exception now."""
    if _core(old) != _core(new):
        return None
    before, after = _exception(old, texts[0]), _exception(new, texts[1])
    if bool(before) == bool(after):
        return None
    if after:
        return "loosened", f"an exception was added: `{after}`"
    return "tightened", f"an exception was removed: `{before}`"


def _exception(rule: PromptRule, text: str) -> str:
    """The words of its exception, in its own sentence or in the next one."""
    found = _EXCEPTION.search(rule.description)
    if found is None:
        following = _NEXT_EXCEPTION.match(text, rule.end) if text[rule.start : rule.end].strip() else None
        return " ".join(following["words"].split())[:120] if following else ""
    return " ".join(found[0].split()).lstrip(",; ").rstrip(". ")[:120]


def _compare_severity(old: PromptRule, new: PromptRule) -> _Change | None:
    """`must` became `should`, or the reverse."""
    if old.severity == new.severity:
        return None
    is_less = _RANKS[new.severity] < _RANKS[old.severity]
    return "loosened" if is_less else "tightened", f"{old.severity} → {new.severity}"


def _compare_numbers(old: PromptRule, new: PromptRule) -> _Change | None:
    """`at most 3` became `at most 5`."""
    if _pattern(old) != _pattern(new):
        return None
    pairs = zip(_numbers(old.description), _numbers(new.description), strict=True)
    moved = [(position, before, after) for (position, before), (_, after) in pairs if before != after]
    if not moved:
        return None
    kinds = {_bound_change(old.description[:position], before, after) for position, before, after in moved}
    kind: ChangeKind = "loosened" if "loosened" in kinds else "tightened" if kinds == {"tightened"} else "changed"
    return kind, ", ".join(f"{before:g} → {after:g}" for _, before, after in moved)


def _bound_change(lead: str, before: float, after: float) -> ChangeKind:
    """Whether a bound that moved lets more pass; the last words before it say which kind of bound it is."""
    loose = max((match.end() for match in _MORE_IS_LOOSER.finditer(lead)), default=-1)
    tight = max((match.end() for match in _MORE_IS_TIGHTER.finditer(lead)), default=-1)
    if loose == tight:
        return "changed"
    return "loosened" if (after > before) == (loose > tight) else "tightened"


def _numbers(text: str) -> list[tuple[int, float]]:
    """The numbers of a sentence with their positions. `1,500` has a separator, `1.5` a fraction; `1.2.3` is 0."""
    found = [(match.start(), float(_NUMBER_WORDS[match[0].lower()])) for match in _NUMBER_WORD.finditer(text)]
    for match in _NUMBER.finditer(text):
        number = match[0].replace(",", "")
        found.append((match.start(), float(number) if number.count(".") < 2 else 0.0))
    return sorted(found)


def _compare_tools(old: PromptRule, new: PromptRule) -> _Change | None:
    """A demand on fewer tools is looser; a demand that allows only fewer tools is tighter."""
    before, after = _tools(old), _tools(new)
    if not (before and after) or not (before < after or after < before):
        return None
    names = ", ".join(f"`{name}`" for name in sorted(before ^ after))
    fewer = after < before
    looser = fewer != (old.forbidden_action or "").endswith(_ANY_OTHER)
    return "loosened" if looser else "tightened", f"no longer about {names}" if fewer else f"also about {names}"
