"""Whether a text has a match: the short ways agree with the regex itself."""

from __future__ import annotations

import re2
from hypothesis import assume, given
from hypothesis import strategies as st

from bylaw.text import regex as regex_module
from bylaw.text.regex import compile_regex, compile_search
from tests.guard.support import attempt, guard

_PIECES = [
    "a",
    "b",
    "-",
    "@",
    " ",
    "/",
    "#",
    "é",
    "\\.",
    "\\$",
    "\\\\",
    "\\^",
    "\\-",
    ".",
    "[ab]",
    "|",
    "a*",
    "\\d",
    "\n",
]
patterns = st.tuples(
    st.sampled_from(["", "^"]), st.lists(st.sampled_from(_PIECES), max_size=4).map("".join), st.sampled_from(["", "$"])
).map("".join)
texts = st.text(st.sampled_from("ab-@ /#é.$\\^1\n"), max_size=6)


@given(patterns, texts)
def test_a_search_finds_what_the_regex_finds(pattern: str, text: str) -> None:
    try:
        regex = compile_regex(pattern)
    except re2.error:
        assume(False)
    found = regex.search(text) is not None
    assert compile_search(pattern)(text) is found
    assert regex_module._searcher(regex)(text) is found
    assert regex_module._searcher(_Public(regex))(text) is found


class _Public:
    """A regex of a version of RE2's layer whose inside is another."""

    def __init__(self, regex: re2._Regexp) -> None:
        self.search = regex.search


def test_a_literal_needs_no_automaton() -> None:
    assert regex_module._compile_literal(r"@corp\.example$", bool) is not None
    assert regex_module._compile_literal("a.b", bool) is None
    ends = compile_search(r"@corp\.example$")
    assert [ends(text) for text in ("x@corp.example", "x@corp.example.org", "x@corp-example")] == [True, False, False]
    assert not ends("x@corp.example\n"), "`$` is the end of the text"


def test_a_tuple_is_a_list() -> None:
    rule = {"id": "r", "when": {"arg_contains": {"path": "to", "value": "eve"}}, "then": "block"}
    each = {"id": "e", "when": {"arg_eq": {"path": "to.*", "value": "eve"}}, "then": "block"}
    guarding = guard([rule, each])
    assert guarding.decide(attempt("send", session="s", arguments={"to": ("ann", "eve")})).matched == ("r", "e")
    assert guarding.decide(attempt("send", session="s", arguments={"to": ("ann", "bob")})).allowed
