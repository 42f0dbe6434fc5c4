"""What a sentence says of a call's arguments, or of a field that a result showed: bounds, choices, lengths, states."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from bylaw.comply.prompt.prose.context import Context, Tools, roots
from bylaw.comply.prompt.prose.counts import NUMBER, number_of
from bylaw.comply.prompt.prose.lowering import ArgTest, Field
from bylaw.comply.prompt.prose.sentence import Literal

_COMPARISONS = (
    (
        r"(?:not|never) (?:exceed|be (?:more|greater|higher|larger) than|go (?:over|above))|at most"
        r"|no more than|not more than|up to|(?:a )?maximum of|max(?:imum)?(?: is)?|no (?:greater|higher"
        r"|larger) than|capped at|limited to",
        "<=",
    ),
    (r"(?:not|never) be (?:less|lower|smaller|fewer) than|at least|no less than|not less than|(?:a )?minimum of", ">="),
    (
        r"over|above|more than|greater than|exceed(?:s|ing)?|larger than|higher than|in excess of|beyond|bigger than",
        ">",
    ),
    (r"under|below|less than|fewer than|lower than|smaller than", "<"),
)
_BETWEEN = re.compile(rf"\bbetween\s+(?P<low>{NUMBER})\s+and\s+(?P<high>{NUMBER})", re.IGNORECASE)
_TRAILING = re.compile(
    rf"(?P<number>{NUMBER})(?:\s+[a-z]+)?\s+or\s+(?P<way>more|above|higher|less|fewer|below|lower)\b", re.IGNORECASE
)
_MONEY = re.compile(r"\$|\b(?:dollars?|usd|euros?|eur|pounds?)\b|€|£", re.IGNORECASE)
_MONEY_PARAMS = frozenset(
    root
    for word in ["amount", "price", "total", "cost", "value", "sum", "fee", "budget", "refund", "payment"]
    for root in roots(word)
)
_DENIES = re.compile(r"\b(?:not|isn't|aren't|other than|anything but|different from)\b", re.IGNORECASE)
_ENUM = re.compile(
    r"\b(?:one of|either|must be|should be|has to be|can only be|may only be|limited to|restricted to|be|is"
    r"|are|equals?|set to|=)\b(?: set to| one of| either| only| exactly| equal to"
    r"| limited to)*[:\s]*(?P<list>[^.;]*)$",
    re.IGNORECASE,
)
_BARE = re.compile(r"\s*(?:,\s*(?:or|and)\s+|,|\bor\b|\band\b|/)\s*")
_FIELD = re.compile(
    r"(?P<field>[A-Za-z][\w ]*?)\s*(?:\bis\b|\bare\b|\bequals\b|=|\bof\b|\bwas\b|\bshows\b"
    r"|\breads\b)?\s*(?:still |already |currently )?(?P<not>not |no longer )?(?:one of |either |set to "
    r"|equal to |marked |marked as |in )?\s*$",
    re.IGNORECASE,
)
_ENTITY_ENDS = ("id", "number", "code", "name", "email", "key")
_NO_FIELD_WORDS = """
    user customer they it he she says said say message agent you call called the a
"""
_NO_FIELD = frozenset(_NO_FIELD_WORDS.split())


class Constraint(Struct, frozen=True):
    """Tests on a parameter, and the tools that take it."""

    tests: tuple[ArgTest, ...]
    tools: tuple[str, ...]
    is_named: bool
    """the parameter's full name stands in the sentence, not only a likeness of it"""
    length: int | None = None
    """the greatest length of a list, in place of tests"""
    param: str = ""


def find_bound(text: str, tools: Sequence[str], context: Context, *, is_forbidden: bool = False) -> Constraint | None:
    """A number that a parameter of these tools (of any, where none is named) is compared with."""
    found = _comparison(text)
    if found is None:
        return None
    operator, number, around = found
    value: Any = int(number) if number == int(number) else number
    param = _number_param(around, text, tools, context)
    if param is None:
        return None
    name, takers, is_named = param
    if _is_list(name, takers, context.tools):
        longest = _longest(operator, value, is_forbidden)
        return Constraint((), takers, is_named, longest, name) if longest is not None else None
    return Constraint(((name, operator, value),), takers, is_named, None, name)


def _longest(operator: str, value: Any, is_forbidden: bool) -> int | None:
    """The greatest length that a list may have; `more than five` bounds it where it is forbidden."""
    if not isinstance(value, int):
        return None
    if operator == "<=" or (operator == ">" and is_forbidden):
        return value
    return value - 1 if operator == "<" and not is_forbidden else None


def _comparison(text: str) -> tuple[str, float, str] | None:
    """Operator, number, and the words around it."""
    for words, operator in _COMPARISONS:
        found = re.search(
            rf"(?<!not )(?<!n't )\b(?:{words})\s+(?P<number>{NUMBER})(?P<unit>(?:\s+[a-z_]+)?)", text, re.IGNORECASE
        )
        if found and (number := number_of(found["number"])) is not None:
            if re.match(
                r"\s+(?:times?|calls?|turns?|tools?|hours?|days?|minutes?|weeks?|words?|sentences?|characters?)\b",
                found["unit"],
                re.IGNORECASE,
            ):
                return None
            return operator, number, found["unit"]
    found = _TRAILING.search(text)
    if found and (number := number_of(found["number"])) is not None:
        return (">=" if found["way"].lower() in ("more", "above", "higher") else "<="), number, found[0]
    return None


def find_range(text: str, tools: Sequence[str], context: Context) -> Constraint | None:
    found = _BETWEEN.search(text)
    param = _number_param("", text, tools, context) if found else None
    if found is None or param is None:
        return None
    low, high = number_of(found["low"]), number_of(found["high"])
    tests = ((param[0], ">=", _plain(low)), (param[0], "<=", _plain(high)))
    return Constraint(tests, param[1], param[2], None, param[0])


