r"""The records of an .agentlog file, and the content hashes that are their ids.

Fields that no rule can reach (`version`, `system_fingerprint`, `stop_sequence`, `stream_timings`, …) are not decoded.

A record's id is the SHA-256 of its payload in canonical JSON, as the format's own writer makes it (its specification
differs): keys and strings in NFC, keys sorted by UTF-8 bytes, no spaces, whole numbers without a fraction, other floats
in their shortest form without an exponent, and \n \t \r \b \f for those control characters. Ids hashed with \u00xx for
these, as specified, match too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Literal, Union

import msgspec
from msgspec import Raw, Struct, defstruct

from bylaw.traces.assembly.continuations import MessageSkim
from bylaw.traces.assembly.sessions import NOTHING_SEEN, Hints, RecordSummary, carries_history
from bylaw.traces.records.jsontext import REFUSED, decode_deferred, decoder_of
from bylaw.traces.records.problems import Place, Problems


class Meta(Struct, gc=False):
    """The part of a record's `meta` that says who it belongs to. `trace_id` names a recording, not a session.

    `session_tag` usually names a recording too: it tells sessions apart only in a file that has several."""

    session_id: str | int | None = None
    session_tag: str | int | None = None
    run_id: str | int | None = None
    parent_run_id: str | int | None = None
    agent: str | int | None = None
    agent_id: str | int | None = None


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
    """decoded completely only when a rule looks at them: see `messages_in`"""
    params: dict[str, Any] | None = None
    tools: Raw = Raw()
    metadata: dict[str, Any] | None = None


class ChatRequest(Envelope, tag="chat_request", kw_only=True, gc=False):
    payload: RequestPayload


class UnreadPayload(Struct, gc=False):
    """The same with messages in JSON, which are read where they tell sessions apart."""

    model: str | None = None
    messages: Raw = Raw()
    params: dict[str, Any] | None = None
    tools: Raw = Raw()
    metadata: dict[str, Any] | None = None


class UnreadRequest(Envelope, tag="chat_request", kw_only=True, gc=False):
    payload: UnreadPayload


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


LABELS: dict[type, str] = {
    defstruct(label, [("payload", Any, None)], bases=(Envelope,), tag=label, gc=False): label
    for label in ("error", "replay_summary", "chunk", "harness_event", "blob_ref")
}
"""records that become annotations"""
KINDS = ("metadata", "chat_request", "chat_response", "tool_call", "tool_result", *LABELS.values())

_REST = (Metadata, ChatResponse, CallRecord, ResultRecord, *LABELS)
decode_record: Callable[[bytes], Any] = msgspec.json.Decoder(Union[(ChatRequest, *_REST)]).decode
decode_unread: Callable[[bytes], Any] = msgspec.json.Decoder(Union[(UnreadRequest, *_REST)]).decode


class _RawPayload(Struct, gc=False):
    payload: dict[str, Raw]


_decode_keyed = decoder_of(_RawPayload)


def _payload_of(line: bytes) -> dict[str, Any]:
    """What a record holds, by key, as JSON; decoded only when a rule asks for it."""
    try:
        return _decode_keyed(line).payload
    except REFUSED:
        return {key: msgspec.json.encode(value) for key, value in decode_deferred(line)["payload"].items()}


class _WholePayload(Struct, gc=False):
    messages: list[Any] | None = None


class _WholeRequest(Struct):
    payload: _WholePayload


_decode_whole = decoder_of(_WholeRequest)


def messages_in(line: bytes) -> list[Any] | None:
    """All messages of a request's record, decoded."""
    try:
        return _decode_whole(line).payload.messages
    except REFUSED:
        messages: list[Any] = decode_deferred(line)["payload"]["messages"]
        return messages


def others_in(line: bytes) -> dict[str, Any] | None:
    """What else the record of a request holds, such as `context`."""
    others = {key: raw for key, raw in _payload_of(line).items() if key not in RequestPayload.__struct_fields__}
    return {key: decode_deferred(raw) for key, raw in others.items()} or None


def raw_messages_in(line: bytes) -> bytes:
    """All messages of a request's record, as JSON."""
    return bytes(_payload_of(line).get("messages", b"[]"))


_decode_pieces = decoder_of(list[Raw])


def message_pieces(line: bytes) -> Sequence[Any]:
    """The messages of a request's record, each in JSON."""
    try:
        return _decode_pieces(raw_messages_in(line))
    except REFUSED:
        return messages_in(line) or ()


