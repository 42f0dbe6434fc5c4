"""What holds for every format that others write."""

from __future__ import annotations

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
