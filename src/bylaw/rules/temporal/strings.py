"""Texts in quotes and patterns between slashes."""

from __future__ import annotations

import json
import re

from bylaw.model.texts import TextHas
from bylaw.rules.regexes import check_pattern
from bylaw.rules.temporal.report import Report, Stop
from bylaw.rules.temporal.tokens import Scanner, Token
from bylaw.rules.words import quote

DOUBLE = re.compile(r'"(?:\\.|[^"\\])*"?', re.DOTALL)
SINGLE = re.compile(r"'(?:''|[^'])*'?")
_PATTERN = re.compile(r"/((?:\\.|[^/\\])*)(/?)([^\W\d]*)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


def take_string(scanner: Scanner, report: Report) -> str | None:
    """The text in quotes that comes next, if one does: JSON in double quotes, `''` for a quote in single ones."""
    if token := scanner.take(DOUBLE):
        return _double(token, report)
    if token := scanner.take(SINGLE):
        if len(token.text) < 2 or token.text.count("'") % 2:
            _not_closed(token, report)
        return token.text[1:-1].replace("''", "'")
    return None


def take_pattern(scanner: Scanner, report: Report) -> TextHas | None:
    """The `/pattern/` that comes next, if one does."""
    token = scanner.take(_PATTERN)
    if token is None:
        return None
    found = _PATTERN.fullmatch(token.text)
    assert found is not None
    inside, closed, flags = found.groups()
    if not closed:
        help = "a slash inside a pattern is written `\\/`"
        report.stop(Token(token.start, token.start + 1, "/"), message="this `/` is never closed", help=help)
    if flags not in ("", "i"):
        at = Token(token.end - len(flags), token.end, flags)
        report.stop(at, message=f"{quote(flags)} is no flag of a pattern", help="the only flag is `i`: ignore case")
    pattern = re.sub(r"\\/", "/", inside)
    if not pattern:
        report.stop(token, message="the pattern is empty")
    if not check_pattern(pattern, report.place(token), report.problems):
        report.failed = True
    return TextHas(pattern, regex=True, ignore_case=flags == "i")


def _double(token: Token, report: Report) -> str:
    try:
        text = json.loads(token.text, strict=False)
    except ValueError:
        if len(token.text) < 2 or not _closed(token.text):
            _not_closed(token, report)
        help = 'write a backslash as `\\\\`; JSON knows `\\"`, `\\n`, `\\t` and `\\u….`'
        report.stop(token, message=f"{quote(token.text)} has an escape that JSON does not know", help=help)
    if _SURROGATE.search(text):
        report.stop(token, code="bad-surrogate", message="the text holds half of a surrogate pair")
    return str(text)


def _closed(text: str) -> bool:
    return re.fullmatch(r'"(?:\\.|[^"\\])*"', text, re.DOTALL) is not None


def _not_closed(token: Token, report: Report) -> None:
    report.error(
        Token(token.start, token.start + 1, token.text[0]), code="formula-syntax", message="this quote is never closed"
    )
    raise Stop
