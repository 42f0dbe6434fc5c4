"""The encoding of stored records: data as canonical JSON, reviews as one JSON object, strings without UTF-8 as bytes.

The stored bytes are the ones that are hashed, so that data is encoded once and an auditor needs only SHA-256. All
stores use this module, so that they refuse or change the same values (a tuple, an integer key)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from bylaw.guard.stores.ports import MAX_DEPTH
from bylaw.guard.stores.records import Following, FollowRecord, ReviewRecord, WideWindow
from bylaw.model.canonical import canonical_json, is_whole, plain_json, prepared, prints_alike

R = TypeVar("R", bound=FollowRecord)
_decode = msgspec.json.Decoder().decode


def encode(data: Any) -> bytes:
    """The result of `canonical_json`, ten times as fast for usual records. Raises ValueError."""
    text = plain_json(data)
    if text is not None:
        return text
    try:
        return _encode_unusual(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot be stored as JSON: {error}") from error


def encode_both(data: dict[str, Any], **more: str) -> tuple[bytes, bytes]:
    """`encode(data)` and `encode({**more, **data})`, with the shared values encoded once."""
    together = {**more, **data}
    own: list[bytes] = []
    whole: list[bytes] = []
    for key, name in _keys(*together):
        text = plain_json(together[key])
        if text is None:
            break
        part = name + text
        whole.append(part)
        if key in data:
            own.append(part)
    if len(whole) < len(together):  # one unusual value makes the whole unusual
        return encode(data), encode(together)
    return b"{%b}" % b",".join(own), b"{%b}" % b",".join(whole)


@lru_cache(maxsize=256, typed=True)
def _keys(*keys: Any) -> list[tuple[str, bytes]]:
    """The keys in canonical order, each with its JSON; none if one of them is not plain ASCII."""
    is_usual = all(type(key) is str and key.isascii() and key.isidentifier() for key in keys)
    return [(key, b'"%b":' % key.encode()) for key in sorted(keys)] if is_usual else []


def decode(text: str | bytes) -> Any:
    """Decode with msgspec, which takes a third of the time of `json`; the latter reads what msgspec rejects (NaN, lone
    surrogates, 1e400)."""
    try:
        return _decode(text)
    except (ValueError, RecursionError):
        return json.loads(text)


def decode_audit(text: Any) -> dict[str, Any]:
    """The column of a file that was tampered with may hold anything. Only objects are ever written, so anything else
    does not match its hash."""
    try:
        data = decode(text)
    except (TypeError, ValueError, RecursionError):
        data = None
    return data if isinstance(data, dict) else {"unreadable": str(text)}


def decode_head(text: Any) -> tuple[int, str]:
    """`SEQ:HASH`; anything else gives a head that no row has."""
    seq, _, hash = str(text).partition(":")
    return (int(seq), hash) if seq.isascii() and seq.isdigit() and len(seq) < 19 else (0, "")


def finite(at: float) -> float:
    if not abs(at) < float("inf"):
        raise ValueError(f"at={at!r}: expected a finite number of seconds")
    return at


def encode_number(number: float) -> bytes:
    if prints_alike(number):
        return repr(number).encode()
    return b"%d" % number if is_whole(number) else canonical_json(float(finite(number)))


def encode_review(record: ReviewRecord) -> bytes:
    for at in (record.created_at, record.expires_at, record.decided_at):
        finite(at or 0.0)
    return encode(msgspec.structs.asdict(record))


def decode_review(text: str | bytes) -> ReviewRecord:
    return msgspec.convert(decode(text), prepared(ReviewRecord))


def encode_followed(record: FollowRecord) -> tuple[bytes, bytes]:
    """The record, and separately the state of the rules: bytes, and by far the largest part."""
    finite(record.at)
    if isinstance(record, Following | WideWindow):
        return encode(msgspec.to_builtins(replace(record, state=b""))), record.state
    return encode(msgspec.to_builtins(record)), b""


def decode_followed(kind: type[R], text: str | bytes, state: bytes) -> R:
    record = msgspec.convert(decode(text), prepared(kind))
    return replace(record, state=state) if isinstance(record, Following | WideWindow) else record


def _encode_unusual(data: Any) -> bytes:
    """Canonical JSON that is stable after reading it back, so that the hash of a row can be checked from its data.

    Reading back may change the canonical form: 1e20 is read as an integer, the key 1 as "1"."""
    _check_depth(data)
    text = canonical_json(data)
    while (again := canonical_json(decode(text))) != text:
        text = again
    return text


def _check_depth(data: Any) -> None:
    level, depth = {id(data): data}, 0
    while level:
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        inside = (item for value in level.values() for item in _items(value))
        level, depth = {id(item): item for item in inside}, depth + 1


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()
