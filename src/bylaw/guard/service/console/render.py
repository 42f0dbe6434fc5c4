"""Templates and what they share: filters for times, names and values, the frame around each page, and what differs
between two calls or two versions of a rule file.

Autoescaping is always on, and a name that a template misspells is an error. Values of users reach a page only as text.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from difflib import SequenceMatcher
from functools import cache
from pathlib import PurePath
from typing import Any, Literal, TypeAlias
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context as TemplateContext
from msgspec import Struct

BASE = "/console"
NO_TIME = "no such time"
STATIC = f"{BASE}/static"
LONGEST_CALL = 400
"""characters of a call in a list; its own page has all of it"""


class Page(Struct, frozen=True):
    """One entry of the navigation."""

    path: str
    name: str
    icon: str
    key: str
    last: bool = False
    """of its group"""
    scope: str = "operator"
    """whoever may open it"""


PAGES = (
    Page("tasks", "Tasks", "inbox", "t"),
    Page("reviews", "Reviews", "hand", "r"),
    Page("incidents", "Incidents", "alert", "i"),
    Page("notifications", "Notifications", "bell", "n", last=True),
    Page("live", "Live", "pulse", "l"),
    Page("sessions", "Sessions", "tree", "s", last=True),
    Page("rules", "Rules", "rules", "u"),
    Page("proposals", "Proposals", "bulb", "p"),
    Page("agents", "Agents", "agents", "a", last=True),
    Page("audit", "Audit", "chain", "d"),
    Page("keys", "Keys", "key", "k", scope="admin"),
)


@cache
def environment() -> Environment:
    """Compiled once in a process."""
    made = Environment(
        loader=PackageLoader("bylaw.guard.service.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        cache_size=200,
    )
    made.filters |= {
        "ago": show_ago,
        "base_name": base_name,
        "clock": show_clock,
        "json": pretty,
        "part": path_part,
        "place": show_place,
        "time": show_time,
        "until": show_until,
        "words": words,
    }
    made.globals |= {"base": BASE, "static": STATIC, "call_text": call_text, "pages": PAGES}
    return made


# -- filters ----------------------------------------------------------------------------------------------------------


def words(value: Any) -> str:
    """`terminate_session` as people write it."""
    return str(value).replace("_", " ")


def path_part(value: Any) -> str:
    """A name as a part of an address, whatever it contains."""
    return quote(str(value), safe="", errors="replace")


def base_name(file: str | None) -> str:
    return "" if file is None else PurePath(file).name


def show_place(line: str | None) -> str:
    """`folder/file.yaml:12:3` without the folder and the column."""
    if not line:
        return ""
    parts = PurePath(line).name.rsplit(":", 2)
    return ":".join(parts[:2])


def pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def call_text(tool: str, arguments: Any) -> str:
    """`issue_refund(amount=900)`, shortened; without a tool only the arguments."""
    if isinstance(arguments, dict):
        inner = ", ".join(
            f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in arguments.items()
        )
    else:
        inner = "" if arguments is None else json.dumps(arguments, ensure_ascii=False, default=str)
    text = f"{tool}({inner})" if tool else inner
    return text if len(text) <= LONGEST_CALL else text[:LONGEST_CALL] + "…"


@pass_context
def show_clock(context: TemplateContext, at: float | None) -> str:
    """The time of day; with the date if that is not today."""
    if at is None:
        return ""
    zone: tzinfo = context.get("zone", UTC)
    then, now = moment(at, zone), datetime.fromtimestamp(context.get("now", time.time()), zone)
    if then is None:
        return NO_TIME
    return then.strftime("%H:%M:%S" if then.date() == now.date() else "%b %d %H:%M")


@pass_context
def show_time(context: TemplateContext, at: float | None) -> str:
    """The time of day, where the date is clear."""
    if at is None:
        return ""
    then = moment(at, context.get("zone", UTC))
    return NO_TIME if then is None else then.strftime("%H:%M:%S")


@pass_context
def show_ago(context: TemplateContext, at: float | None) -> str:
    if at is None:
        return ""
    left = _seconds(context, at)
    return NO_TIME if left is None else f"{_duration(max(0.0, -left))} ago"


@pass_context
def show_until(context: TemplateContext, at: float | None) -> str:
    if at is None:
        return "never"
    left = _seconds(context, at)
    if left is None:
        return NO_TIME
    return f"in {_duration(left)}" if left > 0 else "expired"


def _seconds(context: TemplateContext, at: Any) -> float | None:
    """Seconds from now until then."""
    try:
        return float(at) - float(context.get("now", time.time()))
    except (OverflowError, ValueError, TypeError):
        return None


def moment(at: Any, zone: tzinfo) -> datetime | None:
    """None for what is no time of the calendar: what is stored may come from anybody. A text may be an ISO time."""
    try:
        if isinstance(at, str):
            then = datetime.fromisoformat(at)
            return (then if then.tzinfo else then.replace(tzinfo=UTC)).astimezone(zone)
        return datetime.fromtimestamp(at, zone)
    except (OverflowError, OSError, ValueError, TypeError):
        return None


def _duration(seconds: float) -> str:
    if not seconds < 365 * 86_400 * 1000:
        return "over 1000 years"
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count != 1 else ''}"
    return f"{int(seconds)} s"


def zone_of(minutes: str | None) -> tzinfo:
    """The zone of a browser, from the cookie that its script sets: minutes east of UTC."""
    try:
        east = int(minutes or "0")
    except ValueError:
        return UTC
    return timezone(timedelta(minutes=east)) if abs(east) <= 14 * 60 else UTC


def zone_name(zone: tzinfo) -> str:
    name = datetime.now(zone).strftime("%z")
    return "UTC" if name == "+0000" else f"UTC{name[:3]}:{name[3:]}"


# -- differences ------------------------------------------------------------------------------------------------------

MOST_ROWS = 200
MOST_DEPTH = 8
LONGEST_VALUE = 2_000
MOST_LINES = 2_000
"""of a rule file: beyond that a diff would take too long"""
CONTEXT = 3
MOST_RULE = 40
"""lines of one rule"""

ChangeKind: TypeAlias = Literal["same", "changed", "added", "removed", "only"]


class ArgumentRow(Struct, frozen=True):
    """One value of a call, beside the value that it had in the call before."""

    path: str
    kind: ChangeKind
    """`only`: there is no call to compare it with"""
    now: str | None
    before: str | None = None


class DiffLine(Struct, frozen=True):
    kind: Literal["same", "added", "removed", "gap"]
    text: str
    old: int | None = None
    new: int | None = None


def argument_rows(now: Any, before: Any = None, *, compare: bool = False) -> list[ArgumentRow]:
    """The arguments of a call by their paths, those that changed first. At most `MOST_ROWS`."""
    new = dict(_leaves(now, "", 0))
    if not compare:
        rows = [ArgumentRow(path, "only", value) for path, value in new.items()]
        return rows[:MOST_ROWS]
    old = dict(_leaves(before, "", 0))
    rows = []
    for path in {**new, **old}:
        is_now, was = new.get(path), old.get(path)
        same: ChangeKind = "same" if is_now == was else "changed"
        kind: ChangeKind = "removed" if is_now is None else "added" if was is None else same
        rows.append(ArgumentRow(path, kind, is_now, was))
    rows.sort(key=lambda row: row.kind == "same")
    return rows[:MOST_ROWS]


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value and depth < MOST_DEPTH:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key), depth + 1)
    elif (
        isinstance(value, list) and value and depth < MOST_DEPTH and any(isinstance(one, dict | list) for one in value)
    ):
        for number, inner in enumerate(value[:MOST_ROWS]):
            yield from _leaves(inner, f"{path}.{number}" if path else str(number), depth + 1)
    elif path or value not in ({}, None):
        yield path or "(all)", plain_value(value)


def plain_value(value: Any) -> str:
    """A value as one line of JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}… ({len(text):,} characters)"


