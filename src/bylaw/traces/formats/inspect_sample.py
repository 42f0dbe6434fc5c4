"""A sample of an inspect_ai log, with its attachments and pooled messages put back in place.

Long texts stand in `attachments` and are referred to as `attachment://…`. Newer logs hold each message once, in
`events_data`, and refer to ranges of them in `input_refs`. A very large sample is a folder of the archive, with its
events, messages and attachments in numbered pieces: `samples/<id>_epoch_<n>/sample.json` holds the rest of the sample,
`events/1000.json` the events from 1000 on. Pieces may come in any order; a sample is complete with the last of the
pieces that the archive lists.

INVARIANT: bounded. A reference is short and may occur a million times, so attachments are inserted only up to a total
size; and pieces of open samples are held only up to a total size.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from bylaw.model.events import Locator
from bylaw.traces.formats.messages import chat_messages
from bylaw.traces.formats.record import Record, text_field, type_name
from bylaw.traces.formats.spans.span import RecordedInput
from bylaw.traces.records.problems import Place

MOST = 256 << 20
"""characters of all texts that are inserted"""
_SEARCHES = frozenset(("search", "open_page", "find", "find_in_page"))
"""actions of OpenAI's web search, which inspect_ai records as the name of the tool"""
_LISTING = "mcp_list_tools"
"""not a call: the provider asked a server of MCP for its tools"""
_MOST_LEVELS = 50
_SCHEME = "attachment://"
_NAME = re.compile(_SCHEME + "([0-9a-fA-F]{1,64})")


class Attachments:
    def __init__(self, texts: Any, warn: Callable[[], None], *, repeated: bool = False) -> None:
        """`warn` is called once, if there is more than MOST. `repeated`: the same texts recur, as in requests, so they
        are cached and count once."""
        self._texts: dict[str, Any] = texts if isinstance(texts, dict) else {}
        self._warn = warn
        self._cached: dict[str, str] | None = {} if repeated else None
        self._left = MOST
        self._warned = False

    def insert(self, value: Any, level: int = 0) -> Any:
        """A value with its attachments inserted; values that are nested too deeply are not changed."""
        if not self._texts or level > _MOST_LEVELS:
            return value
        if isinstance(value, str):
            return self._text(value) if _SCHEME in value else value
        if isinstance(value, list):
            return [self.insert(item, level + 1) for item in value]
        if isinstance(value, dict):
            return {key: self.insert(item, level + 1) for key, item in value.items()}
        return value

    def _text(self, text: str) -> str:
        if self._cached is None:
            return self._insert_all(text)
        if text not in self._cached:
            self._cached[text] = self._insert_all(text)
        return self._cached[text]

    def _insert_all(self, text: str) -> str:
        size = len(text) + sum(len(self._named(name)) - len(name[0]) for name in _NAME.finditer(text))
        if size <= self._left:
            self._left -= size
            return _NAME.sub(self._named, text)
        if not self._warned:
            self._warned = True
            self._warn()
        return text

    def _named(self, name: re.Match[str]) -> str:
        found = self._texts.get(name[1])
        return found if isinstance(found, str) else name[0]


_MOST_REFERENCES = 1_000_000
"""messages that one request may refer to"""


