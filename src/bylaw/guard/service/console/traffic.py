"""Live decisions, and sessions: the tree of their agents with each call on a time axis."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast
from urllib.parse import urlencode

from starlette.responses import Response

from bylaw.guard.service.console.plots import ACTIONS, Bucket, Lane, Mark, activity_plot, timeline_plot
from bylaw.guard.service.console.render import BASE, call_text, path_part, plain_value
from bylaw.guard.service.console.visit import Visit
from bylaw.guard.service.errors import NotFound, ServiceError
from bylaw.guard.service.operations.sessions import CallView, RunView

_SPANS = {"900": "15 minutes", "3600": "1 hour", "10800": "3 hours", "86400": "24 hours"}
_FILTERS = ("action", "agent", "tool", "rule", "session")
_SESSIONS = {"": "All", "open": "Open", "ended": "Ended", "terminated": "Terminated"}
_BUCKETS = 60
_MOST_CALLS = 500
_DEEPEST = 4
"""levels of the tree that are indented"""


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
        story=_story(view.observations, calls)[-_MOST_CALLS:],
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


def _story(said: list[dict[str, Any]], calls: list[tuple[CallView, RunView]]) -> list[dict[str, Any]]:
    """What was said and called, in the order of the log."""
    items: list[dict[str, Any]] = []
    for one in said:
        content = one.get("said") if isinstance(one.get("said"), dict) else {}
        assert isinstance(content, dict)
        text = content.get("text") if one.get("kind") == "response" else content.get("content")
        role = "assistant" if one.get("kind") == "response" else content.get("role") or one.get("kind")
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
