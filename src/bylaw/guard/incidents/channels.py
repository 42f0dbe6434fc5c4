"""How people are reached: which channels each recipient has, as the part `notify` of a service file names them.

Secrets come from the environment: what signs a webhook, the address of a chat room, the password of a mail server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bylaw.guard.incidents.chat import ChatRoom
from bylaw.guard.incidents.mail import Mailer, MailSettings
from bylaw.guard.incidents.notifications import ReminderTimes
from bylaw.guard.incidents.webhook import Webhook
from bylaw.guard.stores.records import Recipient
from bylaw.model.ports import Poster

SECRET = "BYLAW_WEBHOOK_SECRET"
SLACK = "BYLAW_SLACK_WEBHOOK"
PASSWORD = "BYLAW_SMTP_PASSWORD"

Channels: TypeAlias = Mapping[Recipient, Mapping[str, Poster]]


class Reached(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The channels of one recipient."""

    webhook: str | None = None
    """an address that gets signed JSON"""
    slack: str | None = None
    """the environment variable that holds the address of a chat room's incoming webhook"""
    email: MailSettings | None = None


class Notify(Reached, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is told of incidents and reviews, and when."""

    escalation: Reached = Reached()
    """who is told of reviews that nobody answers"""
    escalate_after: float = 1800.0
    """seconds that a review may wait before"""
    warn_before: float = 600.0
    """seconds before a review expires at which it is told again"""
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
        is_second = self.escalation != Reached()
        after = self.escalate_after if is_second else None
        return ReminderTimes(expiring_seconds=self.warn_before, escalate_seconds=after)


def read_notify(path: str) -> Notify:
    """The part `notify` of a service file. Raises OSError, and ValueError with what is wrong in it."""
    import yaml

    with open(path, encoding="utf-8") as file:
        try:
            content = yaml.safe_load(file)
        except (yaml.YAMLError, UnicodeDecodeError) as problem:
            raise ValueError(f"{path}: not YAML: {problem}") from None
    part = content.get("notify") if isinstance(content, dict) else None
    if part is None:
        raise ValueError(f"{path}: there is no `notify` in it")
    try:
        return msgspec.convert(part, Notify)
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
    recipients: dict[Recipient, Reached] = {"first": notify, "second": notify.escalation}
    key = environment.get(SECRET, "") if secret is None else secret
    opened = {to: _open(one, notify, key, environment) for to, one in recipients.items()}
    return {to: channels for to, channels in opened.items() if channels}


def _open(reached: Reached, notify: Notify, key: str, environment: Mapping[str, str]) -> dict[str, Poster]:
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
            channels["slack"] = ChatRoom(address, public_url=notify.public_url, seconds=notify.timeout)
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
