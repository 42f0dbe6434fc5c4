"""Secrets, found by their form (`sk-…`, private keys) or by the name before them (`DB_PASSWORD=…`, `"api_key": "…"`).

Under a secret's name in an object every value is a secret. In a text the name may be followed by words, by code or by a
type, so the value has to look like one: in quotes, right behind `=`, or with a digit in it. Rules judge the values
before they are redacted, and an approval is bound to a hash of the whole action, so neither needs the secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import re2

from bylaw.text.redaction import Found, marker, replace_found, searchable
from bylaw.text.regex import compile_search

NAMES = (
    r"(?:password|passwd|passphrase|secret|api[_-]?key|private[_-]?key|secret[_-]?key|secret[_-]?access[_-]?key"
    r"|(?:access|auth|refresh|session|id)[_-]?token|authorization|cookie)"
)
"""names of secrets, with any prefix"""
ANYWHERE = rf'(?i:{NAMES}|"cv[vc]")|://[^\s/@]*:[^\s/@]*@'
"""matches every text in which `find_named` finds something"""
_KEYS = re2.compile(rf"(?i)^(?:.*[_.-])?(?:{NAMES}|cvv|cvc)$")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@lru_cache(maxsize=4096)
def names_a_secret(key: str) -> bool:
    return _KEYS.search(_CAMEL.sub("_", key)) is not None


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
    if _CALLS.search(value) is not None:
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
_PLACEHOLDERS = frozenset(("none", "null", "true", "false", "required", "optional", "string", "bytes", "text"))
_CALLS = re.compile(r"[(\[]")
_ENDS_IN_NAME = re2.compile(rf"(?i){NAMES}s?$")
_IDENTIFIER = re.compile(r"[A-Za-z]+(?:[_.][A-Za-z]+)+")
"""`settings.key`, `user_input`: in code, a reference to a secret and not the secret"""
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
"""unambiguous forms"""
_BARE = (
    (re2.compile(rf"(?i){NAMES}=({_VALUE})"), False),
    (re2.compile(rf"(?i)--(?:[\w.-]*[_.-])?{NAMES}[ =]({_VALUE})"), False),
    (re2.compile(rf"(?i){NAMES}(?:\s*[:=]\s+|:|\s+is\s+)({_VALUE})"), True),
)
"""values without quotes, and whether a digit is needed to tell them from words"""


SECRETS = {
    "private key": (  # or the rest of the text, where an answer was cut off
        r"-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----(?:[\s\S]*?-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----|[\s\S]*)"
    ),
    "jwt": r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "api key": (
        r"\b(?:sk|pk|rk)-[-_A-Za-z0-9]{16,}|\b(?:sk|pk|rk)_(?:live|test|proj)[-_A-Za-z0-9]{12,}|\bsk_[A-Za-z0-9]{24,}"
        r"|\b(?:sk|pk|rk)_(?:[A-Za-z]+[-_])?[A-Za-z0-9]*[0-9][A-Za-z0-9]{11,}"
        r"|\bA[KS]IA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}"
        r"|\bglpat-[A-Za-z0-9_-]{20,}|\bxox[abeprs]-[A-Za-z0-9-]{10,}|\bAIza[0-9A-Za-z_-]{35}|\bhf_[A-Za-z0-9]{30,}"
        r"|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[A-Za-z0-9_-]{50,}|\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
        r"|\bdop_v1_[0-9a-f]{40,}"
    ),
    "token": (
        r"(?i:\bbearer\s+[A-Za-z0-9._~+/-]{16,}=*"
        r"|\bauthorization\s*[:=]\s*(?:basic|token|apikey|bearer)\s+[A-Za-z0-9._~+/=-]{6,})"
    ),
}
_has_any = compile_search("|".join(f"(?:{pattern})" for pattern in (*SECRETS.values(), ANYWHERE)))
_SHORTEST_BY_FORM = 15
"""characters of a secret that is found by its form"""
_SHORTEST_BY_NAME = 8
"""characters of a name, a separator and a secret"""
PATTERNS = {kind: re2.compile(pattern) for kind, pattern in SECRETS.items()}
_LONGEST = 1 << 20
"""longer texts are not searched but replaced whole"""
_PLAIN = frozenset((str, int, float))
"""types redacted under a secret's name; booleans are not"""


def redacted(value: Any) -> Any:
    """The same value without secrets. The depth and size of attempts are checked before."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {key: _under(key, one) for key, one in value.items()}
    return [redacted(one) for one in value] if isinstance(value, list | tuple) else value


def _under(key: Any, value: Any) -> Any:
    if is_secret(key, value):
        return marker("secret")
    if isinstance(value, list | tuple) and isinstance(key, str) and names_a_secret(key):
        return [_under(key, one) for one in value]
    return redacted(value)


def is_secret(key: Any, value: Any) -> bool:
    return type(value) in _PLAIN and value != "" and isinstance(key, str) and names_a_secret(key)


def without_secrets(text: str) -> str:
    if len(text) > _LONGEST:
        return marker("long text")
    if not _may_hold_secret(text):  # the common case, without a copy or a search
        return text
    whole = searchable(text)
    return replace_found(text, find_secrets(whole)) if _has_any(whole) else text


def find_secrets(text: str) -> Iterator[Found]:
    """Findings in a searchable text, kind by kind, so not in the order of the text."""
    if not _may_hold_secret(text) or not _has_any(text):
        return
    for kind, pattern in PATTERNS.items():
        yield from (Found(kind, *found.span()) for found in pattern.finditer(text))
    yield from (Found("secret", *span) for span in find_named(text))


def _may_hold_secret(text: str) -> bool:
    length = len(text)
    return length >= _SHORTEST_BY_FORM or (
        length >= _SHORTEST_BY_NAME and ("=" in text or ":" in text or ">" in text or " " in text)
    )
