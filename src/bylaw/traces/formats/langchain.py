"""LangChain's messages, and LangSmith's runs, which usually hold them.

Messages are as `messages_to_dict`, `dumps` or their models write them; in a list, in the state of a LangGraph, or in
what a model returned: an `LLMResult` has a list of generations for each prompt, and each is one choice.
"""

from __future__ import annotations

from typing import Any

from bylaw.model.events import Locator
from bylaw.traces.assembly.content import EVERYTHING
from bylaw.traces.assembly.conversation import Conversation, Settings
from bylaw.traces.assembly.usage import usage_from_counts
from bylaw.traces.formats.bodies import answer_of
from bylaw.traces.formats.call_signs import looks_like_call
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.chat_message import ASSISTANT, read_assistant
from bylaw.traces.formats.messages import chat_message, parse_if_json
from bylaw.traces.formats.reader import OpenedFile, remember
from bylaw.traces.formats.record import (
    MalformedRecord,
    Path,
    Record,
    list_field,
    object_field,
    records_of,
    text_field,
    type_name,
)
from bylaw.traces.formats.spans.attributes import times
from bylaw.traces.formats.spans.reader import SpanReader
from bylaw.traces.formats.spans.span import ModelCall, RecordedInput, Span, ToolRun
from bylaw.traces.records.jsontext import Undecoded, decode_whole
from bylaw.traces.records.lines import Block

_TYPES = frozenset(("human", "ai", "system", "tool", "function", "chat", "AIMessageChunk", "remove"))
_OWN = frozenset(("additional_kwargs", "response_metadata"))
_MOST_LEVELS = 3
_BASE = frozenset(("content", "additional_kwargs", "response_metadata", "type"))
_BASE_MAY_HAVE = _BASE | {"name", "id"}
_IS_BASE = "is_base"
"""a mark of answers that were written as `BaseMessage`"""
_LOST = "answers were written as LangChain's `BaseMessage`, which has no calls: those that they had are lost"
_LOST_HELP = (
    "write `messages_to_dict(messages)`, `dumps(messages)` or `model_dump_json(serialize_as_any=True)`; rules that a "
    "call may decide are inconclusive"
)


def claims(value: Any) -> bool:
    if (prompts := _generations(value)) is not None:
        return any(_is_generation(one) for choices in prompts for one in choices[:1])
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


# Results of models


def _is_generation(value: Any) -> bool:
    fields = object_field(value, "kwargs") or value
    if not isinstance(fields, dict) or not isinstance(fields.get("text"), str):
        return False
    return "generation_info" in fields or (text_field(fields, "type") or "").startswith(
        ("Generation", "ChatGeneration")
    )


def _generations(value: Any) -> list[list[Any]] | None:
    """The choices for each prompt in a result, or in what was taken from it; None if this is neither."""
    if isinstance(value, dict) and isinstance(value.get("generations"), list):
        found = value["generations"]
    elif _is_generation(value):
        found = [value]
    else:
        first = value[0] if isinstance(value, list) and value else None
        if not any(map(_is_generation, first if isinstance(first, list) else [first])):
            return None
        found = value
    return found if found and all(isinstance(one, list) for one in found) else [found]


def _message_of_generation(generation: Any, about: dict[str, Any]) -> Any:
    """The message of a generation, with what else is known of it: `about` is what the result says."""
    fields = object_field(generation, "kwargs") or generation
    if not _is_generation(generation):
        raise MalformedRecord("a generation is an object with a `text`, a `type` and a `message`")
    message = fields.get(
        "message", {"type": "ai", "content": fields["text"], "additional_kwargs": {}, "tool_calls": []}
    )
    if not _is_message(message):
        raise MalformedRecord("the `message` of a generation is none of LangChain's")
    key = next((key for key in ("kwargs", "data") if isinstance(message.get(key), dict)), None)
    inner = message if key is None else message[key]
    known = {**about, **object_field(fields, "generation_info"), **object_field(inner, "response_metadata")}
    inner = {**inner, "response_metadata": known}
    return inner if key is None else {**message, key: inner}


