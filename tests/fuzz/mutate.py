"""Turning one input into another that is almost right."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

NASTY = [
    b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\t", b"\\ud800", b"NaN", b"-Infinity", b"1e999",
    b"9" * 400, b"[" * 2_000, b'{"a":' * 2_000, b"&a *a", b"<<: *x", b"!!python/object:os.system", b"- " * 500, b"? ",
    b": ", b"|\n", b"'", b'"', b"{", b"}", b"]", b",", b"null", b"true", b"no", b"%", b"---\n", b"...\n", b"\\",
    b"(a+)+$", b"(?=x)", b"\\1", b"*" * 300, b"..", b"-1", b"\xf0\x9f\x98\x80", b"session_id", b"\x1b[31m",
]  # fmt: skip
VALUES: list[Any] = [
    None, True, 0, -1, 1.5, 10**30, "", "x", "12.5", [], {}, [[]], {"a": None}, "\ud800", "a" * 5_000, [1, "b", None],
]  # fmt: skip


def mutate(seed: bytes, rng: random.Random) -> bytes:
    data = seed
    for _ in range(rng.randint(1, 4)):
        data = rng.choice(_EDITS)(data, rng)
    return data[:200_000]


def _flip(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _cut(data: bytes, rng: random.Random) -> bytes:
    start, end = _slice(data, rng)
    return data[:start] + data[end:]


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _double(data: bytes, rng: random.Random) -> bytes:
    start, end = _slice(data, rng)
    return data[:end] + data[start:end] + data[end:]


def _splice(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(NASTY) + data[at:]


def _shuffle_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


def _retype(data: bytes, rng: random.Random) -> bytes:
    """Replace one JSON value in one line (or the whole file) by a value of another type."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    try:
        value = json.loads(lines[at])
    except (ValueError, RecursionError):
        return _splice(data, rng)
    lines[at] = json.dumps(_replace(value, rng)).encode()
    return b"\n".join(lines)


def _replace(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.1:
            return {**{k: v for k, v in value.items() if k != key}, rng.choice(["", "x", key + "s"]): value[key]}
        return {**value, key: _replace(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], _replace(value[at], rng), *value[at + 1 :]]
    return rng.choice(VALUES)


def _slice(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.randint(1, 200))


_EDITS: list[Callable[[bytes, random.Random], bytes]] = [
    _flip, _cut, _truncate, _double, _splice, _splice, _shuffle_lines, _retype, _retype, _retype,
]  # fmt: skip
