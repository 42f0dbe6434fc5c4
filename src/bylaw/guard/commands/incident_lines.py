"""Incidents as lines for people and as JSON. Session keys, tools and messages come from agents, so none is sent to a
terminal as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from bylaw.guard.incidents.model import Alert, Detection, FollowRecord, Incident, Notification
from bylaw.report.text import printable


def line(incident: Incident) -> str:
    whose = f", assigned to {incident.assignee}" if incident.assignee else ""
    often = _times(incident.count) + (f", {incident.stopped:,} stopped" if incident.stopped else "")
    return printable(
        f"{incident.id}  {incident.status}{whose}  {incident.severity.value}  `{incident.rule}` {often}"
        f"  session {incident.session}: {incident.message}"
    )


def alert_line(alert: Alert) -> str:
    return printable(
        f"{alert.id}  {alert.kind} {alert.status}  `{alert.rule}`  session {alert.session}: {alert.message}"
    )


def notification_line(one: Notification) -> str:
    tries = f"{len(one.deliveries):,} {'try' if len(one.deliveries) == 1 else 'tries'}"
    last = f": {one.deliveries[-1].problem}" if one.deliveries and one.deliveries[-1].problem else ""
    due = f", next at {moment(one.at)}" if one.status == "pending" and one.deliveries else ""
    return printable(f"{one.id}  {one.status}  to the {one.to} recipient, {tries}{last}{due}")


def shown(incident: Incident, detections: Sequence[Detection]) -> list[str]:
    lines = [line(incident), f"  seen {moment(incident.first_seen)} to {moment(incident.last_seen)}"]
    lines += [f"  {incident.line}"] if incident.line else []
    for one in detections:
        call = f" {one.tool} (call {one.call_id})" if one.tool else ""
        run = f" run {one.run}" if one.run else ""
        stopped = ", stopped by the guard" if one.stopped else ""
        lines.append(f"  event {one.seq}{call}{run}{stopped}: {one.message}")
    for change in incident.history:
        lines.append(
            f"  {moment(change.at)} {change.what} by {change.by}" + (f": {change.note}" if change.note else "")
        )
    return [printable(text) for text in lines]


def moment(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{at:g} s"


def as_json(record: FollowRecord, **more: Any) -> str:
    plain = msgspec.to_builtins(record)
    return json.dumps({**{key: plain[key] for key in plain if key not in ("version", "notify", "state")}, **more})


def unjudged_lines(unjudged: Mapping[str, int]) -> list[str]:
    """What could not be judged, rule by rule."""
    return [
        printable(f"could not be judged: `{rule}` {_times(count)}, it looks at what is not written down")
        for rule, count in sorted(unjudged.items())
        if count > 0
    ]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
