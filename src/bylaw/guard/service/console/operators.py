"""What operators look at: tasks, reviews and incidents, which wait for a person, and the answers; live decisions; and
sessions, the tree of their agents with each call on a time axis."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, Literal, cast
from urllib.parse import urlencode

from starlette.responses import Response

from bylaw.guard.json_values import RefusedAttempt, check_json
from bylaw.guard.model import Limits
from bylaw.guard.service.console import Visit
from bylaw.guard.service.console.plots import ACTIONS, Bucket, Lane, Mark, activity_plot, timeline_plot
from bylaw.guard.service.console.render import (
    BASE,
    argument_rows,
    call_text,
    path_part,
    plain_value,
    pretty,
)
from bylaw.guard.service.console.rulebook import lines_of
from bylaw.guard.service.errors import BadRequest, Conflict, NotFound, ServiceError
from bylaw.guard.service.operations.record import read_said
from bylaw.guard.service.operations.sessions import CallView, RunView
from bylaw.guard.stores.records import ReviewRecord
from bylaw.text.redaction import marker
from bylaw.text.repeated_keys import repeated_key

_REVIEWS = {"pending": "Open", "approved": "Approved", "rejected": "Rejected", "expired": "Expired", "all": "All"}
_INCIDENTS = {"unresolved": "Unresolved", "acknowledged": "Acknowledged", "solved": "Solved", "all": "All"}
_CHANGED = {"acknowledge": "acknowledged", "assign": "assigned", "note": "noted", "solve": "solved"}
_KINDS = ("", "anomaly_review", "anomaly_alert")
_MOST_STORY = 200
_SPANS = {"900": "15 minutes", "3600": "1 hour", "10800": "3 hours", "86400": "24 hours"}
_FILTERS = ("action", "agent", "tool", "rule", "session")
_SESSIONS = {"": "All", "open": "Open", "ended": "Ended", "terminated": "Terminated"}
_BUCKETS = 60
_MOST_CALLS = 500
_DEEPEST = 4
"""levels of the tree that are indented"""
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
    if claimed_by is None:
        claimed_by, claimed_at = _claim(visit, view.review)
    before = None if view.similar is None else view.similar.decision.arguments
    story: list[Any] = [*view.conversation, *view.calls]
    first = next((one for one in view.rules if one.file and one.line), None)
    return visit.render(
        "review.html",
        current="reviews",
        review=view.review,
        missing=view.missing,
        rules=view.rules,
        similar=view.similar,
        rows=argument_rows(view.review.arguments, before, compare=view.similar is not None),
        source=[] if first is None else lines_of(visit.operations.rules.active(), first),
        story=sorted(story, key=lambda one: one.seq)[-_MOST_STORY:],
        claimed_by=claimed_by,
        claimed_at=claimed_at,
        edited=pretty(view.review.arguments or {}),
    )


def claim(visit: Visit) -> Response:
    found = visit.operations.reviews.get(visit.id())
    claimed_by, claimed_at = _claim(visit, found)
    return visit.render("claim.html", review=found, claimed_by=claimed_by, claimed_at=claimed_at)


def _claim(visit: Visit, review: ReviewRecord) -> tuple[str | None, float | None]:
    """Renews the claim of whoever has the page open, or says who else has: since when somebody looks at it."""
    if review.status == "pending":
        try:
            visit.operations.reviews.claim(review.id, by=visit.by)
        except Conflict as other:
            return other.details.get("by", "somebody else"), visit.now
    return None, None


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
    except (ValueError, RecursionError, RefusedAttempt) as bad:
        raise BadRequest(f"the arguments are not JSON: {bad}") from None
    if not isinstance(arguments, dict):
        raise BadRequest("the arguments of a call are a JSON object")
    if twice is not None:
        raise BadRequest(f"the arguments have the key `{twice}` twice")
    if _REDACTED in text:
        raise BadRequest(f"`{_REDACTED}…]` stands for a secret that is not stored; write the value, or reject the call")
    return arguments


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
    id, how, note = visit.id(), visit.text("change"), visit.text("note")
    if how not in _CHANGED:
        raise BadRequest("choose to acknowledge, assign, note or solve")
    about: dict[str, str | None] = {"text": note} if how == "note" else {"note": note or None}
    if how == "assign":
        about["to"] = visit.text("to")
    visit.operations.incidents.change(id, cast(Any, how), by=visit.by, **about)
    return visit.redirect(f"incidents/{path_part(id)}", _CHANGED[how])


def _buckets(detections: Any, count: int = 40) -> list[Bucket]:
    first, last = detections[0].when, detections[-1].when
    width = max((last - first) / count, 1e-6)
    counts: list[dict[str, int]] = [{} for _ in range(count)]
    for one in detections:
        place = min(count - 1, int((one.when - first) / width))
        action = (one.then or "block") if one.stopped else "pause"
        counts[place][action] = counts[place].get(action, 0) + 1
    return [Bucket(first + place * width, found) for place, found in enumerate(counts)]


# -- live decisions and sessions ---------------------------------------------------------------------------------------


def live(visit: Visit) -> Response:
    asked = {name: visit.asked(name) for name in _FILTERS}
    asked["action"] = visit.choice("action", ("", *ACTIONS), "")
    filters = {name: value for name, value in asked.items() if value}
    span = visit.choice("span", _SPANS, "10800")
    page = visit.operations.decisions.recent(limit=50, before=visit.number("before"), **cast(Any, filters))
    series = visit.operations.decisions.series(since=visit.now - int(span), buckets=_BUCKETS, **cast(Any, filters))
    buckets = [Bucket(one.start, {action: getattr(one, action) for action in ACTIONS}) for one in series.buckets]
    older = f"{BASE}/live?{urlencode({**filters, 'span': span, 'before': page.before or 0})}"
    return visit.render(
        "live.html",
        current="live",
        actions=ACTIONS,
        spans=list(_SPANS.items()),
        query=asked | {"span": span},
        filtered=bool(filters) or visit.number("before") is not None,
        decisions=page.decisions,
        before=page.before,
        older=older,
        plot=activity_plot(buckets, label=f"Decisions in the last {_SPANS[span]}", zone=visit.zone),
        complete=series.complete,
    )


def sessions(visit: Visit) -> Response:
    status, agent = visit.choice("status", _SESSIONS, ""), visit.asked("agent")
    found = visit.operations.sessions.list(status=cast(Any, status or None), agent=agent or None, limit=200)
    keep = f"&agent={path_part(agent)}" if agent else ""
    tabs = [(key, text, f"{BASE}/sessions?status={key}{keep}") for key, text in _SESSIONS.items()]
    return visit.render("sessions.html", current="sessions", status=status, agent=agent, statuses=tabs, sessions=found)


def session(visit: Visit) -> Response:
    name = visit.name()
    if not name:  # rows without a session, such as kill switches
        raise NotFound("the address names no session")
    view = visit.operations.sessions.get(name)
    runs = _flat(view.tree)
    lanes, marks = _plot(runs, view.summary.last_at)
    calls = sorted(((call, run) for run, _, _ in runs for call in run.calls), key=lambda pair: pair[0].decision.seq)
    incidents = visit.operations.incidents.list(session=view.summary.session, limit=20)
    return visit.render(
        "session.html",
        current="sessions",
        view=view,
        session=view.summary,
        lanes=[(run, min(depth, _DEEPEST)) for run, depth, _ in runs],
        plot=timeline_plot(lanes, marks, label="Calls of each agent over time"),
        story=_conversation_rows(view.observations, calls)[-_MOST_CALLS:],
        counters=[(run, sorted(run.counters.items())) for run, _, _ in runs if run.counters],
        rules=[(run, _effective(visit, view.summary.session, run)) for run, _, _ in runs],
        incidents=incidents,
    )


def terminate(visit: Visit) -> Response:
    name = visit.name()
    visit.operations.sessions.get(name)
    visit.operations.sessions.terminate(name, by=visit.by, why=visit.text("why"))
    return visit.redirect(f"session?name={path_part(name)}", "terminated")


def _effective(visit: Visit, session: str, run: RunView) -> list[Any]:
    """The rules of a run, those of its ancestors first; none if the guard would refuse its calls."""
    try:
        return list(visit.operations.sessions.effective_rules(session, agent=run.agent, run=run.run))
    except ServiceError:
        return []


def _flat(tree: list[RunView]) -> list[tuple[RunView, int, int | None]]:
    """Every run with its depth and the number of the run above it, in the order of the tree."""
    flat: list[tuple[RunView, int, int | None]] = []

    def add(run: RunView, depth: int, above: int | None) -> None:
        number = len(flat)
        flat.append((run, depth, above))
        for below in run.below:
            add(below, depth + 1, number)

    for run in tree:
        add(run, 0, None)
    return flat


def _plot(runs: list[tuple[RunView, int, int | None]], last: float) -> tuple[list[Lane], list[Mark]]:
    lanes, marks = [], []
    for number, (run, _, above) in enumerate(runs):
        lanes.append(Lane(run.agent or "calls", run.started_at, run.last_at, above))
        for call in run.calls:
            one = call.decision
            label = f"{one.action}: {call_text(one.tool, one.arguments)}"
            marks.append(Mark(number, one.at, one.action, label, f"#call-{one.seq}"))
    return lanes, marks


def _conversation_rows(said: list[dict[str, Any]], calls: list[tuple[CallView, RunView]]) -> list[dict[str, Any]]:
    """What was said and called, in the order of the log."""
    items: list[dict[str, Any]] = []
    for one in said:
        role, text = read_said(str(one.get("kind")), one["said"] if isinstance(one.get("said"), dict) else {})
        items.append(
            {
                "seq": one["seq"],
                "at": one.get("at"),
                "role": role,
                "text": text if isinstance(text, str) else plain_value(text),
                "found": one.get("found") or [],
                "call": None,
            }
        )
    items += [{"seq": call.decision.seq, "at": call.decision.at, "call": call, "run": run} for call, run in calls]
    items.sort(key=lambda item: int(item["seq"]))
    for before, item in pairwise(reversed(items)):  # what was said may have no time of its own
        item["at"] = item["at"] or before["at"]
    return items
