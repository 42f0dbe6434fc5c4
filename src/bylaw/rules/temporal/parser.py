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

Atoms, names and tests are in `atoms`. Blanks between pieces mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NoReturn, cast

from msgspec import Struct

from bylaw.model.temporal import Ahead, And, Back, Constant, Count, Formula, Iff, Implies, Not, Or, Pair, Seen
from bylaw.rules.messages import nearest_choice, quote, synonyms
from bylaw.rules.temporal.atoms import ATOMS, AtomParser
from bylaw.rules.temporal.scanner import (
    FormulaSpan,
    Nodes,
    Report,
    Scanner,
    StopParsing,
    Token,
    refuse_window,
    take_window,
)

# -- syntax errors -----------------------------------------------------------------------------------------------------

# What stands in a formula where nothing of the kind can stand, and what was probably meant.


_ATOMS = ("tool", "result", "stop_reason", "text", "user", "agent", "seen", "count")
_ATOM_SYNONYMS = synonyms(
    {
        "tool": "call calls called tool_call tools",
        "result": "output returns tool_result",
        "text": "answer response says",
        "user": "message",
        "stop_reason": "finish_reason",
        "count": "number",
    }
)
_BEFORE_ONE = synonyms(
    {
        "G": "g always globally ALWAYS box □",
        "F": "f eventually finally sometime EVENTUALLY diamond ◇",
        "X": "x next NEXT ○",
        "N": "n weak_next",
        "Y": "y yesterday previous previously prev",
        "O": "o once ONCE P",
        "H": "h historically",
        "!": "not NOT ~ ¬",
        "G !": "never NEVER",
    }
)
_BETWEEN_TWO = synonyms(
    {
        "U": "u until UNTIL",
        "W": "w unless weak_until",
        "R": "r release releases",
        "S": "s since SINCE",
        "&": "and AND ∧",
        "|": "or OR \u2228",
        "->": "=> implies then IMPLIES → ⇒",
        "<->": "<=> iff ↔ ⇔ == =",
    }
)
_BINARY = frozenset({"U", "W", "R", "S", "&", "&&", "|", "||", "->", "<->"})
_COMPARING_SIGNS = frozenset({"!=", ">", ">=", "<", "<="})


def refuse_operand(scanner: Scanner, report: Report) -> NoReturn:
    """A formula had to come next, and none does."""
    token, last = scanner.peek(), scanner.last
    if last and (token is None or token.text == ")"):
        report.stop(last, message=f"expected a formula after `{last.text}`")
    assert token is not None
    if token.text in _BINARY:
        help = None if last else f"`{token.text}` stands between two formulas"
        report.stop(token, message=f"expected a formula before `{token.text}`", help=help)
    if _is_word(token) or token.text in _BEFORE_ONE:
        help = _word_help(token, opens=scanner.text[token.end :].lstrip().startswith("("))
        message = f"{quote(token.text)} is no atom and no operator"
        report.stop(token, code="unknown-formula-word", message=message, help=help)
    if token.text in _BETWEEN_TWO:
        _refuse_operator(token, report)
    report.stop(token, message=f"expected a formula, not {quote(token.text)}")


def refuse_stray(token: Token, report: Report) -> NoReturn:
    """A formula is complete, and something follows that does not go on with it."""
    if token.text == ")":
        report.stop(token, message="this `)` closes nothing", help="remove it, or open it with `(`")
    if token.text in _BETWEEN_TWO:
        _refuse_operator(token, report)
    if token.text in _COMPARING_SIGNS:
        help = "compare inside the atom, `tool(x, args.n > 3)`, or a number of events, `count(tool(x)) > 3`"
        report.stop(token, message=f"{quote(token.text)} compares no formulas", help=help)
    if token.text == "[":
        message = "a window stands right after an operator"
        report.stop(token, code="bad-window", message=message, help="write `O[<=10m] tool(x)`")
    if _is_word(token) or token.text in ("(", "!"):
        help = "join two formulas with `&`, `|`, `->`, `U` or `S`"
        report.stop(token, message=f"expected an operator before {quote(token.text)}", help=help)
    report.stop(token, message=f"{quote(token.text)} has no place here")


