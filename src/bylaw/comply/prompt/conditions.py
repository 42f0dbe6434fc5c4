"""A condition that stands under a tool → formulas: was it looked up before the call, and did it hold?

`asked` is true at a call where something that can show the condition was called before, for the same arguments. `held`
is true where what was shown last does not contradict it. They are apart because they are broken apart: an agent may act
without looking, or look and act all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from bylaw.comply.prompt.binding import Binder, Bond, Bonds
from bylaw.comply.prompt.comparing import OPPOSITE, SWAPPED, Comparison, read_comparison
from bylaw.comply.prompt.layout import Junction, Statement, plain_text
from bylaw.comply.prompt.model import Tier, ToolSpec
from bylaw.comply.prompt.words import words_of

_QUOTED = re.compile(r"[\"\u201c\u201d'\u2018\u2019`]([A-Za-z_][\w.]*)[\"\u201c\u201d'\u2018\u2019`]")
_NEGATIVE = re.compile(r"\b(?:not|no|never|none|nor|without|cannot|isn't|hasn't|doesn't|free of)\b", re.IGNORECASE)
_EXISTS = re.compile(r"\bexists?\b", re.IGNORECASE)
_TRUTH = re.compile(r"\b(?:set to|of|is|be|to|as|equals?|=)\s+[\"']?(true|false)\b", re.IGNORECASE)
_YES_NO = re.compile(r"\btrue or false\b|\bboolean\b|\bwhether\b|\btrue if\b", re.IGNORECASE)
_ONE_OF = re.compile(r"\b(?:must be|should be|is|are|be) (?:either |one of |any of |in )(?P<values>.+)$", re.IGNORECASE)


class Formulas(Struct, frozen=True):
    """What decides a condition at a call; None where nothing can."""

    asked: str | None
    held: str | None
    variables: tuple[tuple[str, str], ...]
    """(argument of the call, variable) that the formulas use"""
    tier: Tier
    confidence: float = 1.0


class Open(Struct, frozen=True):
    reason: str


def read_condition(statement: Statement, action: ToolSpec, binder: Binder) -> Formulas | Open:
    """A sentence, or a list of them with what joins them."""
    if statement.junction is not None:
        parts = [read_condition(part, action, binder) for part in statement.parts if is_condition(part, listed=True)]
        return _joined(parts, statement.junction)
    return _read_sentence(plain_text(statement.text), action, binder)


def is_condition(statement: Statement, *, listed: bool = False) -> bool:
    """Whether a sentence under a tool says what must hold when it is called, and does not describe the tool.

    In a list that was introduced as one of conditions, the first sentence of each item does, in whatever words.
    """
    text = plain_text(statement.text)
    if text.strip().rstrip(".").lower() in ("none", "n/a", "no constraints", "no conditions"):
        return False
    if statement.junction is not None or (listed and statement.leads):
        return True
    return bool(_DEMANDS.search(text)) and not _OF_THE_TOOL.match(text)


_DEMANDS = re.compile(
    r"\b(?:must|should|shall|needs? to|has to|have to|required?|requires|only|cannot|can't|may not|previously|already|"
    r"beforehand|in order to|to (?:perform|proceed|be accepted|be eligible)|at least|at most|no more than)\b",
    re.IGNORECASE,
)
_OF_THE_TOOL = re.compile(
    r"\W*(?:(?:this|the) (?:tool|function|action|operation|call|endpoint|api)|it|returns?|takes|accepts|used?)\b",
    re.IGNORECASE,
)


def _read_sentence(text: str, action: ToolSpec, binder: Binder) -> Formulas | Open:
    comparison = read_comparison(text)
    if comparison is not None and (bound := _bound(comparison, action, binder)):
        return bound
    if listed := _listed(text, action):
        return listed
    bonds = binder.bind(text, action.name, *_asked_for(comparison))
    if bonds is None:
        return Open("no tool is known to show it")
    if comparison is not None:
        return _compared(text, comparison, bonds, action, binder)
    return _shown(text, bonds, action, binder)


def _asked_for(comparison: Comparison | None) -> tuple[str | None, frozenset[str]]:
    """The part of a sentence that names what is compared, and words that it means without saying them."""
    if comparison is None:
        return None, frozenset()
    if comparison.counts:
        return f"{comparison.left} {comparison.right}", frozenset(words_of("num number count"))
    return comparison.left, frozenset(words_of("available")) if comparison.wants_some else frozenset()


def _bound(comparison: Comparison, action: ToolSpec, binder: Binder) -> Formulas | None:
    """`the amount "amount" must be at most 10000`: a bound on the call's own argument."""
    if comparison.number is None:
        return None
    quoted = list(_QUOTED.finditer(comparison.left))
    if quoted:
        name, after = quoted[-1][1], comparison.left[quoted[-1].end() :]
        if _is_numeric(action, name) and not _HAVING.search(after) and not set(words_of(after)) - _SAYING:
            return _argument(name, f"{comparison.sign} {comparison.number}", action)
        return None
    words = words_of(comparison.left)
    for name in action.params:
        own = words_of(name)
        if own and words[-len(own) :] == own and len(words) <= len(own) + 2:
            return _argument(name, f"{comparison.sign} {comparison.number}", action)
    return None


