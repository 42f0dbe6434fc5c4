"""Matching a user's names and texts. Globs and regexes run on RE2: linear time for any pattern."""

from __future__ import annotations

from collections.abc import Callable
from unicodedata import normalize

import re2

from bylaw.model.demand import Calls, TextHas
from bylaw.text.regex import Matches, compile_regex, compile_search

Find = Callable[[str], tuple[int, int] | None]
"""text → start and end of the first match"""


def is_glob(name: str) -> bool:
    return any(character in name for character in "*?[")


def compile_names(calls: Calls) -> Matches:
    """Whether a tool name is one of the names or fits one of the globs."""
    exact = frozenset(calls.tools)  # a name that looks like a glob is still a name
    globs = [compile_search(_glob_to_regex(name)) for name in calls.tools if is_glob(name)]
    if not globs:
        return exact.__contains__
    return lambda name: name in exact or any(fits(name) for fits in globs)


def compose(text: str) -> str:
    """NFC: `é` may be recorded as one character or as two. The same string where it is composed already."""
    return text if text.isascii() else normalize("NFC", text)


def compile_text(probe: TextHas) -> Find:
    """A search in any text; both sides are composed (NFC)."""
    find = compile_composed(probe)
    return lambda text: find(compose(text))


def compile_composed(probe: TextHas) -> Find:
    """A search in text that is composed already. For literals a plain substring search beats any regex engine."""
    wanted = compose(probe.text)
    if probe.regex:
        return _regex_finder(wanted, probe.ignore_case)
    return _caseless_finder(wanted.casefold()) if probe.ignore_case else _finder(wanted)


def _finder(wanted: str) -> Find:
    def find(text: str) -> tuple[int, int] | None:
        if wanted not in text:
            return None
        start = text.index(wanted)
        return start, start + len(wanted)

    return find


def _caseless_finder(wanted: str) -> Find:
    find = _finder(wanted)
    return lambda text: find(text.casefold())


def _regex_finder(pattern: str, ignore_case: bool) -> Find:
    search = compile_regex(pattern, ignore_case=ignore_case).search

    def find(text: str) -> tuple[int, int] | None:
        match = search(text)
        return None if match is None else match.span()

    return find


def _glob_to_regex(glob: str) -> str:
    parts, position = [], 0
    while position < len(glob):
        part, position = _next_part(glob, position)
        parts.append(part)
    return rf"\A(?s:{''.join(parts)})\z"


_WILDCARDS = {"*": ".*", "?": "."}


def _next_part(glob: str, position: int) -> tuple[str, int]:
    """The regex for what stands at `position`, and where the next part begins."""
    character = glob[position]
    if character == "[":
        # a bracket that comes first in a class is a member of it: []] and [!]]
        start = position + (2 if glob.startswith("[!", position) else 1)
        close = glob.find("]", start + 1)
        members = _class(glob[position + 1 : close]) if close > 0 else None
        if members is not None:
            return members, close + 1
    return _WILDCARDS.get(character) or re2.escape(character), position + 1


def _class(inside: str) -> str | None:
    """A character class, or None if it is not a valid one (a reversed range): then the bracket is a literal."""
    escaped = inside.removeprefix("!").replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^")
    regex = f"[{'^' if inside.startswith('!') else ''}{escaped}]"
    try:
        compile_regex(regex)
    except re2.error:
        return None
    return regex
