"""A notification as text for people: a title, facts, and a link into the console.

Names of tools, sessions and agents come from callers. Each value is one line of printable text of bounded length, so
that none can begin a header, a line or a message of its own.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

LONGEST = 300
"""characters of one value"""
_TITLES = {
    "incident.opened": "The rule {rule} was broken",
    "incident.solved": "The incident about {rule} is solved",
    "review.opened": "A call of {tool} waits for a person",
    "review.expiring": "A call of {tool} still waits, and expires soon",
    "review.escalated": "Nobody has answered: a call of {tool} waits for a person",
    "test": "This is a test of Bylaw's notifications",
}
_FACTS = (
    ("reason", "Reason"), ("message", "Reason"), ("rules", "Rules"), ("severity", "Severity"), ("tool", "Tool"),
    ("agent", "Agent"), ("session", "Session"), ("run", "Run"), ("count", "Times"), ("assignee", "Assigned to"),
    ("by", "Sent by"), ("id", "Id"),
)  # fmt: skip


class Message(Struct, frozen=True):
    title: str
    facts: tuple[tuple[str, str], ...]
    link: str | None = None
    """an address of the console; None if nobody has said where the console is"""


def message(body: bytes, public_url: str | None = None) -> Message:
    """The words for a notification, from its JSON. Every event has some, also one that is not known here."""
    content = msgspec.json.decode(body)
    event = str(content.get("event"))
    kind = "incident" if "incident" in content else "review" if "review" in content else "test"
    about = content.get(kind) or {}
    shown = {key: line(about.get(key)) for key in ("rule", "tool")}
    title = _TITLES.get(event, "{event}").format(event=line(event), **shown)
    facts = tuple((label, line(about[key])) for key, label in _FACTS if about.get(key) not in (None, "", []))
    link = None
    if public_url is not None and kind != "test":
        link = f"{public_url.rstrip('/')}/console/{kind}s/{quote(str(about.get('id')), safe='')}"
    return Message(title, facts, link)


def line(value: Any) -> str:
    """One line of printable text."""
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    flat = "".join(one if one.isprintable() else " " for one in text)
    return flat if len(flat) <= LONGEST else f"{flat[:LONGEST]}…"
