"""The text of a formula → its nodes.

    formula = implies { "<->" implies }
    implies = or [ "->" implies ]
    or      = and { ("|" | "||") and }
    and     = pair { ("&" | "&&") pair }
    pair    = unary [ ("U" | "W" | "R" | "S") [ window ] pair ]
    unary   = ("!" | "X" | "N" | "Y") unary | ("F" | "G" | "O" | "H") [ window ] unary | primary
    primary = "(" formula ")" | "true" | "false" | atom
            | "seen" [ window ] "(" ( names { "," test } | "result" "(" names { "," test } ")" ) ")"
            | "count" [ window ] "(" formula ")" ( "=" | "!=" | ">" | ">=" | "<" | "<=" ) whole number
    window  = "[" "<=" number [ "ms" | "s" | "m" | "h" | "d" | "t" | "e" ] "]"

Atoms and names are in `atoms`, tests in `comparisons`. Blanks between pieces mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NoReturn, TypeVar, cast

from msgspec import Struct

from bylaw.model.temporal import Ahead, And, Back, Constant, Count, Formula, Iff, Implies, Not, Or, Pair, Seen
from bylaw.rules.messages import quote
from bylaw.rules.temporal.atoms import ATOMS, Atoms
from bylaw.rules.temporal.literals import refuse_window, take_window
from bylaw.rules.temporal.scanner import Nodes, Report, Scanner, Spot, Stop, Token
from bylaw.rules.temporal.syntax_errors import refuse_operand, refuse_stray

MAX_LENGTH = 20_000

_COMPARISONS = ("=", "!=", ">", ">=", "<", "<=")
_Node = TypeVar("_Node", bound=Formula)
_WHOLE = re.compile(r"[0-9]{1,18}(?![\w.])")


class Parsed(Struct, frozen=True):
    """A formula, and where its parts stand."""

    text: str
    formula: Formula
    nodes: Nodes
    report: Report


def parse_formula(text: str, report: Report) -> Parsed | None:
    """The formula; None where it is none, and why is reported."""
    nodes = Nodes(report)
    try:
        if len(text) > MAX_LENGTH:
            _refuse_length(text, report)
        formula = _Parser(text, nodes, report).whole()
    except Stop:
        return None
    return None if report.failed else Parsed(text, formula, nodes, report)


def _refuse_length(text: str, report: Report) -> NoReturn:
    report.stop(
        Spot(0, len(text)),
        code="formula-too-large",
        message=f"the formula is longer than {MAX_LENGTH:,} characters",
        help="split it into several rules",
    )


class _Parser:
    """Recursive descent; the depth of nesting bounds the recursion."""

    def __init__(self, text: str, nodes: Nodes, report: Report) -> None:
        self.scanner = Scanner(text)
        self.nodes = nodes
        self.report = report
        self.atoms = Atoms(self.scanner, nodes, report)
        self.depth = 0

    def whole(self) -> Formula:
        if self.scanner.peek() is None:
            message = "the formula is empty"
            self.report.stop(Spot(0, 0), message=message, help="write one, such as `G (tool(a) -> Y O tool(b))`")
        formula = self.formula()
        if token := self.scanner.peek():
            refuse_stray(token, self.report)
        return formula

    # binary operators, loosest first

    def formula(self) -> Formula:
        start = self.scanner.start()
        left = self.implies()
        while self.scanner.take_one_of("<->"):
            left = self.keep(Iff(left, self.implies(), self.written(start)), start)
        return left

    def implies(self) -> Formula:
        start = self.scanner.start()
        left = self.disjunction()
        arrow = self.scanner.take_one_of("->")
        if arrow is None:
            return left
        right = self.deeper(arrow, self.implies)
        return self.keep(Implies(left, right, self.written(start)), start)

    def disjunction(self) -> Formula:
        start = self.scanner.start()
        left = self.conjunction()
        while self.scanner.take_one_of("|", "||"):
            left = self.keep(Or(left, self.conjunction(), self.written(start)), start)
        return left

    def conjunction(self) -> Formula:
        start = self.scanner.start()
        left = self.pair()
        while self.scanner.take_one_of("&", "&&"):
            left = self.keep(And(left, self.pair(), self.written(start)), start)
        return left

    def pair(self) -> Formula:
        start = self.scanner.start()
        left = self.unary()
        operator = self.scanner.take_one_of("U", "W", "R", "S")
        if operator is None:
            return left
        window = take_window(self.scanner, self.report)
        right = self.deeper(operator, self.pair)
        letter = cast(Literal["U", "W", "R", "S"], operator.text)
        return self.keep(Pair(letter, left, right, window, self.written(start)), start)

    # one operand

    def unary(self) -> Formula:
        start = self.scanner.start()
        operator = self.scanner.take_one_of("!", "X", "N", "F", "G", "Y", "O", "H")
        if operator is None:
            return self.primary()
        if operator.text in ("!", "X", "N", "Y"):
            refuse_window(operator, self.scanner, self.report)
        window = take_window(self.scanner, self.report)
        inner = self.deeper(operator, self.unary)
        text = self.written(start)
        if operator.text == "!":
            return self.keep(Not(inner, text), start)
        if operator.text in ("Y", "O", "H"):
            return self.keep(Back(cast(Literal["Y", "O", "H"], operator.text), inner, window, text), start)
        return self.keep(Ahead(cast(Literal["X", "N", "F", "G"], operator.text), inner, window, text), start)

    def primary(self) -> Formula:
        if opening := self.scanner.take_one_of("("):
            inner = self.deeper(opening, self.formula)
            self.close(opening)
            return inner
        if word := self.scanner.take_one_of("true", "false"):
            return self.keep(Constant(word.text == "true", word.text), word.start)
        if word := self.scanner.take_one_of("seen"):
            return self.seen(word)
        if word := self.scanner.take_one_of("count"):
            return self.count(word)
        if atom := self.atoms.take_prefixed():
            return atom
        if word := self.scanner.take_one_of(*ATOMS):
            return self.atoms.take(word)
        refuse_operand(self.scanner, self.report)

    def seen(self, word: Token) -> Seen:
        window = take_window(self.scanner, self.report)
        opening = self.atoms.open(word)
        result = self.atoms.result_inside(word, opening)
        self.atoms.close(word, opening)
        return self.keep(Seen(result, window, self.written(word.start)), word.start)

    def count(self, word: Token) -> Count:
        window = take_window(self.scanner, self.report)
        opening = self.atoms.open(word)
        inner = self.deeper(opening, self.formula)
        self.close(opening)
        operator = self.scanner.take_one_of(*_COMPARISONS)
        number = self.scanner.take(_WHOLE) if operator else None
        if operator is None or number is None:
            self.refuse_count(word, operator)
        letter = cast(Literal["=", "!=", ">", ">=", "<", "<="], operator.text)
        return self.keep(Count(inner, letter, int(number.text), window, self.written(word.start)), word.start)

    # small steps

    def deeper(self, at: Token, read: Callable[[], Formula]) -> Formula:
        self.depth += 1
        self.nodes.check_depth(self.depth, at)
        formula = read()
        self.depth -= 1
        return formula

    def close(self, opening: Token) -> None:
        if self.scanner.take_one_of(")"):
            return
        if token := self.scanner.peek():
            refuse_stray(token, self.report)
        self.report.stop(opening, message="this `(` is never closed", help="close it with `)`")

    def written(self, start: int) -> str:
        return self.scanner.written(self.scanner.since(start))

    def keep(self, node: _Node, start: int) -> _Node:
        return self.nodes.keep(node, self.scanner.since(start))

    def refuse_count(self, word: Token, operator: Token | None) -> NoReturn:
        at = operator or self.scanner.since(word.start)
        found = self.scanner.peek()
        if operator is None and found and found.text == "==":
            self.report.stop(found, message="`==` compares nothing", help="write `=`")
        what = f"after {quote(operator.text)}" if operator else "with a comparison after it"
        self.report.stop(at, message=f"`count` needs a whole number {what}", help="write `count(tool(x)) <= 3`")
