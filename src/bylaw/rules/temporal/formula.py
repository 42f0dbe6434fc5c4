"""The parameters of a temporal rule, in any form → one formula that can be judged.

Every problem of a formula that parses and still cannot be judged is reported, not only the first.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec.structs import replace

from bylaw.model.demand import Temporal
from bylaw.model.temporal import ResultOf, Seen, ToolIs, Variable, variables_in, walk
from bylaw.rules.nodes import Located, MapNode, Node, Place, Problems, ScalarNode
from bylaw.rules.params import TEXT_SCHEMA, Context, ParamType, Values
from bylaw.rules.readers import read_text
from bylaw.rules.temporal.parser import Parsed, parse_formula
from bylaw.rules.temporal.patterns import GLOBAL, MOST_IN_STRETCH, Scope, write_pattern_formula, write_pattern_sentence
from bylaw.rules.temporal.scanner import FormulaSpan, Report
from bylaw.rules.temporal.variables import VariableBinding, check_boundedness, survey
from bylaw.rules.temporal.wording import choose_form, write_formula, write_sentence

# -- places ------------------------------------------------------------------------------------------------------------

# From a character of a formula to its place in the file.
#
# Quotes, escapes, folded lines and indentation stand between the two. All of them keep the order of the characters that
# are not blank, and add or remove only blanks: so the n-th such character of the text is the n-th of what the user
# wrote, once escapes are read. Where the two sequences do not agree the whole scalar is the place, never a wrong one.


_Unit: TypeAlias = tuple[str, int, int]
"""a character, and the offsets in the file between which it is written"""

_BLANKS = frozenset(" \t\r\n\x85\u2028\u2029\ufeff")
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|\r\n|.)",
    re.DOTALL,
)
_NAMED = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}


class FormulaPlaces:
    """The places of one formula's characters."""

    def __init__(self, node: ScalarNode) -> None:
        self.node = node
        self._units: list[_Unit] | None = None
        self._offsets: list[int] = []

    def __call__(self, spot: FormulaSpan) -> Located:
        units = self._aligned()
        first, behind = bisect_left(self._offsets, spot.start), bisect_left(self._offsets, spot.end)
        if first >= behind or not units:
            return self.node
        return Located(self.node.source, units[first][1], units[behind - 1][2])

    def _aligned(self) -> list[_Unit]:
        if self._units is None:
            text = str(self.node.value)
            self._offsets = [at for at, character in enumerate(text) if character not in _BLANKS]
            units = [unit for unit in _units(self.node) if unit[0] not in _BLANKS][: len(self._offsets)]
            agree = [unit[0] for unit in units] == [text[at] for at in self._offsets]
            self._units = units if agree else []
        return self._units


def _units(node: ScalarNode) -> Iterator[_Unit]:
    """The characters of the scalar in the order in which they are written."""
    text = node.source.text
    if not node.quoted:
        return _plain_units(text, node.start, node.end)
    if text.startswith('"', node.start):
        return _double_quoted_units(text, node.start + 1, node.end - 1)
    if text.startswith("'", node.start):
        return _single_quoted_units(text, node.start + 1, node.end - 1)
    return _plain_units(
        text, min(node.end, node.source.line_end(node.start)), node.end
    )  # a block, without its first line


def _plain_units(text: str, start: int, end: int) -> Iterator[_Unit]:
    return ((text[at], at, at + 1) for at in range(start, end))


def _single_quoted_units(text: str, start: int, end: int) -> Iterator[_Unit]:
    at = start
    while at < end:
        width = 2 if text.startswith("''", at) else 1
        yield text[at], at, at + width
        at += width


def _double_quoted_units(text: str, start: int, end: int) -> Iterator[_Unit]:
    at = start
    while at < end:
        escape = _ESCAPE.match(text, at, end)
        behind = escape.end() if escape else at + 1
        yield _unescape(escape[0]) if escape else text[at], at, behind
        at = behind


def _unescape(escape: str) -> str:
    kind, digits = escape[1], escape[2:]
    if len(escape) == 12:
        return bytes.fromhex(escape[2:6] + escape[8:]).decode("utf-16-be")
    if kind in "xuU" and digits:
        return chr(int(digits, 16)) if int(digits, 16) <= 0x10FFFF else "\ufffd"
    return _NAMED.get(kind, kind)


# -- formula -----------------------------------------------------------------------------------------------------------


