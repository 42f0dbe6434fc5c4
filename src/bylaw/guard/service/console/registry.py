"""The audit; agents with their versions, modes, allowlists, kill switches and manifests; API keys; notifications."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast
from urllib.parse import urlencode

from msgspec import Struct
from starlette.responses import Response, StreamingResponse

from bylaw.guard.service.console import Visit
from bylaw.guard.service.console.render import BASE, plain_value, pretty
from bylaw.guard.service.console.rulebook import show_checked
from bylaw.guard.service.errors import BadRequest, NotFound
from bylaw.guard.stores.records import AuditRow, Credential

_KINDS = (
    "decision", "result", "response", "message", "review", "incident", "session", "run", "release", "switch", "rules",
    "service", "stored",
)  # fmt: skip
_MODES = ("request", "hitl", "sub_agent")
_MANIFEST = "manifest.json"
LONGEST = 300
"""characters of a text in a list"""


# -- audit ------------------------------------------------------------------------------------------------------------


def audit(visit: Visit) -> Response:
    asked = {name: visit.asked(name) for name in ("session", "rule", "kind", "text")}
    filters: dict[str, Any] = {name: value for name, value in asked.items() if value}
    found = visit.operations.audit.query(**filters, before=visit.number("before"), limit=60)
    return visit.render(
        "audit.html",
        current="audit",
        query=asked,
        kinds=_KINDS,
        rows=_shown(found.rows, found.lines),
        head=found.head,
        before=found.before,
        older=f"{BASE}/audit?{urlencode({**filters, 'before': found.before or 0})}",
        export=f"{BASE}/audit/export?{urlencode({k: v for k, v in filters.items() if k in ('session', 'rule')})}",
        filtered=bool(filters),
    )


class Row(Struct, frozen=True):
    """A row of the audit on the page, or several in a row that only vouch for records."""

    seqs: str
    row: AuditRow
    about: str


def _shown(rows: Sequence[AuditRow], lines: Sequence[str]) -> list[Row]:
    """Newest first. Rows of the kind `stored` say nothing to people, so those beside each other are one."""
    shown: list[Row] = []
    group: list[AuditRow] = []
    for row, line in [*zip(rows, lines, strict=True), (None, "")]:
        if row is not None and row.data.get("kind") == "stored":
            group.append(row)
            continue
        if group:
            seqs = f"{group[-1].seq}–{group[0].seq}" if len(group) > 1 else str(group[0].seq)
            shown.append(Row(seqs, group[0], "vouch for records that were written"))
            group = []
        if row is not None:
            shown.append(Row(str(row.seq), row, _about(row, line)))
    return shown


def _about(row: AuditRow, line: str) -> str:
    """What the row is about, without its number, time, kind and session, which have columns of their own."""
    data = row.data
    match data.get("kind"):
        case "switch":
            state = f"blocked: {data.get('why')}" if data.get("on") else "cleared"
            return f"{data.get('agent')} {state}"
        case "response" | "message":
            said = data.get("said")
            text = (said.get("text") or said.get("content")) if isinstance(said, dict) else said
            return f"{data.get('agent') or ''} {text if isinstance(text, str) else plain_value(text)}".strip()[:LONGEST]
        case "result":
            return f"{'failed: ' if data.get('is_error') else ''}{plain_value(data.get('content'))}"[:LONGEST]
    return line.split("  ", 3)[-1].removeprefix(str(data.get("session", "-"))).strip() or "no details"


def verify(visit: Visit) -> Response:
    """A piece of the page: recomputing every verdict may take a while."""
    known = visit.text("head")
    report = visit.operations.audit.verify(heads=[known] if known else None)
    return visit.render("verified.html", report=report)


def export(visit: Visit) -> Response:
    lines: Iterator[str] = visit.operations.audit.export(
        session=visit.asked("session") or None, rule=visit.asked("rule") or None
    )
    headers = {"Content-Disposition": 'attachment; filename="audit.jsonl"'}
    return StreamingResponse(lines, media_type="application/jsonl", headers=headers)


# -- agents -----------------------------------------------------------------------------------------------------------


def agents(visit: Visit) -> Response:
    found = visit.operations.agents.list()
    named = {one.agent for one in found}
    switches = [one for one in visit.operations.agents.switches() if one.agent not in named or one.agent == "*"]
    return visit.render("agents.html", current="agents", agents=found, switches=switches, modes=_MODES)


def change_agent(visit: Visit) -> Response:
    """Another mode, another version of a manifest, or the rules on or off: one of them."""
    visit.need("admin")
    agent, rules_on = visit.name(), {"on": True, "off": False}.get(visit.text("rules"))
    visit.operations.rules.change_agent(
        agent, by=visit.by, mode=visit.text("mode") or None, rules_on=rules_on, label=visit.text("label") or None
    )
    return visit.redirect("agents", "changed")


def kill(visit: Visit) -> Response:
    visit.operations.agents.kill(visit.text("agent"), by=visit.by, why=visit.text("why"))
    return visit.redirect("agents", "killed")


def revive(visit: Visit) -> Response:
    visit.operations.agents.revive(visit.text("agent"), by=visit.by)
    return visit.redirect("agents", "revived")


def manifest(visit: Visit) -> Response:
    """The rules in force as an agent manifest."""
    text = pretty(visit.operations.agents.export_manifest())
    headers = {"Content-Disposition": f'attachment; filename="{_MANIFEST}"'}
    return Response(text, media_type="application/json", headers=headers)


def import_page(visit: Visit) -> Response:
    visit.need("admin")
    active = visit.operations.rules.active().version
    return visit.render("import.html", current="agents", active=active.id)


def import_manifest(visit: Visit) -> Response:
    """Replaces the rules in force by those of the manifest. A dry run says what it would do."""
    visit.need("admin")
    text = visit.form.get("manifest", "").replace("\r\n", "\n")
    name = "manifest.json" if text.lstrip().startswith(("{", "[")) else "manifest.yaml"
    files = {name: text}
    if not text.strip():
        raise BadRequest("paste a manifest first")
    if visit.text("then") == "try":
        return show_checked(visit, files, compare=True)
    visit.operations.rules.activate(
        files,
        by=visit.by,
        note=visit.text("note") or "a manifest was imported",
        expected=visit.text("expected") or None,
    )
    return visit.redirect("agents", "activated")


def no_page(visit: Visit) -> Response:
    raise NotFound("there is no such page")


_SCOPES = {
    "operator": "operator: reviews, incidents, audit",
    "admin": "admin: also rules, agents and keys",
    "agent": "agent: decisions of its agents",
}
_LIFETIMES = {"": "never", "1": "after a day", "30": "after 30 days", "90": "after 90 days", "365": "after a year"}
_DAY = 86_400.0
_NOTIFICATIONS = {"": "All", "failed": "Failed", "pending": "Pending", "delivered": "Delivered"}


# -- keys -------------------------------------------------------------------------------------------------------------


def keys(visit: Visit, new: str | None = None, made: Credential | None = None) -> Response:
    visit.need("admin")
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
    return keys(visit, new, made)


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
    visit.operations.notifications.resend(visit.text("id"), by=visit.by)
    return visit.redirect("notifications", "resent")


def test(visit: Visit) -> Response:
    visit.operations.notifications.test(by=visit.by)
    return visit.redirect("notifications", "tested")
