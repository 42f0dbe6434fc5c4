"""Notifications over HTTP: a signed POST, bounded in time, and text for the incoming webhook of a chat room. Redirects
are not followed.

    Bylaw-Signature: t=1760000000,v1=<hex>

`v1` is the HMAC-SHA256 of `<t>.<body>` under the shared secret, so that neither time nor body can be changed. A
redirect would send the body and its signature to an address that nobody has configured."""

from __future__ import annotations

import hashlib
import hmac
import socket
import time
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

import msgspec
import re2
from msgspec import Struct

from bylaw.model.canonical import canonical_json
from bylaw.model.ports import DeliveryResult
from bylaw.wire.client import BadHttpReply, HttpUnreachable, post

HEADER = "Bylaw-Signature"
KEY_HEADER = "Bylaw-Idempotency-Key"
_FORM = re2.compile(r"t=([0-9]{1,12}),v1=([0-9a-f]{64})")


def sign(body: bytes, secret: str, *, at: float) -> str:
    return f"t={int(at)},v1={_mac(body, secret, int(at))}"


def verify_webhook(
    body: bytes, signature: str | None, secret: str, *, tolerance: float = 300.0, now: float | None = None
) -> bool:
    """Whether a notification was signed with the secret, is unchanged, and was sent no more than `tolerance` seconds
    ago. `signature` is the header `Bylaw-Signature`. Never raises for invalid input; the comparison takes constant
    time."""
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


_WHY_REFUSED = "such addresses belong to the machine and its cloud, which hands out credentials there"
_RETRIED = frozenset({408, 425, 429})
"""of the statuses 400 to 499; the others reject the request itself"""


