"""The signature of a notification: HMAC-SHA256 over its time and body, so that neither can be changed.

    Bylaw-Signature: t=1760000000,v1=<hex>

`v1` is the HMAC of `<t>.<body>` under the shared secret.
"""

from __future__ import annotations

import hashlib
import hmac
import time

import re2

HEADER = "Bylaw-Signature"
KEY_HEADER = "Bylaw-Idempotency-Key"
_FORM = re2.compile(r"t=([0-9]{1,12}),v1=([0-9a-f]{64})")


def sign(body: bytes, secret: str, *, at: float) -> str:
    return f"t={int(at)},v1={_mac(body, secret, int(at))}"


def verify_webhook(
    body: bytes, signature: str | None, secret: str, *, tolerance: float = 300.0, now: float | None = None
) -> bool:
    """Whether a notification comes from whoever has the secret, unchanged, and was sent no more than `tolerance`
    seconds ago. `signature` is the header `Bylaw-Signature`. Never raises for what was sent; takes the same time
    wherever a signature is wrong.
    """
    if not secret:
        raise ValueError("secret is empty: anybody could sign")
    found = _FORM.fullmatch(signature) if isinstance(signature, str) and len(signature) < 200 else None
    if found is None:
        return False
    at = int(found[1])
    is_right = hmac.compare_digest(_mac(body, secret, at), found[2])
    return is_right and abs((time.time() if now is None else now) - at) <= tolerance


def _mac(body: bytes, secret: str, at: int) -> str:
    return hmac.new(secret.encode(), b"%d.%b" % (at, body), hashlib.sha256).hexdigest()
