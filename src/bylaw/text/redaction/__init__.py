"""Redaction: secrets and personal data are found in any text and replaced by a marker that names their kind.

`secrets` finds credentials by their form or by the name before them. `personal` finds data about people and checks it
(check digits, ranges, grouping). `redactor` removes both, and matches of the user's own patterns, from any JSON value.
The guard, contracts and recordings share this code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_LONE = re.compile("[\ud800-\udfff]")


class SensitiveSpan(NamedTuple):
    """A secret or personal data in a text."""

    kind: str
    start: int
    end: int


def marker(kind: str) -> str:
    return f"[redacted: {kind}]"


def kind_problem(kind: object) -> str | None:
    """Why this cannot be the name of a kind."""
    if isinstance(kind, str) and kind.strip() and kind.isprintable() and "]" not in kind:
        return None
    return f"a pattern has the name `{kind}`: expected printable text without `]`"


def searchable(text: str) -> str:
    """A text of the same length that RE2 accepts: lone surrogates, which no encoding has, are replaced."""
    return text if text.isascii() else _LONE.sub("\ufffd", text)


def replace_spans(text: str, found: Iterable[SensitiveSpan]) -> str:
    """The text with a marker in place of each finding; overlapping findings become one."""
    parts, at = [], 0
    for kind, start, end in _join(found):
        parts += [text[at:start], marker(kind)]
        at = end
    return "".join([*parts, text[at:]]) if parts else text


def _join(found: Iterable[SensitiveSpan]) -> Iterator[SensitiveSpan]:
    """Join findings that overlap under the kind that begins first, so that no piece of one is left."""
    ordered = iter(sorted(found, key=lambda one: (one.start, -one.end)))
    first = next(ordered, None)
    if first is None:
        return
    kind, start, end = first
    for one in ordered:
        if one.start < end:
            end = max(end, one.end)
            continue
        yield SensitiveSpan(kind, start, end)
        kind, start, end = one
    yield SensitiveSpan(kind, start, end)
