"""Tasks, reviews and incidents: what waits for a person, and the answers."""

from __future__ import annotations

import json
from typing import Any, Literal, cast

from starlette.responses import Response

from bylaw.guard.json_values import Refused, check_json
from bylaw.guard.model import Limits
from bylaw.guard.service.console.plots import Bucket, activity_plot
from bylaw.guard.service.console.render import BASE, argument_rows, path_part, pretty, rule_lines
from bylaw.guard.service.console.visit import Visit
from bylaw.guard.service.errors import BadRequest, Conflict
from bylaw.guard.service.operations.reviews import ReviewView
from bylaw.text.redaction import marker
from bylaw.text.repeated_keys import repeated_key

_REVIEWS = {"pending": "Open", "approved": "Approved", "rejected": "Rejected", "expired": "Expired", "all": "All"}
_INCIDENTS = {"unresolved": "Unresolved", "acknowledged": "Acknowledged", "solved": "Solved", "all": "All"}
_KINDS = ("", "anomaly_review", "anomaly_alert")
_MOST_STORY = 200
_LIMITS = Limits()
_REDACTED = marker("").removesuffix("]")


# -- tasks ------------------------------------------------------------------------------------------------------------


def tasks(visit: Visit) -> Response:
    kind = visit.choice("kind", _KINDS, "")
    status = cast("Literal['pending', 'completed']", visit.choice("status", ("pending", "completed"), "pending"))
    found = visit.operations.incidents.tasks(kind=cast(Any, kind or None), status=status, limit=200)
    undelivered = visit.operations.notifications.failed()
    return visit.render("tasks.html", current="tasks", kind=kind, status=status, tasks=found, undelivered=undelivered)


def badge(visit: Visit) -> Response:
    return visit.render("badge.html")


def acknowledge_alert(visit: Visit) -> Response:
    visit.operations.incidents.acknowledge_alert(visit.id(), by=visit.by)
    return visit.redirect("tasks", "acknowledged")


# -- reviews ----------------------------------------------------------------------------------------------------------


def reviews(visit: Visit) -> Response:
    status = visit.choice("status", _REVIEWS, "pending")
    found = visit.operations.reviews.list(status=cast(Any, None if status == "all" else status), limit=500)
    tabs = [(key, text, f"{BASE}/reviews?status={key}") for key, text in _REVIEWS.items()]
    newest = found if status == "pending" else sorted(found, key=lambda one: -one.created_at)
    return visit.render("reviews.html", current="reviews", status=status, statuses=tabs, reviews=newest[:200])


def review(visit: Visit) -> Response:
    view = visit.operations.reviews.view(visit.id(), by=visit.by)
    claimed_by, claimed_at = view.claimed_by, view.claimed_at
    if view.review.status == "pending" and claimed_by is None:
        try:
            visit.operations.reviews.claim(view.review.id, by=visit.by)
        except Conflict as other:  # opened by two people at the same moment
            claimed_by, claimed_at = other.details.get("by", "somebody else"), visit.now
    before = None if view.similar is None else view.similar.decision.arguments
    return visit.render(
        "review.html",
        current="reviews",
        review=view.review,
        missing=view.missing,
        rules=view.rules,
        similar=view.similar,
        rows=argument_rows(view.review.arguments, before, compare=view.similar is not None),
        source=_source(visit, view),
        story=_story(view),
        claimed_by=claimed_by,
        claimed_at=claimed_at,
        edited=pretty(view.review.arguments or {}),
    )


def claim(visit: Visit) -> Response:
    """Renews the claim of whoever has the page open, or says who else has."""
    found = visit.operations.reviews.get(visit.id())
    claimed_by, claimed_at = None, None
    if found.status == "pending":
        try:
            visit.operations.reviews.claim(found.id, by=visit.by)
        except Conflict as other:
            claimed_by, claimed_at = other.details.get("by", "somebody else"), visit.now
    return visit.render("claim.html", review=found, claimed_by=claimed_by, claimed_at=claimed_at)


def answer_review(visit: Visit) -> Response:
    id, chosen, note = visit.id(), visit.text("answer"), visit.text("note") or None
    seen = visit.text("version")
    version = int(seen) if seen.isascii() and seen.isdigit() and len(seen) < 16 else None
    operations = visit.operations.reviews
    if chosen == "reject":
        operations.reject(id, by=visit.by, note=note, version=version)
        return visit.redirect(f"reviews/{path_part(id)}", "rejected")
    if chosen not in ("approve", "edit"):
        raise BadRequest("choose to approve, to edit or to reject")
    edited = None
    if chosen == "edit":
        edited = {"tool": visit.text("tool"), "arguments": _arguments(visit.form.get("edited", ""))}
    answered = operations.approve(id, by=visit.by, note=note, edited=edited, version=version)
    done = "approved" if answered.status == "approved" else "partly"
    return visit.redirect(f"reviews/{path_part(id)}", done)


