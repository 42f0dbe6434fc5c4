"""The answer inside an agent's HTTP reply.

With a `response_path` it stands there or nowhere. Without one, a reply that is no JSON is the answer, and of a JSON
object the first of these keys that is not null: output, response, result, data, content, text, message, answer, reply,
queries, query, results; else the value of its only key; else the whole object.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bylaw.contract.live_agent import Failure
from bylaw.model.values import json_type
from bylaw.wire.bodies import json_of

GUESSES = (
    "output", "response", "result", "data", "content", "text", "message", "answer", "reply", "queries", "query",
    "results",
)  # fmt: skip
_EXCERPT = 200


def read_reply(status: int, body: bytes, response_path: str | None) -> str | Failure:
    if status >= 400:
        return Failure("error", f"HTTP {status}: {excerpt(body)}")
    value = json_of(body)
    if response_path is not None:
        if value is msgspec.UNSET:
            return Failure("bad_answer", f"the reply is no JSON, so it has no `{response_path}`: {excerpt(body)}")
        return _at_path(value, response_path)
    if value is msgspec.UNSET:
        return body.decode("utf-8", "replace")
    return _guessed(value) if isinstance(value, dict) else _as_text(value)


def excerpt(body: bytes) -> str:
    text = " ".join(body[: 4 * _EXCERPT].decode("utf-8", "replace").split())
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"


def _guessed(reply: dict[str, Any]) -> str | Failure:
    error = reply.get("error") or reply.get("Error")
    if reply.get("success") is False:
        return Failure("error", f"the agent answered `success: false`: {excerpt(_as_text(error or reply).encode())}")
    answer = next((reply[key] for key in GUESSES if reply.get(key) is not None), None)
    if answer is None and error:
        return Failure("error", excerpt(_as_text(error).encode()))
    if answer is None and len(reply) == 1:
        answer = next(iter(reply.values()))
    if answer is None and any(key in reply for key in GUESSES):
        return Failure("bad_answer", f"the answer is null: {excerpt(msgspec.json.encode(reply))}")
    return _as_text(reply if answer is None else answer)


def _at_path(value: Any, path: str) -> str | Failure:
    gone = ""
    for part in path.split("."):
        place = f"at `{gone}` there" if gone else "there"
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return Failure("bad_answer", f"the reply has no `{path}`: {place} is {_described(value)}")
        gone = f"{gone}.{part}" if gone else part
    if value is None:
        return Failure("bad_answer", f"`{path}` of the reply is null")
    return _as_text(value)


def _described(value: Any) -> str:
    if isinstance(value, dict):
        return "an object with " + (", ".join(f"`{key}`" for key in list(value)[:10]) or "no keys")
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return json_type(value)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
