"""Notifications over HTTP: `signing` makes and checks the signature, `post` delivers."""

from __future__ import annotations

from bylaw.guard.incidents.webhooks.post import Webhook
from bylaw.guard.incidents.webhooks.signing import verify_webhook

__all__ = ["Webhook", "verify_webhook"]
