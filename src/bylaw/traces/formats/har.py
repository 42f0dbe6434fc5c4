"""HAR: what a browser or a debugging proxy recorded of HTTP. Requests to a model are read as a log of pairs is."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from bylaw.traces.formats.bodies import read_request
from bylaw.traces.formats.body_text import decode_base64
from bylaw.traces.formats.messages import parsed
from bylaw.traces.formats.pairs import Pair, PairsReader, pairs_in
from bylaw.traces.formats.reader import Opened
from bylaw.traces.formats.record import MalformedRecord, Record, list_field, object_field, text_field

_SUCCEEDED = range(200, 300)
_MESSAGES = frozenset(("messages", "contents", "input"))
_NO_ANSWER = "the response to this request is not in the file, or cannot be read"


def claims(value: Any) -> bool:
    log = object_field(value, "log")
    return isinstance(log.get("version"), str) and isinstance(log.get("entries"), list)


class HarReader(PairsReader):
    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self._others = 0
        """requests that are not to a model"""

    def read_record(self, record: Record) -> None:
        entries = list_field(object_field(record.value, "log"), "entries")
        if not entries and record.expect_object("a recording"):
            return
        order = sorted(range(len(entries)), key=lambda index: (_started(entries[index]), index))
        for index in order:
            path = ("log", "entries", index)
            exchange = _exchange(entries[index])
            pairs = [] if exchange is None else pairs_in(exchange) or _unanswered(exchange)
            self._others += not pairs
            if pairs and pairs[0].answer is None and _status(entries[index]) in _SUCCEEDED:
                record.warn("unread-content", _NO_ANSWER, path)
                self.complete = False
            for pair in pairs:
                try:
                    self._read(record, pair, path)
                except MalformedRecord as error:
                    record.malformed(error, path)

    def notes(self) -> list[str]:
        noun = "request is" if self._others == 1 else "requests are"
        return [*super().notes(), *([f"{self._others:,} {noun} not to a model"] if self._others else [])]


def _exchange(entry: Any) -> dict[str, Any] | None:
    """One entry in the shape of a proxy's log."""
    posted = text_field(object_field(object_field(entry, "request"), "postData"), "text")
    if posted is None:
        return None
    content = object_field(object_field(entry, "response"), "content")
    text = text_field(content, "text") if _status(entry) in _SUCCEEDED else None  # an error is no answer
    if text is not None and content.get("encoding") == "base64":
        text = decode_base64(text)
    exchange = {"request": posted, "response": text, "start_time": entry.get("startedDateTime")}
    return {key: value for key, value in {**exchange, "end_time": _ended(entry)}.items() if value is not None}


def _unanswered(exchange: dict[str, Any]) -> list[Pair]:
    """A request to a model whose response failed, or is not in the file."""
    body = parsed(exchange["request"])
    if (
        isinstance(parsed(exchange.get("response")), dict)
        and isinstance(body, dict)
        and _MESSAGES & body.keys() == {"input"}
    ):
        return []  # other interfaces take an `input` too, such as that for embeddings
    request = read_request(body) if isinstance(body, dict) and not _MESSAGES.isdisjoint(body) else None
    return [] if request is None else [Pair(request, body, None, exchange)]


def _status(entry: dict[str, Any]) -> Any:
    return object_field(entry, "response").get("status")


def _started(entry: Any) -> str:
    return (text_field(entry, "startedDateTime") or "") if isinstance(entry, dict) else ""


def _ended(entry: dict[str, Any]) -> str | None:
    took = entry.get("time")
    if not isinstance(took, (int, float)) or took < 0:
        return None
    try:
        return (datetime.fromisoformat(_started(entry)) + timedelta(milliseconds=took)).isoformat()
    except (ValueError, OverflowError):
        return None
