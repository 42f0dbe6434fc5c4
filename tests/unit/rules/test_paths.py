"""The little language of paths."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylaw.model.condition import FIELDS, OTHER
from bylaw.rules.paths import BadPath, parse_path, path_pattern


@pytest.mark.parametrize(
    ("text", "root", "field", "rest"),
    [
        ("request.model", "request", "model", ()),
        ("model", "request", "model", ()),
        ("stop_reason", "response", "stop_reason", ()),
        ("request.params.amount", "request", "params", ("amount",)),
        ("request.messages.-1.content", "request", "messages", ("-1", "content")),
        ("response.tool_calls.*.name", "response", "tool_calls", (None, "name")),
        (r"request.params.a\.b", "request", "params", ("a.b",)),
        (r"request.params.\*", "request", "params", ("*",)),
        (r"request.params.a\\.b", "request", "params", ("a\\", "b")),
        ("request.params.a b", "request", "params", ("a b",)),
    ],
)
def test_a_path_is_parsed(text: str, root: str, field: str, rest: tuple[str | None, ...]) -> None:
    path = parse_path(text)
    assert (path.text, path.root, path.field, path.rest) == (text, root, field, rest)
    assert re.fullmatch(path_pattern(), text)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "bad-path"),
        (".", "bad-path"),
        ("request.", "bad-path"),
        ("request.params.a\\", "bad-path"),
        ("request.params.a\\n", "bad-path"),
        ("request.params.a**", "bad-path"),
        ("request.params" + ".a" * 100, "bad-path"),
        ("*", "unknown-path"),
        ("request.*", "unknown-path"),
        ("response", "unknown-path"),
        ("response.latency", "unknown-path"),
        ("Request.model", "unknown-path"),
        ("model.name", "unknown-path"),
        ("response.tool_calls.name", "unknown-path"),
    ],
)
def test_a_bad_path_is_refused_with_help(text: str, code: str) -> None:
    with pytest.raises(BadPath) as caught:
        parse_path(text)
    assert caught.value.code == code


@given(st.lists(st.text(min_size=1, max_size=6), max_size=5))
def test_any_key_can_be_written(keys: list[str]) -> None:
    escaped = [re.sub(r"([.*\\])", r"\\\1", key) for key in keys]
    assert parse_path(".".join(["request.params", *escaped])).rest == tuple(keys)


parts = [
    "request",
    "response",
    "model",
    "params",
    "usage",
    "content",
    "text",
    "*",
    "0",
    "-1",
    "a b",
    r"\.",
    r"\*",
    "é\n",
]


@given(st.lists(st.sampled_from(parts), max_size=5))
def test_the_pattern_for_editors_is_not_stricter(names: list[str]) -> None:
    text = ".".join(names)
    try:
        path = parse_path(text)
    except BadPath:
        return
    assert path.field in (*FIELDS[path.root], OTHER)
    assert re.fullmatch(path_pattern(), text, re.DOTALL)
