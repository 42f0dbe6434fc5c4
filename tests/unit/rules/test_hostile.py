"""Whatever the bytes: a diagnostic, soon, and nothing worse. `tests/fuzz` feeds many more."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylaw.errors import InputError
from bylaw.lint.report import read_files
from bylaw.rules import load_rules, parse_rules

pytestmark = pytest.mark.sampled(3)

MIB = 1024**2
LARGE = 128 * 1024
SECONDS = 20
"""generous: what is caught here takes minutes or never ends"""


def _schema_with_references() -> str:
    parts = [f"d{n}: {{allOf: [{{$ref: '#/$defs/d{n + 1}'}}, {{$ref: '#/$defs/d{n + 1}'}}]}}" for n in range(1000)]
    schema = f"{{$ref: '#/$defs/d0', $defs: {{{', '.join(parts)}, d1000: {{}}}}}}"
    return f"- {{id: a, kind: must_match_json_schema, params: {{schema: {schema}}}}}"


BOMBS: dict[str, Callable[[], str]] = {
    "aliases": lambda: "\n".join(
        [f"a{0}: &a0 [x,x,x,x,x,x,x,x,x]", *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40))]
    ),
    "alias depth": lambda: "\n".join(["- &a0 x", *(f"- &a{n} [*a{n - 1}]" for n in range(1, 200))]),
    "brackets": lambda: "[" * LARGE,
    "dashes": lambda: "- " * LARGE,
    "flow mappings": lambda: "{a: " * LARGE,
    "complex keys": lambda: "? " * LARGE,
    "commas": lambda: "[" + "a," * 75_000,
    "tag directives": lambda: "".join(f"%TAG !a{n}! b\n" for n in range(100_000)),
    "documents": lambda: "---\n" * LARGE,
    "blank lines": lambda: "\n" * (2 * LARGE),
    "one long key": lambda: "a" * (8 * MIB - 4) + ": x",
    "one long text": lambda: f"- id: {'a' * (7 * MIB)}\n  kind: no_call\n  params: {{tool: x}}\n",
    "long unknown keys": lambda: "- {" + ", ".join(f"{'k' * 2000}{n}: 1" for n in range(2000)) + "}",
    "many duplicate keys": lambda: "- {" + "a: 1, " * 20_000 + "}",
    "many unknown keys": lambda: "- {" + ", ".join(f"k{n}: 1" for n in range(8_000)) + "}",
    "many unknown kinds": lambda: "\n".join(f"- {{id: a{n}, kind: nocal{n}, params: {{}}}}" for n in range(3_000)),
    "many unknown paths": lambda: (
        "- {id: a, kind: no_call, params: {tool: x}, when: ["
        + ", ".join(f"{{path: reqest.p{n}, op: in, value: [x]}}" for n in range(3_000))
        + "]}"
    ),
    "digits": lambda: f"- {'9' * LARGE}",
    "dots": lambda: f"- {{id: a, kind: must_remain_consistent, params: {{path: request{'.' * LARGE}}}}}",
    "backslashes": lambda: (
        rf"- {{id: a, kind: must_remain_consistent, params: {{path: 'request.params.{chr(92) * LARGE}'}}}}"
    ),
    "pattern": lambda: f"- {{id: a, kind: forbidden_text, params: {{regex: true, text: '{'(a{1000}' * 1000}'}}}}",
    "large pattern": lambda: f"- {{id: a, kind: forbidden_text, params: {{regex: true, text: '{'a' * (4 * LARGE)}'}}}}",
    "open groups": lambda: f"- {{id: a, kind: forbidden_text, params: {{regex: true, text: '{'(' * LARGE}'}}}}",
    "schema references": _schema_with_references,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_yaml_bomb_is_refused_quickly(name: str) -> None:
    text = BOMBS[name]()
    started = time.process_time()
    ruleset = parse_rules(text)
    assert time.process_time() - started < SECONDS
    assert len(ruleset.diagnostics) <= 1001
    assert all(len(d.message) < 500 and len(d.excerpt or "") <= 400 for d in ruleset.diagnostics)


@pytest.mark.parametrize("text", ["[" * LARGE, '{"a":' * LARGE, "[" + "1," * LARGE, '"' + "a" * LARGE, "9" * LARGE])
def test_a_json_bomb_is_refused_quickly(text: str) -> None:
    started = time.process_time()
    assert not parse_rules(text, format="json").ok
    assert time.process_time() - started < SECONDS


SEED = Path(__file__).parents[2] / "mistakes"
TEXTS = [path.read_text("utf-8") for path in sorted(SEED.glob("*.yaml"))]
edits = st.lists(
    st.tuples(
        st.integers(0, 400), st.integers(0, 20), st.binary(max_size=4) | st.sampled_from([b"*", b"&a", b"\t", b"- "])
    ),
    max_size=6,
)


@given(st.sampled_from(TEXTS), edits, st.sampled_from([".yaml", ".json"]))
def test_mutated_files_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: str, changes: list[tuple[int, int, bytes]], suffix: str
) -> None:
    data = text.encode()
    for at, cut, put in changes:
        data = data[:at] + put + data[at + cut :]
    path = tmp_path_factory.getbasetemp() / f"mutated{suffix}"
    path.write_bytes(data)
    found = read_files([path]).diagnostics
    try:
        load_rules(path)
    except InputError as problem:
        assert tuple(problem.diagnostics) == found
    else:
        assert not any(diagnostic.severity == "error" for diagnostic in found)
    for diagnostic in found:
        assert diagnostic.span is None or diagnostic.excerpt is not None


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.yaml"
    path.write_bytes(data)
    read_files([path])


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    parse_rules(text)
    parse_rules(text, format="json")