def _arguments(text: str) -> Any:
    """What the agent is to run instead. Secrets are not shown, so a marker that stands for one is not a value."""
    try:
        arguments = json.loads(text)
        check_json(arguments, _LIMITS)
        twice = repeated_key(text, arguments)
    except (ValueError, RecursionError, Refused) as bad:
        raise BadRequest(f"the arguments are not JSON: {bad}") from None
    if not isinstance(arguments, dict):
        raise BadRequest("the arguments of a call are a JSON object")
    if twice is not None:
        raise BadRequest(f"the arguments have the key `{twice}` twice")
    if _REDACTED in text:
        raise BadRequest(f"`{_REDACTED}…]` stands for a secret that is not stored; write the value, or reject the call")
    return arguments


def _source(visit: Visit, view: ReviewView) -> list[tuple[int, str]]:
    """The lines of the first rule that paused the call."""
    rule = next((one for one in view.rules if one.file and one.line), None)
    if rule is None or rule.line is None:
        return []
    text = visit.operations.rules.active().version.files.get(str(rule.file), "")
    return rule_lines(text, rule.line, rule.end_line)


def _story(view: ReviewView) -> list[dict[str, Any]]:
    """What was said and called, in the order of the log."""
    said = [
        {"kind": "said", "seq": one.seq, "at": one.at, "role": one.role, "review": None, "text": _plain(one.text)}
        for one in view.conversation
    ]
    calls = [
        {
            "kind": "call",
            **{
                name: getattr(one, name)
                for name in ("seq", "at", "tool", "arguments", "agent", "action", "reason", "review")
            },
        }
        for one in view.calls
    ]
    return sorted([*said, *calls], key=lambda one: one["seq"])[-_MOST_STORY:]


def _plain(text: Any) -> str:
    return text if isinstance(text, str) else "" if text is None else pretty(text)


# -- incidents --------------------------------------------------------------------------------------------------------


def incidents(visit: Visit) -> Response:
    status = visit.choice("status", _INCIDENTS, "unresolved")
    found = visit.operations.incidents.list(status=cast(Any, None if status == "all" else status), limit=200)
    tabs = [(key, text, f"{BASE}/incidents?status={key}") for key, text in _INCIDENTS.items()]
    return visit.render("incidents.html", current="incidents", status=status, statuses=tabs, incidents=found)


def incident(visit: Visit) -> Response:
    view = visit.operations.incidents.view(visit.id())
    found = view.incident
    plot = None
    if len(view.detections) > 1:
        plot = activity_plot(_buckets(view.detections), label="Detections over time", zone=visit.zone)
    return visit.render(
        "incident.html",
        current="incidents",
        incident=found,
        detections=view.detections[:100],
        sessions=view.sessions or [found.call_session or found.session],
        runs=list(dict.fromkeys((one.call_session or one.session, one.run) for one in view.detections if one.run)),
        plot=plot,
    )


def change_incident(visit: Visit) -> Response:
    id, note = visit.id(), visit.text("note") or None
    operations, change = visit.operations.incidents, visit.text("change")
    if change == "acknowledge":
        operations.acknowledge(id, by=visit.by, note=note)
        done = "acknowledged"
    elif change == "assign":
        operations.assign(id, visit.text("to"), by=visit.by, note=note)
        done = "assigned"
    elif change == "note":
        operations.note(id, note or "", by=visit.by)
        done = "noted"
    elif change == "solve":
        operations.solve(id, by=visit.by, note=note)
        done = "solved"
    else:
        raise BadRequest("choose to acknowledge, assign, note or solve")
    return visit.redirect(f"incidents/{path_part(id)}", done)


def _buckets(detections: Any, count: int = 40) -> list[Bucket]:
    first, last = detections[0].when, detections[-1].when
    width = max((last - first) / count, 1e-6)
    counts: list[dict[str, int]] = [{} for _ in range(count)]
    for one in detections:
        place = min(count - 1, int((one.when - first) / width))
        action = (one.then or "block") if one.stopped else "pause"
        counts[place][action] = counts[place].get(action, 0) + 1
    return [Bucket(first + place * width, found) for place, found in enumerate(counts)]