def check_formula(parsed: Parsed, *, over: Literal["events", "turns"]) -> bool:
    """Whether the formula can be judged over these positions; if not, why."""
    error, spot = parsed.report.error, parsed.nodes.spot
    for part in walk(parsed.formula):
        for test in part.tests if isinstance(part, ToolIs | ResultOf) else ():
            if isinstance(part, ToolIs) and test.root != "args":
                help = f"test it where the result is: `result({part.names[0]}, {test.text})`"
                error(spot(test), code="result-in-call", message=f"a call has no `{test.root}` yet", help=help)
            if isinstance(test.value, Variable) and None in test.path:
                message = f"`*` names many values, and `${test.value.name}` is one"
                help = "name one value, such as `args.items.0.id`"
                error(spot(test), code="variable-wildcard", message=message, help=help)
        if isinstance(part, Seen) and over == "turns":
            help = "leave `over: turns` out, or look back at the turns before: `Y O result(…)`"
            error(spot(part), code="seen-over-turns", message="`seen` needs positions that are events", help=help)
    for variable in variables_in(parsed.formula) if over == "turns" else ():
        message = f"`${variable.name}` needs positions that are events"
        help = "a turn has many calls, so no one value; leave `over: turns` out"
        error(spot(variable), code="variable-over-turns", message=message, help=help)
    if over == "events":
        _check_variables(parsed)
    if not parsed.report.failed:
        check_boundedness(parsed, survey(parsed))
    return not parsed.report.failed


def _check_variables(parsed: Parsed) -> None:
    scopes, error = survey(parsed), parsed.report.error
    fixings: dict[str, list[VariableBinding]] = {}
    for fixing in scopes.fixings:
        fixings.setdefault(fixing.name, []).append(fixing)
    for variable in scopes.loose:
        where = "where this can see it" if variable.name in fixings else "before it is compared"
        message = f"nothing fixes `${variable.name}` {where}"
        help = f"fix it further left, with `args.path = ${variable.name}` before `->`, `&` or `,`"
        error(parsed.nodes.spot(variable), code="unbound-variable", message=message, help=help)
    loose = {variable.name for variable in scopes.loose}
    for name, (first, *more) in fixings.items():
        at, message = first.spots[0], f"`${name}` is fixed here once more"
        help = "only the right side of `->` and `&` sees what the left side fixes; otherwise take another name"
        for place in more:
            error(place.spots[0], code="rebound-variable", message=message, help=help, first=at)
        if not more and not first.used and name not in loose:
            message = f"`${name}` is fixed and never used"
            help = f"compare something with it, or test with `present` instead of `= ${name}`"
            error(at, code="unused-variable", message=message, help=help)


def _read(node: Node, name: str, context: Context) -> Parsed | None:
    text = read_text(node, name, context.problems)
    if text is None or not isinstance(node, ScalarNode):
        return None
    return parse_formula(text, Report(context.problems, FormulaPlaces(node)))


FORMULA = ParamType(_read, TEXT_SCHEMA, plain=lambda parsed: parsed.text)


def combine(values: Values, node: MapNode, context: Context) -> Temporal | None:
    """What the parameters demand together; None where they make no rule, which is then reported."""
    form = choose_form(node, values.get("pattern"), context)
    if form is None:
        return None
    words = ""
    if form.needs == ("formula",):
        parsed = values["formula"]
    else:
        if form.pattern:
            text, words = _write_pattern(values, node, context)
        else:
            text, words = write_formula(form, values, node, context), write_sentence(form, values)
        if text is None:
            return None
        parsed = _parse(text, node.entries[form.needs[0]].key, context)
    over = values["over"]
    if parsed is None or not check_formula(parsed, over=over):
        return None
    return Temporal(parsed.formula, over, words, values.get("message", ""))


def _write_pattern(values: Values, node: MapNode, context: Context) -> tuple[str | None, str]:
    pattern, count = values["pattern"], values.get("n", 0)
    scope: Scope = values.get("scope", GLOBAL)
    if scope.name in ("between", "after-until") and count > MOST_IN_STRETCH:
        context.problems.error(
            code="formula-too-deep",
            message=f"between two events `n` goes up to {MOST_IN_STRETCH}",
            at=node.entries["n"].value,
            help="write the rule with a smaller `n`, or with another scope",
        )
        return None, ""
    events = {letter: values[letter] for letter in ("p", "s", "t") if letter in values} | scope.events
    sentence = write_pattern_sentence(pattern, scope.name, events, count=count)
    return write_pattern_formula(pattern, scope.name, events, count=count), sentence


def _parse(text: str, at: Place, context: Context) -> Parsed | None:
    """Problems of an event were reported where the event is written, so only new ones are reported here."""
    quiet = parse_formula(text, Report(Problems(context.problems.source), lambda spot: at))
    report = Report(context.problems, lambda spot: at)
    return replace(quiet, report=report) if quiet else parse_formula(text, report)
