"""OpenHands: actions and observations of a trajectory, and the typed events of its SDK. Also an evaluation's `history`.

Several actions may come from one answer of the model: they name it. An action without a call of a tool, as older
versions wrote it, is a call with the name of the action. The SDK stores each event of a session in a file of its own,
`<session>/events/event-<number>-<id>.json`, beside `base_state.json`: all of them are read with the first one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from bylaw.model.events import Event
from bylaw.traces.assembly.conversation import Settings
from bylaw.traces.formats.bodies import read_answer
from bylaw.traces.formats.chat import AnswerPart, GatheringReader, blocks_of, call_of
from bylaw.traces.formats.reader import OpenedFile
from bylaw.traces.formats.record import (
    MalformedRecord,
    Record,
    is_file,
    list_field,
    object_field,
    sidecar_records,
    text_field,
)
from bylaw.traces.records.problems import Problems

_SILENT = frozenset(
    ("change_agent_state", "null", "recall", "condensation", "condensation_request", "loop_recovery", "start", "pause",
     "resume", "stop", "agent_state_changed", "server_ready", "user_rejected_state")
)  # fmt: skip
"""actions of the framework itself"""
_ABOUT_CALL = frozenset(("thought", "confirmation_state", "security_risk", "hidden", "blocking", "kept_prompt"))
_SDK = frozenset(("MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent", "SystemPromptEvent"))
_SDK_KIND = re.compile(r"(?:[A-Z][a-z]+)+(?:Event|Observation)|Condensation\w*")
_SOURCES = ("agent", "user", "environment", "hook")
_REJECTED = ("UserRejectObservation", "AgentErrorEvent")
_OTHER_AGENT = "ACPToolCallEvent"
"""a call of another agent, which OpenHands runs over the Agent Client Protocol"""
_UNFINISHED = ("pending", "in_progress")
_EVENT_FILE = re.compile(r"event-(\d{5,12})-.+\.json")
_EVENTS, _STATE = "events", "base_state.json"


def claims(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_is_event, value[:5]))
    head = list_field(value, "history")[:5]
    return _is_event(value) or any(_is_event(one[0] if isinstance(one, list) and one else one) for one in head)


def _is_event(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind = text_field(value, "kind")
    if kind in _SDK:
        return True
    if kind is not None and _SDK_KIND.fullmatch(kind) and value.get("source") in _SOURCES and "id" in value:
        return "timestamp" in value
    if "source" not in value or "timestamp" not in value:
        return False
    return (isinstance(value.get("action"), str) and isinstance(value.get("args"), dict)) or (
        isinstance(value.get("observation"), str) and isinstance(value.get("extras"), dict)
    )


def event_files(path: str) -> list[str]:
    """The files of the events of a session, in order, if this is one of them."""
    folder, name = os.path.split(path)
    if _EVENT_FILE.fullmatch(name) is None:
        return []
    numbered = ((_number(other), other) for other in os.listdir(folder or ".") if _EVENT_FILE.fullmatch(other))
    files = [os.path.join(folder, other) for _, other in sorted(numbered)]
    return [file for file in files if is_file(file)] if is_file(path) else []


def state_file(path: str) -> str:
    """The file that describes the session whose event this is; it may not exist."""
    return os.path.join(os.path.dirname(os.path.dirname(path)), _STATE)


def _number(name: str) -> int:
    match = _EVENT_FILE.fullmatch(os.path.basename(name))
    return -1 if match is None else int(match[1])


class OpenHandsReader(GatheringReader):
    def __init__(self, opened: OpenedFile) -> None:
        super().__init__(opened)
        path = opened.source.path
        files = [] if path is None else event_files(path)
        self._is_piece = bool(files) and os.path.basename(files[0]) != os.path.basename(path or "")
        """this is an event of a session, and not the first one"""
        self._rest = [] if self._is_piece else files[1:]
        """the files of the other events"""
        self._missing = 0 if self._is_piece or not files else _number(files[-1]) + 1 - len(set(map(_number, files)))
        self._state = {} if path is None or self._is_piece or not files else _state_of(path)
        self._other_calls: dict[str, bool] = {}
        """calls of another agent: whether they have a result"""
        self._answered: dict[str, None] = {}
        """answers whose whole text and calls were recorded with their first action"""
        self._calls: dict[str, str] = {}
        """the calls of actions, by the ids of these"""

    def finish(self) -> list[Event]:
        for file in self._rest:
            for record in sidecar_records(file, self._problems, self._cut):
                self.read_record(record)
        if self._is_piece or self._missing or self._state.get("execution_status") == "running":
            self._cut()
        return super().finish()

    def notes(self) -> list[str]:
        notes = super().notes()
        if self._is_piece:
            notes.append("this is only one event of a session: check the folder `events`, which is read as one session")
        if self._missing:
            what = "1 event of the session is" if self._missing == 1 else f"{self._missing:,} events of the session are"
            notes.append(f"{what} missing: the numbers of the event files have a gap")
        return notes

    def _cut(self) -> None:
        self.complete = False

    def read_record(self, record: Record) -> None:
        value = record.value
        if self._state and self._open is None and isinstance(value, dict):
            model = text_field(object_field(object_field(self._state, "agent"), "llm"), "model")
            session = text_field(self._state, "id")
            self._open = self._begin(session, Settings(model=model), None, record, bounded=bool(self._rest))
        if isinstance(value, dict) and isinstance(value.get("history"), list):
            metadata = {key: value[key] for key in ("instance_id", "error", "metrics") if value.get(key) is not None}
            self._answered, self._calls = {}, {}
            events = [one for item in value["history"] for one in (item if isinstance(item, list) else [item])]
            self.read_list(record, events, ("history",), text_field(value, "instance_id"), metadata=metadata)
        else:
            super().read_record(record)

    def parts_of(self, event: dict[str, Any]) -> Iterator[AnswerPart]:
        at = event.get("timestamp")
        if isinstance(event.get("kind"), str):
            yield from self._sdk_event(event, at)
        elif isinstance(event.get("action"), str):
            yield from self._action(event, event["action"], at)
        elif isinstance(event.get("observation"), str):
            yield from self._observation(event, event["observation"], at)
        else:
            raise MalformedRecord("an event has neither an `action` nor an `observation`")

    # Trajectories

    def _action(self, event: dict[str, Any], kind: str, at: Any) -> Iterator[AnswerPart]:
        arguments, source = object_field(event, "args"), event.get("source")
        called = object_field(event, "tool_call_metadata")
        if kind == "system":
            yield AnswerPart({"role": "system", "content": arguments.get("content"), "timestamp": at})
        elif kind == "message" and source != "agent":
            yield AnswerPart({"role": "user", "content": arguments.get("content"), "timestamp": at})
        elif kind in _SILENT and not called:
            return
        elif source != "agent":
            yield AnswerPart({"role": "user", "content": text_field(event, "message"), "timestamp": at})
        elif kind == "message":
            usage = object_field(object_field(event, "llm_metrics"), "accumulated_token_usage")
            about = {"model": text_field(usage, "model")} if usage else {}
            yield AnswerPart({"role": "assistant", "content": arguments.get("content"), "timestamp": at, **about})
        else:
            yield from self._call(event, kind, arguments, called, at)

    def _call(
        self, event: dict[str, Any], kind: str, arguments: dict[str, Any], called: dict[str, Any], at: Any
    ) -> Iterator[AnswerPart]:
        body = object_field(called, "model_response")
        answer, key = read_answer(body), text_field(body, "id")
        call_id = text_field(called, "tool_call_id") or f"event {event.get('id')}"
        self._calls[str(event.get("id"))] = call_id
        issued = [call for call in list_field(answer, "tool_calls") if isinstance(call, dict)]
        if answer is not None and any(call.get("id") == call_id for call in issued):
            if key is None or key not in self._answered:
                self._answered |= {} if key is None else {key: None}
                yield AnswerPart({**answer, "timestamp": at})
            return
        given = {name: value for name, value in arguments.items() if name not in _ABOUT_CALL}
        call = call_of(call_id, text_field(called, "function_name") or kind, given)
        content = text_field(arguments, "thought") or None
        yield AnswerPart({"role": "assistant", "content": content, "tool_calls": [call], "timestamp": at}, key)

    def _observation(self, event: dict[str, Any], kind: str, at: Any) -> Iterator[AnswerPart]:
        called, extras = object_field(event, "tool_call_metadata"), object_field(event, "extras")
        call_id = text_field(called, "tool_call_id") or self._calls.get(str(event.get("cause")))
        if call_id is None:
            return  # what a user's command printed, or the state of the agent
        code = object_field(extras, "metadata").get("exit_code", extras.get("exit_code"))
        failed = kind in ("error", "user_rejected") or (True if type(code) is int and code > 0 else None)
        name = text_field(called, "function_name")
        result = {"role": "tool", "tool_call_id": call_id, "content": event.get("content"), "timestamp": at}
        yield AnswerPart({**result, "is_error": False if code == 0 and not failed else failed, "name": name})

    # Events of the SDK

    def _sdk_event(self, event: dict[str, Any], at: Any) -> Iterator[AnswerPart]:
        kind, call_id = event["kind"], text_field(event, "tool_call_id")
        if kind == "SystemPromptEvent":
            yield AnswerPart({"role": "system", "content": object_field(event, "system_prompt").get("text")})
        elif kind == "MessageEvent":
            message = object_field(event, "llm_message")
            role = text_field(message, "role") or ("assistant" if event.get("source") == "agent" else "user")
            yield AnswerPart({**message, "role": role, "timestamp": at}, text_field(event, "llm_response_id"))
        elif kind == "ActionEvent":
            call, action = object_field(event, "tool_call"), object_field(event, "action")
            function = object_field(call, "function") or call
            given = {key: value for key, value in action.items() if key != "kind"}
            name = text_field(event, "tool_name") or text_field(function, "name") or text_field(action, "kind")
            call_id = call_id or text_field(call, "id") or f"event {event.get('id')}"
            self._calls[str(event.get("id"))] = call_id
            answer = {"role": "assistant", "content": blocks_of(event.get("thought")), "timestamp": at}
            answer["reasoning_content"] = text_field(event, "reasoning_content")
            answer["tool_calls"] = [call_of(call_id, name, function.get("arguments", given))]
            yield AnswerPart(answer, text_field(event, "llm_response_id"))
        elif kind == _OTHER_AGENT and call_id is not None:
            yield from self._other_call(event, call_id, at)
        elif call_id is not None or kind == "ObservationEvent":
            seen = event.get("observation", event.get("error", event.get("rejection_reason")))
            failed = True if kind in _REJECTED else object_field(event, "observation").get("is_error")
            content = seen.get("content", seen.get("output", seen)) if isinstance(seen, dict) else seen
            call_id = call_id or self._calls.get(str(event.get("action_id")))
            result = {"role": "tool", "tool_call_id": call_id, "name": text_field(event, "tool_name"), "timestamp": at}
            yield AnswerPart({**result, "content": content, "is_error": failed if isinstance(failed, bool) else None})
        # what is left is not shown to the model: pauses, condensations, changes of state

    def _other_call(self, event: dict[str, Any], call_id: str, at: Any) -> Iterator[AnswerPart]:
        """A call of another agent, which may have several events. Only its kind and a title are recorded."""
        kind, has_result = text_field(event, "tool_kind"), self._other_calls.get(call_id)
        if has_result is None:
            name = text_field(event, "title") if kind in (None, "other") else kind
            call = call_of(call_id, name or kind, event.get("raw_input"))
            yield AnswerPart({"role": "assistant", "content": None, "tool_calls": [call], "timestamp": at})
        ends = not has_result and event.get("status") not in _UNFINISHED
        self._other_calls[call_id] = bool(has_result) or ends
        if ends:
            output, failed = event.get("raw_output"), event.get("is_error")
            content = event.get("content") if output is None else output
            result = {"role": "tool", "tool_call_id": call_id, "content": content, "timestamp": at}
            yield AnswerPart({**result, "is_error": failed if isinstance(failed, bool) else None})


def _state_of(path: str) -> dict[str, Any]:
    """What the file beside the events says of the session, if it can be read."""
    file = state_file(path)
    if os.path.basename(os.path.dirname(path)) != _EVENTS or not is_file(file):
        return {}
    records = sidecar_records(file, Problems(file, skip_bad=True), lambda: None)
    return next((record.value for record in records if isinstance(record.value, dict)), {})