class Sample:
    def __init__(self, value: dict[str, Any], source: Locator, warn: Callable[[], None]) -> None:
        """`warn` is called if it refers to more attachments than are inserted."""
        self.value = value
        self.source = source
        data = value.get("events_data")
        texts = value.get("attachments")
        self._texts_once, self._input_texts = Attachments(texts, warn), Attachments(texts, warn, repeated=True)
        pool = data.get("messages") if isinstance(data, dict) else value.get("message_pool")
        pooled = enumerate(pool) if isinstance(pool, list) else pool.items() if isinstance(pool, dict) else ()
        self._pool: dict[int, Any] = dict(pooled)
        """by their index; one that could not be read is missing"""
        self._end = max(self._pool, default=-1) + 1
        self._pooled: dict[int, list[dict[str, Any]]] = {}

    @property
    def name(self) -> str:
        return f"sample {self.value['id']} epoch {self.value.get('epoch', 1)}"

    @property
    def events(self) -> list[Any]:
        events = self.value.get("events")
        return events if isinstance(events, list) else []

    @property
    def conversation(self) -> list[dict[str, Any]]:
        """Its final messages, for a log without events."""
        refs = self.value.get("message_refs")
        return self._named(refs) if isinstance(refs, list) else self.messages(self.value.get("messages")) or []

    def messages(self, value: Any) -> list[dict[str, Any]] | None:
        return _messages(value, self._texts_once)

    def recorded_input(self, event: dict[str, Any]) -> RecordedInput | None:
        """The input of a model, from the event or from the pool."""
        recorded, refs = event.get("input"), event.get("input_refs")
        if recorded:
            return (
                RecordedInput(recorded, each=self._repeated)
                if isinstance(recorded, list)
                else RecordedInput(recorded, read=self._input)
            )
        return RecordedInput(refs, read=self._named if isinstance(refs, list) else self._input) if refs else None

    def resolved(self, value: Any) -> Any:
        return self._texts_once.insert(value)

    def _repeated(self, message: dict[str, Any]) -> dict[str, Any]:
        return _rename_keys(self._input_texts.insert(message))

    def _input(self, value: Any) -> list[dict[str, Any]] | None:
        return _messages(value, self._input_texts)

    def _named(self, refs: list[Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for index in self._indices(refs):
            if index not in self._pooled:
                self._pooled[index] = self._input([self._pool[index]]) or []
            found += self._pooled[index]
        return found

    def _indices(self, refs: list[Any]) -> Iterator[int]:
        left = _MOST_REFERENCES
        for ref in refs:
            start, end = ref if isinstance(ref, list) and len(ref) == 2 else (ref, None)
            if type(start) is not int or start < 0:
                continue
            end = end if type(end) is int else start + 1
            named = range(start, min(end, self._end, start + left))
            left -= len(named)
            yield from (index for index in named if index in self._pool)


def _messages(value: Any, attachments: Attachments) -> list[dict[str, Any]] | None:
    found = chat_messages(attachments.insert(value)) if isinstance(value, (list, str)) else None
    return None if found is None else [_rename_keys(message) for message in found]


def error_text(error: Any) -> str | None:
    if isinstance(error, dict):
        return str(error.get("message") or error.get("type") or "error")
    return str(error) if error else None


def _rename_keys(message: dict[str, Any]) -> dict[str, Any]:
    """A message with inspect_ai's own keys renamed to the usual ones."""
    content, error = message.get("content"), message.get("error")
    changed: dict[str, Any] = {}
    if isinstance(content, list):
        changed["content"] = [part for block in content for part in _parts(block)]
    if message.get("role") == "tool":
        changed["name"] = message.get("function")
        if error is not None:
            changed["is_error"] = True
            changed["content"] = changed.get("content", content) or error_text(error)
    return {**message, **changed} if changed else message


def _parts(block: Any) -> Iterator[Any]:
    """A block in the usual form. A call that the provider ran has its result inside, which is a block of its own."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "reasoning":
        yield {**block, "type": "thinking", "text": block.get("reasoning")}
    elif kind != "tool_use" or "input" in block or "arguments" not in block:
        yield block
    elif block.get("name") == _LISTING:
        yield {**block, "type": "mcp_tool_listing"}
    else:
        used, server, error = block.get("tool_type"), text_field(block, "context"), error_text(block.get("error"))
        name = used if used == "web_search" and block.get("name") in _SEARCHES else block.get("name")
        use = "mcp_tool_use" if used == "mcp_call" else "server_tool_use"
        call = {"type": use, "id": block.get("id"), "name": name, "input": block["arguments"]}
        yield call if server is None else {**call, "server_name": server}
        content = block.get("result") or error or block.get("result")
        if content is not None:
            failed = error is not None
            yield {"type": "tool_result", "tool_use_id": block.get("id"), "content": content, "is_error": failed}


_PIECE = re.compile(r"(samples/.+_epoch_\d+)/(?:(sample)|(events|messages|attachments)/(\d{1,12}))\.json")
_OTHER = re.compile(r"samples/.+_epoch_\d+/(?:metadata|skeleton|events/(?:stats|uuids)|calls/\d+)\.json")
"""entries that are not read: `calls` are the providers' own requests"""
MOST_HELD = 1 << 30
"""bytes of pieces that wait for the rest of their sample"""
_UNUSED = ("call", "traceback", "traceback_ansi")


class _OpenSample(Struct, eq=False):
    """A sample that is not complete yet."""

    pieces: dict[tuple[str, int], list[Any]] = {}
    rest: dict[str, Any] | None = None
    size: int = 0


class Chunks:
    def __init__(self, names: Iterable[str]) -> None:
        self._left = Counter(match[1] for name in names if (match := _PIECE.fullmatch(name)))
        self._open: dict[str, _OpenSample] = {}
        self._held = 0

    def is_piece(self, name: str) -> bool:
        return bool(_PIECE.fullmatch(name) or _OTHER.fullmatch(name))

    def take(self, record: Record) -> tuple[Record, dict[str, Any]] | None:
        """The sample that this piece completes."""
        match = _PIECE.fullmatch(record.item)
        if match is None:
            return None
        sample, rest, kind, start = match.groups()
        opened = self._open.setdefault(sample, _OpenSample())
        self._left[sample] -= 1
        if self._fits(record, dict if rest else list):
            opened.size += len(record.raw)
            self._held += len(record.raw)
            if rest:
                opened.rest = record.value
            else:
                opened.pieces[kind, int(start)] = list(map(_lean, record.value)) if kind == "events" else record.value
        return self._whole(sample, record) if self._left[sample] <= 0 else None

    def _fits(self, record: Record, kind: type) -> bool:
        if not isinstance(record.value, kind):
            wanted = "an object" if kind is dict else "a list"
            record.bad("wrong-type", f"this piece of a sample must be {wanted}, not {type_name(record.value)}")
            return False
        if self._held + len(record.raw) > MOST_HELD:
            record.bad("too-long", f"samples that are not whole yet are longer than {MOST_HELD >> 20} MiB")
            return False
        return True

    def rest(self, record: Record) -> list[tuple[Record, dict[str, Any]]]:
        """Samples with a piece that could not be read, as far as they go."""
        return [self._whole(sample, record) for sample in list(self._open)]

    def _whole(self, sample: str, record: Record) -> tuple[Record, dict[str, Any]]:
        opened = self._open.pop(sample)
        self._held -= opened.size
        numbered = {
            kind: {start + at: item for start, items in _sort_chunks(opened, kind) for at, item in enumerate(items)}
            for kind in ("messages", "attachments")
        }
        value = {
            **(opened.rest or {}),
            "events": [event for _, events in _sort_chunks(opened, "events") for event in events],
            "events_data": {"messages": numbered["messages"]},
            "attachments": {str(number): text for number, text in numbered["attachments"].items()},
        }
        return Record(value, record.raw, Place(1, 1, sample), record.problems), value


def _sort_chunks(opened: _OpenSample, kind: str) -> list[tuple[int, list[Any]]]:
    return sorted((start, items) for (of, start), items in opened.pieces.items() if of == kind)


def _lean(event: Any) -> Any:
    """An event without the provider's raw request and response, which it repeats in another form."""
    if not isinstance(event, dict) or event.get("event") != "model":
        return event
    return {key: value for key, value in event.items() if key not in _UNUSED}
