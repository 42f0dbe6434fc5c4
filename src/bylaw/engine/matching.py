"""Matching a user's names and texts. Globs and regexes run on RE2: linear time, whatever the pattern."""

from __future__ import annotations

from collections.abc import Callable

import re2

from bylaw.model.demand import Calls, TextHas

Matches = Callable[[str], bool]
Find = Callable[[str], tuple[int, int] | None]
"""text → start and end of the first match"""


def is_glob(name: str) -> bool:
    return any(character in name for character in "*?[")


def compile_names(calls: Calls) -> Matches:
    """Whether a tool name is one of the names or fits one of the globs."""
    exact = frozenset(name for name in calls.tools if not is_glob(name))
    globs = [compile_regex(_glob_to_regex(name)) for name in calls.tools if is_glob(name)]
    if not globs:
        return exact.__contains__
    return lambda name: name in exact or any(glob.search(name) for glob in globs)


def compile_text(probe: TextHas) -> Find:
    """Plain substring search for literals: it beats any regex engine."""
    if probe.regex:
        return _regex_finder(probe)
    wanted = probe.text.casefold() if probe.ignore_case else probe.text
    length = len(wanted)

    def find(text: str) -> tuple[int, int] | None:
        start = (text.casefold() if probe.ignore_case else text).find(wanted)
        return None if start < 0 else (start, start + length)

    return find


def _regex_finder(probe: TextHas) -> Find:
    search = compile_regex(probe.text, ignore_case=probe.ignore_case).search

    def find(text: str) -> tuple[int, int] | None:
        match = search(text)
        return None if match is None else match.span()

    return find


def compile_regex(pattern: str, *, ignore_case: bool = False) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    return re2.compile(pattern, options=options)


def _glob_to_regex(glob: str) -> str:
    parts, position = [], 0
    while position < len(glob):
        close = glob.find("]", position + 2)
        if glob[position] == "[" and close > 0:
            parts.append(_class(glob[position + 1 : close]))
            position = close
        else:
            parts.append(_WILDCARDS.get(glob[position]) or re2.escape(glob[position]))
        position += 1
    return rf"\A(?s:{''.join(parts)})\z"


_WILDCARDS = {"*": ".*", "?": "."}


def _class(inside: str) -> str:
    negated = inside.startswith("!")
    members = inside.removeprefix("!").replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
    return f"[{'^' if negated else ''}{members}]"
