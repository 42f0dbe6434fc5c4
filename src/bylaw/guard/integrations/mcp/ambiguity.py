"""Messages that are JSON, but that two readers could take for different ones.

Some readers ignore case, as Go's does: they find `method` in `Method`, and `arguments` where its last letter is a long
s. A server that reads so would run a call that nobody has decided. So a name that only looks like one of the protocol
is refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

_NOISE = re.compile(r"[^\w/]+")
"""blanks, signs that are not shown, and punctuation that lenient readers leave out"""


def _folded(text: str) -> str:
    return _NOISE.sub("", unicodedata.normalize("NFKC", text).casefold())


class Names:
    """Names that have one spelling."""

    def __init__(self, *names: str) -> None:
        self._exact = frozenset(names)
        self._folded = {_folded(name): name for name in names}

    def mistaken(self, found: Iterable[str]) -> str | None:
        """Why one of these could be read as a name that it is not."""
        for name in found:
            if name not in self._exact and (meant := self._folded.get(_folded(name))) is not None:
                return f"`{name}` could be read as `{meant}`"
        return None


_ENVELOPE = Names("jsonrpc", "id", "method", "params", "result", "error")
_PARAMS = Names(
    "name", "arguments", "_meta", "cursor", "uri", "task", "taskId", "requestId", "requestState", "inputResponses",
    "progressToken", "protocolVersion",
)  # fmt: skip
_RESULT = Names(
    "tools", "nextCursor", "content", "structuredContent", "isError", "resultType", "requestState", "task", "_meta",
)  # fmt: skip
_METHODS = Names(
    "tools/call", "tools/list", "initialize", "server/discover", "notifications/cancelled", "notifications/initialized",
    "notifications/tools/list_changed",
)  # fmt: skip
"""that the proxy treats in their own way"""
TOOL = Names(
    "name", "title", "description", "inputSchema", "outputSchema", "annotations", "execution", "icons", "_meta"
)  # fmt: skip


def ambiguity_of(body: Any) -> str | None:
    """Why a message could be taken for another one; None if it could not."""
    if not isinstance(body, dict):
        return "send one message at a time"
    if (why := _ENVELOPE.mistaken(body)) is not None:
        return why
    is_answer = "result" in body or "error" in body
    if "method" in body:
        method = body["method"]
        if is_answer:
            return "it is a request and an answer"
        if not isinstance(method, str):
            return "its method is not a text"
        why = _METHODS.mistaken((method,))
    elif "id" not in body or not is_answer:
        return "it is neither a request nor an answer"
    elif body.get("result") is not None and body.get("error") is not None:
        return "it has a result and an error"
    for names, part in ((_PARAMS, body.get("params")), (_RESULT, body.get("result"))):
        if why is None and isinstance(part, dict):
            why = names.mistaken(part)
    return why


def ambiguity_of_arguments(arguments: Any, schema: Any = None) -> str | None:
    """Why a tool could read the arguments of a call differently than the rules do. `schema`: of the arguments."""
    left = [(arguments, schema)]
    while left:
        value, schema = left.pop()
        if isinstance(value, list):
            items = schema.get("items") if isinstance(schema, dict) else None
            left += [(item, items) for item in value if isinstance(item, dict | list)]
        elif isinstance(value, dict):
            properties = schema.get("properties") if isinstance(schema, dict) else None
            known: Mapping[str, Any] = properties if isinstance(properties, dict) else {}
            if (why := _same_names(value, known)) is not None:
                return why
            left += [(inner, known.get(name)) for name, inner in value.items() if isinstance(inner, dict | list)]
    return None


def _same_names(value: Mapping[str, Any], known: Mapping[str, Any]) -> str | None:
    seen = {name.casefold(): name for name in known}
    for name in value:
        other = seen.setdefault(name.casefold(), name)
        if other != name and not (name in known and other not in value):
            return f"the argument `{name}` could be read as `{other}`"
    return None
