"""Who may use the service, and how people are reached: API keys and notifications."""

from __future__ import annotations

from typing import Any, cast

from starlette.responses import Response

from bylaw.guard.service.console.visit import Visit
from bylaw.guard.service.errors import BadRequest
from bylaw.guard.stores.records import Credential

_SCOPES = {
    "operator": "operator: reviews, incidents, audit",
    "admin": "admin: also rules, agents and keys",
    "agent": "agent: decisions of its agents",
}
_LIFETIMES = {"": "never", "1": "after a day", "30": "after 30 days", "90": "after 90 days", "365": "after a year"}
_DAY = 86_400.0
_NOTIFICATIONS = {"": "All", "failed": "Failed", "pending": "Pending", "delivered": "Delivered"}


# -- keys -------------------------------------------------------------------------------------------------------------


def keys(visit: Visit) -> Response:
    visit.need("admin")
    return _keys(visit)


def _keys(visit: Visit, new: str | None = None, made: Credential | None = None) -> Response:
    found = sorted(visit.credentials.list(), key=lambda one: (one.status != "valid", -one.created_at))
    return visit.render(
        "keys.html",
        current="keys",
        found=found,
        scopes=_SCOPES,
        lifetimes=_LIFETIMES,
        new=new,
        made=made,
        known_agents=[one.agent for one in visit.operations.agents.list()],
    )


def create_key(visit: Visit) -> Response:
    """The answer shows the key, which is stored nowhere. It is no redirect: an address would hold the key."""
    visit.need("admin")
    scope, days = visit.text("scope"), visit.text("expires")
    if scope not in _SCOPES or days not in _LIFETIMES:
        raise BadRequest("choose a scope, and when the key expires")
    agents = [one.strip() for one in visit.text("agents").split(",") if one.strip()]
    if agents and scope != "agent":
        raise BadRequest("only a key of the scope `agent` names agents")
    new, made = visit.credentials.create(
        visit.text("label"),
        cast(Any, [scope]),
        agents=agents,
        seconds=float(days) * _DAY if days else None,
        by=visit.by,
    )
    visit.form = {}
    return _keys(visit, new, made)


def revoke_key(visit: Visit) -> Response:
    visit.need("admin")
    visit.credentials.revoke(visit.text("id"), by=visit.by)
    return visit.redirect("keys", "key-revoked")


# -- notifications ----------------------------------------------------------------------------------------------------


def notifications(visit: Visit) -> Response:
    operations = visit.operations.notifications
    status = visit.choice("status", _NOTIFICATIONS, "")
    found = operations.list(status=cast(Any, status or None), limit=200)
    return visit.render(
        "notifications.html",
        current="notifications",
        status=status,
        statuses=_NOTIFICATIONS,
        found=[(one, operations.states(one)) for one in found],
        channels=operations.channels,
        waiting=any(one.status == "pending" for one in found),
    )


def resend(visit: Visit) -> Response:
    visit.need("operator")
    visit.operations.notifications.resend(visit.text("id"), by=visit.by)
    return visit.redirect("notifications", "resent")


def test(visit: Visit) -> Response:
    visit.need("operator")
    visit.operations.notifications.test(by=visit.by)
    return visit.redirect("notifications", "tested")
