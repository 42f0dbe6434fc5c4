"""Notifications to a chat room: the incoming webhook of Slack, and of what understands it, such as Mattermost.

The address is a secret, so it comes from the environment and appears in no message. Values of callers are inline code,
in which neither Slack nor Mattermost reads mentions, links or formatting; `&`, `<` and `>` are escaped, since Slack
reads `<!channel>` anywhere.
"""

from __future__ import annotations

from bylaw.guard.incidents.webhook import HttpPoster
from bylaw.guard.incidents.wording import message
from bylaw.model.canonical import canonical_json
from bylaw.model.ports import Posted

_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "`": "'"})


class ChatRoom(HttpPoster):
    """Raises ValueError for an address that cannot be used."""

    def __init__(self, address: str, *, public_url: str | None = None, seconds: float = 10.0) -> None:
        super().__init__(address, seconds=seconds)
        self._public_url = public_url

    def __call__(self, body: bytes, *, key: str, at: float) -> Posted:
        return self.send(canonical_json({"text": chat_text(body, self._public_url)}), {})


def chat_text(body: bytes, public_url: str | None = None) -> str:
    told = message(body, public_url)
    lines = [_code(told.title), *(f"{label}: {_code(value)}" for label, value in told.facts)]
    if told.link is not None:
        lines.append(f"<{told.link.translate(_ESCAPED)}|Open it in the console>")
    return "\n".join(lines)


def _code(text: str) -> str:
    return f"`{text.translate(_ESCAPED)}`"
