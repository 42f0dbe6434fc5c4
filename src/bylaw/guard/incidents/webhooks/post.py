"""One notification, delivered by HTTP POST: signed, bounded in time, redirects never followed.

A redirect would take the body, and with it the signature, to an address that nobody has configured.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from bylaw.guard.incidents.webhooks.signing import HEADER, KEY_HEADER, sign
from bylaw.model.ports import Posted
from bylaw.wire.client import BadHttpReply, HttpUnreachable, post

_WORTH_ANOTHER_TRY = frozenset({408, 425, 429})
"""of the answers 400 to 499; the others say that the request itself is not wanted"""


class Webhook:
    def __init__(self, address: str, secret: str, *, seconds: float = 10.0) -> None:
        """Raises ValueError for an address that is not http(s) or holds a password, and for an empty secret."""
        if not secret:
            raise ValueError("a webhook needs a secret to sign with")
        parts = _split(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("a webhook is an http:// or https:// address")
        if parts.username is not None or parts.password is not None:
            raise ValueError("a webhook's address must not hold a password")
        self._address = address if parts.path else f"{address}/"
        self._secret, self._seconds = secret, seconds

    def __call__(self, body: bytes, *, key: str, at: float) -> Posted:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "bylaw",
            KEY_HEADER: _header(key),
            HEADER: sign(body, self._secret, at=at),
        }
        try:
            status, _ = post(self._address, body, headers, seconds=self._seconds)
        except TimeoutError:
            return Posted(problem=f"no answer within {self._seconds:g} s")
        except BadHttpReply:
            return Posted(problem="the answer is no HTTP, or too long")
        except HttpUnreachable as problem:
            return Posted(problem=f"cannot be reached: {problem.reason}")
        return _judged(status)


def _judged(status: int) -> Posted:
    if 200 <= status < 300:
        return Posted(answer=status)
    if 300 <= status < 400:
        return Posted(answer=status, problem="redirects are not followed", final=True)
    final = 400 <= status < 500 and status not in _WORTH_ANOTHER_TRY
    return Posted(answer=status, problem=f"answered {status}", final=final)


def _split(address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as problem:
        raise ValueError(f"`{address}` is no address: {problem}") from None
    if any(character <= " " for character in address):
        raise ValueError("an address has no spaces")
    return parts


def _header(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()
