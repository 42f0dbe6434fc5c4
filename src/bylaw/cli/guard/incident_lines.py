"""Incidents as lines for people and as JSON. Session keys, tools and messages come from agents, so none is sent to a
terminal as it is."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from bylaw.model.incidents import Alert, Detection, FollowRecord, Incident
from bylaw.report.terminal import printable


def line(incident: Incident) -> str:
    often = "once" if incident.count == 1 else f"{incident.count:,} times"
    whose = f", assigned to {incident.assignee}" if incident.assignee else ""
    stopped = f", {incident.stopped:,} stopped" if incident.stopped else ""
    return printable(
        f"{incident.id}  {incident.status}{whose}  {incident.severity.value}  `{incident.rule}` {often}{stopped}"
        f"  session {incident.session}: {incident.message}"
    )


def alert_line(alert: Alert) -> str:
    return printable(
        f"{alert.id}  {alert.kind} {alert.status}  `{alert.rule}`  session {alert.session}: {alert.message}"
    )


def shown(incident: Incident, detections: list[Detection]) -> list[str]:
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
