"""What stands in a formula where nothing of the kind can stand, and what was probably meant."""

from __future__ import annotations

import re
from typing import NoReturn

from bylaw.rules.messages import near, quote, synonyms
from bylaw.rules.temporal.scanner import Report, Scanner, Token

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
    match = near(word, _ATOMS, _ATOM_SYNONYMS)
    if match and (opens or word not in _ATOM_SYNONYMS):
        return f"did you mean `{match}`?"
    if match == "tool":
        return "for a call of a tool write `tool(name)`"
    return f"for a call of a tool write {quote(f'tool({word})')}"


def _not_an_operator(token: Token, report: Report) -> NoReturn:
    message = f"{quote(token.text)} is no operator"
    report.stop(token, code="unknown-formula-word", message=message, help=f"write `{_BETWEEN_TWO[token.text]}`")


def _is_word(token: Token) -> bool:
    return token.text[0].isalpha() or token.text[0] == "_"
