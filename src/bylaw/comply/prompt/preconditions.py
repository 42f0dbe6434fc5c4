"""A condition in the section of a tool → formulas about calls of the tool.

`looked_up` is true at a call if a tool that can show the condition was called before, for the same arguments. `held` is
true if the latest result does not contradict the condition. They are separate because they are broken separately: an
agent may act without looking, or look and act all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from bylaw.comply.model import Aspect, EngineItem, PromptRule, Tier, ToolSpec
from bylaw.comply.prompt.layout import Junction, Statement, plain_text
from bylaw.comply.prompt.lookups import NUMBER_WORDS, Lookup, Lookups, find_lookups
from bylaw.comply.prompt.vocabulary import Tools, any_case, stems

_QUOTED = re.compile(r"[\"\u201c\u201d'\u2018\u2019`]([A-Za-z_][\w.]*)[\"\u201c\u201d'\u2018\u2019`]")
_NEGATIVE = any_case(r"\b(?:not|no|never|none|nor|without|cannot|isn't|hasn't|doesn't|free of)\b")
_EXISTS = any_case(r"\bexists?\b")
_TRUTH = any_case(r"\b(?:set to|of|is|be|to|as|equals?|=)\s+[\"']?(true|false)\b")
_YES_NO = any_case(r"\btrue or false\b|\bboolean\b|\bwhether\b|\btrue if\b")
_ONE_OF = any_case(r"\b(?:must be|should be|is|are|be) (?:either |one of |any of |in )(?P<values>.+)$")
_DEMANDS = any_case(
    r"\b(?:must|should|shall|needs? to|has to|have to|required?|requires|only|cannot|can't|may not|previously|already|"
    r"beforehand|in order to|to (?:perform|proceed|be accepted|be eligible)|at least|at most|no more than)\b"
)
_DESCRIBES_THE_TOOL = any_case(
    r"\W*(?:(?:this|the) (?:tool|function|action|operation|call|endpoint|api)|it|returns?|takes|accepts|used?)\b"
)
_HAS = any_case(r"\b(?:has|have|had|having|owns?|holds?)\b")
_SAYS_IT_IS = frozenset(stems("must be is value amount total parameter should equal strictly"))
_LONGEST_VALUE = 3
"""words of a phrase that can still be one value; `credit limit minus credit balance` has to be computed"""


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
    return bool(_DEMANDS.search(text)) and not _DESCRIBES_THE_TOOL.match(text)


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


def _rule(statement: Statement, action: ToolSpec, condition: _Condition) -> PromptRule:
    text = " ".join(plain_text(one.text) for one in (statement, *statement.parts))
    items = []
    if condition.looked_up is not None:
        items.append(EngineItem(_temporal(condition.looked_up, condition, action, text), "order"))
    if condition.held is not None:
        aspect: Aspect = "argument" if condition.looked_up is None else "state"
        items.append(EngineItem(_temporal(condition.held, condition, action, text), aspect))
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
        undecided=condition.unread,
    )


def _temporal(demand: str, condition: _Condition, action: ToolSpec, text: str) -> dict[str, object]:
    used = (f"args.{name} = ${name}" for name in condition.variables if f"${name}" in demand)
    return {
        "kind": "temporal",
        "severity": "error",
        "scope": "session",
        "description": text,
        "params": {"formula": f"G (tool({', '.join((action.name, *used))}) -> {demand})"},
    }


# -- conditions --------------------------------------------------------------------------------------------------------


def _read(statement: Statement, action: ToolSpec, tools: Tools) -> _Condition:
    """A sentence, or a list with its junction."""
    if statement.junction is not None:
        parts = [_read(part, action, tools) for part in statement.parts if _is_condition(part, is_listed=True)]
        return _join(parts, statement.junction)
    text = plain_text(statement.text)
    comparison = read_comparison(text)
    bound = _read_bound(comparison, action) if comparison else None
    if found := bound or _read_choice(text, action):
        return found
    lookups = find_lookups(text, action.name, tools, *_compared_thing(comparison))
    if lookups is None:
        return _Condition(unread="no known tool shows whether it holds")
    reader = _LookupReader(lookups, action, tools)
    return reader.read_fact(text) if comparison is None else reader.read_comparison(text, comparison)


def _compared_thing(comparison: Comparison | None) -> tuple[str | None, frozenset[str]]:
    """The part of a sentence that names what is compared, and words that it means without saying them."""
    if comparison is None:
        return None, frozenset()
    if comparison.is_count:
        return f"{comparison.left} {comparison.right}", NUMBER_WORDS
    return comparison.left, frozenset(stems("available")) if comparison.wants_some else frozenset()


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
    )


# -- the call's own arguments ------------------------------------------------------------------------------------------


def _read_bound(comparison: Comparison, action: ToolSpec) -> _Condition | None:
    """`the amount "amount" must be at most 10000`."""
    if comparison.number is None:
        return None
    test = f"{comparison.sign} {comparison.number}"
    quoted = list(_QUOTED.finditer(comparison.left))
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
    quoted = _QUOTED.findall(text[: found.start()]) if found else []
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
    held = f"tool({action.name}, args.{name} {test}) | tool({action.name}, args.{name} missing)"
    return _Condition(held=held)


# -- results of other tools --------------------------------------------------------------------------------------------


class _LookupReader:
    """Reads sentences about results of these tools at a call of the action."""

    def __init__(self, lookups: Lookups, action: ToolSpec, tools: Tools) -> None:
        self._lookups = lookups
        self._action = action
        self._tools = tools

    def read_fact(self, text: str) -> _Condition:
        """`the account must exist`: a tool that shows it was called, and did not answer the contrary."""
        is_negative = bool(_NEGATIVE.search(text))
        if literal := _TRUTH.search(text):
            is_negative ^= literal[1].lower() == "false"
        about_key = self._is_about_its_key(text)
        contrary = []
        for lookup in self._lookups.any_of:
            if self._answers_yes_or_no(lookup):
                contrary.append(_latest(lookup, ["result = true" if is_negative else "result = false"]))
            elif not is_negative:
                contrary.append(_latest(lookup, ["result = false", "result = null"]))
            elif about_key:
                contrary.append(_latest(lookup, [f"{path} > 0" for path in self._paths(text, lookup)]))
        found = self._condition(contrary)
        if is_negative or not about_key or not _EXISTS.search(text):
            return found
        # A thing that any tool has returned a result for exists.
        keys = dict.fromkeys(lookup.same for lookup in self._lookups.any_of if lookup.same)
        seen = [f"O result({_arguments('*', same)}, result != false, result != null)" for same in keys]
        return replace(found, looked_up=" | ".join((str(found.looked_up), *seen)))

    def read_comparison(self, text: str, comparison: Comparison) -> _Condition:
        """`the balance must be at least 300`, or at least the value of another argument."""
        if comparison.wants_some and all(self._answers_yes_or_no(lookup) for lookup in self._lookups.any_of):
            return self._condition([_latest(lookup, ["result = false"]) for lookup in self._lookups.any_of])
        contrary = _OPPOSITE[comparison.sign]
        if comparison.number is not None:
            return self._condition(self._measured(text, f"{contrary} {comparison.number}"))
        if (name := self._argument_in(comparison.right)) is not None:
            return self._condition(self._measured(comparison.left, f"{contrary} ${name}"), name)
        name = self._argument_in(comparison.left)
        if name is not None and 0 < len(stems(comparison.right)) <= _LONGEST_VALUE:
            return self._condition(self._measured(comparison.right, f"{_SWAPPED[contrary]} ${name}"), name)
        return self._condition([])

    def _condition(self, contrary: Sequence[str], argument: str | None = None) -> _Condition:
        """Looked up, and none of the contrary; `argument` is one that the contrary uses."""
        lookups = self._lookups
        looked_up = [f"O result({_arguments(lookup.tool, lookup.same)})" for lookup in lookups.any_of]
        looked_up += [f"O result({tool})" for tool in self._tools.whole_database]
        held = " & ".join(f"!{one}" for one in contrary) or None
        names = dict.fromkeys(name for lookup in lookups.any_of for _, name in lookup.same)
        if argument is not None and held is not None:
            names[argument] = None
        confidence = 0.95 if lookups.tier is Tier.CERTAIN else min(0.9, 0.5 + lookups.likeness / 2)
        return _Condition(" | ".join(dict.fromkeys(looked_up)), held, tuple(names), lookups.tier, confidence)

    def _measured(self, text: str, test: str) -> list[str]:
        """The latest value that the text speaks of passes the test."""
        return [
            _latest(lookup, [f"{path} {test}" for path in self._paths(text, lookup)]) for lookup in self._lookups.any_of
        ]

    def _answers_yes_or_no(self, lookup: Lookup) -> bool:
        return bool(_YES_NO.search(self._tools.specs[lookup.tool].description))

    def _is_about_its_key(self, text: str) -> bool:
        """Whether the only thing that the sentence names is the key that the tools are called with."""
        named = {name for name in _QUOTED.findall(text) if name in self._action.params}
        return all({name for _, name in lookup.same} == named for lookup in self._lookups.any_of)

    def _argument_in(self, text: str) -> str | None:
        """An argument of the call that the text quotes and that is not only a key."""
        keys = {name for lookup in self._lookups.any_of for pair in lookup.same for name in pair}
        quoted = (name for name in _QUOTED.findall(text) if name in self._action.params)
        return next((name for name in quoted if name not in keys), None)

    def _paths(self, text: str, lookup: Lookup) -> list[str]:
        """Where in a tool's result the value may be: the whole of it, or a field.

        Fields are those that the sentence quotes, and those that the tool's description names in words of the sentence.
        """
        tool = self._tools.specs[lookup.tool]
        params = {*tool.params, *self._action.params}
        said = frozenset(stems(text))
        words = [word.lower() for word in re.findall(r"[A-Za-z]+|[,.;]", tool.description)]
        described = [
            f"{left}_{right}"
            for left, right in pairwise(words)
            if left.isalpha()
            and right.isalpha()
            and len(pair := stems(f"{left} {right}")) == 2
            and said.issuperset(pair)
        ]
        fields = dict.fromkeys((*_QUOTED.findall(text), *described))
        return ["result", *(f"result.{field}" for field in fields if field not in params)]


def _latest(lookup: Lookup, tests: Sequence[str]) -> str:
    """The latest result for these arguments passes one of the tests."""
    call = _arguments(lookup.tool, lookup.same)
    passed = " | ".join(f"result({call}, {test})" for test in tests)
    return f"(!result({call}) S ({passed}))"


def _arguments(tool: str, same: tuple[tuple[str, str], ...]) -> str:
    return ", ".join((tool, *(f"args.{own} = ${name}" for own, name in same)))


# -- comparisons -------------------------------------------------------------------------------------------------------

_NUMBER = re.compile(r"(?<![\w.])[$€£]?\s?(\d[\d,]*(?:\.\d+)?)(?![\w.]*\w)")
# The longer wording first: `less than or equal to` must not be read as `less than`.
_WORDINGS: tuple[tuple[str, str], ...] = (
    (r"(?:greater|higher|more|larger) than or equal to|equal to or (?:greater|higher|more|larger) than", ">="),
    (r"(?:less|lower|smaller|fewer) than or equal to|equal to or (?:less|lower|smaller|fewer) than", "<="),
    (r"not (?:be )?(?:less|lower|fewer|smaller) than|no (?:less|lower|fewer) than|not (?:be )?(?:below|under)", ">="),
    (
        r"not (?:be )?(?:more|higher|greater|larger) than|no (?:more|higher|greater) than|not (?:be )?(?:above|over)",
        "<=",
    ),
    (r"(?:must |can|may |should |does |do |shall )?(?:not|never) exceed(?:ing)?|cannot exceed", "<="),
    (r"at least|a minimum of|minimum of|>=|≥", ">="),
    (r"at most|a maximum of|maximum of|up to|<=|≤", "<="),
    (r"(?:strictly )?(?:greater|higher|more|larger|older|longer) than|exceeds?|exceeding|above|over|>", ">"),
    (r"(?:strictly )?(?:less|lower|smaller|fewer|younger|shorter) than|below|under|<", "<"),
    (r"exactly|equal to|equals?", "="),
    (r"on or after|no earlier than|not before", ">="),
    (r"on or before|no later than|not after", "<="),
)
_OPERATORS = [(any_case(rf"(?<!\w)(?:{wording})(?!\w)"), sign) for wording, sign in _WORDINGS]
_SPLIT = any_case(r"(?<!\w)(more|less|fewer|higher|lower|greater)\s+(?P<left>[^,;.]{1,80}?)\s+than(?!\w)")
_NEGATION = any_case(r"\b(?:not|never|no longer|cannot|can't|isn't|doesn't|don't)\b")
_CLAUSE_END = any_case(r"[,;:]|\bin order to\b|\bto (?:be|proceed|perform|take)\b|\bbefore\b|\bin their\b")
_COUNTED = any_case(r"\d[\d,]*\s+(?!dollars?\b|usd\b|years?\b|days?\b|hours?\b|minutes?\b|percent\b)[a-z]+s\b")
_OPPOSITE = {">": "<=", ">=": "<", "<": ">=", "<=": ">", "=": "!=", "!=": "="}
_SWAPPED = {">": "<", ">=": "<=", "<": ">", "<=": ">=", "=": "=", "!=": "!="}


class Comparison(Struct, frozen=True):
    left: str
    """the words before the operator"""
    sign: str
    right: str
    """the words behind it, up to the end of the clause"""
    number: float | int | None
    """the number that it compares with, if it is one"""

    @property
    def is_count(self) -> bool:
        """`fewer than 3 books`: the number counts things."""
        return self.number is not None and bool(_COUNTED.search(self.right))

    @property
    def wants_some(self) -> bool:
        """`more than 0`: there must be one at all."""
        return (self.sign, self.number) in ((">", 0), (">=", 1))


def read_comparison(text: str) -> Comparison | None:
    """`must be at least 300`; `must not have more than 3` demands at most 3."""
    if split := _SPLIT.search(text):
        sign = ">" if split[1].lower() in ("more", "higher", "greater") else "<"
        return _comparison(text[: split.start()], split["left"], sign, text[split.end() :])
    for pattern, sign in _OPERATORS:
        if found := pattern.search(text):
            left = text[: found.start()]
            return _comparison(left, left, sign, re.sub(r"^\W*(?:>=|<=|>|<)\W*", " ", text[found.end() :]))
    return None


def _comparison(before: str, left: str, sign: str, after: str) -> Comparison:
    right = _CLAUSE_END.split(after, maxsplit=1)[0]
    found = _NUMBER.search(right)
    number = found[1].replace(",", "") if found else None
    value = None if number is None else float(number) if "." in number else int(number)
    return Comparison(left, _OPPOSITE[sign] if _NEGATION.search(before) else sign, right, value)
