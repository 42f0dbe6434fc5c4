"""Canonical JSON (RFC 8785), so that equal values have equal bytes, and digests of them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import rfc8785


def canonical_json(value: Any) -> bytes:
    """RFC 8785. What that has no form for (integers beyond 2^53, lone surrogates) gets sorted plain JSON instead:
    such values still compare, they just have no bytes that other tools would agree on.
    """
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError):
        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()


def short_digest(value: Any) -> str:
    """The leading 8 bytes of the SHA-256 of the canonical JSON, as 16 hex digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()[:16]
