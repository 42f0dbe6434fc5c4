"""Texts and patterns in the answer. User's patterns run on RE2: linear, whatever they and the answer look like."""

from __future__ import annotations

from functools import lru_cache

import re2

from bylaw.contract.judging.judgement import Seen, excerpt
from bylaw.contract.model import Contains, Excludes, Matches


def contains(check: Contains, answer: str) -> Seen:
    folded = answer.casefold()
    found = [value for value in check.values if value.casefold() in folded]
    if found:
        return Seen(True, f"`{excerpt(found[0])}` stands in the answer")
    if len(check.values) == 1:
        return Seen(False, f"`{excerpt(check.values[0])}` does not stand in the answer")
    return Seen(False, f"none of {', '.join(f'`{excerpt(value, 40)}`' for value in check.values)} stands in the answer")


def matches(check: Matches, answer: str) -> Seen:
    return search((check.pattern,), answer)


def excludes(check: Excludes, answer: str) -> Seen:
    seen = search(check.patterns, answer)
    return Seen(not seen.holds, seen.found)


def not_empty(answer: str) -> Seen:
    return Seen(bool(answer.strip()), "the answer has text" if answer.strip() else "the answer is empty")


def search(patterns: tuple[str, ...], answer: str) -> Seen:
    """Whether one of the patterns is found; the dot matches newlines, case counts unless the pattern says `(?i)`."""
    for pattern in patterns:
        found = _compiled(pattern).search(answer)
        if found is not None:
            return Seen(True, f"`{excerpt(found.group())}` matches `{excerpt(pattern)}`")
    one = f"`{excerpt(patterns[0])}`" if len(patterns) == 1 else f"none of {len(patterns)} patterns"
    return Seen(False, f"nothing matches {one}" if len(patterns) == 1 else f"{one} is found")


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.dot_nl = True
    options.log_errors = False
    return re2.compile(pattern, options=options)
