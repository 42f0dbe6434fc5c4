"""Secrets that nothing but their name gives away: `DB_PASSWORD=…`, `"api_key": "…"`, `https://user:…@host`.

Under the key of an object a value is a secret whatever it looks like. In a text the name may be followed by words, by
code or by a type, so what follows has to be written as a value is: in quotes, right behind `=`, or with a figure in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import re2

NAMES = (
    r"(?:password|passwd|passphrase|secret|api[_-]?key|private[_-]?key|secret[_-]?key|secret[_-]?access[_-]?key"
    r"|(?:access|auth|refresh|session|id)[_-]?token|authorization|cookie)"
)
"""what secrets are called, whatever stands before"""
ANYWHERE = rf'(?i:{NAMES}|"cv[vc]")|://[^\s/@]*:[^\s/@]*@'
"""found in every text in which `find_named` finds something"""
_KEYS = re2.compile(rf"(?i)^(?:.*[_.-])?(?:{NAMES}|cvv|cvc)$")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@lru_cache(maxsize=4096)
def names_a_secret(key: str) -> bool:
    return _KEYS.search(_CAMEL.sub("_", key)) is not None


def find_named(text: str) -> Iterator[tuple[int, int]]:
    """Where the values stand, without their names. In no order, and maybe one twice."""
    for pattern in _CLEAR:
        yield from (found.span(1) for found in pattern.finditer(text))
    for pattern, needs_figure in _BARE:
        for found in pattern.finditer(text):
            start, end = found.span(1)
            value = text[start:end].rstrip(".,:)]}")
            if _is_value(value, needs_figure=needs_figure):
                yield start, start + len(value)


def _is_value(value: str, *, needs_figure: bool) -> bool:
    """Whether it can be a secret, and is not a word, a placeholder, or the name of something in a program."""
    if _CALLS.search(value) is not None:
        return False
    if any(character.isdigit() for character in value):
        return len(value) >= (_SHORTEST_FIGURED if needs_figure else _SHORTEST)
    return not needs_figure and len(value) >= _SHORTEST and not _is_word(value)


def _is_word(value: str) -> bool:
    return (
        value.lower() in _PLACEHOLDERS
        or _ENDS_IN_NAME.search(value) is not None
        or _IDENTIFIER.fullmatch(value) is not None
    )


_SHORTEST = 4
_SHORTEST_FIGURED = 6
_PLACEHOLDERS = frozenset(("none", "null", "true", "false", "required", "optional", "string", "bytes", "text"))
_CALLS = re.compile(r"[(\[]")
_ENDS_IN_NAME = re2.compile(rf"(?i){NAMES}s?$")
_IDENTIFIER = re.compile(r"[A-Za-z]+(?:[_.][A-Za-z]+)+")
"""`settings.key`, `user_input`: in code, the place of a secret and not the secret"""
_VALUE = r"""[^\s"'`,;&<>()\[\]{}$%*\\=][^\s"'`;&<>\\]*"""
_CLEAR = tuple(
    re2.compile(pattern)
    for pattern in (
        rf'(?i){NAMES}"?\s*[:=]\s*"((?:[^"\\]|\\.)+)',
        rf"(?i){NAMES}'?\s*[:=]\s*'([^'\n]+)",
        rf'(?i){NAMES}"\s*:\s*(-?\d[\d.]*)',  # JSON that cannot be read as such
        r'(?i)"cv[vc]"\s*:\s*"?(\d{3,4})',
        rf'(?i){NAMES}\\+"\s*:\s*\\+"(.+?)(?:\\+"|$)',  # JSON inside of JSON
        rf"(?i)<(?:[\w.-]*[_.-])?{NAMES}>([^<>\s][^<>\n]*)</",
        r"""(?i)\b[a-z][a-z0-9+.-]*://[^\s/@:"'`]*:([^\s/@"'`\[{<$*]+)@""",
    )
)
"""what can be nothing else"""
_BARE = (
    (re2.compile(rf"(?i){NAMES}=({_VALUE})"), False),
    (re2.compile(rf"(?i)--(?:[\w.-]*[_.-])?{NAMES}[ =]({_VALUE})"), False),
    (re2.compile(rf"(?i){NAMES}(?:\s*[:=]\s+|:|\s+is\s+)({_VALUE})"), True),
)
"""without quotes; and whether only a figure tells it from a word"""
