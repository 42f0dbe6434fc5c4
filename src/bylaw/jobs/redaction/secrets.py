"""Secrets are taken out before anything is written down; the marker keeps their kind.

Rules judge what was attempted, not what is written. An approval is bound to a hash of the whole action, so it does not
need the secret either.
"""

from __future__ import annotations

from typing import Any

import re2

from bylaw.engine.matching import compile_search
from bylaw.jobs.redaction.named import ANYWHERE, find_named, names_a_secret

SECRETS = {
    "private key": r"-----BEGIN [A-Z ]*PRIVATE KEY[A-Z ]*-----[\s\S]*?-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----",
    "jwt": r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    "api key": (
        r"\b(?:sk|pk|rk)-[-_A-Za-z0-9]{16,}|\b(?:sk|pk|rk)_(?:live|test|proj)[-_A-Za-z0-9]{12,}|\bsk_[A-Za-z0-9]{24,}"
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
_SHORTEST = 10
"""characters of a text that holds a secret: no shorter one can"""
PATTERNS = {kind: re2.compile(pattern) for kind, pattern in SECRETS.items()}
_LONGEST = 1 << 20
"""texts beyond this are not searched but left out"""


def redacted(value: Any) -> Any:
    """The same value without secrets. Bounded: attempts are checked for depth and size before."""
    if isinstance(value, str):
        return without_secrets(value)
    if isinstance(value, dict):
        return {key: marker("secret") if is_secret(key, one) else redacted(one) for key, one in value.items()}
    return [redacted(one) for one in value] if isinstance(value, list | tuple) else value


def is_secret(key: Any, value: Any) -> bool:
    return _can_be_secret(value) and isinstance(key, str) and names_a_secret(key)


def _can_be_secret(value: Any) -> bool:
    return value != "" if isinstance(value, str) else isinstance(value, int | float) and not isinstance(value, bool)


def without_secrets(text: str) -> str:
    if len(text) > _LONGEST:
        return marker("long text")
    if not may_hold_secrets(text):  # the common case: one search instead of many
        return text
    for kind, pattern in PATTERNS.items():
        text = pattern.sub(marker(kind), text)
    end = len(text)
    for start, stop in sorted(find_named(text), reverse=True):
        if stop <= end:
            text, end = text[:start] + marker("secret") + text[stop:], start
    return text


def may_hold_secrets(text: str) -> bool:
    return len(text) >= _SHORTEST and _has_any(text)


def marker(kind: str) -> str:
    return f"[redacted: {kind}]"
