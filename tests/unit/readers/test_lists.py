"""JSON lists, whole and in pieces, and single values: the same elements, the same places."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from bylaw.model.diagnostic import Diagnostic
from bylaw.traces import load_trace, read_trace
from bylaw.traces.assembly import conversation
from bylaw.traces.records import lines
from bylaw.traces.records import problems as problems_module
from bylaw.traces.records.lines import Elements, scan
from bylaw.traces.records.problems import Place, Problems, problem_at
from tests.unit.readers.shapes import problems_of

ODD: list[Any] = [
    {"a": 'quo"te\\', "b": ["]", "}", "{,["], "c": {}},
    "text, with ] and \\",
    1,
    -2.5e10,
    None,
    [],
    [[[]]],
    {"é": "ü\u2028", "nested": {"x": [1, {"y": "[{"}]}},
    "",
]


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[i : i + size] for i in range(0, len(data), size))


@pytest.mark.parametrize("indent", [None, 0, 1, 4])
@pytest.mark.parametrize("size", [1, 2, 3, 17, 1 << 16])
def test_whole_and_in_pieces_are_the_same(indent: int | None, size: int) -> None:
    data = b"\xef\xbb\xbf \n" + json.dumps(ODD, indent=indent, ensure_ascii=False).encode() + b"\n"
    problems = Problems("f")
    whole = list(Elements(iter([data]), problems))
    in_pieces = list(scan(pieces(data.removeprefix(b"\xef\xbb\xbf"), size), problems))
    assert whole == in_pieces
    assert [json.loads(raw) for _, raw in whole] == ODD
    text = data.decode().removeprefix("\ufeff").split("\n")
    for place, raw in whole:
        assert text[place.line - 1][place.column - 1 :].startswith(raw.decode().split("\n")[0])
    assert [place.item for place, _ in whole] == [f"[{i}]" for i in range(len(ODD))]


@pytest.mark.parametrize("data", ["[]", " [ ] \n", "[\n]"])
def test_an_empty_list(data: str) -> None:
    problems = Problems("f")
    assert list(Elements(iter([data.encode()]), problems)) == list(scan(iter([data.encode()]), problems)) == []


@pytest.mark.parametrize(
    ("data", "message", "line", "column"),
    [
        ("[1, 2", "the list ends before it is closed", 1, 6),
        ('[1,\n {"a": "b', "the list ends before it is closed", 2, 10),
        ("[1, 2] 3", "the JSON ends before this", 1, 8),
        ("[1, 2]\n\n[3]", "the JSON ends before this", 3, 1),
        ("[1,, 2]", "unexpected `,`", 1, 4),
        ("[1, 2,]", "unexpected `]`", 1, 7),
        ("[1, 2}", "unexpected `}`", 1, 6),
    ],
)
def test_a_broken_list_is_shown_where_it_breaks(data: str, message: str, line: int, column: int) -> None:
    problems = Problems("f", skip_bad=True)
    found = [raw for _, raw in Elements(iter([data.encode()]), problems)]
    assert found[:1] == [b"1"]
    (problem,) = problems.listed
    assert (problem.code, problem.message) == ("bad-json", message)
    assert problem.span is not None
    assert (problem.span.line, problem.span.column) == (line, column)


def test_an_element_that_is_broken_inside_is_one_bad_record() -> None:
    rows = [
        '{"role": "user", "content": "a"}',
        '{"role": "user" "content": "b"}',
        '{"role": "assistant", "content": "c"}',
    ]
    data = "[\n " + ",\n ".join(rows) + "\n]"
    (problem,) = problems_of(data.encode())
    assert (problem.code, str(problem.span)) == ("bad-json", "trace:3:18")
    trace = load_trace(data.encode(), skip_bad=True)
    assert (trace.skipped, len(trace.turns)) == (1, 1)


def test_an_element_on_a_line_with_others_is_shown_at_its_own_column() -> None:
    text = '[{"role": "user", "content": "é"}, {"role": "usr", "content": "b"}]'
    (problem,) = problems_of(text.encode())
    assert (problem.code, str(problem.span)) == ("unknown-kind", f"trace:1:{1 + text.index('usr') - 1}")
    assert problem.help == "did you mean `user`?"


def test_a_list_cut_short_keeps_what_is_whole() -> None:
    whole = json.dumps([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 3)
    trace = load_trace(whole[:-30].encode(), skip_bad=True)
    assert (trace.skipped, len(trace.turns), trace.complete) == (0, 2, False)


def test_a_large_list_streams_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "WHOLE", 1 << 16)
    monkeypatch.setattr(conversation, "MOST_MESSAGES", 10)
    pair = [{"role": "user", "content": "x" * 5_000}, {"role": "assistant", "content": "y" * 5_000}]
    data = json.dumps(pair * 400).encode()
    stream = read_trace(data)
    tracemalloc.start()
    turns = 0
    for event in stream:
        if event.kind == "request":
            held = event.messages  # type: ignore[attr-defined]
            assert len(held) == min(10, 2 * turns + 1)
            assert held[-1]["content"][0] == "x"
        turns += event.kind == "response"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert turns == 400
    assert peak < 3 << 20
    assert list(stream.notes) == ["requests show only the 10 messages before them"]


def test_a_small_list_shows_all_of_its_messages() -> None:
    pair = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    trace = load_trace(json.dumps(pair * 11_000).encode())
    last = trace.turns[-1].request
    assert last is not None
    assert last.messages is not None
    assert len(last.messages) == 21_999
    assert trace.notes == ()


def test_a_giant_element_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "WHOLE", 1 << 10)
    monkeypatch.setattr(lines, "MAX_RECORD", 1 << 16)
    data = b'[{"role":"user","content":"a"},\n {"role":"user","content":"' + b"x" * (1 << 20) + b'"}]'
    (problem,) = problems_of(data)
    assert (problem.code, problem.span and problem.span.line) == ("too-long", 2)


def test_one_value_spread_over_lines() -> None:
    conversation = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    trace = load_trace(json.dumps(conversation, indent=2).encode())
    assert trace.turns[0].response.source is not None
    assert str(trace.turns[0].response.source) == "trace:1:messages[1]"


def test_one_broken_value_is_reported_once() -> None:
    text = json.dumps({"messages": [{"role": "user", "content": "a"}]}, indent=2).replace('"a"', '"a" "b"')
    (problem,) = problems_of(text.encode(), format="openai")
    assert (problem.code, problem.span and problem.span.line) == ("bad-json", 5)


def test_a_giant_value_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from bylaw.traces.records import layout

    monkeypatch.setattr(layout, "MAX_RECORD", 1 << 12)
    (problem,) = problems_of(json.dumps({"messages": ["x" * 9999]}, indent=1).encode(), format="openai")
    assert problem.code == "too-long"


def test_lists_one_a_line_are_conversations() -> None:
    one = json.dumps([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    assert load_trace(f"{one}\n{one}\n".encode()).sessions == ("1", "2")
    assert load_trace(f"{one}\n".encode()).sessions == ("1",)


def test_random_lists_survive_any_division() -> None:
    rng = random.Random(1)

    def value(depth: int) -> Any:
        kind = rng.randrange(4 if depth else 2)
        if kind == 0:
            return "".join(rng.choice('a"\\[]{},:\n é') for _ in range(rng.randrange(8)))
        if kind == 1:
            return rng.choice([1, None, True, -1.5])
        items = [value(depth - 1) for _ in range(rng.randrange(4))]
        return items if kind == 2 else {str(item): item for item in items}

    for _ in range(200):
        values = [value(3) for _ in range(rng.randrange(6))]
        data = json.dumps(values, indent=rng.choice([None, 1]), ensure_ascii=False).encode()
        problems = Problems("f")
        found = list(scan(pieces(data, rng.randrange(1, 30)), problems))
        assert found == list(Elements(iter([data]), problems))
        assert [json.loads(raw) for _, raw in found] == values


def test_places_count_characters() -> None:
    found = [problem_at("f", Place(3, 5), "ab\ncd", offset, code="c", message="m").span for offset in (1, 4)]
    assert [str(span) for span in found] == ["f:3:6", "f:4:2"]
    assert lines.MAX_RECORD == 64 << 20


@pytest.mark.parametrize("indent", [None, 2])
def test_many_problems_of_a_long_record_have_their_own_places(indent: int | None) -> None:
    rng = random.Random(7)
    value = {"é": ODD, "rows": [{"id": at, "deep": [[at], {"x": "\n" * 3}]} for at in range(400)], "end": []}
    raw = json.dumps(value, indent=indent, ensure_ascii=False).replace("}", "}\r\n" if indent else "}").encode()
    paths: list[tuple[str | int, ...]] = [(), ("rows",), ("end", 0), ("no", 1), ("é", 7, "nested", "x", 1, "y")]
    paths += [("rows", at, *rest) for at in range(0, 500, 9) for rest in ((), ("id",), ("deep", 1, "x"), ("deep", 5))]
    orders = paths, paths[::-1], rng.sample(paths, len(paths))
    alone = {str(path): reported(raw, [path])[str(path)] for path in paths}
    for order in orders:
        assert reported(raw, order) == alone
    assert (len({one.span.line for one in alone.values() if one.span}) == 1) is (indent is None)


def test_problems_of_one_record_do_not_search_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    step = problems_module._next

    def count(text: str, at: int) -> int:
        nonlocal steps
        steps += 1
        return step(text, at)

    monkeypatch.setattr(problems_module, "_next", count)
    raw = json.dumps({"rows": [{"id": at, "text": "x" * 30} for at in range(900)]}).encode()
    assert len(reported(raw, [("rows", at, "id") for at in range(900)])) == 900
    assert 900 < steps < 4 * 900  # a search from the start for each would take 400,000


def reported(raw: bytes, paths: Sequence[tuple[str | int, ...]]) -> dict[str, Diagnostic]:
    problems = Problems("f")
    for path in paths:
        problems.warn(Place(3, 5), raw, path, "odd", str(path))
    return {one.message: one for one in problems.listed}


def test_problems_beyond_those_that_are_listed_are_counted() -> None:
    problems = Problems("f", skip_bad=True)
    for at in range(1500):
        problems.report(1, b"[1]", (at % 2,), code="odd", message="odd", severity="warning" if at % 3 else "error")
    assert (len(problems.listed), problems.unlisted, problems.skipped) == (1000, 500, 500)
