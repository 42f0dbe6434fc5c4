"""The events of one of inspect_ai's samples, as spans, with what a log holds only once put back in its places.

Long texts stand in `attachments` and are named `attachment://…` elsewhere. Newer logs hold each message once, in
`events_data`, and name ranges of them in `input_refs`.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import UNSET

from bylaw.adapters.importers.formats.chat.message import text_field
from bylaw.adapters.importers.formats.spans.asked import Asked
from bylaw.adapters.importers.formats.spans.messages import chat_messages, merged
from bylaw.adapters.importers.formats.spans.span import AgentRun, Mark, ModelCall, Span, ToolRun, count_of, tokens
from bylaw.adapters.importers.formats.spans.times import moment
from bylaw.model.source import Locator

_ATTACHMENT = re.compile(r"attachment://([0-9a-fA-F]{16,64})")
_MOST_LEVELS = 50
_MARKS = frozenset(("approval", "score", "error", "sample_limit", "interrupt"))
_MOST_REFERENCES = 1_000_000
"""messages that one request may name: ranges are cheap to write"""


class Sample:
    def __init__(self, value: dict[str, Any], source: Locator) -> None:
        self.value = value
        self.source = source
        attachments, data = value.get("attachments"), value.get("events_data")
        self._attachments: dict[str, Any] = attachments if isinstance(attachments, dict) else {}
        pool = data.get("messages") if isinstance(data, dict) else value.get("message_pool")
        self._pool: list[Any] = pool if isinstance(pool, list) else []
        self._pooled: dict[int, list[dict[str, Any]]] = {}

    @property
    def events(self) -> list[Any]:
        events = self.value.get("events")
        return events if isinstance(events, list) else []

    def messages(self, value: Any) -> list[dict[str, Any]] | None:
        found = chat_messages(self.resolved(value)) if isinstance(value, (list, str)) else None
        return None if found is None else [_plain(message) for message in found]

    def asked(self, event: dict[str, Any]) -> list[dict[str, Any]] | None:
        """The input of a model, whether it stands there or in the pool."""
        refs = event.get("input_refs")
        if not isinstance(refs, list) or event.get("input"):
            return self.messages(event.get("input"))
        found: list[dict[str, Any]] = []
        for ref in refs:
            start, end = ref if isinstance(ref, list) and len(ref) == 2 else (ref, None)
            if type(start) is not int or start < 0:
                continue
            end = end if type(end) is int else start + 1
            for index in range(start, min(end, len(self._pool), start + _MOST_REFERENCES)):
                if index not in self._pooled:
                    self._pooled[index] = self.messages([self._pool[index]]) or []
                found += self._pooled[index]
        return found

    def resolved(self, value: Any, level: int = 0) -> Any:
        """A value with its attachments; what is nested absurdly is left as it is."""
        if isinstance(value, str):
            return _ATTACHMENT.sub(self._attachment, value) if "attachment://" in value else value
        if not self._attachments or level > _MOST_LEVELS:
            return value
        if isinstance(value, list):
            return [self.resolved(item, level + 1) for item in value]
        if isinstance(value, dict):
            return {key: self.resolved(item, level + 1) for key, item in value.items()}
        return value

    def _attachment(self, match: re.Match[str]) -> str:
        found = self._attachments.get(match[1])
        return found if isinstance(found, str) else match[0]


def spans_of(sample: Sample) -> list[Span]:
    spans: list[Span] = []
    judging = _Judging()
    for number, event in enumerate(sample.events):
        if not isinstance(event, dict):
            continue
        kind = text_field(event, "event")
        if kind in ("step", "span_begin"):
            judging.enter(event)
        span = _span(sample, event, number)
        if kind == "model" and not judging.now(event):
            span.about = _model(sample, event)
            span.error = _error(event.get("error"))
        elif kind == "tool" and isinstance(event.get("function"), str):
            span.about = _tool(sample, event)
        elif kind == "span_begin":
            span.id = str(event.get("id"))
            span.parent = event.get("parent_id") if isinstance(event.get("parent_id"), str) else None
            span.name = str(event.get("name", ""))
            span.about = AgentRun(name=span.name or None) if event.get("type") == "agent" else None
        elif kind in _MARKS:
            data = {key: sample.resolved(item) for key, item in event.items() if key not in _ENVELOPE}
            span.about = Mark(label=str(kind), data=data)
        else:
            continue
        spans.append(span)
    return spans


_ENVELOPE = ("event", "timestamp", "working_start", "span_id", "uuid", "pending", "metadata")


class _Judging:
    """Whether a scorer is at work: by the span of an event, in older logs by the step it stands in."""

    def __init__(self) -> None:
        self._spans: set[str] = set()
        self._steps = 0

    def enter(self, event: dict[str, Any]) -> None:
        scores = event.get("type") == "scorer"
        if event.get("event") == "span_begin":
            if (scores or text_field(event, "parent_id") in self._spans) and isinstance(event.get("id"), str):
                self._spans.add(event["id"])
        elif scores:
            self._steps = max(0, self._steps + (1 if event.get("action") == "begin" else -1))

    def now(self, event: dict[str, Any]) -> bool:
        span = event.get("span_id")
        return self._steps > 0 or (isinstance(span, str) and span in self._spans)


def _span(sample: Sample, event: dict[str, Any], number: int) -> Span:
    start, at = moment(event.get("timestamp"))
    end, ended_at = moment(event.get("completed"))
    took = event.get("working_time")
    if end is None and start is not None and isinstance(took, (int, float)) and took >= 0:
        end = start + took
    uuid, parent = event.get("uuid"), event.get("span_id")
    item = f"{sample.source.item}.events[{number}]" if sample.source.item else f"events[{number}]"
    return Span(
        id=uuid if isinstance(uuid, str) else f"event {number}",
        parent=parent if isinstance(parent, str) else None,
        start=start,
        end=end,
        at=at,
        ended_at=end if ended_at is None else ended_at,
        source=Locator(sample.source.file, sample.source.line, item),
    )


def _error(error: Any) -> str | None:
    if isinstance(error, dict):
        return str(error.get("message") or error.get("type") or "error")
    return str(error) if error else None


def _model(sample: Sample, event: dict[str, Any]) -> ModelCall:
    output = event.get("output")
    output = output if isinstance(output, dict) else {}
    choices = output.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    config, tools, stop = event.get("config"), event.get("tools"), choice.get("stop_reason")
    model = output.get("model") or event.get("model")
    return ModelCall(
        model=model if isinstance(model, str) else None,
        messages=Asked(event, read=sample.asked) if event.get("input") or event.get("input_refs") else None,
        params=config if isinstance(config, dict) and config else None,
        tools=sample.resolved(tools) if isinstance(tools, list) and tools else None,
        answer=merged(sample.messages([choice["message"]])) if isinstance(choice.get("message"), dict) else None,
        stop_reason=stop if isinstance(stop, str) else None,
        usage=_usage(output.get("usage")),
    )


def _usage(usage: Any) -> Any:
    if not isinstance(usage, dict):
        return None
    whole, out = count_of(usage.get("input_tokens")), count_of(usage.get("output_tokens"))
    read, written = count_of(usage.get("input_tokens_cache_read")), count_of(usage.get("input_tokens_cache_write"))
    beside = (read or 0) + (written or 0)
    if whole is not None and beside and usage.get("total_tokens") == whole + (out or 0) + beside:
        whole += beside  # the total tells that they are not inside
    reasoning = usage.get("reasoning_tokens")
    return tokens(usage, input=whole, output=out, read=read, written=written, reasoning=reasoning)


def _tool(sample: Sample, event: dict[str, Any]) -> ToolRun:
    call_id, error, pending = event.get("id"), _error(event.get("error")), event.get("pending")
    result = sample.resolved(event.get("result"))
    return ToolRun(
        name=event["function"],
        call_id=call_id if isinstance(call_id, str) else None,
        arguments=sample.resolved(event.get("arguments")),
        result=UNSET if pending else (error if error is not None and result in (None, "") else result),
        is_error=None if pending else error is not None or event.get("failed") is True,
    )


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """inspect_ai's own words in a message, as others say them."""
    content, error = message.get("content"), message.get("error")
    changed: dict[str, Any] = {}
    if isinstance(content, list):
        changed["content"] = [_thought(block) for block in content]
    if message.get("role") == "tool":
        changed["name"] = message.get("function")
        if error is not None:
            changed["is_error"] = True
            changed["content"] = changed.get("content", content) or _error(error)
    return {**message, **changed} if changed else message


def _thought(block: Any) -> Any:
    if isinstance(block, dict) and block.get("type") == "reasoning":
        return {**block, "type": "thinking", "text": block.get("reasoning")}
    return block
