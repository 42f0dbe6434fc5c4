"""What stands in a formula where nothing of the kind can stand, and what was probably meant."""

from __future__ import annotations

import re
from typing import NoReturn

from bylaw.rules.temporal.report import Report
from bylaw.rules.temporal.tokens import Scanner, Token
from bylaw.rules.words import near, quote

_ATOMS = ("tool", "result", "stop_reason", "text", "user", "agent", "seen", "count")
_ATOM_WORDS = {
    "call": "tool",
    "calls": "tool",
    "called": "tool",
    "tool_call": "tool",
    "tools": "tool",
    "output": "result",
    "returns": "result",
    "tool_result": "result",
    "answer": "text",
    "response": "text",
    "says": "text",
    "message": "user",
    "finish_reason": "stop_reason",
    "number": "count",
}
_BEFORE_ONE = {
    **dict.fromkeys(("g", "always", "globally", "ALWAYS", "box"), "G"),
    **dict.fromkeys(("f", "eventually", "finally", "sometime", "EVENTUALLY", "diamond"), "F"),
    **dict.fromkeys(("x", "next", "NEXT"), "X"),
    **dict.fromkeys(("n", "weak_next"), "N"),
    **dict.fromkeys(("y", "yesterday", "previous", "previously", "prev"), "Y"),
    **dict.fromkeys(("o", "once", "ONCE", "P"), "O"),
    **dict.fromkeys(("h", "historically"), "H"),
    **dict.fromkeys(("not", "NOT", "~", "¬"), "!"),
    **dict.fromkeys(("never", "NEVER"), "G !"),
    "□": "G",
    "◇": "F",
    "○": "X",
}
_BETWEEN_TWO = {
    **dict.fromkeys(("u", "until", "UNTIL"), "U"),
    **dict.fromkeys(("w", "unless", "weak_until"), "W"),
    **dict.fromkeys(("r", "release", "releases"), "R"),
    **dict.fromkeys(("s", "since", "SINCE"), "S"),
    **dict.fromkeys(("and", "AND", "∧"), "&"),
    **dict.fromkeys(("or", "OR", "\u2228"), "|"),
    **dict.fromkeys(("=>", "implies", "then", "IMPLIES", "→", "⇒"), "->"),
    **dict.fromkeys(("<=>", "iff", "↔", "⇔", "==", "="), "<->"),
}
_BINARY = frozenset({"U", "W", "R", "S", "&", "&&", "|", "||", "->", "<->"})
_COMPARISONS = frozenset({"!=", ">", ">=", "<", "<="})


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
        _refuse_word(token, scanner, report)
    if token.text in _BETWEEN_TWO:
        _not_an_operator(token, report)
    report.stop(token, message=f"expected a formula, not {quote(token.text)}")


def refuse_stray(token: Token, report: Report) -> NoReturn:
    """A formula is complete, and something follows that does not go on with it."""
    if token.text == ")":
        report.stop(token, message="this `)` closes nothing", help="remove it, or open it with `(`")
    if token.text in _BETWEEN_TWO:
        _not_an_operator(token, report)
    if token.text in _COMPARISONS:
        help = "compare inside the atom, `tool(x, args.n > 3)`, or a number of events, `count(tool(x)) > 3`"
        report.stop(token, message=f"{quote(token.text)} compares no formulas", help=help)
    if token.text == "[":
        message = "a window stands right after an operator"
        report.stop(token, code="bad-window", message=message, help="write `O[<=10m] tool(x)`")
    if _is_word(token) or token.text in ("(", "!"):
        help = "join two formulas with `&`, `|`, `->`, `U` or `S`"
        report.stop(token, message=f"expected an operator before {quote(token.text)}", help=help)
    report.stop(token, message=f"{quote(token.text)} has no place here")


def _refuse_word(token: Token, scanner: Scanner, report: Report) -> NoReturn:
    report.stop(
        token,
        code="unknown-formula-word",
        message=f"{quote(token.text)} is no atom and no operator",
        help=_word_help(token, opens=scanner.text[token.end :].lstrip().startswith("(")),
    )


def _word_help(token: Token, *, opens: bool) -> str:
    word = token.text
    if word in _BEFORE_ONE:
        return f"write `{_BEFORE_ONE[word]}`"
    if word in _BETWEEN_TWO:
        return f"write `{_BETWEEN_TWO[word]}`, between two formulas"
    if re.fullmatch("[XNFGYOH]{2,}", word):
        return f"put a space between the operators: `{' '.join(word)}`"
    match = near(word, _ATOMS, _ATOM_WORDS)
    if match and (opens or word not in _ATOM_WORDS):
        return f"did you mean `{match}`?"
    return f"for a call of a tool write {quote(f'tool({word})')}"


def _not_an_operator(token: Token, report: Report) -> NoReturn:
    message = f"{quote(token.text)} is no operator"
    report.stop(token, code="unknown-formula-word", message=message, help=f"write `{_BETWEEN_TWO[token.text]}`")


def _is_word(token: Token) -> bool:
    return token.text[0].isalpha() or token.text[0] == "_"