def _word_help(token: Token, *, opens: bool) -> str:
    word = token.text
    if word in _BEFORE_ONE:
        return f"write `{_BEFORE_ONE[word]}`"
    if word in _BETWEEN_TWO:
        return f"write `{_BETWEEN_TWO[word]}`, between two formulas"
    if re.fullmatch("[XNFGYOH]{2,}", word):
        return f"put a space between the operators: `{' '.join(word)}`"
    match = nearest_choice(word, _ATOMS, _ATOM_SYNONYMS)
    if match and (opens or word not in _ATOM_SYNONYMS):
        return f"did you mean `{match}`?"
    if match == "tool":
        return "for a call of a tool write `tool(name)`"
    return f"for a call of a tool write {quote(f'tool({word})')}"


def _refuse_operator(token: Token, report: Report) -> NoReturn:
    message = f"{quote(token.text)} is no operator"
    report.stop(token, code="unknown-formula-word", message=message, help=f"write `{_BETWEEN_TWO[token.text]}`")


def _is_word(token: Token) -> bool:
    return token.text[0].isalpha() or token.text[0] == "_"


# -- parser ------------------------------------------------------------------------------------------------------------


MAX_LENGTH = 20_000

_COMPARISONS = ("=", "!=", ">", ">=", "<", "<=")
_WHOLE = re.compile(r"[0-9]{1,18}(?![\w.])")


class Parsed(Struct, frozen=True):
    """A formula, and where its parts stand."""

    text: str
    formula: Formula
    nodes: Nodes
    report: Report


def parse_formula(text: str, report: Report) -> Parsed | None:
    """The formula; None where it is none, and why is reported."""
    try:
        if len(text) > MAX_LENGTH:
            message = f"the formula is longer than {MAX_LENGTH:,} characters"
            help = "split it into several rules"
            report.stop(FormulaSpan(0, len(text)), code="formula-too-large", message=message, help=help)
        parser = _Parser(text, report)
        formula = parser.whole()
    except StopParsing:
        return None
    return None if report.failed else Parsed(text, formula, parser.nodes, report)


class _Parser(AtomParser):
    """Recursive descent; the depth of nesting bounds the recursion."""

    depth = 0

    def whole(self) -> Formula:
        if self.scanner.peek() is None:
            message = "the formula is empty"
            self.report.stop(FormulaSpan(0, 0), message=message, help="write one, such as `G (tool(a) -> Y O tool(b))`")
        formula = self.formula()
        if token := self.scanner.peek():
            refuse_stray(token, self.report)
        return formula

    # binary operators, loosest first

    def formula(self) -> Formula:
        return self.joined(Iff, self.implies, "<->")

    def joined(self, join: type[Iff | Or | And], operand: Callable[[], Formula], *signs: str) -> Formula:
        start = self.scanner.start()
        left = operand()
        while self.scanner.take_one_of(*signs):
            left = self.keep(join(left, operand(), self.written(start)), start)
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
        return self.joined(Or, self.conjunction, "|", "||")

    def conjunction(self) -> Formula:
        return self.joined(And, self.pair, "&", "&&")

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
            self.close_group(opening)
            return inner
        if word := self.scanner.take_one_of("true", "false"):
            return self.keep(Constant(word.text == "true", word.text), word.start)
        if word := self.scanner.take_one_of("seen"):
            return self.seen(word)
        if word := self.scanner.take_one_of("count"):
            return self.count(word)
        if atom := self.take_prefixed():
            return atom
        if word := self.scanner.take_one_of(*ATOMS):
            return self.take_atom(word)
        refuse_operand(self.scanner, self.report)

    def seen(self, word: Token) -> Seen:
        window = take_window(self.scanner, self.report)
        opening = self.open(word)
        result = self.result_inside(word, opening)
        self.close(word, opening)
        return self.keep(Seen(result, window, self.written(word.start)), word.start)

    def count(self, word: Token) -> Count:
        window = take_window(self.scanner, self.report)
        opening = self.open(word)
        inner = self.deeper(opening, self.formula)
        self.close_group(opening)
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

    def close_group(self, opening: Token) -> None:
        if self.scanner.take_one_of(")"):
            return
        if token := self.scanner.peek():
            refuse_stray(token, self.report)
        self.report.stop(opening, message="this `(` is never closed", help="close it with `)`")

    def refuse_count(self, word: Token, operator: Token | None) -> NoReturn:
        at = operator or self.scanner.since(word.start)
        found = self.scanner.peek()
        if operator is None and found and found.text == "==":
            self.report.stop(found, message="`==` compares nothing", help="write `=`")
        what = f"after {quote(operator.text)}" if operator else "with a comparison after it"
        self.report.stop(at, message=f"`count` needs a whole number {what}", help="write `count(tool(x)) <= 3`")
