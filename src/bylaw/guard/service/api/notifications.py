"""The endpoints about notifications: what people were told, and what did not reach them."""

from __future__ import annotations

from typing import Any

from bylaw.guard.service.api.declare import Endpoint, Items
from bylaw.guard.service.api.desk import Limited
from bylaw.guard.stores.records import Notification, NotificationStatus


class NotificationQuery(Limited, frozen=True, kw_only=True):
    status: NotificationStatus | None = None


_OF: dict[str, Any] = {"scope": "operator", "noun": "notifications"}

ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/notifications",
        summary="what people were told, the newest first, with each attempt to deliver it",
        call=lambda a: Items(a.context.operations.notifications.list(status=a.query.status, limit=a.query.limit)),
        query=NotificationQuery,
        returns=Items[Notification],
        **_OF,
    ),
    Endpoint(
        method="POST",
        path="/notifications/test",
        summary="tell the first recipient that this is a test",
        call=lambda a: a.context.operations.notifications.test(by=a.who.name),
        returns=Notification,
        fails=(409,),
        **_OF,
    ),
    Endpoint(
        method="POST",
        path="/notifications/{id}/resend",
        summary="deliver one that failed again, through the channels that have not delivered it",
        call=lambda a: a.context.operations.notifications.resend(a.path["id"], by=a.who.name),
        returns=Notification,
        fails=(404, 409),
        **_OF,
    ),
]
