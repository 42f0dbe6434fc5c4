"""Reads Langfuse's observations; the sessions of their traces, and scores, may stand in files beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bylaw.model.events import Event
from bylaw.traces.formats.beside import is_file, records_beside
from bylaw.traces.formats.chat.message import text_field
from bylaw.traces.formats.langfuse.observation import score_of, snake, span_of
from bylaw.traces.formats.langfuse.tables import all_beside, beside
from bylaw.traces.formats.reader import Opened, Record, a_type, records_of
from bylaw.traces.formats.spans.reader import SpanReader
from bylaw.traces.formats.spans.span import Span
from bylaw.traces.records.jsontext import Kept
from bylaw.traces.records.lines import Block

_TYPES = frozenset(
    ("span", "generation", "event", "embedding", "agent", "tool", "chain", "retriever", "evaluator", "guardrail")
)
_TRACE = frozenset(("id", "timestamp", "session_id", "user_id", "release", "tags"))
_SCORE = frozenset(("id", "trace_id", "timestamp", "value", "data_type"))


def claims(value: Any) -> bool:
    held = _held(value) if isinstance(value, dict) else value
    if isinstance(held, list):
        return bool(held) and (_is_observation(held[0]) or _is_row(held[0], _TRACE))
    return _is_observation(value) or _is_row(value, _TRACE) or _is_row(value, _SCORE)


def _held(row: dict[str, Any]) -> Any:
    """What a page of the API, or a trace, has with it. A trace in a list has the ids of its observations alone."""
    held = row.get("data", row.get("observations"))
    return None if isinstance(held, list) and held and all(isinstance(one, str) for one in held) else held


def _is_observation(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    return value["type"].lower() in _TYPES and ("traceId" in value or "trace_id" in value)


def _is_row(value: Any, wanted: frozenset[str]) -> bool:
    return isinstance(value, dict) and "role" not in value and wanted <= snake(value).keys()


_KEPT: Kept = {"input": None}


class LangfuseReader(SpanReader):
    def __init__(self, opened: Opened) -> None:
        super().__init__(opened.problems)
        self._path = opened.source.path
        self._sessions: dict[str, str | None] = {}
        """of each trace that is told of somewhere"""
        self._traces: set[str] = set()
        """those that have observations"""
        self._others: Iterator[str] = iter(self._files())

    def read_block(self, block: Block) -> None:
        for record in records_of(block, self._problems, _KEPT):
            value = record.value
            if isinstance(value, dict) and not _is_observation(value):
                self._row(record, value)
                continue
            listed = value if isinstance(value, list) else [value]
            self._all(record, listed)

    def finish(self) -> list[Event]:
        path = None if self._path is None else beside(self._path, "scores")
        for record in records_beside(path, self._problems) if path is not None and is_file(path) else ():
            row = snake(record.value) if isinstance(record.value, dict) else {}
            if text_field(row, "trace_id") in self._traces:
                self._forest.add(score_of(row, record), len(record.raw))
        return super().finish()

    def notes(self) -> list[str]:
        alone = self._sessions and not self._traces
        return [*super().notes(), *(["these are traces without their observations"] if alone else ())]

    def interpret(self, span: Span) -> None:
        if span.session is None:
            span.session = self._session_of(span.trace)

    # Traces in other files

    def _files(self) -> list[str]:
        """Where the traces may stand, the likeliest first."""
        first = None if self._path is None else beside(self._path, "traces")
        if self._path is None or first is None:
            return []
        return [path for path in dict.fromkeys((first, *all_beside(self._path, "traces"))) if is_file(path)]

    def _session_of(self, trace: str) -> str | None:
        while trace not in self._sessions and (path := next(self._others, None)) is not None:
            for record in records_beside(path, self._problems):
                if isinstance(record.value, dict):
                    self._know(snake(record.value))
                else:
                    record.bad("wrong-type", f"a trace is an object, not {a_type(record.value)}")
        return self._sessions.get(trace)

    def _know(self, row: dict[str, Any]) -> None:
        trace = text_field(row, "id")
        if trace is not None:
            self._sessions[trace] = text_field(row, "session_id") or self._sessions.get(trace)

    # Records

    def _row(self, record: Record, value: dict[str, Any]) -> None:
        """A page of the API, a trace with its observations or without, or a score."""
        row = snake(value)
        held = _held(row)
        if _is_row(row, _SCORE):
            self._forest.add(score_of(row, record), len(record.raw))
            return
        self._know(row)
        if isinstance(held, list):
            self._all(record, held)
        elif text_field(row, "id") is None:
            record.bad("wrong-type", "this is no observation and no trace")

    def _all(self, record: Record, observations: list[Any]) -> None:
        for one in observations:
            if isinstance(one, dict) and (isinstance(one.get("observations"), list) or _is_row(one, _TRACE)):
                self._row(record, one)
            elif isinstance(one, dict) and _is_observation(one):
                span = span_of(snake(one), record)
                self._traces.add(span.trace)
                self._forest.add(span, len(record.raw) // len(observations))
            else:
                what = f"not {a_type(one)}" if not isinstance(one, dict) else "with a `type` and a trace"
                record.bad("wrong-type", f"an observation is an object, {what}")
