"""The events of one of inspect_ai's samples, as spans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from bylaw.model.source import Locator
from bylaw.traces.formats.chat.message import text_field
from bylaw.traces.formats.inspect_ai.sample import Sample, error_text
from bylaw.traces.formats.spans.messages import merged
from bylaw.traces.formats.spans.span import AgentRun, Mark, ModelCall, Span, ToolRun, count_of, tokens
from bylaw.traces.formats.spans.times import moment

_MARKS = frozenset(("approval", "score", "error", "sample_limit", "interrupt", "compaction", "branch"))
_MOST_LEVELS = 50


def spans_of(sample: Sample) -> list[Span]:
    spans: list[Span] = []
    judging = _Judging()
    for item, event, outer in _flat(sample.events):
        kind = text_field(event, "event")
        if kind in ("step", "span_begin"):
            judging.enter(event)
        span = _span(sample, event, item, outer)
        if kind == "model" and not judging.now(event):
            span.error = error_text(event.get("error")) or ("no answer was recorded" if event.get("pending") else None)
            span.about = _model(sample, event, failed=span.error is not None)
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
        elif kind != "subtask":
            continue
        spans.append(span)
    return spans


def _flat(
    events: list[Any], path: str = "events", outer: str | None = None, level: int = 0
) -> Iterator[tuple[str, dict[str, Any], str | None]]:
    """Each event with its place; older logs hold those of tools and subtasks inside of these."""
    for number, event in enumerate(events):
        if not isinstance(event, dict):
            continue
        item = f"{path}[{number}]"
        yield item, event, outer
        inner = event.get("events")
        if isinstance(inner, list) and inner and level < _MOST_LEVELS:
            yield from _flat(inner, f"{item}.events", _id(event, item), level + 1)


def _id(event: dict[str, Any], item: str) -> str:
    return text_field(event, "uuid") or item


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


def _span(sample: Sample, event: dict[str, Any], item: str, outer: str | None) -> Span:
    start, at = moment(event.get("timestamp"))
    end, ended_at = moment(event.get("completed"))
    took = event.get("working_time")
    if end is None and start is not None and isinstance(took, (int, float)) and took >= 0:
        end = start + took
    return Span(
        id=_id(event, item),
        parent=text_field(event, "span_id") or outer,
        start=start,
        end=end,
        at=at,
        ended_at=end if ended_at is None else ended_at,
        source=Locator(sample.source.file, sample.source.line, f"{sample.source.item or ''}.{item}".lstrip(".")),
    )


def _model(sample: Sample, event: dict[str, Any], *, failed: bool) -> ModelCall:
    output = event.get("output")
    output = output if isinstance(output, dict) else {}
    choices = output.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    config, tools, stop = event.get("config"), event.get("tools"), choice.get("stop_reason")
    model = output.get("model") or event.get("model")
    answer = merged(sample.messages([choice["message"]])) if isinstance(choice.get("message"), dict) else None
    if failed and answer is not None and not answer.get("content") and not answer.get("tool_calls"):
        answer = None  # a call that fails leaves an empty answer behind
    return ModelCall(
        model=model if isinstance(model, str) else None,
        messages=sample.asked(event),
        params=config if isinstance(config, dict) and config else None,
        tools=sample.resolved(tools) if isinstance(tools, list) and tools else None,
        answer=answer,
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
    call_id, error, pending = event.get("id"), error_text(event.get("error")), event.get("pending")
    result = sample.resolved(event.get("result"))
    return ToolRun(
        name=event["function"],
        call_id=call_id if isinstance(call_id, str) else None,
        arguments=sample.resolved(event.get("arguments")),
        result=UNSET if pending else (error if error is not None and result in (None, "") else result),
        is_error=None if pending else error is not None or event.get("failed") is True,
    )