def diff_lines(before: str, after: str, *, context: int = CONTEXT) -> list[DiffLine]:
    """The lines that differ, with some around them; a `gap` stands for lines that are left out. Empty if equal."""
    old, new = before.splitlines(), after.splitlines()
    if old == new:
        return []
    if max(len(old), len(new)) > MOST_LINES:
        return [
            DiffLine("gap", f"more than {MOST_LINES:,} lines: the versions differ, and are too long to compare here")
        ]
    lines: list[DiffLine] = []
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(context):
        if lines or group[0][1] > 0:
            lines.append(DiffLine("gap", "…"))
        for tag, old_from, old_to, new_from, new_to in group:
            if tag == "equal":
                lines += [DiffLine("same", old[n], n + 1, n + 1 + new_from - old_from) for n in range(old_from, old_to)]
                continue
            lines += [DiffLine("removed", old[n], old=n + 1) for n in range(old_from, old_to)]
            lines += [DiffLine("added", new[n], new=n + 1) for n in range(new_from, new_to)]
    return lines


def rule_lines(text: str, first: int, last: int | None = None) -> list[tuple[int, str]]:
    """The lines of the rule that begins at line `first`, with their numbers and without the indentation of the first.
    Without its end, it goes on as long as lines are indented deeper than that."""
    lines = text.splitlines()
    if not 1 <= first <= len(lines):
        return []
    start = _indent(lines[first - 1])
    if last is None or last <= first:
        last = first
        while last < len(lines) and (not lines[last].strip() or _indent(lines[last]) > start):
            last += 1
        while last > first and not lines[last - 1].strip():
            last -= 1
    shown = range(first, min(last, first + MOST_RULE, len(lines)) + 1)
    return [(number, lines[number - 1][min(start, _indent(lines[number - 1])) :]) for number in shown]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
