"""How people are reached: which channels each recipient has, as the part `notify` of a service file names them; and
delivery by e-mail.

Secrets come from the environment: what signs a webhook, the address of a chat room, the password of a mail server.
"""

from __future__ import annotations

import os
import re
import smtplib
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from hashlib import sha256
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.incidents.notifications import ReminderTimes
from bylaw.guard.incidents.webhook import (
    KEY_HEADER,
    SlackWebhook,
    Webhook,
    leads_to_link_local,
    line,
    message,
    refuse_link_local,
)
from bylaw.guard.stores.records import Recipient
from bylaw.model.canonical import prepared
from bylaw.model.ports import DeliveryResult, Poster

SECRET = "BYLAW_WEBHOOK_SECRET"
SLACK = "BYLAW_SLACK_WEBHOOK"
PASSWORD = "BYLAW_SMTP_PASSWORD"

Channels: TypeAlias = Mapping[Recipient, Mapping[str, Poster]]


class RecipientChannels(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The channels of one recipient."""

    webhook: str | None = None
    """an address that gets signed JSON"""
    slack: str | None = None
    """the environment variable that holds the address of a chat room's incoming webhook"""
    email: MailSettings | None = None


class Notify(RecipientChannels, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The recipients of notifications about incidents and reviews, and their times."""

    escalation: RecipientChannels = RecipientChannels()
    """recipients of notifications about unanswered reviews"""
    escalate_after: float = 1800.0
    """seconds that a review may wait before"""
    warn_before: float = 600.0
    """seconds before a review expires at which a reminder is sent"""
    public_url: str | None = None
    """where people open the console: messages link to it"""
    timeout: float = 10.0
    """seconds that one delivery may take"""

    def __post_init__(self) -> None:
        if self.public_url is not None and urlsplit(self.public_url).scheme not in ("http", "https"):
            raise ValueError("public_url: expected an address that begins with http:// or https://")
        if not 0 < self.timeout <= 60 or self.escalate_after < 0 or self.warn_before < 0:
            raise ValueError("expected a timeout of at most 60 seconds, and times that are not negative")

    @property
    def channels(self) -> dict[str, list[str]]:
        """Recipient → the channels that reach it."""
        names, both = ("webhook", "slack", "email"), {"first": self, "second": self.escalation}
        return {to: [name for name in names if getattr(one, name) is not None] for to, one in both.items()}

    @property
    def times(self) -> ReminderTimes:
        is_second = self.escalation != RecipientChannels()
        after = self.escalate_after if is_second else None
        return ReminderTimes(expiring_seconds=self.warn_before, escalate_seconds=after)


def read_yaml(path: str) -> Any:
    """The content of a service file. Raises OSError, and ValueError with what is wrong in it."""
    import yaml

    with open(path, encoding="utf-8") as file:
        try:
            return yaml.safe_load(file)
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as problem:
            raise ValueError(f"{path}: not YAML: {problem}") from None


def read_notify(path: str) -> Notify:
    """The part `notify` of a service file. Raises OSError, and ValueError with what is wrong in it."""
    content = read_yaml(path)
    part = content.get("notify") if isinstance(content, dict) else None
    if part is None:
        raise ValueError(f"{path}: there is no `notify` in it")
    try:
        return msgspec.convert(part, prepared(Notify))
    except ValueError as problem:
        raise ValueError(f"{path}: notify: {problem}") from None


def add_webhooks(notify: Notify | None, webhook: str | None, escalate_to: str | None) -> Notify:
    """With these addresses in place of those of the settings."""
    notify = notify or Notify()
    if webhook is not None:
        notify = replace(notify, webhook=webhook)
    if escalate_to is not None:
        notify = replace(notify, escalation=replace(notify.escalation, webhook=escalate_to))
    return notify


def open_channels(
    notify: Notify, *, secret: str | None = None, environment: Mapping[str, str] = os.environ
) -> Channels:
    """Empty if nobody is to be told. Raises ValueError for what cannot be used, and for a secret that is missing."""
    recipients: dict[Recipient, RecipientChannels] = {"first": notify, "second": notify.escalation}
    key = environment.get(SECRET, "") if secret is None else secret
    opened = {to: _open(one, notify, key, environment) for to, one in recipients.items()}
    return {to: channels for to, channels in opened.items() if channels}


def _open(reached: RecipientChannels, notify: Notify, key: str, environment: Mapping[str, str]) -> dict[str, Poster]:
    channels: dict[str, Poster] = {}
    if reached.webhook is not None:
        if not key:
            raise ValueError(f"a webhook needs a secret to sign with: set ${SECRET}")
        channels["webhook"] = Webhook(reached.webhook, key, seconds=notify.timeout)
    if reached.slack is not None:
        address = environment.get(reached.slack, "")
        if not address:
            raise ValueError(f"slack: ${reached.slack} holds no address")
        try:
            channels["slack"] = SlackWebhook(address, public_url=notify.public_url, seconds=notify.timeout)
        except ValueError as problem:
            raise ValueError(f"slack: ${reached.slack}: {problem}") from None
    if reached.email is not None:
        password = environment.get(PASSWORD, "") if reached.email.user is not None else ""
        if reached.email.user is not None and not password:
            raise ValueError(f"email: `user` needs a password: set ${PASSWORD}")
        try:
            channels["email"] = Mailer(reached.email, password, public_url=notify.public_url, seconds=notify.timeout)
        except OSError as problem:
            raise ValueError(f"email: {reached.email.certificates}: {problem.strerror or problem}") from None
    return channels


# -- e-mail -----------------------------------------------------------------------------------------------------------
# The connection is encrypted, and the certificate of the server is checked, unless the settings say `plain`; a server
# that offers no encryption is not used. The exchange runs in a thread, as in `wire.client`, so that it has one
# deadline: `smtplib` alone would wait anew for every byte. A message has the same id at each delivery, so that mail
# programs drop repeats.

_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9.-]+")
_PORTS = {"starttls": 587, "tls": 465, "plain": 25}


class MailSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The password is not among them: it comes from the environment."""

    host: str
    sender: str
    to: tuple[str, ...]
    port: int | None = None
    """by default that of the kind of encryption: 587, 465 or 25"""
    security: Literal["starttls", "tls", "plain"] = "starttls"
    user: str | None = None
    certificates: str | None = None
    """a file with certificates to trust, in PEM form; by default those of the system"""

    def __post_init__(self) -> None:
        for address in (self.sender, *self.to):
            if not _ADDRESS.fullmatch(address) or len(address) > 254:
                raise ValueError(f"`{line(address)}` is not an e-mail address")
        if not self.to:
            raise ValueError("`to` names nobody")
        if not self.host or not self.host.isprintable() or " " in self.host:
            raise ValueError("`host` is the name of an SMTP server")
        if self.port is not None and not 0 < self.port < 65_536:
            raise ValueError(f"port={self.port}: expected 1 to 65535")
        if self.user is not None and self.security == "plain":
            raise ValueError("a password is not sent over a plain connection: use `starttls` or `tls`")
        refuse_link_local(self.host)


class Mailer:
    """Raises ValueError for a user without a password, and OSError for certificates that cannot be read."""

    def __init__(
        self, settings: MailSettings, password: str = "", *, public_url: str | None = None, seconds: float = 10.0
    ) -> None:
        if (settings.user is not None) != bool(password):
            raise ValueError("a user of the mail server needs a password, and a password needs a user")
        self._settings, self._password = settings, password
        self._public_url, self._seconds = public_url, seconds
        self._port = settings.port or _PORTS[settings.security]
        encrypted = settings.security != "plain"
        self._tls = ssl.create_default_context(cafile=settings.certificates) if encrypted else None

    def __call__(self, body: bytes, *, key: str, at: float) -> DeliveryResult:
        host = self._settings.host
        if leads_to_link_local(host, self._port):
            return DeliveryResult(problem=f"`{host}` leads to a link-local address", final=True)
        mail = self.compose(body, key=key, at=at)
        server, results = self._make_client(), list[DeliveryResult]()
        exchange = threading.Thread(target=self._send, args=(server, mail, results), name="bylaw-mail", daemon=True)
        exchange.start()
        exchange.join(self._seconds)
        if results:
            return results[0]
        if server.sock is not None:
            with suppress(OSError):
                server.sock.shutdown(socket.SHUT_RDWR)
        return DeliveryResult(problem=f"no answer within {self._seconds:g} s")

    def _make_client(self) -> smtplib.SMTP:
        """Not connected yet. Its timeout ends a thread that nobody waits for any more."""
        settings, limit = self._settings, 2 * self._seconds
        client = smtplib.SMTP(timeout=limit)
        if settings.security == "tls":
            assert self._tls is not None
            client = smtplib.SMTP_SSL(timeout=limit, context=self._tls)
        client._host = settings.host  # type: ignore[attr-defined]  # the name that the certificate must have
        return client

    def _send(self, server: smtplib.SMTP, mail: EmailMessage, results: list[DeliveryResult]) -> None:
        settings = self._settings
        try:
            with closing(server):
                code, text = server.connect(settings.host, self._port)
                if code != 220:
                    raise smtplib.SMTPConnectError(code, text)
                if settings.security == "starttls":
                    server.starttls(context=self._tls)
                if settings.user is not None:
                    server.login(settings.user, self._password)
                results.append(_read_smtp_result(server.send_message(mail, settings.sender, list(settings.to))))
                server.quit()
        except (OSError, smtplib.SMTPException, ValueError) as problem:
            results.append(_failure(problem))  # which counts only if the mail was not taken before

    def compose(self, body: bytes, *, key: str, at: float) -> EmailMessage:
        content = message(body, self._public_url)
        mail = EmailMessage(policy=SMTP)
        mail["From"], mail["To"] = self._settings.sender, ", ".join(self._settings.to)
        mail["Subject"] = f"[Bylaw] {content.title}"
        mail["Date"] = format_datetime(datetime.fromtimestamp(at, UTC))
        mail["Message-ID"] = f"<{sha256(key.encode('utf-8', 'replace')).hexdigest()[:40]}@bylaw>"
        mail["Auto-Submitted"] = "auto-generated"
        mail[KEY_HEADER] = line(key.encode("ascii", "backslashreplace").decode())
        lines = [content.title, "", *(f"{label}: {value}" for label, value in content.facts)]
        mail.set_content("\n".join([*lines, "", content.link] if content.link else lines) + "\n")
        return mail


def _read_smtp_result(refused: Mapping[str, object]) -> DeliveryResult:
    if not refused:
        return DeliveryResult(answer=250)
    names = ", ".join(map(line, refused))  # the others have it, so it is not sent again
    return DeliveryResult(answer=250, problem=f"the mail server refused it for {names}", final=True)


def _failure(problem: Exception) -> DeliveryResult:
    match problem:
        case smtplib.SMTPRecipientsRefused():
            return _read_answer(*next(iter(problem.recipients.values())))
        case smtplib.SMTPResponseException():
            return _read_answer(problem.smtp_code, problem.smtp_error)
        case smtplib.SMTPNotSupportedError():
            return DeliveryResult(problem="the mail server offers no encryption, or no sign-in", final=True)
        case ssl.SSLCertVerificationError():
            return DeliveryResult(problem=f"the certificate of the mail server is refused: {problem.verify_message}")
        case TimeoutError():
            return DeliveryResult(problem="no answer in time")
    reason = getattr(problem, "strerror", None) or "the connection broke"
    return DeliveryResult(problem=f"cannot be reached: {line(reason)}")


def _read_answer(code: int, text: bytes | str) -> DeliveryResult:
    answer_text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return DeliveryResult(
        answer=code, problem=f"the mail server answered {code}: {line(answer_text)}", final=500 <= code < 600
    )
