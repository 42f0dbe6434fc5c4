"""Matching a user's names and texts. Globs and regexes run on RE2: linear time, whatever the pattern."""

from __future__ import annotations

import re
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
    exact = frozenset(calls.tools)  # a name that looks like a glob is still a name
    globs = [compile_search(_glob_to_regex(name)) for name in calls.tools if is_glob(name)]
    if not globs:
        return exact.__contains__
    return lambda name: name in exact or any(fits(name) for fits in globs)


def compile_text(probe: TextHas) -> Find:
    """Plain substring search for literals: it beats any regex engine."""
    if probe.regex:
        return _regex_finder(probe)
    return _caseless_finder(probe.text.casefold()) if probe.ignore_case else _finder(probe.text)


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


def compile_search(pattern: str) -> Matches:
    """Whether a text has a match of the regex in it. Where, nobody asks."""
    search = _searcher(compile_regex(pattern))
    return _compile_literal(pattern, search) or search


def _searcher(regex: re2._Regexp) -> Matches:
    """Below the layer that makes a match object, which takes six times as long as the search itself."""
    match, anchor = getattr(regex, "_regexp", None), getattr(re2, "_Anchor", None)
    if match is None or anchor is None:
        return lambda text: regex.search(text) is not None
    spans, unanchored = match.Match, anchor.UNANCHORED

    def search(text: str) -> bool:
        encoded = text.encode()
        return spans(unanchored, encoded, 0, len(encoded))[0][0] >= 0  # type: ignore[no-any-return]

    return search


_LITERAL = re.compile(
    r"""(?P<start>\^?)(?P<text>(?:[A-Za-z0-9 _@/:,;=<>!\#%&'"~`-]|\\[!-/:-@\[-^`{-~])*)(?P<end>\$?)""", re.ASCII
)
"""a pattern without any operator, but for an anchor at either end; RE2 takes punctuation after a backslash as it is"""


def _compile_literal(pattern: str, search: Matches) -> Matches | None:
    """`@corp\\.example$` asks how a text ends, which needs no automaton where there is nothing to decode."""
    parsed = _LITERAL.fullmatch(pattern)
    if parsed is None:
        return None
    literal = re.sub(r"\\(.)", r"\1", parsed["text"])
    if parsed["start"] and parsed["end"]:
        return lambda text: text == literal if text.isascii() else search(text)
    if parsed["start"]:
        return lambda text: text.startswith(literal) if text.isascii() else search(text)
    if parsed["end"]:
        return lambda text: text.endswith(literal) if text.isascii() else search(text)
    return lambda text: literal in text if text.isascii() else search(text)


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
    """A character class, or None where it is none (a range that runs backwards): then the bracket is a bracket."""
    escaped = inside.removeprefix("!").replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^")
    regex = f"[{'^' if inside.startswith('!') else ''}{escaped}]"
    try:
        compile_regex(regex)
    except re2.error:
        return None
    return regex
