"""inspect_ai's logs: `.eval`, an archive with a file per sample, or `.json`, one object with all of them.

A sample is a session. Its events describe models, tools and agents, and are read as spans; a log without events still
has each sample's messages. Calls of models inside a scorer belong to the judge and are no turns of the agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec import UNSET

from bylaw.model.events import Event, Locator, Origin, SessionStart
from bylaw.traces.assembly.usage import count_of, usage_from_counts
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.chat_message import item_of
from bylaw.traces.formats.inspect_sample import MOST, Chunks, Sample, error_text
from bylaw.traces.formats.messages import first_answer
from bylaw.traces.formats.reader import OpenedFile
from bylaw.traces.formats.record import Record, object_field, records_of, text_field, type_name
from bylaw.traces.formats.spans.attributes import moment
from bylaw.traces.formats.spans.reader import Tree
from bylaw.traces.formats.spans.session import SessionSpans
from bylaw.traces.formats.spans.span import AgentRun, ModelCall, Span, SpanAnnotation, ToolRun
from bylaw.traces.records.archive import entry_names
from bylaw.traces.records.layout import Layout
from bylaw.traces.records.lines import Block

_MARKS = frozenset(("approval", "score", "error", "sample_limit", "interrupt", "compaction", "branch"))
_MOST_LEVELS = 50


def spans_of(sample: Sample) -> list[Span]:
    spans: list[Span] = []
    scorer = _ScorerState()
    for item, event, outer in _flat(sample.events):
        kind = text_field(event, "event")
        if kind in ("step", "span_begin"):
            scorer.enter(event)
        span = _span(sample, event, item, outer)
        if kind == "model" and not scorer.now(event):
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
            span.about = SpanAnnotation(label=str(kind), data=data)
        elif kind != "subtask":
            continue
        spans.append(span)
    return spans


def _flat(
    events: list[Any], path: str = "events", outer: str | None = None, level: int = 0
) -> Iterator[tuple[str, dict[str, Any], str | None]]:
    """Each event with its place; older logs nest the events of tools and subtasks."""
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


class _ScorerState:
    """Whether a scorer is running: by the span of an event, in older logs by its step."""

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
    output = object_field(event, "output")
    choices = output.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
    config, tools, stop = event.get("config"), event.get("tools"), choice.get("stop_reason")
    model = output.get("model") or event.get("model")
    answer = first_answer(sample.messages([choice["message"]])) if isinstance(choice.get("message"), dict) else None
    if failed and answer is not None and not answer.get("content") and not answer.get("tool_calls"):
        answer = None  # a failed call leaves an empty answer
    return ModelCall(
        model=model if isinstance(model, str) else None,
        messages=sample.recorded_input(event),
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
    added = (read or 0) + (written or 0)
    if whole is not None and added and usage.get("total_tokens") == whole + (out or 0) + added:
        whole += added  # the total shows that they are not included
    reasoning = usage.get("reasoning_tokens")
    return usage_from_counts(usage, input=whole, output=out, read=read, written=written, reasoning=reasoning)


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


_SAMPLES, _JOURNAL = "samples/", "_journal/"


def claims(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("eval"), dict):
        return False
    return "version" in value and ("plan" in value or "status" in value)


class InspectReader(ChatReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._chunks = Chunks(entry_names(opened.source) if opened.layout is Layout.ARCHIVE else ())
        self._last: Record | None = None
        self._ended = False
        """the log says that the run ended"""

    def read(self, block: Block) -> list[Event]:
        # Scores may be NaN, and inspect_ai writes that.
        for record in records_of(block, self._problems, constants=True):
            self._last = record
            self.read_record(record)
        return self._assembler.take()

    def finish(self) -> list[Event]:
        for record, value in self._chunks.rest(self._last) if self._last is not None else ():
            self._sample(record, value, (), cut=True)
        self.complete = self.complete and self._ended
        return super().finish()

    def read_record(self, record: Record) -> None:
        value, item = record.value, record.item
        if self._chunks.is_piece(item):
            whole = self._chunks.take(record)
            if whole is not None:
                self._sample(*whole, ())
        elif not isinstance(value, dict):
            if not item or item.startswith(_SAMPLES):
                record.bad("wrong-type", f"a log is an object, not {type_name(value)}")
        elif item.startswith(_SAMPLES):
            self._sample(record, value, ())
        elif isinstance(value.get("eval"), dict):
            self._log(record, value, journal=item.startswith(_JOURNAL))
        elif not item:
            record.bad("wrong-type", "a log has no object `eval`")

    def _log(self, record: Record, value: dict[str, Any], *, journal: bool) -> None:
        if journal and self._ended:
            return
        self.header = {key: value[key] for key in ("status", "eval", "results") if value.get(key) is not None}
        if journal:  # written when a run starts
            return
        self._ended = True
        self.complete = value.get("status", "success") == "success"
        samples = value.get("samples")
        for index, sample in enumerate(samples if isinstance(samples, list) else ()):
            self._sample(record, sample, ("samples", index))

    def _sample(self, record: Record, value: Any, path: tuple[str | int, ...], *, cut: bool = False) -> None:
        if not isinstance(value, dict) or value.get("id") is None:
            record.bad(
                "wrong-type", "a sample has no `id`" if isinstance(value, dict) else "a sample is an object", path
            )
            return
        source = record.locator(item_of(path))
        message = f"a sample names more than {MOST >> 20} MiB of attachments: the others are left as names"
        warn = partial(self._problems.warn, record.place, b"", (), "too-long", message)
        sample = Sample(value, source, warn)
        recorded = {"task_id": value["id"], "epoch": value.get("epoch"), "scores": value.get("scores")}
        metadata = {key: item for key, item in recorded.items() if item is not None}
        spans = spans_of(sample)
        if not any(isinstance(span.about, (ModelCall, ToolRun)) for span in spans):
            self.read_list(record, sample.conversation, (*path, "messages"), sample.name, metadata=metadata)
            return
        self._close()
        buffer = self._assembler.session(self._names.pick(sample.name))
        session = buffer.origin.session
        self._assembler.add(SessionStart(origin=buffer.origin, source=source, metadata=metadata))
        tree = Tree(spans)
        SessionSpans(self._assembler, self._problems).assemble(
            [(span, tree.origin_of(span, session)) for span in tree.spans]
        )
        marks = {span.about.label for span in spans if isinstance(span.about, SpanAnnotation)}
        for key, label in (("error", "error"), ("limit", "sample_limit")):
            if value.get(key) is None:
                continue
            cut = True
            if label not in marks:
                self._annotate(Origin(session), source, label, value[key])
        self._assembler.end_session(buffer, complete=not cut)
