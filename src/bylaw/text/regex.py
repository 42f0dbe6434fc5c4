"""Regular expressions on RE2: matching takes linear time for any pattern. Importing RE2 itself takes long, so that
waits until a pattern is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import re2

Matches = Callable[[str], bool]


def compile_regex(pattern: str, *, ignore_case: bool = False) -> re2._Regexp:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    return re2.compile(pattern, options=options)


def compile_search(pattern: str) -> Matches:
    """A function that says whether a text contains a match, without its position."""
    search = _searcher(compile_regex(pattern))
    return _compile_literal(pattern, search) or search


def _searcher(regex: re2._Regexp) -> Matches:
    """Search without making a match object, which takes six times as long as the search itself."""
    import re2

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
"""a pattern without operators except an anchor at either end; a backslash before punctuation only escapes it"""


def _compile_literal(pattern: str, search: Matches) -> Matches | None:
    """`@corp\\.example$` is a test of how a text ends; for ASCII text it needs no automaton."""
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


# -- patterns of our own -----------------------------------------------------------------------------------------------

_METHODS = ("search", "match", "fullmatch", "finditer", "sub", "groups")


class LateRegex:
    """As a compiled pattern, but compiled when it is first used. `compile` is RE2's, unless another is given.

    A hook of a coding agent is a process for each call, and needs few of our patterns.
    """

    def __init__(self, pattern: str, compile: Callable[[str], Any] = compile_regex) -> None:
        self.pattern, self._compile = pattern, compile

    def __getattr__(self, name: str) -> Any:
        """Called once: after that the methods of the compiled pattern are found before this one."""
        if name not in _METHODS:
            raise AttributeError(name)
        compiled = self._compile(self.pattern)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)
