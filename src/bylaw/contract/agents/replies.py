"""The answer inside an HTTP reply.

With a `response_path` the answer is there or nowhere. Without one, a reply that is not JSON is the
answer. In a JSON object it is the first of `REPLY_KEYS` that is not null, else the value of the only key, else the
whole object. `streams` reads one that comes in pieces.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bylaw.contract.agents.answers import as_text, at_path, excerpt, reported_failure
from bylaw.contract.agents.streams import read_stream
from bylaw.contract.live_agent import Failure
from bylaw.wire.exchange import json_of

REPLY_KEYS = (
    "output", "response", "result", "data", "content", "text", "message", "answer", "reply", "queries", "query",
    "results",
)  # fmt: skip


def read_reply(status: int, body: bytes, response_path: str | None, content_type: str = "") -> str | Failure:
    if status >= 400:
        return Failure("error", f"HTTP {status}: {excerpt(body)}")
    streamed = read_stream(content_type, body, response_path)
    if streamed is not None:
        return streamed
    value = json_of(body)
    if response_path is not None:
        if value is msgspec.UNSET:
            return Failure("bad_answer", f"the reply is not JSON, so it has no `{response_path}`: {excerpt(body)}")
        return at_path(value, response_path)
    if value is msgspec.UNSET:
        return body.decode("utf-8", "replace")
    return _guessed(value) if isinstance(value, dict) else as_text(value)


def _guessed(reply: dict[str, Any]) -> str | Failure:
    failure = reported_failure(reply, REPLY_KEYS)
    if failure is not None:
        return failure
    answer = next((reply[key] for key in REPLY_KEYS if reply.get(key) is not None), None)
    if answer is None and len(reply) == 1:
        answer = next(iter(reply.values()))
    if answer is None and any(key in reply for key in REPLY_KEYS):
        return Failure("bad_answer", f"the answer is null: {excerpt(msgspec.json.encode(reply))}")
    return as_text(reply if answer is None else answer)