class LangChainReader(ChatReader):
    _has_lost = False
    """whether it was reported that calls are lost"""

    def read_record(self, record: Record) -> None:
        if (prompts := _generations(record.value)) is not None:
            self._read_result(record, prompts)
            return
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

    def _read_result(self, record: Record, prompts: list[list[Any]]) -> None:
        """What a model returned: the next answer of a conversation, or one of each if it had several prompts."""
        about = object_field(record.value, "llm_output") if len(prompts) == 1 else {}  # it sums up all prompts
        for choices in prompts:
            try:
                if not choices:
                    raise MalformedRecord("a result has no generation")
                items = [_message_of_generation(choice, about) for choice in choices]
            except MalformedRecord as error:
                record.malformed(error)
                continue
            item = items[0]
            if len(items) > 1:
                item = {"choices": [{"message": message} for one in items for message in _chat(one)]}
            if len(prompts) > 1:
                self._close()
            if self._open is None:
                self._close()
                self._open = self._begin(None, Settings(), None, record, bounded=self._records.streamed)
                self._open.set_input(None, record.locator())  # a result does not hold its prompt
            self.read_open(Record(item, record.raw, record.place, record.problems))
        if len(prompts) > 1:
            self._close()

    def read_item(self, conversation: Conversation, record: Record, item: Any, path: Path) -> None:
        if not _is_message(item):
            super().read_item(conversation, record, item, path)  # a chat message among them, or reported as wrong
            return
        for message in _chat(item):
            if message["role"] != "remove":  # an order to forget a message
                super().read_item(conversation, record, message, path)

    def _read_answer(
        self,
        conversation: Conversation,
        record: Record,
        message: dict[str, Any],
        path: Path,
        source: Locator,
        unread: tuple[str, ...],
    ) -> None:
        if message.pop(_IS_BASE, False) and not read_assistant(message).uses:
            unread = EVERYTHING
            if not self._has_lost:
                self._has_lost = True
                self._problems.warn_of(source, "unread-content", _LOST, _LOST_HELP)
        super()._read_answer(conversation, record, message, path, source, unread)


def _chat(item: Any) -> list[dict[str, Any]]:
    """One of LangChain's messages as chat messages."""
    messages = chat_message(item)
    for message in messages:
        if message["role"] == ASSISTANT:
            message |= _outer(message)
            if _BASE <= item.keys() <= _BASE_MAY_HAVE:
                message[_IS_BASE] = True
    return messages


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
        # without counts of its own, those of the provider
        "usage": counts if usage else object_field(about, "token_usage") or object_field(about, "usage") or None,
    }


# LangSmith: runs, one a line, in a list, or nested in `child_runs`.
#
# `dotted_order` is the path of a run in the tree: a time and an id for each level. `session_id` is the project; the
# conversation is named in the metadata.


_MODELS = frozenset(("llm", "chat_model"))
"""`chat_model` is the type in tracers of LangChain that store whole messages"""
_RUN_TYPES = frozenset(("tool", "chain", "retriever", "embedding", "prompt", "parser")) | _MODELS
_MESSAGE = frozenset(("role", "lc", "tool_calls"))
"""keys of a message; outputs that have one are the message itself"""
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
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._posted: dict[str, dict[str, Any]] = {}
        """runs that a later batch may complete"""
        self._unknown: set[str] = set()
        """types of runs that are read as a model's"""

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

    def _emit(self, traces: list[list[Span]]) -> None:
        for spans in traces:
            above = {span.parent for span in spans}
            for span in spans:
                run = span.attributes.get("")
                if run is not None and span.id not in above:  # the runs inside record more
                    self._unknown.add(run["run_type"])
                    span.about = _model(run, _mapping(run.get("inputs")), _mapping(run.get("outputs")), _metadata(run))
        super()._emit(traces)

    def notes(self) -> list[str]:
        types = ", ".join(f"`{name}`" for name in sorted(self._unknown))
        unknown = [f"runs of the unknown type {types} hold calls, so they are read as runs of a model"] if types else []
        return [*super().notes(), *unknown]

    def _batch(self, record: Record, batch: dict[str, Any]) -> None:
        """The requests of a client to LangSmith: new runs, and later their results."""
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
    if run["run_type"] in _MODELS:
        span.about = _model(run, inputs, outputs, metadata)
    elif run["run_type"] == "tool":
        span.about = _tool(run, inputs, outputs, span)
    elif run["run_type"] not in _RUN_TYPES and looks_like_call(outputs):
        span.attributes = {"": run}
    return span


def _mapping(value: Any) -> dict[str, Any]:
    value = parse_if_json(value)
    return value if isinstance(value, dict) else {} if value is None else {"input": value, "output": value}


def _metadata(run: dict[str, Any]) -> dict[str, Any]:
    return object_field(parse_if_json(run.get("extra")), "metadata")


# Models


def _model(run: dict[str, Any], inputs: dict[str, Any], outputs: dict[str, Any], metadata: dict[str, Any]) -> ModelCall:
    output, generation = _output(outputs)
    answer = answer_of(output) if output is not None else None
    if answer is None and looks_like_call(outputs):
        answer = {"role": ASSISTANT, "content": None, "toolCalls": outputs}  # reported as unread
    info = generation.get("generation_info")
    response_metadata = (answer or {}).get("response_metadata")
    parts = [part for part in (info, response_metadata, generation) if isinstance(part, dict)]
    reasons = (text_field(part, "finish_reason", "stop_reason") for part in parts)
    models = (text_field(part, "model_name", "model") for part in parts)
    extra = parse_if_json(run.get("extra"))
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
    if not _MESSAGE.isdisjoint(outputs) or outputs.get("object") == "response":
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
    extra = object_field({"": parse_if_json(run.get("extra"))}, "")
    call_id = text_field(extra, "tool_call_id") or text_field(_metadata(run), "tool_call_id", "toolCallId")
    output = outputs.get("output", outputs or None)
    return ToolRun.recorded(span.name, only, output, call_id=call_id, failed=span.error is not None)
