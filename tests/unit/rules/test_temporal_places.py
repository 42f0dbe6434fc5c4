"""From a character of a formula to its place in the file, whatever the style of the scalar."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from bylaw.rules.json_nodes import parse_json
from bylaw.rules.nodes import ListNode, Problems, ScalarNode, Source
from bylaw.rules.temporal.formula import FormulaPlaces
from bylaw.rules.temporal.scanner import FormulaSpan
from bylaw.rules.yaml_nodes import parse_yaml_documents


def scalar(text: str, format: str = "yaml") -> ScalarNode:
    source = Source("f", text)
    problems = Problems(source)
    (node,) = parse_yaml_documents(source, problems) if format == "yaml" else [parse_json(source, problems)]
    assert isinstance(node, ListNode), problems.all
    only = node.items[0]
    assert isinstance(only, ScalarNode)
    return only


@pytest.mark.parametrize(
    "file",
    [
        "- one two three\n",
        "- one\n  two\n\n  three\n",
        "- 'one two three'\n",
        "- 'one\n  two\n\n  three'\n",
        '- "one two three"\n',
        '- "one\\n\\\n  two \\\n  three"\n',
        "- >-\n  one\n    two\n  three\n",
        "- >+ # two\n  one two\n\n  three\n\n",
        "- |2\n    one\n  two three\n# two\n",
        "- &two one two three\n",
        "[one two three]",
        "- one two three # two\n",
        "- one\r\n  two\r\n  three\r\n",
        "- >\r\n  one\r\n  two\r\n  three\r\n",
    ],
)
def test_a_word_has_its_place_in_the_file(file: str) -> None:
    node = scalar(file)
    text = str(node.value)
    at = text.index("two")
    place = FormulaPlaces(node)(FormulaSpan(at, at + 3))
    assert place.raw == "two"
    assert place.start == file.index("two", file.index("one"))


@pytest.mark.parametrize(
    ("file", "format", "found", "raw"),
    [
        ("- 'it''s x'", "yaml", "'", "''"),
        (r'- "a\x78b"', "yaml", "x", r"\x78"),
        (r'- "a\u00e9b\U0001F600c"', "yaml", "\U0001f600", r"\U0001F600"),
        (r'- "a\\b\"c"', "yaml", '"', r"\""),
        (r'- "a\/b"', "yaml", "/", r"\/"),
        (r'["a\/b\\\"c"]', "json", '"', r"\""),
        (r'["a\ud83d\ude00b"]', "json", "\U0001f600", r"\ud83d\ude00"),
        ('["a😀b"]', "json", "b", "b"),
    ],
)
def test_an_escape_has_its_place_in_the_file(file: str, format: str, found: str, raw: str) -> None:
    node = scalar(file, format)
    at = str(node.value).index(found)
    assert FormulaPlaces(node)(FormulaSpan(at, at + 1)).raw == raw


def test_a_place_that_cannot_be_mapped_is_the_whole_scalar() -> None:
    node = scalar("- one two")
    node.value = "something else"
    assert FormulaPlaces(node)(FormulaSpan(0, 3)) is node
    assert FormulaPlaces(scalar("- one two"))(FormulaSpan(3, 4)).raw == "one two"
    assert FormulaPlaces(scalar("- one two"))(FormulaSpan(7, 7)).raw == "one two"


texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n '\"\\/#:-"), min_size=1, max_size=30
)


@given(texts, st.sampled_from(["'", '"', "|", ">"]), st.integers(20, 80))
def test_every_character_has_its_place_in_yaml(text: str, style: str, width: int) -> None:
    dumped = yaml.dump([text], default_style=style, allow_unicode=True, width=width)
    try:
        node = scalar(dumped)
    except AssertionError:
        return  # not every text can be written in every style
    check(node)


@given(texts, st.booleans())
def test_every_character_has_its_place_in_json(text: str, ascii: bool) -> None:
    check(scalar(json.dumps([text], ensure_ascii=ascii), "json"))


def check(node: ScalarNode) -> None:
    places = FormulaPlaces(node)
    behind = node.start
    for at, character in enumerate(str(node.value)):
        if character.isspace() or character == "\ufeff":
            continue
        place = places(FormulaSpan(at, at + 1))
        assert place is not node
        assert place.start >= behind
        behind = place.end
        assert place.raw == character or place.raw.startswith("\\") or place.raw == "''"
