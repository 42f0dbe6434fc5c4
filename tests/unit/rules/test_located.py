"""Text → nodes: values, places, and what YAML 1.1 would have made of them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylaw.rules.json_nodes import parse_json
from bylaw.rules.nodes import ListNode, MapNode, Node, Problems, ScalarNode, Source, plain
from bylaw.rules.yaml_nodes import parse_yaml_documents


def yaml_node(text: str) -> Node:
    source = Source("f", text)
    problems = Problems(source)
    (node,) = parse_yaml_documents(source, problems)
    assert problems.all == ()
    return node


def json_node(text: str) -> Node:
    source = Source("f", text)
    problems = Problems(source)
    node = parse_json(source, problems)
    assert problems.all == ()
    assert node is not None
    return node


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("no", "no"),
        ("On", "On"),
        ("y", "y"),
        ("12", 12),
        ("-7", -7),
        ("+7", 7),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e3", 1000.0),
        ("18446744073709551615", 2**64 - 1),
        ("'12'", "12"),
        ('"no"', "no"),
        ("0.0.1", "0.0.1"),
        ("-", None),
        ("=", "="),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    node = yaml_node(f"- {text}\n")
    assert isinstance(node, ListNode)
    (item,) = node.items
    if text == "-":
        assert isinstance(item, ListNode)
        (item,) = item.items
    assert isinstance(item, ScalarNode)
    assert (type(item.value), item.value) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "legacy"),
    [("no", False), ("YES", True), ("off", False), ("010", 8), ("'no'", None), ("n", None), ("10", None), ("07", None)],
)
def test_the_value_of_yaml_1_1_is_recorded(text: str, legacy: object) -> None:
    node = yaml_node(f"[{text}]")
    assert isinstance(node, ListNode)
    assert isinstance(node.items[0], ScalarNode)
    assert (type(node.items[0].legacy), node.items[0].legacy) == (type(legacy), legacy)


def test_places_are_exact() -> None:
    node = yaml_node("# c\nrules:\n  - id: é x  # note\n    'kind': [a, \"b\"]\n    text: |\n      two\n      lines\n")
    assert isinstance(node, MapNode)
    rules = node.entries["rules"].value
    assert isinstance(rules, ListNode)
    rule = rules.items[0]
    assert isinstance(rule, MapNode)
    shown = {key: (str(entry.key.span), entry.value.raw) for key, entry in rule.entries.items()}
    assert shown["id"] == ("f:3:5", "é x")
    assert shown["kind"] == ("f:4:5", '[a, "b"]')
    assert rule.entries["kind"].value.span.end_column == 21
    assert rule.entries["text"].value.head.end_line == 5
    assert (rule.head.line, rule.head.column, rule.head.end_line) == (3, 5, 3)


def test_aliases_stand_for_what_they_name() -> None:
    node = yaml_node("a: &x {b: [1, 2]}\nc: *x\nd: [*x, *x]\n")
    value = {"b": [1, 2]}
    assert plain(node) == {"a": value, "c": value, "d": [value, value]}


def test_unusual_line_ends_do_not_shift_lines() -> None:
    node = yaml_node('- "a\u2028b\x85c"\n- d\r- e\r\n- f\n')
    assert isinstance(node, ListNode)
    assert [item.span.line for item in node.items] == [1, 2, 3, 4]


def test_a_byte_order_mark_has_no_width() -> None:
    assert yaml_node("\ufeffa: 1").span.column == 1
    assert json_node('\ufeff{"a": 1}').span.column == 1


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(json_values, st.sampled_from([None, 2]), st.booleans())
def test_json_is_read_like_the_standard_library_does(value: Any, indent: int | None, ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii)
    node = json_node(text)
    assert plain(node) == value
    assert node.raw == text


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.text('[]{},:"0123\\ae.-+\n\t', max_size=15))
def test_json_refuses_what_the_standard_library_refuses(text: str) -> None:
    source = Source("f", text)
    problems = Problems(source)
    node = parse_json(source, problems)
    refused = node is None or bool(problems.all)
    assert refused == _refused_by_json(source.text)


def _refused_by_json(text: str) -> bool:
    """Numbers that not every JSON tool reads alike are refused too: whole ones beyond 64 bits, and infinite ones."""

    def refuse(_: str) -> None:
        raise ValueError

    def whole(digits: str) -> int:
        return int(digits) if -(2**63) <= int(digits) < 2**64 else refuse(digits)  # type: ignore[return-value]

    def fraction(digits: str) -> float:
        return float(digits) if math.isfinite(float(digits)) else refuse(digits)  # type: ignore[return-value]

    try:
        json.loads(text, parse_constant=refuse, parse_int=whole, parse_float=fraction)
    except ValueError:
        return True
    return False
