"""A condition in the section of a tool → formulas about calls of the tool.

`looked_up` is true at a call if a tool that can show the condition was called before, for the same arguments. `held` is
true if the latest result does not contradict the condition. They are separate because they are broken separately: an
agent may act without looking, or look and act all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from bylaw.comply.model import Aspect, EngineItem, PromptRule, Tier, ToolSpec
from bylaw.comply.prompt.comparisons import NOW, OPPOSITE, SWAPPED, Comparison, read_comparison, subtract_days
from bylaw.comply.prompt.layout import Junction, Statement, plain_text
from bylaw.comply.prompt.lookups import MENTION, NUMBER_WORDS, OF_IT, Lookup, Lookups, find_lookups
from bylaw.comply.prompt.results import RequiredResult, ResultReader, arguments, latest
from bylaw.comply.prompt.returns import answer_of
from bylaw.comply.prompt.vocabulary import NUMBER, Tools, any_case, number_of, only_reads, stems

_NEGATIVE = any_case(r"\b(?:not|no|never)\b")
_EXCEPTION = any_case(r"\b(?:unless|except(?!ional)|apart from|with the exception)\b.*")
_EXISTS = any_case(r"\bexists?\b")
_ONE_OF = any_case(r"\b(?:must be|should be|is|are|be) (?:either |one of |any of |in )(?P<values>.+)$")
_DEMANDS = any_case(
    r"\b(?:must|should|shall|needs? to|has to|have to|required?|requires|only|cannot|can't|may not|previously|already|"
    r"beforehand|in order to|to (?:perform|proceed|be accepted|be eligible)|at least|at most|no more than)\b"
)
_HOLDS = any_case(
    r"\b(?:has|have) (?:been |not |already )?\w+(?:ed|en)\b|\bis (?:already |currently |not )?logged in\b|\bexists\b"
)
"""says that something is so: `The patient "patient_id" has given consent`"""
_DESCRIBES_THE_TOOL = any_case(
    r"\W*(?:(?:this|the) (?:tool|function|action|operation|call|endpoint|api)|it|returns?|takes|accepts|used?)\b"
)
_HAS = any_case(r"\b(?:has|have|had|having|owns?|holds?)\b")
_HOW_OFTEN = any_case(r"\b(?:once|twice|thrice)\b(?! (?:the|it|you|they|a)\b)|\bmore than one time\b")
_BETWEEN = any_case(
    rf"\bbetween\s+(?P<low>{NUMBER})\s+and\s+(?P<high>{NUMBER})(?!\s*(?:%|percent|days?|hours?|years?))"
)
_CONTRARY = "a result before it shows that its condition does not hold"
_TIME_WORDS = frozenset(stems("date time day expiration expiry"))
_SAYS_IT_IS = frozenset(stems("must be is value amount total parameter should equal strictly"))


def read_preconditions(statement: Statement, tools: Tools, *, is_listed: bool = False) -> Iterator[PromptRule]:
    """A list that demands all of its items gives a rule for each; one that demands any of them is one rule."""
    if statement.junction in ("all", "chain"):
        for part in statement.parts:
            yield from read_preconditions(part, tools, is_listed=True)
    elif statement.tool is not None and _is_condition(statement, is_listed=is_listed):
        action = tools.spec(statement.tool)
        yield _rule(statement, action, _read(statement, action, tools))


def _is_condition(statement: Statement, *, is_listed: bool = False) -> bool:
    """Whether a sentence says what must hold when the tool is called, and does not describe the tool.

    In a list that was introduced as one of conditions, the first sentence of each item does, in any words.
    """
    text = plain_text(statement.text)
    if text.strip().rstrip(".").lower() in ("none", "n/a", "no constraints", "no conditions"):
        return False
    if statement.junction is not None or (is_listed and statement.leads):
        return True
    if _DESCRIBES_THE_TOOL.match(text):
        return False
    return bool(_DEMANDS.search(text) or (MENTION.search(text) and (_HOLDS.search(text) or read_comparison(text))))


# -- rules -------------------------------------------------------------------------------------------------------------


class _Condition(Struct, frozen=True):
    """What decides a condition at a call; `looked_up` and `held` are None if nothing does, and `unread` says why."""

    looked_up: str | None = None
    held: str | None = None
    variables: tuple[str, ...] = ()
    """arguments of the call that the formulas use"""
    tier: Tier = Tier.CERTAIN
    confidence: float = 1.0
    unread: str | None = None
    later: tuple[str, ...] = ()
    """whole formulas beside `held`"""
    open: str | None = None
    """why the formulas do not decide all of it"""
    is_state_likely: bool = False


def _rule(statement: Statement, action: ToolSpec, condition: _Condition) -> PromptRule:
    text = " ".join(plain_text(one.text) for one in (statement, *statement.parts))
    items = []
    if condition.looked_up is not None:
        message = "no result before it shows whether its condition holds"
        items.append(EngineItem(_temporal(condition.looked_up, condition, action, text, message), "order"))
    if condition.held is not None:
        aspect: Aspect = "argument" if condition.looked_up is None else "state"
        tier = Tier.LIKELY if condition.is_state_likely else None
        message = "its arguments do not meet its condition" if condition.looked_up is None else _CONTRARY
        items.append(EngineItem(_temporal(condition.held, condition, action, text, message), aspect, tier))
    later = f"`{action.name}` was called although the results contradict its condition"
    items += [EngineItem(_engine_rule(formula, text, later), "state") for formula in condition.later]
    return PromptRule(
        rule_id=f"{action.name}-condition",
        description=text,
        start=statement.start,
        end=statement.parts[-1].end if statement.parts else statement.end,
        trigger=f"call_tool: {action.name}",
        forbidden_action=f"call_tool: {action.name}, unless this holds",
        severity="high",
        tier=condition.tier,
        confidence=condition.confidence,
        items=tuple(items),
        undecided=condition.unread or condition.open,
    )


def _temporal(demand: str, condition: _Condition, action: ToolSpec, text: str, message: str) -> dict[str, object]:
    used = (f"args.{name} = ${name}" for name in condition.variables if f"${name}" in demand)
    return _engine_rule(f"G (tool({', '.join((action.name, *used))}) -> {demand})", text, message)


def _engine_rule(formula: str, text: str, message: str) -> dict[str, object]:
    return {
        "kind": "temporal",
        "severity": "error",
        "scope": "session",
        "description": text,
        "params": {"formula": formula, "message": message},
    }


# -- conditions --------------------------------------------------------------------------------------------------------


def _read(statement: Statement, action: ToolSpec, tools: Tools) -> _Condition:
    """A sentence, or a list with its junction."""
    if statement.junction is not None:
        parts = [_read(part, action, tools) for part in statement.parts if _is_condition(part, is_listed=True)]
        return _join(parts, statement.junction)
    text = plain_text(statement.text)
    if exception := _EXCEPTION.search(text):
        return _Condition(unread=f"no event shows whether `{exception[0].strip(' .,')}` holds")
    if _HOW_OFTEN.search(text):
        return _Condition(unread="it says how often, which no look-up shows")
    comparison = read_comparison(text)
    if comparison is None:
        own = _read_range(text, action)
    elif comparison.is_date:
        own = _read_own_date(comparison, action, tools)
    else:
        own = _read_bound(comparison, action) or _read_pair(comparison, action)
    if found := own or _read_choice(text, action):
        return found
    lookups = find_lookups(text, action.name, tools, *_compared_thing(comparison, action))
    if lookups is None:
        return _Condition(unread="no known tool shows whether it holds")
    if all(not one.same and tools.specs[one.tool].params for one in lookups.any_of) and not tools.aliased(text):
        which = ", ".join(one.tool for one in lookups.any_of[:3])
        return _Condition(unread=f"no argument of {action.name} says what {which} would have to be called with")
    return _condition_from_results(
        text, lookups, ResultReader(lookups, action, tools).read(text, comparison), action, tools
    )


def _condition_from_results(
    text: str, lookups: Lookups, shown: RequiredResult, action: ToolSpec, tools: Tools
) -> _Condition:
    """Looked up, and none of the contrary."""
    looked_up = _looked_up(lookups, tools)
    if (same := _named_key(text, lookups, action)) is not None:
        # A thing that any tool has returned a result for exists.
        looked_up += f" | O result({arguments('*', same)}, result != false, result != null)"
    fields = [name for name in MENTION.findall(text) if name not in action.params]
    keys = dict.fromkeys(lookup.same for lookup in lookups.any_of if lookup.same)
    records = " | ".join(
        name for name, tool in tools.specs.items() if answer_of(tool) == "object" and name != action.name
    )
    for field in dict.fromkeys(fields if records else ()):
        looked_up += "".join(f" | O result({arguments(records, same)}, result.{field} present)" for same in keys)
    if shown.more is not None:
        looked_up = f"({looked_up}) & ({_looked_up(shown.more, tools)})"
    every = (*lookups.any_of, *lookups.also, *(shown.more.any_of if shown.more else ()))
    confidence = 0.95 if lookups.tier is Tier.CERTAIN else min(0.9, 0.5 + lookups.likeness / 2)
    return _Condition(
        looked_up,
        " & ".join(f"!{one}" for one in shown.contrary) or None,
        tuple(dict.fromkeys((*(name for lookup in every for _, name in lookup.same), *shown.names))),
        lookups.tier,
        confidence,
        later=shown.later,
        open=shown.open,
        is_state_likely=shown.is_likely,
    )


def _looked_up(lookups: Lookups, tools: Tools) -> str:
    results = [f"O result({arguments(lookup.tool, lookup.same)})" for lookup in (*lookups.any_of, *lookups.also)]
    if all(only_reads(tools.specs[lookup.tool]) for lookup in lookups.any_of):  # data show no log-in
        results += [f"O result({tool})" for tool in tools.whole_database]
    return " | ".join(dict.fromkeys(results))


def _named_key(text: str, lookups: Lookups, action: ToolSpec) -> tuple[tuple[str, str], ...] | None:
    """The key of a thing, if the sentence says that it exists and names nothing else."""
    if not _EXISTS.search(text) or _NEGATIVE.search(text):
        return None
    named = {name for name in MENTION.findall(text) if name in action.params}
    keys = [lookup.same for lookup in lookups.any_of]
    is_only = all(same and {name for _, name in same} == named for same in keys)
    return keys[0] if is_only and len(set(keys)) == 1 else None


def _compared_thing(comparison: Comparison | None, action: ToolSpec) -> tuple[str | None, frozenset[str]]:
    """The part of a sentence that names what is compared, and words that it means without saying them."""
    if comparison is None:
        return None, frozenset()
    if comparison.is_count:
        return f"{comparison.left} {comparison.right}", NUMBER_WORDS
    if comparison.is_date and comparison.left == "expiration":
        return None, _TIME_WORDS
    left, right = comparison.left, comparison.right
    is_own = _argument_of(left, action) is not None and comparison.number is None
    is_today = NOW.search(left) is not None and NOW.search(right) is None
    hints = _TIME_WORDS if comparison.is_date else frozenset[str]()
    hints = frozenset(stems("available")) if comparison.wants_some or comparison.wants_none else hints
    return right if is_own or is_today else left, hints


def _join(parts: Sequence[_Condition], junction: Junction) -> _Condition:
    read = [part for part in parts if part.unread is None]
    if not read:
        return _Condition(unread="no known tool shows any of its parts")
    if junction == "any" and len(read) < len(parts):
        return _Condition(unread="no known tool shows one of its alternatives")
    sign = " | " if junction == "any" else " & "
    looked_up = [f"({part.looked_up or part.held})" for part in read if part.looked_up or part.held]
    held = [f"({part.held})" if part.held else "true" for part in read]
    return _Condition(
        sign.join(looked_up) if any(part.looked_up for part in read) else None,
        sign.join(held) if any(part.held for part in read) else None,
        tuple(dict.fromkeys(name for part in read for name in part.variables)),
        Tier.LIKELY if any(part.tier is Tier.LIKELY for part in read) else Tier.CERTAIN,
        min(part.confidence for part in read),
        later=() if junction == "any" else tuple(formula for part in read for formula in part.later),
        open=next((part.open for part in read if part.open), None),
        is_state_likely=any(part.is_state_likely for part in read),
    )


# -- the call's own arguments ------------------------------------------------------------------------------------------


def _read_own_date(comparison: Comparison, action: ToolSpec, tools: Tools) -> _Condition | None:
    """`the requested date "test_date" must be after today's date`."""
    left, right = _argument_of(comparison.left, action), _argument_of(comparison.right, action)
    if left and right:
        return _read_pair(comparison, action)
    name, sign = left or right, comparison.sign if left else SWAPPED[comparison.sign]
    if name is None or not NOW.search(comparison.right if left else comparison.left):
        return None
    if tools.today is not None:
        return _argument(name, f'{sign} "{subtract_days(tools.today, comparison.days)}"', action)
    if len(tools.clocks) != 1:
        return _Condition(unread="the day of the talk is not known")
    ago = f" + {comparison.days}" if comparison.days else ""
    contrary = f"result {SWAPPED[OPPOSITE[sign]]} ${name}{ago}"
    return _Condition(held=f"!{latest(Lookup(tools.clocks[0], ()), [contrary])}", variables=(name,))


def _read_range(text: str, action: ToolSpec) -> _Condition | None:
    """`the number of months "months" must be between 1 and 6`."""
    found = _BETWEEN.search(text)
    name = _argument_of(text[: found.start()], action) if found else None
    low, high = (number_of(found["low"]), number_of(found["high"])) if found else (None, None)
    if name is None or low is None or high is None:
        return None
    outside = " | ".join(f"tool({action.name}, args.{name} {test:s})" for test in (f"< {low:g}", f"> {high:g}"))
    return _Condition(held=f"!({outside})")


def _read_pair(comparison: Comparison, action: ToolSpec) -> _Condition | None:
    """`the "amount" must not exceed 20 percent of the "income"`, `"end" must be after "start"`."""
    left, right = _argument_of(comparison.left, action), _argument_of(comparison.right, action)
    if not left or not right or left == right or comparison.number is not None or comparison.days:
        return None
    share = f"{comparison.share:g} * " if comparison.share else ""
    contrary = f"tool({action.name}, args.{left} {OPPOSITE[comparison.sign]} {share}${right})"
    return _Condition(held=f"!{contrary}", variables=(right,)) if comparison.sign not in "=!=" else None


def _argument_of(text: str, action: ToolSpec) -> str | None:
    """The argument that a side of a comparison is: the only one that it quotes, and it says no more."""
    found = [one for one in MENTION.finditer(text) if one[1] in action.params]
    if len(found) != 1 or set(stems(text[found[0].end() :])) - _SAYS_IT_IS or _HAS.search(text):
        return None
    return None if OF_IT.search(text[: found[0].start()]) else found[0][1]


def _read_bound(comparison: Comparison, action: ToolSpec) -> _Condition | None:
    """`the amount "amount" must be at most 10000`."""
    if comparison.number is None:
        return None
    test = f"{comparison.sign} {comparison.number}"
    quoted = list(MENTION.finditer(comparison.left))
    if quoted:
        name, after = quoted[-1][1], comparison.left[quoted[-1].end() :]
        is_number = action.params.get(name, {}).get("type", "number") in ("number", "integer", ["number", "null"])
        says_no_more = not _HAS.search(after) and not set(stems(after)) - _SAYS_IT_IS
        return _argument(name, test, action) if name in action.params and is_number and says_no_more else None
    words = stems(comparison.left)
    for name in action.params:
        own = stems(name)
        if own and words[-len(own) :] == own and len(words) <= len(own) + 2:
            return _argument(name, test, action)
    return None


def _read_choice(text: str, action: ToolSpec) -> _Condition | None:
    """`the "reason" must be one of a, b or c`."""
    found = _ONE_OF.search(text)
    quoted = MENTION.findall(text[: found.start()]) if found else []
    name = next((name for name in quoted if name in action.params), None)
    if found is None or name is None:
        return None
    values = [value.strip(" .\"'\u201c\u201d`") for value in re.split(r",| or | and ", found["values"])]
    values = [value for value in values if value and len(value) <= 60]
    if len(values) < 2:
        return None
    written = ", ".join('"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values)
    return _argument(name, f"in [{written}]", action)


def _argument(name: str, test: str, action: ToolSpec) -> _Condition:
    return _Condition(held=f"tool({action.name}, args.{name} {test}) | tool({action.name}, args.{name} missing)")
