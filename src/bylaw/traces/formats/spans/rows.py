"""The base of the readers of logged calls: rows with what a function was given and what it returned.

Not every row says that it is a tool's: one that is named like a call which a model issued in the same trace is that
tool's.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from msgspec import Struct

from bylaw.model.events import Usage
from bylaw.traces.formats.bodies import answer_of, read_answer, read_request
from bylaw.traces.formats.chat_message import read_assistant
from bylaw.traces.formats.record import MalformedRecord, Record, list_field, records_of, text_field, type_name
from bylaw.traces.formats.spans.reader import SpanReader
from bylaw.traces.formats.spans.span import AgentRun, ModelCall, RecordedInput, Span, ToolRun
from bylaw.traces.records.lines import Block

SESSIONS = ("session_id", "sessionId", "thread_id", "conversation_id")
_LISTS = ("rows", "events", "data", "calls", "objects")


class Values(Struct, frozen=True):
    """What a row says about the function that it is about."""

    input: Any
    output: Any


def rows_of(value: Any) -> list[Any]:
    """The rows of a record: a page of an API's answer, a list, or one row."""
    if isinstance(value, list):
        return value
    return next((value[key] for key in _LISTS if list_field(value, key)), [value])


class RowReader(SpanReader):
    @abstractmethod
    def span_of(self, row: dict[str, Any], record: Record) -> Span | None:
        """The span of a row, or None if the row is none."""

    def read_block(self, block: Block) -> None:
        for record in records_of(block, self._problems):
            rows = rows_of(record.value)
            for row in rows:
                span = self.span_of(row, record) if isinstance(row, dict) else None
                if span is None:
                    record.bad("wrong-type", f"a row is an object with an id and a trace, not {type_name(row)}")
                    continue
                self._forest.add(span, len(record.raw) // len(rows))

    def interpret_row(
        self,
        span: Span,
        kind: Any,
        input: Any,
        output: Any,
        *,
        call_id: str | None,
        usage: Usage | None,
        model: str | None = None,
        tools: Any = None,
    ) -> None:
        """Set what a row is about: by its kind, else by its values, else when it is known which tools were called."""
        if kind == "llm" or (kind != "tool" and is_model_call(input, output)):
            span.about = model_call(input, output, model=model, tools=tools, usage=usage)
        elif kind == "tool":
            span.about = ToolRun.recorded(span.name, input, output, call_id=call_id, failed=span.error is not None)
        elif kind == "agent":
            span.about = AgentRun(name=span.name or None)
        else:
            span.attributes = {"": Values(input, output)}

    def _emit(self, traces: list[list[Span]]) -> None:
        for spans in traces:
            called = {name for span in spans if isinstance(span.about, ModelCall) for name in _called(span.about)}
            for span in spans:
                values = span.attributes.get("")
                if span.about is None and span.name in called and isinstance(values, Values):
                    span.about = ToolRun.recorded(
                        span.name, values.input, values.output, call_id=None, failed=span.error is not None
                    )
        super()._emit(traces)


def _called(call: ModelCall) -> list[str]:
    try:
        uses = [] if call.answer is None else read_assistant(call.answer).uses
    except MalformedRecord:
        return []  # told when the answer is read
    return [use["name"] for use in uses if isinstance(use.get("name"), str)]


def is_model_call(input: Any, output: Any) -> bool:
    """Whether a row without a kind holds a request to a model's API and its response."""
    return read_request(input) is not None and read_answer(output) is not None


def model_call(
    input: Any, output: Any, *, model: str | None = None, tools: Any = None, usage: Usage | None = None
) -> ModelCall:
    """A request to a model, from a body or messages in any shape, and its answer."""
    request = read_request(input)
    if isinstance(output, list) and output and isinstance(output[0], dict) and "message" in output[0]:
        output = {"choices": output}
    answer = answer_of(_generation(output)) if output is not None else None
    known = model or (text_field(answer, "model") if answer else None)
    return ModelCall(
        model=known or (None if request is None else request.model),
        messages=None if input is None else RecordedInput(input if request is None else request.chat()),
        params=None if request is None else request.params,
        tools=tools if isinstance(tools, list) else None if request is None else request.tools,
        answer=answer,
        stop_reason=text_field(answer, "finish_reason", "stop_reason") if answer is not None else None,
        usage=usage,
    )


def _generation(output: Any) -> Any:
    """The answer in LangChain's lists of generations."""
    first = output.get("generations") if isinstance(output, dict) else None
    while isinstance(first, list) and first:
        first = first[0]
    return first.get("message", first.get("text")) if isinstance(first, dict) else output
