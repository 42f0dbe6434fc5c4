"""Secrets are taken out before anything is written down; the marker keeps their kind.

Rules judge what was attempted, not what is written. An approval is bound to a hash of the whole action, so it does not
need the secret either.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

from bylaw.engine.matching import compile_search

SECRETS = {
    "private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY-----",
    "jwt": r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "api key": (
        r"\b(?:sk|pk|rk)[-_](?:live|test|proj|ant)?[-_A-Za-z0-9]{16,}"
        r"|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{30,}|\bxox[abprs]-[A-Za-z0-9-]{10,}|\bAIza[0-9A-Za-z_-]{35}"
    ),
    "token": r"(?i)\bbearer\s+[A-Za-z0-9._~+/-]{16,}=*",
}
_has_any = compile_search("|".join(f"(?:{pattern})" for pattern in SECRETS.values()))
_SHORTEST = 15
"""characters of a secret that is known by its form: no shorter text can hold one"""
_COMPILED = {kind: re2.compile(pattern) for kind, pattern in SECRETS.items()}
_SECRET_KEYS = re2.compile(
    r"(?i)^(?:.*[_-])?(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?token|authorization)$"
)
_LONGEST = 1 << 20
"""texts beyond this are not searched but left out"""


def redacted(value: Any) -> Any:
    """The same value without secrets. Bounded: attempts are checked for depth and size before."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return {key: _marker("secret") if _is_secret(key, one) else redacted(one) for key, one in value.items()}
    return [redacted(one) for one in value] if isinstance(value, list | tuple) else value


def _is_secret(key: Any, value: Any) -> bool:
    return isinstance(value, str) and value != "" and isinstance(key, str) and _names_a_secret(key)


@lru_cache(maxsize=4096)
def _names_a_secret(key: str) -> bool:
    return _SECRET_KEYS.search(key) is not None


def _text(text: str) -> str:
    if len(text) > _LONGEST:
        return _marker("long text")
    if len(text) < _SHORTEST or not _has_any(text):  # the common case: one search instead of four substitutions
        return text
    for kind, pattern in _COMPILED.items():
        text = pattern.sub(_marker(kind), text)
    return text


def _marker(kind: str) -> str:
    return f"[redacted: {kind}]"