def _is_numeric(action: ToolSpec, name: str) -> bool:
    return name in action.params and action.params[name].get("type", "number") in (
        "number",
        "integer",
        ["number", "null"],
    )


_HAVING = re.compile(r"\b(?:has|have|had|having|owns?|holds?)\b", re.IGNORECASE)
_SAYING = frozenset(words_of("must be is value amount total parameter should equal strictly"))


def _argument(name: str, test: str, action: ToolSpec) -> Formulas:
    held = f"tool({action.name}, args.{name} {test}) | tool({action.name}, args.{name} missing)"
    return Formulas(None, held, (), Tier.CERTAIN)


def _listed(text: str, action: ToolSpec) -> Formulas | None:
    """`the reason must be one of a, b or c`: the values an argument may have."""
    found = _ONE_OF.search(text)
    if not found:
        return None
    before = text[: found.start()]
    name = next((name for name in _QUOTED.findall(before) if name in action.params), None)
    if name is None:
        return None
    values = [value.strip(" .\"'\u201c\u201d`") for value in re.split(r",| or | and ", found["values"])]
    values = [value for value in values if value and len(value) <= 60]
    if len(values) < 2:
        return None
    written = ", ".join(_text(value) for value in values)
    return _argument(name, f"in [{written}]", action)


def _shown(text: str, bonds: Bonds, action: ToolSpec, binder: Binder) -> Formulas:
    """`the account must exist`: what shows it was called, and did not answer the contrary."""
    negative = bool(_NEGATIVE.search(text))
    if literal := _TRUTH.search(text):
        negative ^= literal[1].lower() == "false"
    about_key = _is_about_its_key(text, bonds, action)
    wrong = []
    for bond in bonds.any_of:
        if _says_yes_or_no(bond, binder):
            wrong.append(_latest(bond, ["result = true" if negative else "result = false"]))
        elif not negative:
            wrong.append(_latest(bond, ["result = false", "result = null"]))
        elif about_key:
            wrong.append(_latest(bond, [f"{path} > 0" for path in _paths(text, bond, action, binder)]))
    found = _formulas(bonds, binder, wrong)
    if not negative and about_key and _EXISTS.search(text) and found.asked is not None:
        return replace(found, asked=" | ".join((found.asked, *_met(bonds))))
    return found


def _says_yes_or_no(bond: Bond, binder: Binder) -> bool:
    return bool(_YES_NO.search(binder.tools[bond.tool].description))


def _is_about_its_key(text: str, bonds: Bonds, action: ToolSpec) -> bool:
    """Whether the only thing the sentence names is what the tools are asked by."""
    named = {name for name in _QUOTED.findall(text) if name in action.params}
    return all({name for _, name in bond.same} == named for bond in bonds.any_of)


def _met(bonds: Bonds) -> Iterator[str]:
    """Whatever answered for the same key has met the thing: it exists."""
    for same in dict.fromkeys(bond.same for bond in bonds.any_of if bond.same):
        tests = ", ".join(f"args.{own} = ${name}" for own, name in same)
        yield f"O result(*, {tests}, result != false, result != null)"


def _compared(text: str, comparison: Comparison, bonds: Bonds, action: ToolSpec, binder: Binder) -> Formulas:
    """`the balance must be at least 300`, or at least what another argument says."""
    if comparison.wants_some and all(_says_yes_or_no(bond, binder) for bond in bonds.any_of):
        return _formulas(bonds, binder, [_latest(bond, ["result = false"]) for bond in bonds.any_of])
    contrary = OPPOSITE[comparison.sign]
    if comparison.number is not None:
        return _formulas(bonds, binder, _measured(bonds, text, f"{contrary} {comparison.number}", action, binder))
    if (other := _argument_in(comparison.right, bonds, action)) is not None:
        wrong = _measured(bonds, comparison.left, f"{contrary} ${other}", action, binder)
        return _formulas(bonds, binder, wrong, other)
    own = _argument_in(comparison.left, bonds, action)
    if own is not None and 0 < len(words_of(comparison.right)) <= _PLAIN:
        wrong = _measured(bonds, comparison.right, f"{SWAPPED[contrary]} ${own}", action, binder)
        return _formulas(bonds, binder, wrong, own)
    return _formulas(bonds, binder, [])


