"""libyaml's complaints in our words: what is wrong at this place, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import yaml

from bylaw.model.diagnostic import Related
from bylaw.rules.located import Located
from bylaw.rules.messages import as_json, quote
from bylaw.rules.source import Problems, Source

_Wording: TypeAlias = tuple[str, str | None]
"""a message and a help line"""

_INDENT = "check the indentation: what belongs together starts in the same column"


def report_syntax_error(error: yaml.YAMLError, source: Source, problems: Problems) -> None:
    """One diagnostic; where the text breaks off, it points at what was left open instead of the end of the file."""
    if not isinstance(error, yaml.MarkedYAMLError):
        problems.error(code="yaml-syntax", message="this cannot be read as YAML", at=_char(source, 0))
        return
    at = error.problem_mark.index if error.problem_mark else 0
    opened = error.context_mark.index if error.context_mark else at
    if (tab := _tab_in_indent(source.text, at)) is not None:
        advice = "indent with spaces; YAML does not allow tabs there"
        problems.error(code="tab-indent", message="a tab is used as indentation", at=_char(source, tab), help=advice)
        return
    problem = error.problem or "cannot be read as YAML"
    wording = next((words for known, words in _KNOWN.items() if known in problem), None)
    message, help = wording(source.text, at, opened) if wording else (problem.replace("'", "`"), None)
    code = "yaml-tag" if "tag" in (error.problem or "") else "yaml-syntax"
    related: tuple[Related, ...] = ()
    if not source.text[at:].strip() and opened < at:
        at = opened
    elif "\n" in source.text[opened:at]:
        began = (words for known, words in _CONTEXTS.items() if known in (error.context or ""))
        related = (problems.related(_char(source, opened), next(began, "reading began here")),)
    problems.error(code=code, message=message, at=_char(source, at), help=help, related=related)


def _tab_in_indent(text: str, at: int) -> int | None:
    """The first tab among the blanks that begin the line of `at`."""
    start = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    blanks = re.compile(r"[ \t-]*").match(text, start)
    tab = text.find("\t", start, blanks.end() if blanks else start)
    return tab if tab >= 0 else None


def _cannot_start(text: str, at: int, opened: int) -> _Wording:
    word = _word(text, at)
    return f"a value cannot start with `{word[:1]}`", f"put it in quotes: {as_json(word)}"


def _not_closed(text: str, at: int, opened: int) -> _Wording:
    bracket, closing = ("{", "}") if text[opened : opened + 1] == "{" else ("[", "]")
    if not text[at:].strip():
        return f"this `{bracket}` is never closed", f"close it with `{closing}`"
    return f"expected `,` or `{closing}` here", f"is the `{bracket}` missing its `{closing}`?"


def _quote_not_closed(text: str, at: int, opened: int) -> _Wording:
    return "this quote is never closed", f"close it with {quote(text[opened : opened + 1])}"


def _bad_escape(text: str, at: int, opened: int) -> _Wording:
    return (
        f"{quote(text[at : at + 2])} is no escape in double quotes",
        "use single quotes: in those a backslash is only a backslash",
    )


def _indicator(text: str, at: int, opened: int) -> _Wording:
    word = _word(text, opened)
    meaning = {"*": "an alias", "&": "an anchor"}.get(word[:1], "a block of text")
    return f"unquoted, `{word[:1]}` begins {meaning}", f"put it in quotes: {as_json(word)}"


_KNOWN: dict[str, Callable[[str, int, int], _Wording]] = {
    "cannot start any token": _cannot_start,
    "expected ',' or": _not_closed,
    "unexpected end of stream": _quote_not_closed,
    "unexpected document indicator": _quote_not_closed,
    "unknown escape character": _bad_escape,
    "expected comment or line break": _indicator,
    "alphabetic or numeric character": _indicator,
    "mapping values are not allowed": lambda *_: (
        "`:` is not allowed here",
        "put a value that holds `: ` in quotes; otherwise check the indentation",
    ),
    "did not find expected key": lambda *_: ("expected a key here", _INDENT),
    "expected '-' indicator": lambda *_: ("expected `- ` or the end of the list here", _INDENT),
    "could not find expected ':'": lambda *_: ("this key has no `:`", "write it as `key: value`"),
}

_CONTEXTS = {
    "flow sequence": "this list begins here",
    "flow mapping": "this mapping begins here",
    "block mapping": "this mapping begins here",
    "block collection": "this list begins here",
    "quoted scalar": "this text begins here",
    "plain scalar": "this value begins here",
    "simple key": "this key begins here",
}


def _word(text: str, at: int) -> str:
    """What stands at `at`, up to a blank or the end of a flow value."""
    found = re.compile(r"[^\s,\]}]*").match(text, at)
    return found[0][:40] if found else ""


def _char(source: Source, at: int) -> Located:
    return Located(source, at, at + 1)
