"""Conditions of a sentence on a call: bounds and choices of its arguments, and limiting clauses (if, unless, after).

A part may speak of an argument of the call, of a field that a result showed, of another call, or of what the user said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from bylaw.comply.prompt.binding import Bound, is_about_destruction, is_destructive
from bylaw.comply.prompt.clauses import ClausePart, Literal, Sentence
from bylaw.comply.prompt.dialogue import asks_user, find_texts
from bylaw.comply.prompt.messages import name_tools
from bylaw.comply.prompt.readings import (
    ArgTest,
    Draft,
    Field,
    View,
    atom,
    described_state,
    either,
    formula,
    holds,
    in_words,
    never,
)
from bylaw.comply.prompt.returns import FLAGS, answer_of, verifies
from bylaw.comply.prompt.vocabulary import NUMBER, any_case, int_if_whole, number_of, root_set, roots, word_set

# -- arguments ---------------------------------------------------------------------------------------------------------

_MORE = r"(?:more|greater|higher|larger|bigger)"
_LESS = r"(?:less|lower|smaller|fewer)"
_COMPARISONS = tuple(
    (any_case(rf"(?:(?<!\w)(?:{words})\s+|(?:{sign})\s*)(?P<number>{NUMBER})(?P<unit>(?:\s+[a-z_]+)?)"), op)
    for words, sign, op in (
        (
            rf"(?:not|never) (?:exceed(?:ing)?|be {_MORE} than|(?:go )?(?:over|above))|at most|(?:no|not) {_MORE} than"
            rf"|equal to or {_LESS} than|{_LESS} than or equal to|up to|(?:a )?maximum of|max(?:imum)?(?: is)?"
            r"|capped at|limited to",
            "<=|≤",
            "<=",
        ),
        (
            rf"(?:not|never) (?:be {_LESS} than|(?:go )?(?:under|below))|at least|(?:no|not) {_LESS} than"
            rf"|equal to or {_MORE} than|{_MORE} than or equal to|(?:a )?minimum of",
            ">=|≥",
            ">=",
        ),
        (rf"over|above|{_MORE} than|exceed(?:s|ing)?|in excess of|beyond", r"(?<![=-])>", ">"),
        (rf"under|below|{_LESS} than", "<", "<"),
    )
)
_HAS_NUMBER = any_case(NUMBER)
_DENIAL = any_case(r"\b(?:not|never|no|nor|neither|none|cannot)\b|n't\b")
_DIGITS = re.compile(r"(?<![\w.])\$?\d")
_UNIT_OF_SOMETHING_ELSE = any_case(
    r"\s+(?:times?|calls?|turns?|tools?|hours?|days?|minutes?|weeks?|words?|sentences?|characters?)\b"
)
_SHARE = any_case(r"\s*(?:%|percent|per cent)?\s*(?:of|from)\s+(?:the|their|its|your|his|her|any|each|that|this)\b")
_BETWEEN = any_case(rf"\bbetween\s+(?P<low>{NUMBER})\s+and\s+(?P<high>{NUMBER})")
_OR_MORE = any_case(
    rf"(?P<number>{NUMBER})(?:(?:\s+[a-z]+)?\s+(?:or|and)\s+(?:(?P<up>more|above|higher|greater|over|larger|up)"
    r"|less|fewer|below|lower|under|smaller)\b|(?P<plus>\+)(?!\w))"
)
_MONEY = any_case(r"\$|\b(?:dollars?|usd|euros?|eur|pounds?)\b|€|£")
_MONEY_PARAMS = root_set("amount price total cost value sum fee budget refund payment")
_DENIES = any_case(r"\b(?:not|isn't|aren't|other than|anything but|different from)\b")
_CHOICE = any_case(
    r"\b(?:one of|either|must be|should be|has to be|can only be|may only be|limited to|restricted to|be|is|are|equals?"
    r"|set to|=)\b(?: set to| one of| either| only| exactly| equal to| limited to)*[:\s]*(?P<list>[^.;]*)$"
)
_LIST_SEPARATOR = re.compile(r"\s*(?:,\s*(?:or|and)\s+|,|\bor\b|\band\b|/)\s*")
_FIELD = any_case(
    r"(?P<field>[A-Za-z][\w ]*?)\s*(?:\bis\b|\bare\b|\bequals\b|=|\bof\b|\bwas\b|\bshows\b|\breads\b)?\s*(?:still "
    r"|already |currently )?(?P<not>not |no longer )?(?:one of |either |set to |equal to |marked |marked as |in )?\s*$"
)
_FIELD_FILLERS = word_set("the its their a an is are")
_NO_FIELDS = word_set("user customer they it he she says said say message agent you call called the a")
_ID_ENDINGS = ("id", "number", "code", "name", "email", "key")


class Param(Struct, frozen=True):
    """A parameter that a text speaks of, and the tools that take it."""

    name: str
    tools: tuple[str, ...]
    is_named: bool = False
    """the sentence has its full name, not only similar words"""


class Constraint(Struct, frozen=True):
    """The tests that a parameter must pass."""

    param: Param
    tests: tuple[ArgTest, ...] = ()
    length: int | None = None
    """the greatest length of a list, in place of tests"""

    @property
    def words(self) -> str:
        """The constraint in words: `amount <= 500`, `at most 5 passengers`."""
        return f"at most {self.length} {self.param.name}" if self.length is not None else in_words(self.tests)

    @property
    def forbidden_words(self) -> str:
        """What `forbidden` forbids: `amount > 500`, `more than 5 passengers`."""
        return f"more than {self.length} {self.param.name}" if self.length is not None else in_words(self.tests)

    def required(self, tools: tuple[str, ...]) -> Draft:
        if self.length is not None:
            draft = never(tools, [(f"{self.param.name}.{self.length}", "present", None)])
            message = f"it has {self.forbidden_words}"
            return Draft(draft.kind, {**draft.params, "message": message}, draft.aspect)
        return holds(tools, self.tests)

    def forbidden(self, tools: tuple[str, ...]) -> Draft:
        return self.required(tools) if self.length is not None else never(tools, self.tests)


def find_bound(text: str, tools: Sequence[str], sentence: Sentence, *, is_forbidden: bool = False) -> Constraint | None:
    """`refunds over $500`: a number that a parameter of these tools (of any, if none is named) is compared with.

    `is_forbidden`: the text, without the word that forbids, is what must not be.
    """
    found = _comparison(text)
    param = _number_param(found[2], text, tools, sentence) if found else None
    if found is None or param is None:
        return None
    operator, value = found[0], int_if_whole(found[1])
    types, name = sentence.tools.schema_types(param.name, param.tools), param.name
    is_list = "array" in types or (types <= {None} and name.endswith("s") and not name.endswith(("ss", "us")))
    if not is_list:
        if not types & {"number", "integer", None} and not any(isinstance(one, tuple) for one in types):
            return None  # `no more than 3 drugs` says nothing of a text named `drug`
        return Constraint(param, ((param.name, operator, value),))
    less = {">": 0, ">=": 1} if is_forbidden else {"<=": 0, "<": 1}
    if not isinstance(value, int) or operator not in less:
        return None
    return Constraint(param, length=value - less[operator])


def _comparison(text: str) -> tuple[str, float, str] | None:
    """Operator, number, and its unit; None if the rest of the text denies it or has another number."""
    if not _HAS_NUMBER.search(text):
        return None
    matches = ((pattern.search(text), operator) for pattern, operator in _COMPARISONS)
    found, operator = next(((match, operator) for match, operator in matches if match), (None, ""))
    or_more = _OR_MORE.search(text)
    if found:
        unit = found["unit"]
    elif found := or_more:
        operator, unit = (">=" if found["up"] or found["plus"] else "<="), "" if found["plus"] else found[0]
    else:
        return None
    number, rest = number_of(found["number"]), f"{text[: found.start()]} {text[found.end() :]}"
    if _SHARE.match(text[found.end("number") :]):  # `20 percent of the income`
        return None
    if number is None or _UNIT_OF_SOMETHING_ELSE.match(unit) or _DENIAL.search(rest) or _DIGITS.search(rest):
        return None
    if number_of(unit) is not None:  # `5 hundred`
        return None
    return None if or_more and operator in "<>" else (operator, number, unit)


def find_range(text: str, tools: Sequence[str], sentence: Sentence) -> Constraint | None:
    """`the discount must be between 5 and 20`."""
    found = _BETWEEN.search(text)
    param = _number_param("", text, tools, sentence) if found else None
    if found is None or param is None:
        return None
    low, high = int_if_whole(number_of(found["low"])), int_if_whole(number_of(found["high"]))
    return Constraint(param, ((param.name, ">=", low), (param.name, "<=", high)))


def _number_param(unit: str, text: str, tools: Sequence[str], sentence: Sentence) -> Param | None:
    """The parameter that the text names; else the only one for money, or the only number of the tools named."""
    if named := find_param(text, tools, sentence):
        return named
    params = _params(tools, sentence)
    if _MONEY.search(text):
        money = [p for p in params if not _MONEY_PARAMS.isdisjoint(roots(p)) and not p.endswith("id")]
        if len(money) == 1:
            return Param(money[0], params[money[0]])
    if not tools or unit.strip():
        return None
    types = sentence.tools.schema_types
    numeric = [param for param, takers in params.items() if types(param, takers) & {"number", "integer"}]
    return Param(numeric[0], params[numeric[0]]) if len(numeric) == 1 else None


_EXAMPLES_FOLLOW = any_case(
    r"(?:\b(?:like|such as|similar to|including|resembling|for (?:example|instance)|(?:start|begin|end)\w* (?:with|in)"
    r"|contain\w*|match\w*|prefixed(?: with| by)?|before|after|than|not)|\be\.g\.)[\s,:]*$"
)
"""`queries like "…"`, `names that start with "…"`: other values are meant too"""


def find_param(text: str, tools: Sequence[str], sentence: Sentence) -> Param | None:
    """The parameter whose words are all in the text, of the tools named or of any; the longest name wins."""
    if _EXAMPLES_FOLLOW.search(text):
        return None
    said = set(roots(text))
    fits = [
        (len(words), param, takers)
        for param, takers in _params(tools, sentence).items()
        if (words := roots(param)) and set(words) <= said
    ]
    if not fits:
        return None
    _, param, takers = max(fits, key=lambda fit: fit[0])
    is_written = re.search(rf"(?<!\w){re.escape(param)}(?!\w)", text) is not None
    return Param(param, takers, is_written and (bool(tools) or "_" in param or sentence.quotes(param)))


def _params(tools: Sequence[str], sentence: Sentence) -> dict[str, tuple[str, ...]]:
    every = sentence.tools.params
    if not tools and sentence.section in sentence.tools.specs:
        tools = (sentence.section,)
    if not tools or "*" in tools:
        return every
    return {param: own for param, takers in every.items() if (own := tuple(tool for tool in takers if tool in tools))}


def find_choice(text: str, literals: Sequence[Literal], tools: Sequence[str], sentence: Sentence) -> Constraint | None:
    """`the reason must be one of "a", "b" or "c"`: the values in quotes or backticks, or single words."""
    text = text.rstrip(" .,;")
    found = _CHOICE.search(text)
    param = find_param(text[: found.start()], tools, sentence) if found else None
    if found is None or param is None:
        return None
    values = [one.text for one in literals if one.text != param.name and one.text not in sentence.tools.specs]
    if not values and re.search(r"\bone of\b|\beither\b", found[0], re.IGNORECASE):
        items = [item.strip(" .,(){}[]") for item in _LIST_SEPARATOR.split(found["list"])]
        items = [item for item in items if item]
        # Longer items are more often prose than values.
        values = items if len(items) > 1 and all(re.fullmatch(r"[\w-]+", item) for item in items) else []
    if not values:
        return None
    operator = "not in" if _DENIES.search(text[: found.end()]) else "in"
    types = sentence.tools.schema_types(param.name, param.tools)
    return Constraint(param, ((param.name, operator, [_convert_to_type(value, types) for value in values]),))


def _convert_to_type(value: str, types: set[object]) -> Any:
    if types & {"number", "integer"} and re.fullmatch(r"-?\d+", value):
        return int(value)
    if "boolean" in types and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return value


def find_state(text: str, start: int, literals: Sequence[Literal], tool: str, sentence: Sentence) -> Field | None:
    """`the status is "shipped"`: a field that a result showed for the same thing as the call is about."""
    values = [literal for literal in literals if not literal.is_code or literal.text not in sentence.tools.specs]
    if not values:
        return None
    lead = text[: values[0].start - start]
    found = None if "n't" in lead or _EXAMPLES_FOLLOW.search(lead) else _FIELD.search(lead)
    if found is None:
        return None
    words = [word for word in found["field"].lower().split() if word not in _FIELD_FILLERS]
    joined = _id_params(tool, sentence)
    if not words or words[-1] in _NO_FIELDS or not joined:
        return None
    return Field(words[-1], tuple(value.text for value in values), joined, bool(found["not"]))


def _id_params(tool: str, sentence: Sentence) -> tuple[str, ...]:
    """The parameter that says which thing a call is about; of several, the one that the sentence names."""
    ids = [param for param in sentence.tools.spec(tool).params if roots(param)[-1:] and _is_id(param)]
    if len(ids) > 1:
        said = set(roots(sentence.text))
        ids = [param for param in ids if set(roots(param)[:-1]) & said] or ids
    return (ids[0],) if len(ids) == 1 else ()


def _is_id(param: str) -> bool:
    return param.rpartition("_")[2] in _ID_ENDINGS


def shared_ids(first: Sequence[str], second: Sequence[str], sentence: Sentence) -> tuple[str, ...]:
    """The ids that both take; none if `first` is a choice or a schema is not known."""
    specs = sentence.tools.specs
    if len(first) != 1 or not all(name in specs for name in (*first, *second)):
        return ()
    shared = set(specs[first[0]].params).intersection(*(specs[name].params for name in second))
    return tuple(sorted(param for param in shared if _is_id(param)))


# -- parts that depend on a clause -------------------------------------------------------------------------------------

EACH_OR_ALL = "it may mean each of these calls, or all of them together"
EXCEPTIONS = ("unless", "without", "until", "before", "iff")
"""conjunctions of parts that say when a forbidden action is allowed after all"""
_FAILS = any_case(
    r"\b(?:fail(?:s|ed)?|errors?|(?:return|throw|raise)s? an? (?:error|exception)|unsuccessful"
    r"|is not successful|does not succeed)\b"
)
_USER_SAYS = any_case(
    r"\b(?:user|customer|client|caller|they|human)\b[^.]{0,40}?\b(?:say|said|type|typed|types|write|writes"
    r"|wrote|mention|message|repl|answer|ask|enter|contain|include|use)"
)
_NOT = any_case(r"\b(?:not|never|no)\b|n't\b")
_OR = any_case(r"\bor\b")


class Condition(Struct, frozen=True):
    """One part as events show it. At most one of `tests`, `state`, `tools`, `agreed` and `said` is set."""

    part: ClausePart
    quote: str
    """the part as it is written"""
    tests: tuple[ArgTest, ...] = ()
    state: Field | None = None
    tools: Bound = Bound()
    failed: bool = False
    """calls of these tools returned an error"""
    agreed: bool = False
    """the user agreed"""
    said: str = ""
    """a formula: the user said it"""
    texts: str = ""
    """what the user said, in quotes"""
    is_negated: bool = False
    """it speaks of a call or an agreement that did not happen"""

    @property
    def is_read(self) -> bool:
        return bool(self.tests or self.state or self.tools or self.agreed or self.said)

    @property
    def joins_causes(self) -> bool:
        """`after A and B`: after each of them, or after both?"""
        return self.tools.is_named and len(self.tools.groups) > 1

    @property
    def reason(self) -> str:
        return f"no event shows whether `{self.quote}` holds"

    @property
    def trigger(self) -> str:
        """The formula of the call, or of the failed call, that the part speaks of."""
        if self.failed:
            return atom(self.tools.tools, of="result")[:-1] + ", error = true)"
        return atom(self.tools.tools)


def read_condition(view: View, part: ClausePart, actor: Bound) -> Condition:
    """The condition of a clause part; `actor` are the tools whose calls it limits."""
    text, quote = part.text, view.quote(part)
    unread = Condition(part, quote)
    if tests := _tests(view, part, actor.tools):
        return unread if view.narrowing(text, actor, tests) else Condition(part, quote, tests)
    if len(actor.tools) == 1:
        state = find_state(text, part.start, view.literals(part), actor.tools[0], view.sentence)
        if state:
            shown = [(name, "present", None) for name in (state.name, *state.joined)]
            return unread if view.narrowing(text, actor, shown) else Condition(part, quote, state=state)
    is_negated = _NOT.search(text) is not None
    if tools := view.bind(text, likeness=False).without(*actor.tools):
        if _OR.search(text) and len(tools.tools) == 1:
            return unread
        if tools.is_named and is_about_destruction(text) and not all(map(is_destructive, tools.tools)):
            return unread
        if described_state(text, tools) or described_state(text, tools, is_condition=True):
            return unread
        failed = _FAILS.search(text) is not None
        return Condition(part, quote, tools=tools, failed=failed, is_negated=is_negated)
    if asks_user(text):
        return Condition(part, quote, agreed=True, is_negated=is_negated)
    if _USER_SAYS.search(text) and (texts := find_texts(f"say {text}", view.texts(part))):
        return Condition(part, quote, said=texts.user_says(), texts=texts.quoted, is_negated=is_negated)
    return unread


def _tests(view: View, part: ClausePart, tools: tuple[str, ...]) -> tuple[ArgTest, ...]:
    if not tools:
        return ()
    if (bound := find_bound(part.text, tools, view.sentence)) and bound.tests:
        return bound.tests
    choice = find_choice(part.text, view.literals(part), tools, view.sentence)
    return choice.tests if choice else ()


# -- results that verify -----------------------------------------------------------------------------------------------


def require_positive_result(
    view: View, first: tuple[str, ...], second: tuple[str, ...], tests: tuple[ArgTest, ...], joined: tuple[str, ...]
) -> list[Draft]:
    """A check that came back negative does not verify: the latest result of the first tool is not `false`.

    Only of tools that verify, or whose results have a flag that says so: that `check_fraud` says no is wanted.
    """
    spec = view.sentence.tools.specs.get(first[0])
    if spec is None or len(first) > 1:
        return []
    is_check, kind = verifies(spec.name), answer_of(spec)
    known = FLAGS | ({"ok", "success", "passed"} if is_check else set())
    flags = [f"result.{one} = false" for one in spec.fields if one.lower() in known] if kind == "object" else []
    flags = ["result = false"] if kind == "boolean" and is_check else flags
    if not flags:
        return []
    joined = joined or shared_ids(first, second, view.sentence)
    shown, call = atom(first, of="result", joined=joined), atom(second, tests, joined=joined)
    negative = either([f"{shown[:-1]}, {flag})" for flag in flags])
    if joined:
        message = f"the latest result of {name_tools(first)} is negative"
        return [formula(f"G ({call} -> !(!{shown} S {negative}))", "state", message)]
    # Whose check it was is not known: one that was positive may be that of this call.
    message = f"every result of {name_tools(first)} before it is negative"
    return [formula(f"G ({call} -> !(O {negative} & !O ({shown} & !{negative})))", "state", message)]
