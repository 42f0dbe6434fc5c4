"""LangChain's messages, and LangSmith's runs, which usually hold them.

Messages are as `messages_to_dict`, `dumps` or their models write them; in a list, or in the state of a LangGraph.
"""

from __future__ import annotations

from typing import Any

from bylaw.traces.assembly.conversation import Conversation
from bylaw.traces.assembly.usage import usage_from_counts
from bylaw.traces.formats.bodies import answer_of
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.chat_message import ASSISTANT
from bylaw.traces.formats.messages import chat_message, parsed
from bylaw.traces.formats.reader import Opened, remember
from bylaw.traces.formats.record import Path, Record, list_field, object_field, records_of, text_field, type_name
from bylaw.traces.formats.spans.attributes import times
from bylaw.traces.formats.spans.reader import SpanReader
from bylaw.traces.formats.spans.span import ModelCall, RecordedInput, Span, ToolRun
from bylaw.traces.records.jsontext import Undecoded, decode_whole
from bylaw.traces.records.lines import Block

_TYPES = frozenset(("human", "ai", "system", "tool", "function", "chat", "AIMessageChunk", "remove"))
_OWN = frozenset(("additional_kwargs", "response_metadata"))
_MOST_LEVELS = 3


def claims(value: Any) -> bool:
    if any(_is_message(one) for one in _updates(value)[:1]):
        return True
    messages, _ = _messages_in(value)
    head = messages[:20] if messages is not None else [value]
    return bool(head) and all(map(_is_message, head))


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or "role" in value:
        return False
    if "lc" in value and isinstance(value.get("kwargs"), dict):
        return "content" in value["kwargs"]
    fields = value["data"] if isinstance(value.get("data"), dict) else value
    return text_field(value, "type") in _TYPES and "content" in fields and not _OWN.isdisjoint(fields)


def _messages_in(value: Any) -> tuple[list[Any] | None, Path]:
    """The messages of a list, or of the state of a graph, and where they stand."""
    path: Path = ()
    for _ in range(_MOST_LEVELS):
        if isinstance(value, list):
            return value, path
        key = next((key for key in ("messages", "values") if isinstance(value, dict) and key in value), None)
        if key is None:
            break
        value, path = value[key], (*path, key)
    return None, ()


def _updates(value: Any) -> list[Any]:
    """The messages that nodes of a graph added in one step, as `stream_mode="updates"` yields them."""
    if not isinstance(value, dict) or not value or not all(isinstance(one, dict | None) for one in value.values()):
        return []
    lists = [one.get("messages") for one in value.values() if one is not None]
    if not lists or not all(isinstance(one, list) for one in lists):
        return []
    return [message for one in lists for message in one]


class LangChainReader(ChatReader):
    def read_record(self, record: Record) -> None:
        if added := _updates(record.value):
            for message in added:
                self.read_open(Record(message, record.raw, record.place, record.problems))
            return
        messages, path = _messages_in(record.value)
        if messages is None:
            self.read_open(record)
            return
        config = object_field(object_field(record.value, "config"), "configurable")
        self.read_list(record, messages, path, text_field(config, "thread_id"))

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        if not _is_message(item):
            super().read_item(conversation, record, item, path)  # a chat message among them, or told as wrong
            return
        for message in chat_message(item):
            if message["role"] == ASSISTANT:
                message |= _outer(message)
            if message["role"] != "remove":  # an order to forget a message
                super().read_item(conversation, record, message, path)


def _outer(message: dict[str, Any]) -> dict[str, Any]:
    """What LangChain says about an answer, in the words of a chat."""
    about, usage = object_field(message, "response_metadata"), object_field(message, "usage_metadata")
    given, made = object_field(usage, "input_token_details"), object_field(usage, "output_token_details")
    counts = {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
        "prompt_tokens_details": {"cached_tokens": given.get("cache_read")},
        "completion_tokens_details": {"reasoning_tokens": made.get("reasoning")},
    }
    return {
        "model": text_field(about, "model_name", "model"),
        "finish_reason": text_field(about, "finish_reason", "stop_reason"),
        "usage": counts if usage else None,
    }


