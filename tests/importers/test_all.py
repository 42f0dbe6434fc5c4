"""What holds for every format that others write."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.model.events import Response, ToolResult
from bylaw.traces import load_trace, open_trace
from bylaw.traces.export import write_trace
from bylaw.traces.formats.catalogue import CATALOGUE
from bylaw.traces.records import files as compression
from tests.fuzz.foreign import foreign_seeds, other_seeds
from tests.importers.support import lines
from tests.support.yaml_files import load_yaml

pytestmark = pytest.mark.sampled(2)

FOREIGN = [name for name, format in CATALOGUE.items() if format.has_claims]
CASES = sorted((Path(__file__).parents[1] / "cases/formats").glob("*.yaml"))
SEEDS = [lines(*records) for records in foreign_seeds()] + [data for _, data in other_seeds()]
SEEDS += [load_yaml(path.read_text("utf-8"))[0]["file"].encode() for path in CASES]
everyone = pytest.mark.parametrize("data", SEEDS, ids=range(len(SEEDS)))


def test_every_format_has_a_case_file() -> None:
    assert sorted(path.stem for path in CASES) == sorted(FOREIGN)
    assert {load_trace(data).format for data in SEEDS} == set(FOREIGN)


@everyone
def test_what_is_written_reads_the_same(data: bytes, tmp_path: Path) -> None:
    trace = load_trace(data)
    write_trace(trace, tmp_path / "t.jsonl")
    assert load_trace(tmp_path / "t.jsonl") == trace


@everyone
def test_reading_in_pieces_or_compressed_gives_the_same_events(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gzip

    trace = load_trace(data, format=None)
    path = tmp_path / "trace"
    path.write_bytes(data if data.startswith(b"PK") else gzip.compress(data))
    assert [_bare(event) for event in open_trace(path)] == [_bare(event) for event in trace.events]
    monkeypatch.setattr(compression, "CHUNK", 7)
    assert load_trace(data) == trace


def _bare(event: Any) -> Any:
    return event.kind, event.turn, event.origin, event.at


@everyone
def test_turns_are_numbered_and_results_know_their_calls(data: bytes) -> None:
    trace = load_trace(data)
    assert [event.turn for event in trace.events if isinstance(event, Response)] == list(range(len(trace.turns)))
    calls = {id(call) for turn in trace.turns for call in turn.tool_calls}
    results = [event for event in trace.events if isinstance(event, ToolResult)]
    assert all(result.call is None or id(result.call) in calls for result in results)


@everyone
def test_any_line_may_be_missing_or_broken(data: bytes) -> None:
    if not data.startswith((b"{", b"[")):
        pytest.skip("an archive has no lines, and a table has one that names the columns of all")
    each = data.splitlines(keepends=True)
    format = load_trace(data).format
    for index in range(len(each)):
        rest = b"".join(each[:index] + each[index + 1 :])
        load_trace(rest, format=format, skip_bad=True)
        broken = b"".join([*each[:index], each[index][: len(each[index]) // 2] + b"\n", *each[index + 1 :]])
        trace = load_trace(broken, format=format, skip_bad=True)
        assert (trace.skipped, len(trace.problems) >= 1) == (1, True)


@everyone
def test_a_forced_reader_of_another_format_is_never_silent(data: bytes) -> None:
    """Whatever a forced reader makes of a file of another format: it is never silence."""
    own = load_trace(data).format
    for format in FOREIGN:
        if format != own:
            try:
                trace = load_trace(data, format=format)
            except InputError as problem:
                assert problem.diagnostics
            else:
                assert trace.events


EVERY = [(path.stem, case) for path in CASES for case in load_yaml(path.read_text("utf-8"))]
PLAIN = [(name, case["file"].encode()) for name, case in EVERY if case["file"][0] in "{["]
WRONG: tuple[Any, ...] = (None, True, 7, -1.5, "", "x", [], [None], [[]], {}, {"type": 7}, {"role": "x"})
MOST_PLACES = 25
each_plain = pytest.mark.parametrize(
    ("format", "data"), PLAIN, ids=[f"{name}-{index}" for index, (name, _) in enumerate(PLAIN)]
)


@pytest.mark.parametrize(("format", "case"), EVERY, ids=[case["name"] for _, case in EVERY])
def test_each_case_is_detected_and_its_calls_are_distinguished(format: str, case: dict[str, Any]) -> None:
    trace = load_trace(case["file"].encode())
    assert trace.format == format
    calls = [call for turn in trace.turns for call in turn.tool_calls]
    assert len({(call.origin, call.call_id) for call in calls}) == len(calls)
    assert [event.kind for event in trace.events].count("tool_call") == len(calls)


@each_plain
def test_a_file_that_ends_early_is_never_whole(format: str, data: bytes) -> None:
    for part in (3, 6, 9):
        end = len(data) * part // 10
        while data[:end].endswith(b"}") or data[end : end + 1] == b"\n":  # a cut between lines leaves whole records
            end -= 1
        try:
            trace = load_trace(data[:end], format=format, skip_bad=True)
        except InputError:
            continue
        assert trace.skipped or not trace.complete


@each_plain
def test_wrong_types_are_reported_and_junk_changes_nothing(format: str, data: bytes) -> None:
    records = [json.loads(line) for line in data.splitlines() if line.strip()]
    places = [place for record in records for place in _places(record)]
    for number, (holder, key) in enumerate(places[:: max(1, len(places) // MOST_PLACES)]):
        right, holder[key] = holder[key], WRONG[number % len(WRONG)]
        with suppress(InputError):  # nothing of it can be read
            load_trace(lines(*records), format=format, skip_bad=True)
        holder[key] = right
    if isinstance(records[-1], dict):
        before = [_bare(event) for event in load_trace(lines(*records)).events]
        records[-1]["zzz"] = ["\u20ac" * (1 << 18), {"deep": [[[[None]]]]}]
        assert [_bare(event) for event in load_trace(lines(*records)).events] == before


def _places(value: Any, level: int = 0) -> list[tuple[Any, Any]]:
    if level > 7 or not isinstance(value, (dict, list)):
        return []
    keys = list(value) if isinstance(value, dict) else range(len(value))
    return [one for key in keys for one in ((value, key), *_places(value[key], level + 1))]


@pytest.mark.parametrize("odd", [[[]], {}, 5, None])
@pytest.mark.parametrize("key", ["type", "role", "kind"])
def test_names_of_another_type_are_refused_or_reported(key: str, odd: Any) -> None:
    """What is read has all texts; anything else is refused, with a reason."""
    message = {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}
    for value in (
        {**message, key: odd},
        {**message, "content": [{key: odd, "text": "hi"}]},
        {"messages": [{key: odd}]},
    ):
        try:
            trace = load_trace([value, message])
        except InputError as problem:
            assert problem.diagnostics
            continue
        texts = [event.text for event in trace.events if isinstance(event, Response)]
        assert trace.problems or texts == ["hi", "hi"]
