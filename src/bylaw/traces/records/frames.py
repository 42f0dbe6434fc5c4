"""Divide a file of length-prefixed protobuf messages: 4 bytes of length, the highest first, then the message."""

from __future__ import annotations

from collections.abc import Iterator

from bylaw.model.diagnostic import Diagnostic
from bylaw.traces.records.lines import MAX_RECORD, Block
from bylaw.traces.records.place import Place
from bylaw.traces.records.problems import Problems
from bylaw.traces.records.protobuf import Broken, to_json

_LENGTH = 4
_FIRST_FIELD = 0x0A
"""how every OTLP message begins: field 1, a message of its own"""


def looks_framed(head: bytes) -> bool:
    if len(head) <= _LENGTH or head[_LENGTH] != _FIRST_FIELD:
        return False
    return 0 < int.from_bytes(head[:_LENGTH], "big") <= MAX_RECORD


def frame_blocks(chunks: Iterator[bytes], problems: Problems) -> Iterator[Block]:
    """One message a block, as JSON. What follows a broken length cannot be divided, so there reading ends."""
    held = b""
    number = 0
    for chunk in chunks:
        held += chunk
        while len(held) >= _LENGTH:
            size = int.from_bytes(held[:_LENGTH], "big")
            if size > MAX_RECORD:
                _bad(problems, number + 1, "too-long", f"message {number + 1} is longer than {MAX_RECORD >> 20} MiB")
                return
            if len(held) < _LENGTH + size:
                break
            number += 1
            yield from _decoded(held[_LENGTH : _LENGTH + size], number, problems)
            held = held[_LENGTH + size :]
    if held:
        _bad(problems, number + 1, "bad-protobuf", f"message {number + 1} ends before its length says")


def _decoded(frame: bytes, number: int, problems: Problems) -> Iterator[Block]:
    try:
        raw = to_json(frame)
    except Broken as error:
        _bad(problems, number, "bad-protobuf", f"message {number} is no OTLP: {error}")
        return
    yield [(raw, Place(1, 1, f"message {number}"))]


def _bad(problems: Problems, number: int, code: str, message: str) -> None:
    problems.bad(Diagnostic(code=code, message=message, file=problems.file))