# LangSmith: runs, one a line, in a list, or nested in `child_runs`.
#
# `dotted_order` is the path of a run in the tree: a time and an id for each level. `session_id` is the project; the
# conversation is named in the metadata.


_RUN_TYPES = frozenset(("tool", "chain", "llm", "retriever", "embedding", "prompt", "parser"))
_THREAD = ("thread_id", "session_id", "conversation_id")
_UNDECODED: Undecoded = {"inputs": frozenset(("messages",))}
_ID = 36
"""characters of an id at the end of each part of `dotted_order`"""


def claims_langsmith(value: Any) -> bool:
    runs = value.get("runs", value.get("post")) if isinstance(value, dict) else value
    if isinstance(runs, list):
        return bool(runs) and _is_run(runs[0])
    return _is_run(value)


def _is_run(value: Any) -> bool:
    if not isinstance(value, dict) or text_field(value, "run_type") not in _RUN_TYPES:
        return False
    return any(key in value for key in ("dotted_order", "trace_id", "start_time", "parent_run_id", "child_runs"))


class LangSmithReader(SpanReader):
    def __init__(self, opened: Opened) -> None:
        super().__init__(opened)
        self._posted: dict[str, dict[str, Any]] = {}
        """runs that a later batch may complete"""

    def read_block(self, block: Block) -> None:
        for record in records_of(block, self._problems, _UNDECODED):
            value = record.value
            if isinstance(value, dict) and (list_field(value, "post") or list_field(value, "patch")):
                self._batch(record, value)
                continue
            runs = value.get("runs") if isinstance(value, dict) and "run_type" not in value else value
            listed = runs if isinstance(runs, list) else [runs]
            for run in listed:
                self._runs(record, run, len(record.raw) // max(1, len(listed)))

    def _batch(self, record: Record, batch: dict[str, Any]) -> None:
        """What a client sends to LangSmith: new runs, and later what has become of them."""
        changed: dict[str, Any] = {}
        for run in (*list_field(batch, "post"), *list_field(batch, "patch")):
            run_id = _id_of(run) if isinstance(run, dict) else ""
            known = self._posted.get(run_id, {})
            whole = {**known, **{key: value for key, value in run.items() if value is not None}} if run_id else run
            changed[run_id or f"#{len(changed)}"] = whole
            if run_id:
                remember(self._posted, run_id, whole)
        for run in changed.values():
            self._runs(record, run, len(record.raw) // len(changed))

    def _runs(self, record: Record, run: Any, size: int) -> None:
        waiting: list[tuple[Any, str | None, str]] = [(run, None, "")]
        while waiting:
            one, parent, trace = waiting.pop()
            if not isinstance(one, dict) or not isinstance(one.get("run_type"), str):
                what = (
                    "a run has no `run_type`" if isinstance(one, dict) else f"a run is an object, not {type_name(one)}"
                )
                record.bad("wrong-type", what)
                continue
            span = _span(one, parent, trace, record)
            self._forest.add(span, size)
            size = 0
            below = one.get("child_runs")
            waiting += [(child, span.id, span.trace) for child in (below if isinstance(below, list) else ())]


def _id_of(run: dict[str, Any]) -> str:
    """The id of a run; a change of it may have it only at the end of its path."""
    return text_field(run, "id", "run_id") or (text_field(run, "dotted_order") or "")[-_ID:]


def _span(run: dict[str, Any], parent: str | None, trace: str, record: Record) -> Span:
    path = [part[-_ID:] for part in (text_field(run, "dotted_order") or "").split(".") if len(part) > _ID]
    metadata = _metadata(run)
    above = path[-2] if len(path) > 1 else None
    span = Span(
        id=_id_of(run),
        parent=text_field(run, "parent_run_id") or above or parent,
        trace=text_field(run, "trace_id") or (path[0] if path else trace),
        name=text_field(run, "name") or "",
        session=text_field(metadata, *_THREAD),
        agent=text_field(metadata, "lc_agent_name"),
        **times(run.get("start_time"), run.get("end_time")),
        error=text_field(run, "error") or ("error" if run.get("status") == "error" else None),
        source=record.locator(),
    )
    span.trace = span.trace or span.id
    inputs, outputs = _mapping(run.get("inputs")), _mapping(run.get("outputs"))
    if run["run_type"] == "llm":
        span.about = _model(run, inputs, outputs, metadata)
    elif run["run_type"] == "tool":
        span.about = _tool(run, inputs, outputs, span)
    return span


def _mapping(value: Any) -> dict[str, Any]:
    value = parsed(value)
    return value if isinstance(value, dict) else {} if value is None else {"input": value, "output": value}


def _metadata(run: dict[str, Any]) -> dict[str, Any]:
    return object_field(parsed(run.get("extra")), "metadata")


# Models


def _model(run: dict[str, Any], inputs: dict[str, Any], outputs: dict[str, Any], metadata: dict[str, Any]) -> ModelCall:
    output, generation = _output(outputs)
    answer = answer_of(output) if output is not None else None
    info = generation.get("generation_info")
    response_metadata = (answer or {}).get("response_metadata")
    parts = [part for part in (info, response_metadata, generation) if isinstance(part, dict)]
    reasons = (text_field(part, "finish_reason", "stop_reason") for part in parts)
    models = (text_field(part, "model_name", "model") for part in parts)
    extra = parsed(run.get("extra"))
    params = extra.get("invocation_params") if isinstance(extra, dict) else None
    tools = params.get("tools") if isinstance(params, dict) else None
    recorded = inputs.get("messages", inputs.get("prompts", inputs.get("prompt", inputs.get("input"))))
    return ModelCall(
        model=next(filter(None, models), None) or text_field(metadata, "ls_model_name"),
        messages=None if recorded is None else RecordedInput(recorded),
        params={key: item for key, item in params.items() if key != "tools"} if isinstance(params, dict) else None,
        tools=tools if isinstance(tools, list) else None,
        answer=answer,
        stop_reason=next(filter(None, reasons), None),
        usage=_usage(run, outputs, answer),
    )


def _output(outputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The answer and its wrapper: LangChain's generations, OpenAI's choices, or a bare message."""
    for key in ("generations", "choices"):
        first = outputs.get(key)
        while isinstance(first, list) and first:
            first = first[0]
        if isinstance(first, dict):
            return first.get("message", first.get("text")), first
    if isinstance(outputs.get("messages"), list) and outputs["messages"]:
        return outputs["messages"][-1], {}
    if "role" in outputs or "lc" in outputs or outputs.get("object") == "response":
        return outputs, {}
    return outputs.get("message", outputs.get("output")), {}


def _usage(run: dict[str, Any], outputs: dict[str, Any], answer: dict[str, Any] | None) -> Any:
    places = (
        outputs.get("usage_metadata"),
        (answer or {}).get("usage_metadata"),
        outputs.get("usage"),
        object_field(outputs, "llm_output").get("token_usage"),
        run,
    )
    for place in places:
        if not isinstance(place, dict):
            continue
        inside, out = object_field(place, "input_token_details"), object_field(place, "output_token_details")
        found = usage_from_counts(
            {key: value for key, value in place.items() if "token" in key},
            input=place.get("input_tokens", place.get("prompt_tokens")),
            output=place.get("output_tokens", place.get("completion_tokens")),
            read=inside.get("cache_read"),
            written=inside.get("cache_creation"),
            reasoning=out.get("reasoning"),
        )
        if found is not None:
            return found
    return None


# Tools


def _tool(run: dict[str, Any], inputs: dict[str, Any], outputs: dict[str, Any], span: Span) -> ToolRun:
    whole = {key: decode_whole(value) for key, value in inputs.items()} if "messages" in inputs else inputs
    only = whole["input"] if whole.keys() == {"input"} else whole
    call_id = text_field(_metadata(run), "tool_call_id", "toolCallId")
    output = outputs.get("output", outputs or None)
    return ToolRun.recorded(span.name, only, output, call_id=call_id, failed=span.error is not None)
