"""Secrets are taken out before anything is written down; the marker keeps their kind.

Rules judge what was attempted, not what is written. An approval is bound to a hash of the whole action, so it does not
need the secret either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import re2

from bylaw.engine.matching import compile_search
from bylaw.text.redaction.found import Found, marker, replaced, searchable
from bylaw.text.redaction.named import ANYWHERE, find_named, names_a_secret

SECRETS = {
    "private key": (  # or as much of it as there is, where an answer was broken off
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
_SHORTEST = 15
"""characters of a secret that is known by its form"""
_SHORTEST_NAMED = 8
"""characters of one with its name, and with what stands between the two"""
PATTERNS = {kind: re2.compile(pattern) for kind, pattern in SECRETS.items()}
_LONGEST = 1 << 20
"""texts beyond this are not searched but left out"""
_PLAIN = frozenset((str, int, float))
"""what is hidden under a secret's name; not a truth value"""


def redacted(value: Any) -> Any:
    """The same value without secrets. Bounded: attempts are checked for depth and size before."""
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
    if not _is_worth_a_search(text):  # the common case, without a copy or a search
        return text
    whole = searchable(text)
    return replaced(text, find_secrets(whole)) if _has_any(whole) else text


def find_secrets(text: str) -> Iterator[Found]:
    """In a searchable text: kind by kind, and so not in the order of the text."""
    if not _is_worth_a_search(text) or not _has_any(text):
        return
    for kind, pattern in PATTERNS.items():
        yield from (Found(kind, *found.span()) for found in pattern.finditer(text))
    yield from (Found("secret", *span) for span in find_named(text))


def _is_worth_a_search(text: str) -> bool:
    length = len(text)
    return length >= _SHORTEST or (
        length >= _SHORTEST_NAMED and ("=" in text or ":" in text or ">" in text or " " in text)
    )
