"""Divide a file of OTLP messages, and convert each from protobuf to OTLP's JSON.

A file holds messages, each after its length in 4 bytes, highest byte first, or without lengths. Only the fields that
are read are converted. There are few message types, so no library is needed. The outer messages of traces and logs look
the same, so the innermost messages distinguish them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import msgspec

from bylaw.traces.records.lines import MAX_RECORD, Block
from bylaw.traces.records.problems import Place, Problems

_Fields: TypeAlias = dict[tuple[int, int], tuple[str, Callable[[Any], Any]]]
"""of a message: number and wire type → the name in JSON, and how to read it"""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_LEVELS = 100


class InvalidProtobuf(ValueError):
    """Bytes that are no protobuf message."""


def fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Number, wire type and value of each field of a message."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield number, kind, value
            continue
        size = 8 if kind == _FIXED64 else 4 if kind == _FIXED32 else None
        if kind == _BYTES:
            size, at = _varint(data, at)
        if size is None or at + size > end or number == 0:
            raise InvalidProtobuf("a field is longer than its message, or of no known kind")
        yield number, kind, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    result = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        result |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return result, at
    raise InvalidProtobuf("a number does not end")


def to_json(frame: bytes) -> bytes:
    """The JSON of one TracesData or LogsData message. Raises Broken."""
    spans: list[Any] = []
    logs: list[Any] = []
    for resource in _below(memoryview(frame), 1):
        for scope in _below(resource, 2):
            for record in _below(scope, 2):
                if _is_log(record):
                    logs.append(_message(record, _LOG))
                else:
                    spans.append(_message(record, _SPAN))
    export: dict[str, Any] = {}
    if spans or not logs:
        export["resourceSpans"] = [{"scopeSpans": [{"spans": spans}]}]
    if logs:
        export["resourceLogs"] = [{"scopeLogs": [{"logRecords": logs}]}]
    return msgspec.json.encode(export)


def _below(data: memoryview, number: int) -> Iterator[memoryview]:
    return (value for found, kind, value in fields(data) if found == number and kind == _BYTES)


def _is_log(record: memoryview) -> bool:
    """A span begins with its 16 bytes of trace id; a log record has a time there, as a fixed 64-bit number."""
    kinds = {number: kind for number, kind, _ in fields(record)}
    return kinds.get(1) == _FIXED64 or (11 in kinds and kinds[11] == _FIXED64) or (1 not in kinds and 5 in kinds)


def _message(data: memoryview, known: _Fields) -> dict[str, Any]:
    """The fields of a message that are known; those that may be repeated as lists."""
    found: dict[str, Any] = {}
    for number, kind, value in fields(data):
        if (number, kind) in known:
            name, read = known[number, kind]
            if name in _LISTS:
                found.setdefault(name, []).append(read(value))
            else:
                found[name] = read(value)
    return found


def _pair(data: memoryview, level: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, kind, value in fields(data):
        if number == 1 and kind == _BYTES:
            found["key"] = _text(value)
        elif number == 2 and kind == _BYTES:
            found["value"] = _value(value, level + 1)
    return found


def _value(data: memoryview, level: int) -> dict[str, Any]:
    if level > _MOST_LEVELS:
        raise InvalidProtobuf("values are nested too deeply")
    for number, kind, value in fields(data):
        if number == 1 and kind == _BYTES:
            return {"stringValue": _text(value)}
        if number == 2 and kind == _VARINT:
            return {"boolValue": bool(value)}
        if number == 3 and kind == _VARINT:
            return {"intValue": value - (1 << 64) if value >= 1 << 63 else value}
        if number == 4 and kind == _FIXED64:
            number_read = struct.unpack("<d", value)[0]
            return {"doubleValue": number_read if number_read - number_read == 0 else str(number_read)}
        if number == 5 and kind == _BYTES:
            return {"arrayValue": {"values": [_value(item, level + 1) for item in _below(value, 1)]}}
        if number == 6 and kind == _BYTES:
            return {"kvlistValue": {"values": [_pair(item, level + 1) for item in _below(value, 1)]}}
        if number == 7 and kind == _BYTES:
            return {"bytesValue": value.hex()}
    return {}


def _read_fixed(value: memoryview) -> str:
    return str(int.from_bytes(value, "little"))


def _text(value: memoryview) -> str:
    return str(value, "utf-8", errors="replace")


def _attribute(value: memoryview) -> dict[str, Any]:
    return _pair(value, 0)


_LISTS = frozenset(("attributes", "events", "links"))
_EVENT: _Fields = {(2, _BYTES): ("name", _text), (3, _BYTES): ("attributes", _attribute)}
_LINK: _Fields = {(2, _BYTES): ("spanId", memoryview.hex)}
_STATUS: _Fields = {(2, _BYTES): ("message", _text), (3, _VARINT): ("code", int)}
_SPAN: _Fields = {
    (1, _BYTES): ("traceId", memoryview.hex),
    (2, _BYTES): ("spanId", memoryview.hex),
    (4, _BYTES): ("parentSpanId", memoryview.hex),
    (5, _BYTES): ("name", _text),
    (7, _FIXED64): ("startTimeUnixNano", _read_fixed),
    (8, _FIXED64): ("endTimeUnixNano", _read_fixed),
    (9, _BYTES): ("attributes", _attribute),
    (10, _VARINT): ("droppedAttributesCount", int),
    (11, _BYTES): ("events", lambda value: _message(value, _EVENT)),
    (12, _VARINT): ("droppedEventsCount", int),
    (13, _BYTES): ("links", lambda value: _message(value, _LINK)),
    (15, _BYTES): ("status", lambda value: _message(value, _STATUS)),
}
_LOG: _Fields = {
    (1, _FIXED64): ("timeUnixNano", _read_fixed),
    (5, _BYTES): ("body", lambda value: _value(value, 0)),
    (6, _BYTES): ("attributes", _attribute),
    (9, _BYTES): ("traceId", memoryview.hex),
    (10, _BYTES): ("spanId", memoryview.hex),
    (11, _FIXED64): ("observedTimeUnixNano", _read_fixed),
    (12, _BYTES): ("eventName", _text),
}


_LENGTH = 4
_FIRST_FIELD = 0x0A
"""how every OTLP message begins: field 1, which is a message"""
_INNER_FIELDS = b"\x0a\x12"
"""what that message begins with: a resource, or a scope"""
_TEXT = frozenset((*range(32, 127), 9, 10, 13))
_SAMPLE = 256


def looks_framed(head: bytes) -> bool:
    if len(head) <= _LENGTH or head[_LENGTH] != _FIRST_FIELD:
        return False
    return 0 < int.from_bytes(head[:_LENGTH], "big") <= MAX_RECORD


def looks_bare(head: bytes) -> bool:
    """Whether a file is one message, or several of them simply after each other, which protobuf reads as one."""
    if head[:1] != bytes((_FIRST_FIELD,)):
        return False
    try:
        size, at = _varint(memoryview(head), 1)
    except InvalidProtobuf:
        return False
    is_inside = at < len(head) and head[at] in _INNER_FIELDS and 0 < size <= MAX_RECORD
    return is_inside and not _TEXT.issuperset(head[:_SAMPLE])  # text may begin with newlines


def frame_blocks(chunks: Iterator[bytes], problems: Problems) -> Iterator[Block]:
    """Messages that each follow their length."""
    return _blocks(chunks, problems, _find_frame)


def bare_blocks(chunks: Iterator[bytes], problems: Problems) -> Iterator[Block]:
    """The parts of a message without a length: each resource with its spans or logs."""
    return _blocks(chunks, problems, _bare)


def _find_frame(buffer: bytes) -> tuple[int, int]:
    """Where the first message starts and ends."""
    return _LENGTH, _LENGTH + int.from_bytes(buffer[:_LENGTH], "big")


def _bare(buffer: bytes) -> tuple[int, int]:
    key, at = _varint(memoryview(buffer), 0)
    if key & 7 != _BYTES:
        raise InvalidProtobuf("a field is of no known kind")
    size, at = _varint(memoryview(buffer), at)
    return 0, at + size


def _blocks(chunks: Iterator[bytes], problems: Problems, find: Callable[[bytes], tuple[int, int]]) -> Iterator[Block]:
    """One message per block, as JSON. Reading stops at a broken length, because what follows cannot be divided."""
    buffer, number, fault = b"", 0, ""
    for chunk in chunks:
        buffer += chunk
        while len(buffer) >= _LENGTH:
            try:
                start, end = find(buffer)
            except InvalidProtobuf as error:  # or more of a length follows
                fault = str(error)
                break
            if end - start > MAX_RECORD:
                problems.report_file("too-long", f"message {number + 1} is longer than {MAX_RECORD >> 20} MiB")
                return
            if len(buffer) < end:
                break
            number += 1
            yield from _decode_frame(buffer[start:end], number, problems)
            buffer = buffer[end:]
        if fault and len(buffer) > _SAMPLE:
            break
    if buffer:
        message = f"message {number + 1} is no OTLP: {fault}" if fault else f"message {number + 1} ends too early"
        problems.report_file("bad-protobuf", message)


def _decode_frame(frame: bytes, number: int, problems: Problems) -> Iterator[Block]:
    try:
        raw = to_json(frame)
    except InvalidProtobuf as error:
        problems.report_file("bad-protobuf", f"message {number} is no OTLP: {error}")
        return
    yield [(raw, Place(1, 1, f"message {number}"))]