def _plain(number: float | None) -> Any:
    return int(number) if number is not None and number == int(number) else number


def _number_param(
    unit: str, text: str, tools: Sequence[str], context: Context
) -> tuple[str, tuple[str, ...], bool] | None:
    if named := find_param(text, tools, context):
        return named
    params = _params(tools, context)
    if _MONEY.search(text):
        money = [param for param in params if _MONEY_PARAMS & set(roots(param)) and not param.endswith("id")]
        if len(money) == 1:
            return money[0], params[money[0]], False
    numeric = [
        param
        for param, takers in params.items()
        if any(context.tools.schema(tool, param).get("type") in ("number", "integer") for tool in takers)
    ]
    return (numeric[0], params[numeric[0]], False) if tools and len(numeric) == 1 and not unit.strip() else None


def find_param(text: str, tools: Sequence[str], context: Context) -> tuple[str, tuple[str, ...], bool] | None:
    """The parameter whose words all stand in the text, of the tools named or of any; the longest name wins."""
    said = set(roots(text))
    fits = [
        (len(roots(param)), param, takers)
        for param, takers in _params(tools, context).items()
        if roots(param) and set(roots(param)) <= said
    ]
    if not fits:
        return None
    _, param, takers = max(fits, key=lambda fit: fit[0])
    is_named = re.search(rf"(?<!\w){re.escape(param)}(?!\w)", text) is not None and (
        bool(tools) or "_" in param or param in context.sentence.coded()
    )
    return param, takers, is_named


def _params(tools: Sequence[str], context: Context) -> dict[str, tuple[str, ...]]:
    every = context.tools.params
    if not tools or "*" in tools:
        return every
    return {p: kept for p, takers in every.items() if (kept := tuple(tool for tool in takers if tool in tools))}


def _is_list(param: str, takers: Sequence[str], tools: Tools) -> bool:
    kinds = {tools.schema(tool, param).get("type") for tool in takers}
    if kinds & {"array"}:
        return True
    return kinds <= {None} and param.endswith("s") and not param.endswith(("ss", "us"))


# Choices


def find_choice(text: str, literals: Sequence[Literal], tools: Sequence[str], context: Context) -> Constraint | None:
    """`the reason must be one of "a", "b" or "c"`; the values in quotes, between backticks, or bare after `one of`."""
    text = text.rstrip(" .,;")
    found = _ENUM.search(text)
    if found is None:
        return None
    named = find_param(text[: found.start()], tools, context)
    if named is None:
        return None
    values = [item.text for item in literals if item.text != named[0] and item.text not in context.tools.specs]
    if not values:
        values = _bare_values(found)
    if not values:
        return None
    param, takers, is_named = named
    operator = "not in" if _DENIES.search(text[: found.end()]) else "in"
    typed = [_typed(value, param, takers, context.tools) for value in values]
    return Constraint(((param, operator, typed),), takers, is_named, None, param)


def _bare_values(found: re.Match[str]) -> list[str]:
    """Single words only: longer ones are more often prose than values."""
    if not re.search(r"\bone of\b|\beither\b", found[0], re.IGNORECASE):
        return []
    items = [item.strip(" .,(){}[]") for item in _BARE.split(found["list"]) if item.strip(" .,(){}[]")]
    return items if len(items) > 1 and all(re.fullmatch(r"[\w-]+", item) for item in items) else []


def _typed(value: str, param: str, takers: Sequence[str], tools: Tools) -> Any:
    kinds = {tools.schema(tool, param).get("type") for tool in takers}
    if kinds & {"number", "integer"} and re.fullmatch(r"-?\d+", value):
        return int(value)
    if kinds & {"boolean"} and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return value


# States


def find_state(text: str, start: int, literals: Sequence[Literal], tool: str, context: Context) -> Field | None:
    """`the status is "shipped"`: the field that a result showed for the same thing that the call is about."""
    values = [literal for literal in literals if not literal.is_code or literal.text not in context.tools.specs]
    if not values:
        return None
    lead = text[: values[0].start - start]
    if "n't" in lead:
        return None
    found = _FIELD.search(lead)
    if found is None:
        return None
    words = [
        word for word in found["field"].lower().split() if word not in ("the", "its", "their", "a", "an", "is", "are")
    ]
    joined = _entity_params(text, tool, context)
    if not words or words[-1] in _NO_FIELD or not joined:
        return None
    return Field(words[-1], tuple(value.text for value in values), joined, bool(found["not"]))


def _entity_params(text: str, tool: str, context: Context) -> tuple[str, ...]:
    """The parameter that says which thing a call is about: an id, the one that the text names if there are several."""
    spec = context.tools.specs.get(tool)
    ids = [
        param for param in (spec.params if spec else {}) if roots(param)[-1:] and param.split("_")[-1] in _ENTITY_ENDS
    ]
    if len(ids) > 1:
        said = set(roots(context.sentence.text))
        ids = [param for param in ids if set(roots(param)[:-1]) & said] or ids
    return (ids[0],) if len(ids) == 1 else ()


def shared_params(first: Sequence[str], second: Sequence[str], context: Context) -> tuple[str, ...]:
    """The ids that both tools take; nothing where either's parameters are not known or there is none."""
    if len(first) != 1 or not all(name in context.tools.specs for name in (*first, *second)):
        return ()
    params = set(context.tools.specs[first[0]].params)
    for name in second:
        params &= set(context.tools.specs[name].params)
    return tuple(sorted(param for param in params if param.split("_")[-1] in _ENTITY_ENDS))
