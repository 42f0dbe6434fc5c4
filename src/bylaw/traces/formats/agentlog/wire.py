"""The records of an .agentlog file, typed, with nothing decoded that no rule looks at.

Fields that no rule can reach (`version`, `system_fingerprint`, `stop_sequence`, `stream_timings`, …) are passed over on
purpose; docs/reference/trace-format.md says so.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import Raw, Struct

from bylaw.traces.assembly.history import MessageSkim, carries_history
from bylaw.traces.assembly.survey import NOTHING_SEEN, Hints, Seen
from bylaw.traces.records.jsontext import REFUSED, decode_deferred


class Meta(Struct, gc=False):
    """The part of a record's `meta` that says who it belongs to. `trace_id` names a recording, not a session."""

    session_id: str | int | None = None
    session_tag: str | int | None = None
    run_id: str | int | None = None
    parent_run_id: str | int | None = None
    agent: str | int | None = None
    agent_id: str | int | None = None

    @property
    def session(self) -> str | None:
        name = self.session_tag if self.session_id is None else self.session_id
        return None if name is None else str(name)


NO_META = Meta()


class Envelope(Struct, tag_field="kind", gc=False):
    id: str | None = None
    ts: str | float | None = None
    parent: str | None = None
    meta: Meta | None = None


class Metadata(Envelope, tag="metadata", gc=False):
    payload: dict[str, Any] | None = None


class RequestPayload(Struct, gc=False):
    model: str | None = None
    messages: list[MessageSkim] | None = None
    """decoded as a whole only when a rule looks at them: see `messages_in`"""
    params: dict[str, Any] | None = None
    tools: Raw = Raw()
    metadata: dict[str, Any] | None = None


class ChatRequest(Envelope, tag="chat_request", kw_only=True, gc=False):
    payload: RequestPayload


class ResponsePayload(Struct, gc=False):
    model: str | None = None
    content: list[Any] | str | None = None
    stop_reason: str | None = None
    latency_ms: float | None = None
    usage: Any = None


class ChatResponse(Envelope, tag="chat_response", kw_only=True, gc=False):
    payload: ResponsePayload


class CallPayload(Struct, gc=False):
    tool_name: str
    tool_call_id: str | int | None = None
    arguments: Any = None


class CallRecord(Envelope, tag="tool_call", kw_only=True, gc=False):
    payload: CallPayload


class ResultPayload(Struct, gc=False):
    tool_call_id: str | int | None = None
    tool_name: str | None = None
    output: Any = None
    is_error: bool | None = None
    latency_ms: float | None = None


class ResultRecord(Envelope, tag="tool_result", kw_only=True, gc=False):
    payload: ResultPayload


class ErrorRecord(Envelope, tag="error", gc=False):
    payload: Any = None


class ReplaySummary(Envelope, tag="replay_summary", gc=False):
    payload: Any = None


class Chunk(Envelope, tag="chunk", gc=False):
    payload: Any = None


class HarnessEvent(Envelope, tag="harness_event", gc=False):
    payload: Any = None


class BlobRef(Envelope, tag="blob_ref", gc=False):
    payload: Any = None


Other: TypeAlias = ErrorRecord | ReplaySummary | Chunk | HarnessEvent | BlobRef
Record: TypeAlias = Metadata | ChatRequest | ChatResponse | CallRecord | ResultRecord | Other
LABELS: dict[type, str] = {
    ErrorRecord: "error",
    ReplaySummary: "replay_summary",
    Chunk: "chunk",
    HarnessEvent: "harness_event",
    BlobRef: "blob_ref",
}
KINDS = ("metadata", "chat_request", "chat_response", "tool_call", "tool_result", *LABELS.values())

decode_record = msgspec.json.Decoder(Record).decode


class _WholePayload(Struct, gc=False):
    messages: list[Any] | None = None


class _WholeRequest(Struct):
    payload: _WholePayload


_decode_whole = msgspec.json.Decoder(_WholeRequest).decode


def messages_in(line: bytes) -> list[Any] | None:
    """The messages of a request's record, all of them decoded."""
    try:
        return _decode_whole(line).payload.messages
    except REFUSED:
        whole = decode_deferred(line)
        messages: list[Any] = whole["payload"]["messages"]
        return messages


class _SkimmedPayload(Struct, gc=False):
    messages: list[MessageSkim] | None = None


class _Skimmed(Struct, gc=False):
    """Just what tells sessions apart."""

    kind: str | None = None
    meta: Meta | None = None
    payload: _SkimmedPayload | None = None


_skim = msgspec.json.Decoder(_Skimmed).decode


def look(line: bytes) -> Seen:
    record = _skim(line)
    kind, meta, payload = record.kind, record.meta, record.payload
    if meta is not None and meta != NO_META and (session := meta.session) is not None:
        return Seen(session=session)
    if kind == "chat_request":
        has_history = payload is not None and carries_history(payload.messages, line, messages_in)
        return _HISTORY if has_history else NOTHING_SEEN
    return _MARKER if kind == "metadata" else NOTHING_SEEN


_HISTORY = Seen(carries_history=True)
_MARKER = Seen(is_marker=True)
HINTS = Hints(session=b'"session_', marker=b'"metadata"', request=b'"chat_request"', response=b'"chat_response"')