class HttpPoster:
    """A POST to one address. No message about it contains the address, which may hold a secret."""

    def __init__(self, address: str, *, seconds: float = 10.0) -> None:
        """Raises ValueError for an address that is not http(s), is link-local or contains a password."""
        parts = _split(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("a webhook is an http:// or https:// address")
        if parts.username is not None or parts.password is not None:
            raise ValueError("the address of a webhook must not contain a password")
        self._host, self._port = parts.hostname, parts.port
        refuse_link_local(parts.hostname)
        self._address = address if parts.path else f"{address}/"
        self._seconds = seconds

    def send(self, body: bytes, headers: Mapping[str, str]) -> DeliveryResult:
        if leads_to_link_local(self._host, self._port):
            return DeliveryResult(problem=f"`{self._host}` leads to a link-local address: {_WHY_REFUSED}", final=True)
        headers = {"Content-Type": "application/json", "User-Agent": "bylaw", **headers}
        try:
            status, _ = post(self._address, body, headers, seconds=self._seconds)
        except TimeoutError:
            return DeliveryResult(problem=f"no answer within {self._seconds:g} s")
        except BadHttpReply:
            return DeliveryResult(problem="the answer is not HTTP, or too long")
        except HttpUnreachable as problem:
            return DeliveryResult(problem=f"cannot be reached: {problem.reason}")
        return _outcome(status)


class Webhook(HttpPoster):
    """The notification as JSON, signed."""

    def __init__(self, address: str, secret: str, *, seconds: float = 10.0) -> None:
        """Raises ValueError also for an empty secret."""
        if not secret:
            raise ValueError("a webhook needs a secret to sign with")
        super().__init__(address, seconds=seconds)
        self._secret = secret

    def __call__(self, body: bytes, *, key: str, at: float) -> DeliveryResult:
        named = key.encode("ascii", "backslashreplace").decode()
        return self.send(body, {KEY_HEADER: named, HEADER: sign(body, self._secret, at=at)})


def refuse_link_local(host: str) -> None:
    """Raises ValueError."""
    if _is_literal(host) and _is_link_local(host):
        raise ValueError(f"`{host}` is a link-local address: {_WHY_REFUSED}")


def leads_to_link_local(host: str, port: int | None) -> bool:
    """Looked up at each delivery, since a name may lead elsewhere by now. Numbers in another form, such as
    `http://2852039166/`, are resolved too."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False  # then it cannot be reached, and the delivery says so
    return any(_is_link_local(str(address[0])) for *_, address in found)


def _is_literal(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _is_link_local(host: str) -> bool:
    address = ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_link_local)


def _outcome(status: int) -> DeliveryResult:
    if 200 <= status < 300:
        return DeliveryResult(answer=status)
    if 300 <= status < 400:
        return DeliveryResult(answer=status, problem="redirects are not followed", final=True)
    final = 400 <= status < 500 and status not in _RETRIED
    return DeliveryResult(answer=status, problem=f"answered {status}", final=final)


def _split(address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as problem:
        raise ValueError(f"the address of a webhook cannot be read: {problem}") from None
    if any(character <= " " for character in address):
        raise ValueError("an address must not contain spaces")
    return parts


# -- notifications as text for people ---------------------------------------------------------------------------------
# Names of tools, sessions and agents come from callers. Each value is one line of printable text of bounded length, so
# that none can begin a header, a line or a message of its own.

LONGEST = 300
"""characters of one value"""
_TITLES = {
    "incident.opened": "The rule {rule} was broken",
    "incident.solved": "The incident about {rule} is solved",
    "review.opened": "A call of {tool} waits for a person",
    "review.expiring": "A call of {tool} still waits, and expires soon",
    "review.escalated": "Nobody has answered: a call of {tool} waits for a person",
    "test": "This is a test of Bylaw's notifications",
}
_FACTS = (
    ("reason", "Reason"), ("message", "Reason"), ("rules", "Rules"), ("severity", "Severity"), ("tool", "Tool"),
    ("agent", "Agent"), ("session", "Session"), ("run", "Run"), ("count", "Times"), ("assignee", "Assigned to"),
    ("by", "Sent by"), ("id", "Id"),
)  # fmt: skip


class Message(Struct, frozen=True):
    title: str
    facts: tuple[tuple[str, str], ...]
    link: str | None = None
    """an address of the console; None if that is not configured"""


def message(body: bytes, public_url: str | None = None) -> Message:
    """The words for a notification, from its JSON. Every event has some, also one that is not known here."""
    content = msgspec.json.decode(body)
    event = str(content.get("event"))
    kind = "incident" if "incident" in content else "review" if "review" in content else "test"
    about = content.get(kind) or {}
    shown = {key: line(about.get(key)) for key in ("rule", "tool")}
    title = _TITLES.get(event, "{event}").format(event=line(event), **shown)
    facts = tuple((label, line(about[key])) for key, label in _FACTS if about.get(key) not in (None, "", []))
    link = None
    if public_url is not None and kind != "test":
        link = f"{public_url.rstrip('/')}/console/{kind}s/{quote(str(about.get('id')), safe='')}"
    return Message(title, facts, link)


def line(value: Any) -> str:
    """One line of printable text."""
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    flat = "".join(one if one.isprintable() else " " for one in text)
    return flat if len(flat) <= LONGEST else f"{flat[:LONGEST]}…"


_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "`": "'"})


class SlackWebhook(HttpPoster):
    """The incoming webhook of Slack, and of what understands it, such as Mattermost. Raises ValueError for an address
    that cannot be used.

    The address is a secret, so it comes from the environment and appears in no message. Values of callers are inline
    code, in which neither Slack nor Mattermost reads mentions, links or formatting; `&`, `<` and `>` are escaped, since
    Slack reads `<!channel>` anywhere.
    """

    def __init__(self, address: str, *, public_url: str | None = None, seconds: float = 10.0) -> None:
        super().__init__(address, seconds=seconds)
        self._public_url = public_url

    def __call__(self, body: bytes, *, key: str, at: float) -> DeliveryResult:
        return self.send(canonical_json({"text": chat_text(body, self._public_url)}), {})


def chat_text(body: bytes, public_url: str | None = None) -> str:
    content = message(body, public_url)
    lines = [_code(content.title), *(f"{label}: {_code(value)}" for label, value in content.facts)]
    if content.link is not None:
        lines.append(f"<{content.link.translate(_ESCAPED)}|Open it in the console>")
    return "\n".join(lines)


def _code(text: str) -> str:
    return f"`{text.translate(_ESCAPED)}`"
