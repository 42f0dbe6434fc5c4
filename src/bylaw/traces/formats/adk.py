"""Google ADK: sessions with their events, events one by one, eval sets and their results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bylaw.traces.assembly.content import EVERYTHING
from bylaw.traces.assembly.conversation import Conversation
from bylaw.traces.formats.chat import ChatReader
from bylaw.traces.formats.chat_message import ASSISTANT, item_of, time_of
from bylaw.traces.formats.gemini import CallOrder, is_content
from bylaw.traces.formats.messages import chat_message
from bylaw.traces.formats.reader import LOGGED_TWICE, LoggedRecords, OpenedFile
from bylaw.traces.formats.record import Path, Record, list_field, object_field, snake, text_field, type_name

_INVOCATIONS = ("invocationId", "invocation_id")
_METADATA = ("app_name", "appName", "user_id", "userId", "state")
_ERRORS = ("errorCode", "error_code", "errorMessage", "error_message")
_CASES, _RESULTS = "eval_cases", "eval_case_results"


def claims(value: Any) -> bool:
    if not isinstance(value, dict):
        return bool(value) and isinstance(value, list) and _is_event(value[0])
    if _is_event(value) or any(isinstance(snake(value).get(key), list) for key in (_CASES, _RESULTS)):
        return True
    return any(map(_is_event, list_field(value, "events")[:1]))


def _is_event(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("author"), str):
        return False
    return any(isinstance(value.get(key), str) for key in _INVOCATIONS)


class AdkReader(ChatReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        self._order = CallOrder()
        self._logged = LoggedRecords()

    def read_record(self, record: Record) -> None:
        value = record.value
        evaluated = snake(value)
        if isinstance(value, list):
            self._session(record, value, (), {})
        elif isinstance(value, dict) and isinstance(value.get("events"), list):
            self._session(record, value["events"], ("events",), value)
        elif isinstance(evaluated.get(_CASES), list):
            for index, case in enumerate(evaluated[_CASES]):
                path = (_CASES, index, "conversation")
                self._session(record, _events_of(list_field(case, "conversation")), path, _add_names(snake(case)))
        elif isinstance(evaluated.get(_RESULTS), list):
            for index, case in enumerate(evaluated[_RESULTS]):
                self._session(record, _recorded_events(snake(case)), (_RESULTS, index), _add_names(snake(case)))
        else:
            self.read_open(record)

    def _session(self, record: Record, events: list[Any], path: Path, about: dict[str, Any]) -> None:
        self._order = CallOrder()
        metadata = {key: about[key] for key in _METADATA if about.get(key) is not None}
        self.read_list(record, events, path, text_field(about, "id"), metadata=metadata or None)

    def read_item(self, conversation: Conversation, record: Record, event: Any, path: Path) -> None:
        if not isinstance(event, dict):
            record.bad("wrong-type", f"an event is an object, not {type_name(event)}", path)
            return
        content = event.get("content")
        if event.get("partial") is True:
            return  # the whole text follows
        if content is None:
            self._read_error(conversation, record, event, path)
            return
        if not isinstance(content, dict) or not isinstance(content.get("parts") or [], list):
            record.bad("wrong-type", "the `content` of an event is an object with a list `parts`", (*path, "content"))
            return
        if self._is_logged(conversation, record, event, path):
            return
        author = text_field(event, "author")
        is_user = author == "user" or (author is None and content.get("role") == "user")
        has_results = any(
            isinstance(part, dict) and (part.get("functionResponse") or part.get("function_response"))
            for part in content.get("parts") or ()
        )
        role = "user" if is_user else content.get("role") if has_results else "model"
        if not is_user and author is not None:
            conversation.speak_as(author)
        for message in chat_message(self._order.content({"parts": [], **content, "role": role})):
            if message["role"] == ASSISTANT:
                message |= _outer(event)
            super().read_item(conversation, record, {**message, "timestamp": event.get("timestamp")}, path)

    def _read_error(self, conversation: Conversation, record: Record, event: dict[str, Any], path: Path) -> None:
        """Read an event without content: it only changes state, or says why the model gave no answer."""
        error = {key: event[key] for key in _ERRORS if event.get(key) is not None}
        if error and not self._is_logged(conversation, record, event, path):
            if (author := text_field(event, "author")) is not None:
                conversation.speak_as(author)
            self._annotate(conversation.origin, record.locator(item_of(path)), "error", error, time_of(event))

    def _is_logged(self, conversation: Conversation, record: Record, event: dict[str, Any], path: Path) -> bool:
        """Whether an event with this id was read before."""
        id = text_field(event, "id")
        same = self._logged.repeats((conversation.origin.session, id), event) if id else None
        if same is False:
            record.warn("unread-content", LOGGED_TWICE.format(id), path)
            self._assembler.lack_call(self._assembler.buffer_for(conversation.origin), EVERYTHING[0])
        return same is not None


def _outer(event: dict[str, Any]) -> dict[str, Any]:
    usage = event.get("usageMetadata", event.get("usage_metadata"))
    return {
        "model": text_field(event, "modelVersion", "model_version"),
        "finish_reason": text_field(event, "finishReason", "finish_reason", "errorCode", "error_code"),
        "usage": usage if isinstance(usage, dict) else None,
    }


# Evaluations. The API says `evalCases` for the `eval_cases` of a file.


def _add_names(case: dict[str, Any]) -> dict[str, Any]:
    details = object_field(case, "session_details")
    return {**details, "id": text_field(details, "id") or text_field(case, "eval_id")}


def _recorded_events(case: dict[str, Any]) -> list[Any]:
    """What the agent did in an evaluation: its session, or each invocation beside what was expected."""
    events = list_field(object_field(case, "session_details"), "events")
    per = list_field(case, "eval_metric_result_per_invocation")
    return events or _events_of([snake(one).get("actual_invocation") for one in per])


def _events_of(invocations: list[Any]) -> list[Any]:
    return [event for one in invocations for event in (_events(snake(one)) if isinstance(one, dict) else [one])]


def _events(invocation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    at = invocation.get("creation_timestamp")
    yield {"author": "user", "content": invocation.get("user_content"), "timestamp": at}
    data = snake(invocation.get("intermediate_data"))
    uses, responses = list_field(data, "tool_uses"), list_field(data, "tool_responses")
    events = list_field(data, "invocation_events")
    yield from (event for event in events if isinstance(event, dict))
    for by in list_field(data, "intermediate_responses"):
        if isinstance(by, list) and len(by) == 2:
            yield {"author": by[0], "content": {"role": "model", "parts": by[1]}}
    if uses:
        yield {"content": {"role": "model", "parts": [{"function_call": use} for use in uses]}}
    if responses:
        yield {"content": {"role": "tool", "parts": [{"function_response": one} for one in responses]}}
    final = invocation.get("final_response")
    if isinstance(final, dict) and is_content({"role": "model", **final}):
        yield {"content": final, "timestamp": at}
