"""W&B Weave's calls: rows with an `op_name`, `inputs` and an `output`."""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Usage
from bylaw.traces.assembly.usage import read_usage
from bylaw.traces.formats.messages import parsed
from bylaw.traces.formats.record import Record, object_field, text_field
from bylaw.traces.formats.spans.attributes import times
from bylaw.traces.formats.spans.rows import SESSIONS, RowReader, rows_of
from bylaw.traces.formats.spans.span import Span


def claims(value: Any) -> bool:
    rows = rows_of(value)
    return bool(rows) and isinstance(rows[0], dict) and {"op_name", "trace_id", "inputs"} <= rows[0].keys()


class WeaveReader(RowReader):
    def span_of(self, row: dict[str, Any], record: Record) -> Span | None:
        op = text_field(row, "op_name")
        if op is None:
            return None
        attributes = object_field(row, "attributes")
        span = Span(
            id=text_field(row, "id") or "",
            parent=text_field(row, "parent_id"),
            trace=text_field(row, "trace_id") or "",
            name=op.rpartition("/op/")[2].partition(":")[0] if "/op/" in op else op,
            session=text_field(row, "thread_id") or text_field(attributes, *SESSIONS),
            **times(row.get("started_at"), row.get("ended_at")),
            error=_error(row.get("exception")),
            source=record.locator(),
        )
        kind = text_field(object_field(attributes, "weave"), "kind") or text_field(attributes, "kind")
        input, output = row.get("inputs"), parsed(row.get("output"))
        usage = _usage(object_field(row, "summary"), output)
        self.interpret_row(span, kind, input, output, call_id=text_field(attributes, "tool_call_id"), usage=usage)
        return span


def _error(exception: Any) -> str | None:
    """Since 2026 an exception is JSON, before it was text."""
    found = parsed(exception)
    if isinstance(found, dict):
        return text_field(found, "message", "type") or "error"
    return found if isinstance(found, str) and found else None


def _usage(summary: dict[str, Any], output: Any) -> Usage | None:
    """The usage of the answer itself, else of the only model that the summary counts."""
    own = object_field(output, "usage")
    counted = [one for one in object_field(summary, "usage").values() if isinstance(one, dict)]
    recorded = own or (counted[0] if len(counted) == 1 else None)
    if recorded is None:
        return None
    model = text_field(output, "model") if isinstance(output, dict) else None
    return read_usage({key: value for key, value in recorded.items() if key != "requests"}, model)[0]
