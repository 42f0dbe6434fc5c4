"""Notifications by e-mail, through an SMTP server.

The connection is encrypted, and the certificate of the server is checked, unless the settings say `plain`; a server
that offers no encryption is not used. The exchange runs in a thread, as in `wire.client`, so that it has one deadline:
`smtplib` alone would wait anew for every byte. A message has the same id at each delivery, so that mail programs drop
repeats.
"""

from __future__ import annotations

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
from typing import Literal

from msgspec import Struct

from bylaw.guard.incidents.webhook import KEY_HEADER, leads_to_link_local, refuse_link_local
from bylaw.guard.incidents.wording import line, message
from bylaw.model.ports import Posted

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

    def __call__(self, body: bytes, *, key: str, at: float) -> Posted:
        host = self._settings.host
        if leads_to_link_local(host, self._port):
            return Posted(problem=f"`{host}` leads to a link-local address", final=True)
        mail = self.compose(body, key=key, at=at)
        server, results = self._make_client(), list[Posted]()
        exchange = threading.Thread(target=self._send, args=(server, mail, results), name="bylaw-mail", daemon=True)
        exchange.start()
        exchange.join(self._seconds)
        if results:
            return results[0]
        _hang_up(server)
        return Posted(problem=f"no answer within {self._seconds:g} s")

    def _make_client(self) -> smtplib.SMTP:
        """Not connected yet. Its timeout ends a thread that nobody waits for any more."""
        settings, limit = self._settings, 2 * self._seconds
        client = smtplib.SMTP(timeout=limit)
        if settings.security == "tls":
            assert self._tls is not None
            client = smtplib.SMTP_SSL(timeout=limit, context=self._tls)
        client._host = settings.host  # type: ignore[attr-defined]  # the name that the certificate must have
        return client

    def _send(self, server: smtplib.SMTP, mail: EmailMessage, results: list[Posted]) -> None:
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
                results.append(_taken(server.send_message(mail, settings.sender, list(settings.to))))
                server.quit()
        except (OSError, smtplib.SMTPException, ValueError) as problem:
            results.append(_failure(problem))  # which counts only if the mail was not taken before

    def compose(self, body: bytes, *, key: str, at: float) -> EmailMessage:
        told = message(body, self._public_url)
        mail = EmailMessage(policy=SMTP)
        mail["From"], mail["To"] = self._settings.sender, ", ".join(self._settings.to)
        mail["Subject"] = f"[Bylaw] {told.title}"
        mail["Date"] = format_datetime(datetime.fromtimestamp(at, UTC))
        mail["Message-ID"] = f"<{sha256(key.encode('utf-8', 'replace')).hexdigest()[:40]}@bylaw>"
        mail["Auto-Submitted"] = "auto-generated"
        mail[KEY_HEADER] = line(key.encode("ascii", "backslashreplace").decode())
        lines = [told.title, "", *(f"{label}: {value}" for label, value in told.facts)]
        mail.set_content("\n".join([*lines, "", told.link] if told.link else lines) + "\n")
        return mail


def _hang_up(server: smtplib.SMTP) -> None:
    if server.sock is not None:
        with suppress(OSError):
            server.sock.shutdown(socket.SHUT_RDWR)


def _taken(refused: Mapping[str, object]) -> Posted:
    if not refused:
        return Posted(answer=250)
    names = ", ".join(map(line, refused))  # the others have it, so it is not sent again
    return Posted(answer=250, problem=f"the mail server refused it for {names}", final=True)


def _failure(problem: Exception) -> Posted:
    match problem:
        case smtplib.SMTPRecipientsRefused():
            return _answered(*next(iter(problem.recipients.values())))
        case smtplib.SMTPResponseException():
            return _answered(problem.smtp_code, problem.smtp_error)
        case smtplib.SMTPNotSupportedError():
            return Posted(problem="the mail server offers no encryption, or no sign-in", final=True)
        case ssl.SSLCertVerificationError():
            return Posted(problem=f"the certificate of the mail server is refused: {problem.verify_message}")
        case TimeoutError():
            return Posted(problem="no answer in time")
    reason = getattr(problem, "strerror", None) or "the connection broke"
    return Posted(problem=f"cannot be reached: {line(reason)}")


def _answered(code: int, text: bytes | str) -> Posted:
    said = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return Posted(answer=code, problem=f"the mail server answered {code}: {line(said)}", final=500 <= code < 600)