_PLAIN = 3
"""words of a phrase that can still be one value; `credit limit minus credit balance` is a sum to be worked out"""


def _measured(bonds: Bonds, text: str, test: str, action: ToolSpec, binder: Binder) -> list[str]:
    return [_latest(b, [f"{path} {test}" for path in _paths(text, b, action, binder)]) for b in bonds.any_of]


def _argument_in(text: str, bonds: Bonds, action: ToolSpec) -> str | None:
    """An argument of the call that the text quotes and that does not only say whose thing it is."""
    quoted = (name for name in _QUOTED.findall(text) if name in action.params)
    return next((name for name in quoted if not _is_key(name, bonds)), None)


def _is_key(argument: str, bonds: Bonds) -> bool:
    """Whether the argument only says whose thing it is."""
    return any(argument in pair for bond in bonds.any_of for pair in bond.same)


def _paths(text: str, bond: Bond, action: ToolSpec, binder: Binder) -> list[str]:
    """Where in a tool's result the value may stand: the whole of it, or a field.

    Fields are those that the sentence quotes, and those that the tool's description names in words of the sentence.
    """
    tool = binder.tools[bond.tool]
    params = {*tool.params, *action.params}
    quoted = [name for name in _QUOTED.findall(text) if name not in params]
    said = frozenset(words_of(text))
    described = ["_".join(pair) for pair in _pairs(tool.description) if frozenset(words_of(" ".join(pair))) <= said]
    fields = dict.fromkeys([*quoted, *described])
    return ["result", *(f"result.{field}" for field in fields if field not in params)]


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Two words next to each other, each saying something."""
    words = [word.lower() for word in re.findall(r"[A-Za-z]+|[,.;]", text)]
    for left, right in pairwise(words):
        if len(words_of(f"{left} {right}")) == 2 and left.isalpha() and right.isalpha():
            yield left, right


def _formulas(bonds: Bonds, binder: Binder, wrong: Sequence[str], argument: str | None = None) -> Formulas:
    looked = [f"O result({_arguments(bond)})" for bond in bonds.any_of] + [f"O result({tool})" for tool in binder.whole]
    held = " & ".join(f"!{one}" for one in wrong) or None
    names = dict.fromkeys(name for bond in bonds.any_of for _, name in bond.same)
    if argument is not None and held is not None:
        names[argument] = None
    confidence = 0.95 if bonds.tier is Tier.CERTAIN else min(0.9, 0.5 + bonds.likeness / 2)
    return Formulas(
        " | ".join(dict.fromkeys(looked)), held, tuple((name, name) for name in names), bonds.tier, confidence
    )


def _latest(bond: Bond, tests: Sequence[str]) -> str:
    """The last result for these arguments passes one of the tests."""
    every = _arguments(bond)
    passed = " | ".join(f"result({every}, {test})" for test in tests)
    return f"(!result({every}) S ({passed}))"


def _arguments(bond: Bond) -> str:
    return ", ".join((bond.tool, *(f"args.{own} = ${name}" for own, name in bond.same)))


def _joined(parts: Sequence[Formulas | Open], junction: Junction) -> Formulas | Open:
    known = [part for part in parts if isinstance(part, Formulas)]
    if not known:
        return Open("none of its parts could be bound to a tool")
    if junction == "any" and len(known) < len(parts):
        return Open("one of its alternatives could not be bound to a tool")
    sign = " | " if junction == "any" else " & "
    asked = [f"({part.asked or part.held})" for part in known if part.asked or part.held]
    held = [f"({part.held})" if part.held else "true" for part in known]
    return Formulas(
        sign.join(asked) if any(part.asked for part in known) else None,
        sign.join(held) if any(part.held for part in known) else None,
        tuple(dict.fromkeys(variable for part in known for variable in part.variables)),
        Tier.LIKELY if any(part.tier is Tier.LIKELY for part in known) else Tier.CERTAIN,
        min(part.confidence for part in known),
    )


def _text(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
