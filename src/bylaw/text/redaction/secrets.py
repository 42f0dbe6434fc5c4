"""Secrets, found by their form (`sk-…`, private keys) or by the name before them (`DB_PASSWORD=…`, `"api_key": "…"`).

Under a secret's name in an object every value is a secret. In a text the name may be followed by words, by code or by a
type, so the value has to look like one: in quotes, right behind `=`, or with a digit in it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from bylaw.text.late_regex import LateRegex
from bylaw.text.redaction import Found
from bylaw.text.redaction.secret_forms import own_forms
from bylaw.text.regex import compile_search

NAMES = (
    r"(?:password|passwd|passphrase|secret|api[_-]?key|private[_-]?key|secret[_-]?key|secret[_-]?access[_-]?key"
    r"|(?:access|auth|refresh|session|id)[_-]?token|authorization|cookie)"
)
"""names of secrets, with any prefix"""
ANYWHERE = rf'(?i:{NAMES}|"cv[vc]")|://[^\s/@]*:[^\s/@]*@'
"""matches every text in which `find_named` finds something"""
_KEYS = LateRegex(
    rf"(?i)^(?:.*[_. -])?(?:{NAMES}|cv[vc]2?|access[_-]?key|account[_-]?key|shared[_-]?key"
    r"|signing[_-]?key|encryption[_-]?key|webhook[_-]?url|connection[_-]?string|(?:bot|bearer|csrf|xsrf|api|user|device)"
    r"[_-]?token)s?$"
    r"|(?:password|passwd|passphrase)(?:[_-]?(?:hash|confirm|confirmation|again|repeat|\d))?$"
)
_VAGUE_KEYS = LateRegex(r"(?i)^(?:(?:x|my|new|old|app|service)[_.-])?(?:token|pwd|credentials?|auth|apikeys)$")
"""`token` is also a word of a text, `pwd` a directory; so a value has to look like a secret too"""
_ONE_TIME = LateRegex(
    r"(?i)^(?:.*[_.-])?(?:t?otp|(?:otp|one[_-]?time|verification|security|confirmation|authentication|auth|mfa|2fa|sms)"
    r"[_-]?(?:code|pin|passcode|password)|passcode)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@lru_cache(maxsize=4096)
def names_a_secret(key: str) -> bool:
    return _KEYS.search(_spelled(key)) is not None


def _spelled(key: str) -> str:
    """The key in plain letters: wide letters and invisible characters are read as people read them."""
    if not key.isascii():
        plain = unicodedata.normalize("NFKC", key)
        key = "".join(character for character in plain if unicodedata.category(character) != "Cf")
    return _CAMEL.sub("_", key)


def may_name_a_secret(key: str) -> bool:
    """Whether a value under this key is a secret if `looks_random`."""
    return _VAGUE_KEYS.search(_spelled(key)) is not None


def looks_random(value: str) -> bool:
    return len(value) >= _SHORTEST_WITH_DIGIT and _RANDOM.search(value) is not None


@lru_cache(maxsize=4096)
def names_a_code(key: str) -> bool:
    """Whether a value under this key is valid once: a one-time password, a verification code."""
    return _ONE_TIME.search(_spelled(key)) is not None


def find_named(text: str) -> Iterator[tuple[int, int]]:
    """Spans of values without their names, in no order, possibly with duplicates."""
    for pattern in _CLEAR:
        yield from (found.span(1) for found in pattern.finditer(text))
    for pattern, needs_digit in _BARE:
        for found in pattern.finditer(text):
            start, end = found.span(1)
            value = text[start:end].rstrip(".,:)]}")
            if _is_value(value, needs_digit=needs_digit):
                yield start, start + len(value)


def _is_value(value: str, *, needs_digit: bool) -> bool:
    """Whether it can be a secret, and is not a word, a placeholder, or an identifier."""
    if _CALLS.search(value) is not None or (value[:1] == "%" == value[-1:]):
        return False
    if any(character.isdigit() for character in value):
        return len(value) >= (_SHORTEST_WITH_DIGIT if needs_digit else _SHORTEST)
    return not needs_digit and len(value) >= _SHORTEST and not _is_word(value)


def _is_word(value: str) -> bool:
    return (
        value.lower() in _PLACEHOLDERS
        or _ENDS_IN_NAME.search(value) is not None
        or _IDENTIFIER.fullmatch(value) is not None
    )


_SHORTEST = 4
_SHORTEST_WITH_DIGIT = 6
_RANDOM = LateRegex(r"^[^\s/]*\d[^\s]*$")
_PLACEHOLDERS = frozenset(("none", "null", "true", "false", "required", "optional", "string", "bytes", "text"))
_CALLS = re.compile(r"[(\[]")
_ENDS_IN_NAME = LateRegex(rf"(?i){NAMES}s?$")
_IDENTIFIER = re.compile(r"[A-Za-z]+(?:[_.][A-Za-z]+)+")
"""`settings.key`, `user_input`: in code, a reference to a secret and not the secret"""
_VALUE = r"""(?:[^\s"'`,;&<>()\[\]{}$%*\\=]|[%*]+[^\s"'`,;&<>()\[\]{}$%*\\=])[^\s"'`;&<>\\]*"""
_CLEAR = tuple(
    LateRegex(pattern)
    for pattern in (
        rf'(?i){NAMES}"?\s*[:=]\s*\[?\s*"((?:[^"\\]|\\.)+)',
        rf"(?i){NAMES}[\"']?:[ \t]*[|>][+-]?[ \t]*\n[ \t]+([^\n]+)",  # a block of YAML
        rf"(?i){NAMES}'?\s*[:=]\s*'([^'\n]+)",
        rf'(?i){NAMES}"\s*:\s*(-?\d[\d.]*)',  # JSON that cannot be read as such
        r'(?i)"cv[vc]"\s*:\s*"?(\d{3,4})',
        rf'(?i){NAMES}\\+"\s*:\s*\\+"(.+?)(?:\\+"|$)',  # JSON inside of JSON
        rf"(?i)<(?:[\w.-]*[_.-])?{NAMES}>([^<>\s][^<>\n]*)</",
        r"""(?i)\b[a-z][a-z0-9+.-]*://[^\s/@:"'`]*:((?:[^\s/@"'`\[{<$*]|\*+[^\s/@"'`*])[^\s/"'`]*)@""",
    )
)
"""unambiguous forms"""
_BARE = (
    (LateRegex(rf"(?i){NAMES}=({_VALUE})"), False),
    (LateRegex(rf"(?i)--(?:[\w.-]*[_.-])?{NAMES}[ =]({_VALUE})"), False),
    (LateRegex(rf"(?i){NAMES}(?:\s*[:=]\s+|:|\s+is\s+)({_VALUE})"), True),
)
"""values without quotes, and whether a digit is needed to tell them from words"""


_has_any = compile_search(f"{own_forms().anywhere}|{ANYWHERE}")
_SHORTEST_TEXT = 8
"""characters of a name, a separator and a secret"""


def find_secrets(text: str) -> Iterator[Found]:
    """Findings in a searchable text, kind by kind, so not in the order of the text."""
    if len(text) < _SHORTEST_TEXT or not _has_any(text):  # most texts
        return
    yield from own_forms().find(text)
    yield from (Found("secret", *span) for span in find_named(text))
