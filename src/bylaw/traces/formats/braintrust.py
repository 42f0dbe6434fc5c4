"""Braintrust's logs and experiments: rows with `span_id`, `root_span_id` and `span_attributes`."""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Usage
from bylaw.traces.assembly.usage import usage_from_counts
from bylaw.traces.formats.messages import parsed
from bylaw.traces.formats.record import Record, list_field, object_field, text_field
from bylaw.traces.formats.spans.attributes import times
from bylaw.traces.formats.spans.rows import SESSIONS, RowReader, rows_of
from bylaw.traces.formats.spans.span import Span


def claims(value: Any) -> bool:
    rows = rows_of(value)
    return bool(rows) and isinstance(rows[0], dict) and {"span_id", "root_span_id"} <= rows[0].keys()


class BraintrustReader(RowReader):
    def span_of(self, row: dict[str, Any], record: Record) -> Span | None:
        if not isinstance(row.get("root_span_id"), str):
            return None
        about, metrics = object_field(row, "span_attributes"), object_field(row, "metrics")
        metadata = object_field(row, "metadata")
        parents = [parent for parent in list_field(row, "span_parents") if isinstance(parent, str)]
        span = Span(
            id=text_field(row, "span_id", "id") or "",
            parent=parents[0] if parents else None,
            trace=row["root_span_id"],
            name=text_field(about, "name") or "",
            session=text_field(metadata, *SESSIONS),
            **times(metrics.get("start", row.get("created")), metrics.get("end")),
            links=tuple(parents[1:]),
            error=_error(row.get("error")),
            source=record.locator(),
        )
        self.interpret_row(
            span,
            about.get("type"),
            parsed(row.get("input")),
            parsed(row.get("output")),
            call_id=text_field(metadata, "tool_call_id", "toolCallId", "call_id"),
            usage=_usage(metrics),
            model=text_field(metadata, "model"),
            tools=metadata.get("tools"),
        )
        return span


def _error(error: Any) -> str | None:
    if isinstance(error, dict):
        return text_field(error, "message", "name") or "error"
    if isinstance(error, str):
        return error.strip().rpartition("\n")[2] or "error"  # the last line of a traceback says what it was
    return None if error is None else "error"


def _usage(metrics: dict[str, Any]) -> Usage | None:
    return usage_from_counts(
        {key: value for key, value in metrics.items() if "token" in key},
        input=metrics.get("prompt_tokens"),
        output=metrics.get("completion_tokens"),
        read=metrics.get("prompt_cached_tokens"),
        written=metrics.get("prompt_cache_creation_tokens"),
        reasoning=metrics.get("completion_reasoning_tokens"),
    )