class _SkimmedPayload(Struct, gc=False):
    messages: list[MessageSkim] | None = None


class _SessionFields(Struct, gc=False):
    """The fields that tell sessions apart."""

    kind: str | None = None
    meta: Meta | None = None
    payload: _SkimmedPayload | None = None


_skim = decoder_of(_SessionFields)


def summarize(line: bytes) -> RecordSummary:
    record = _skim(line)
    kind, meta, payload = record.kind, record.meta, record.payload
    if meta is not None and meta.session_id is not None:
        return RecordSummary(session=str(meta.session_id))
    messages = payload.messages if kind == "chat_request" and payload is not None else None
    has_history = carries_history(messages, line, messages_in)
    if meta is not None and meta.session_tag is not None:
        return RecordSummary(tag=str(meta.session_tag), is_marker=kind == "metadata", carries_history=has_history)
    return _HISTORY if has_history else _MARKER if kind == "metadata" else NOTHING_SEEN


_HISTORY = RecordSummary(carries_history=True)
_MARKER = RecordSummary(is_marker=True)
HINTS = Hints(session=b'"session_', marker=b'"metadata"', request=b'"chat_request"', response=b'"chat_response"')


IDS_VERIFIED = 200
"""records that are verified by default: enough to notice, too few to slow down a long file"""
PREFIX = "sha256:"
_SHORT_ESCAPE = re.compile(rb'\\(["\\bfnrt])')
_LONG = {b"b": rb"\u0008", b"f": rb"\u000c", b"n": rb"\u000a", b"r": rb"\u000d", b"t": rb"\u0009"}


class _RecordId(Struct):
    id: str | None = None
    payload: Raw = Raw(b"null")


def _number(text: str) -> Raw:
    """A float as it is hashed: `1.0` as 1, `1e-7` as 0.0000001, `-0.0` as 0."""
    number = float(text)
    if number.is_integer() and abs(number) < 2**63:
        return Raw(str(int(number)))
    digits = repr(number)
    return Raw(_without_exponent(digits) if "e" in digits else digits)


def _without_exponent(digits: str) -> str:
    mantissa, _, exponent = digits.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    if int(exponent) > 0:
        return sign + (whole + fraction).ljust(int(exponent) + 1, "0")
    return f"{sign}0.{'0' * (-int(exponent) - 1)}{whole}{fraction}"


_envelope = decoder_of(_RecordId)
_payload = msgspec.json.Decoder(float_hook=_number).decode
_encode = msgspec.json.Encoder(order="sorted").encode


def id_matches(line: bytes) -> bool:
    """Whether a record's id is the hash of its payload. A record without an id has nothing to match."""
    record = _envelope(line)
    if record.id is None:
        return True
    payload = _payload(record.payload)
    text = _encode(payload)
    if not text.isascii() and not unicodedata.is_normalized("NFC", text.decode()):
        text = _encode(_composed(payload))
    long = _SHORT_ESCAPE.sub(lambda escape: _LONG.get(escape[1], escape[0]), text)
    return record.id in (_hash(text), _hash(long))


def _hash(text: bytes) -> str:
    return PREFIX + sha256(text).hexdigest()


def _composed(value: Any) -> Any:
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, list):
        return [_composed(item) for item in value]
    if isinstance(value, dict):
        return {unicodedata.normalize("NFC", key): _composed(item) for key, item in value.items()}
    return value


class IdCheck:
    """Verifies the ids of a file: all of them if requested, else only the first."""

    def __init__(self, problems: Problems, *, every: bool) -> None:
        self._problems = problems
        self._every = every
        self._verified = 0
        self._mismatches = 0
        self.wanted = True

    def accepts(self, place: int | Place, line: bytes) -> bool:
        """Whether the record may be read. A mismatch is only a warning unless verification was requested."""
        if not self.wanted:
            return True
        self._verified += 1
        self.wanted = self._every or self._verified < IDS_VERIFIED
        message = "the id is not the hash of the payload, so one of them was changed"
        try:
            if id_matches(line):
                return True
        except REFUSED:
            message = "the id cannot be verified, because the payload holds numbers or nesting that no writer can hash"
        self._mismatches += 1
        severity: Literal["error", "warning"] = "error" if self._every else "warning"
        self._problems.report(place, line, ("id",), code="id-mismatch", message=message, severity=severity)
        return not self._every

    def notes(self) -> list[str]:
        if not self._mismatches or self.wanted:
            return []
        return [f"ids of the first {self._verified} records verified"]
