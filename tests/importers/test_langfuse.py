"""Langfuse's observations, from the API and from the blob export."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from bylaw.errors import InputError
from bylaw.traces import find_traces, load_trace
from tests.importers.support import read, requests, responses, results, story

USER = {"role": "user", "content": "refund order 7"}
ASKS = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"order": 7}'}}],
}


def seen(id: str, kind: str, second: int, input: Any, output: Any, **rest: Any) -> dict[str, Any]:
    return {
        "id": id,
        "traceId": "t1",
        "type": kind,
        "name": rest.pop("name", id),
        "startTime": f"2026-01-01T00:00:{second:02}.000Z",
        "endTime": f"2026-01-01T00:00:{second + 1:02}.000Z",
        "parentObservationId": "a",
        "level": "DEFAULT",
        "input": input,
        "output": output,
        **rest,
    }


RUN = [
    seen("g2", "GENERATION", 6, [USER, ASKS, {"role": "tool", "tool_call_id": "c1", "content": "done"}], "Done."),
    seen("f", "TOOL", 4, {"order": 7}, "done", name="refund"),
    seen(
        "g1",
        "GENERATION",
        2,
        {"messages": [USER], "tools": [{"type": "function"}]},
        ASKS,
        model="m",
        usageDetails={"input": 6, "input_cached_tokens": 3, "output": 4, "total": 13},
        sessionId="chat 9",
    ),
    seen("a", "AGENT", 0, None, None, parentObservationId=None, name="support"),
]
STORY = [
    "0 request user",
    "0 response",
    '0 tool_call refund {"order": 7}',
    '0 tool_result refund "done"',
    "1 request user assistant tool",
    "1 response Done.",
]
NAMES = {"traceId": "trace_id", "startTime": "start_time", "endTime": "end_time", "usageDetails": "usage_details"}
NAMES |= {"parentObservationId": "parent_observation_id", "sessionId": "session_id"}


def blob(row: dict[str, Any]) -> dict[str, Any]:
    """As the blob export writes it: other names, texts for objects, times without a zone."""
    found = {NAMES.get(key, key): value for key, value in row.items()}
    for key in ("start_time", "end_time"):
        found[key] = found[key].replace("T", " ").removesuffix("Z")
    return {key: json.dumps(value) if isinstance(value, (dict, list)) else value for key, value in found.items()}


@pytest.mark.parametrize("shape", ["lines", "page", "trace", "blob"])
def test_api_and_blob(shape: str) -> None:
    if shape == "page":
        trace = read({"data": RUN, "meta": {"page": 1}})
    elif shape == "trace":
        bare = [{key: value for key, value in row.items() if key != "sessionId"} for row in RUN]
        trace = read({"id": "t1", "sessionId": "chat 9", "observations": bare})
    else:
        trace = read(*(RUN if shape == "lines" else map(blob, RUN)))
    assert (trace.format, trace.sessions, story(trace)) == ("langfuse", ("chat 9",), STORY)
    first = responses(trace)[0]
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.cached_input_tokens, first.usage.output_tokens) == (9, 3, 4)
    assert (first.model, first.latency_ms, first.origin.agent, first.origin.run) == ("m", 1000, "support", "a")
    assert len(requests(trace)[0].tools or ()) == 1
    assert [(result.call_id, result.latency_ms) for result in results(trace)] == [("c1", 1000)]


def test_counts_that_are_inside_stay_inside() -> None:
    usage = {"input": 9, "input_cached_tokens": 3, "output": 4, "total": 13}
    (response,) = responses(read(seen("g", "GENERATION", 1, "x", "y", usageDetails=usage)))
    assert response.usage is not None
    assert response.usage.input_tokens == 9


def test_errors_and_guardrails() -> None:
    trace = read(
        seen("g", "generation", 1, [USER], ASKS),
        seen("f", "tool", 3, {"order": 7}, None, name="refund", level="ERROR", statusMessage="no such order"),
        seen("q", "guardrail", 5, "x", "blocked"),
    )
    assert story(trace)[2:] == [
        '0 tool_call refund {"order": 7}',
        '0 tool_result refund "no such order" failed',
        "None annotation guardrail",
    ]


def test_what_is_broken_is_reported() -> None:
    trace = read(*RUN, {"data": [7]}, {"nothing": 1}, 5, skip_bad=True)
    assert (trace.skipped, len(trace.turns)) == (3, 2)


# Tables of the blob export


def table(*rows: dict[str, Any]) -> str:
    names = list(dict.fromkeys(key for row in rows for key in row))
    held = io.StringIO()
    writer = csv.writer(held)
    writer.writerow(names)
    writer.writerows([["" if row.get(name) is None else row[name] for name in names] for row in rows])
    return held.getvalue()


def trace_row(id: str, session: str | None) -> dict[str, Any]:
    rest = {"name": "n", "user_id": None, "release": None, "tags": "[]", "metadata": "{}"}
    return {"id": id, "timestamp": "2026-01-01 00:00:00.000", "session_id": session, **rest}


def score_row(id: str, trace: str) -> dict[str, Any]:
    rest = {"observation_id": None, "name": "helpful", "value": 0.5, "data_type": "NUMERIC"}
    return {"id": id, "trace_id": trace, "timestamp": "2026-01-01 00:00:09.000", **rest}


BARE = [{key: value for key, value in blob(row).items() if key != "session_id"} for row in RUN]


def jsonl(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def test_a_table_reads_like_lines() -> None:
    rows = [blob(row) for row in RUN]
    rows[1]["output"] = 'a "b",\nc\r\nd'
    from_lines, from_table = load_trace(jsonl(*rows).encode()), load_trace(table(*rows).encode())
    assert (from_table.format, story(from_table)) == ("langfuse", story(from_lines))
    assert results(from_table)[0].content == 'a "b",\nc\r\nd'
    assert responses(from_table)[0].usage == responses(from_lines)[0].usage
    assert [event.origin for event in from_table.events] == [event.origin for event in from_lines.events]
    assert load_trace(b"\xef\xbb\xbf" + table(*rows).encode()).events == from_table.events


def test_broken_rows_are_all_reported() -> None:
    good = table(*map(blob, RUN))
    lines = good.splitlines(keepends=True)
    bad = [*lines, "1,2,3\r\n", '"c"d,x\r\n', *lines[1:2], '"never closed\r\nx\r\n']
    data = "".join(bad).encode() + b"\xff,1\n"
    with pytest.raises(InputError) as error:
        load_trace(data)
    found = [(p.code, p.span and p.span.line) for p in error.value.diagnostics]
    assert found == [("bad-csv", len(lines) + 1), ("bad-csv", len(lines) + 2), ("bad-csv", len(lines) + 4)]
    trace = load_trace(data, skip_bad=True)
    assert (trace.skipped, len(trace.turns)) == (3, 2)
    bad_byte = load_trace(good.encode() + b'\xff,1\n"x', skip_bad=True)
    assert [p.code for p in bad_byte.problems] == ["bad-utf8", "bad-csv"]


def test_a_row_that_is_too_long_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bylaw.traces.records.lines.MAX_RECORD", 1000)
    trace = load_trace((table(*map(blob, RUN)) + '"' + "x\n" * 3000).encode(), skip_bad=True)
    assert "too-long" in [p.code for p in trace.problems]


def test_long_fields_are_read() -> None:
    rows = [{**blob(RUN[0]), "output": "x" * 300_000}]
    assert len(responses(load_trace(table(*rows).encode()))[0].text or "") == 300_000


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
@pytest.mark.parametrize("flat", [False, True])
def test_traces_and_scores_stand_beside_observations(tmp_path: Path, kind: str, flat: bool) -> None:
    form = table if kind == "csv" else jsonl

    def put(name: str, *rows: dict[str, Any], window: str = "w1") -> str:
        path = tmp_path / f"{name}.{kind}" if flat else tmp_path / name / f"{window}.{kind}"
        return str(write(path, form(*rows)))

    observations = put("observations", *BARE)
    put("traces", trace_row("t1", "chat 9"), trace_row("t2", "other"))
    put("scores", score_row("s1", "t1"), score_row("s2", "t2"))
    assert find_traces([str(tmp_path)]) == [observations]
    trace = load_trace(observations)
    assert (trace.sessions, trace.notes, trace.problems) == (("chat 9",), (), ())
    assert story(trace) == [*STORY, "None annotation score"]


def test_a_trace_may_stand_in_a_file_of_another_time(tmp_path: Path) -> None:
    path = write(tmp_path / "observations" / "w2.jsonl", jsonl(*BARE))
    write(tmp_path / "traces" / "w2.jsonl", jsonl(trace_row("t2", "other")))
    write(tmp_path / "traces" / "w1.jsonl", jsonl(trace_row("t1", "chat 9")))
    assert load_trace(path).sessions == ("chat 9",)


def test_files_beside_are_read_only_where_they_are_files(tmp_path: Path) -> None:
    away = write(tmp_path / "away.jsonl", jsonl(trace_row("t1", "secret")))
    path = write(tmp_path / "x" / "observations" / "w1.jsonl", jsonl(*BARE))
    (tmp_path / "x" / "traces").mkdir()
    (tmp_path / "x" / "traces" / "w1.jsonl").symlink_to(away)
    assert load_trace(path).sessions == ("t1",)


def test_problems_of_files_beside_name_them(tmp_path: Path) -> None:
    path = write(tmp_path / "observations" / "w1.jsonl", jsonl(*BARE))
    write(tmp_path / "traces" / "w1.jsonl", jsonl(trace_row("t1", "chat 9")) + "{broken\n7\n")
    with pytest.raises(InputError) as error:
        load_trace(path)
    assert {(Path(p.file or "").parent.name, p.span and p.span.line) for p in error.value.diagnostics} == {
        ("traces", 2),
        ("traces", 3),
    }


@pytest.mark.parametrize("name", ["traces", "scores"])
def test_a_file_beside_may_be_cut_off(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "observations" / "w1.jsonl", jsonl(*BARE))
    rows = {
        "traces": [trace_row("t2", "x"), trace_row("t1", "y")],
        "scores": [score_row("a", "t2"), score_row("b", "t1")],
    }
    write(tmp_path / name / "w1.jsonl", jsonl(*rows[name])[:-20])
    trace = load_trace(path)
    assert (trace.complete, trace.notes) == (False, ("the last record of a sidecar file is cut off and was left out",))


def test_rows_that_hold_everything_need_no_other_file(tmp_path: Path) -> None:
    whole = write(tmp_path / "observations_v2" / "w1.csv", table(*map(blob, RUN)))
    write(tmp_path / "observations" / "w1.csv", table(*BARE))
    write(tmp_path / "traces" / "w1.csv", table(trace_row("t1", "x")))
    write(tmp_path / "prices.csv", "a,b,c\n1,2,3\n")
    assert find_traces([str(tmp_path)]) == [str(whole)]
    assert load_trace(whole).sessions == ("chat 9",)


def test_tables_are_distinguished_by_their_content(tmp_path: Path) -> None:
    observations = write(tmp_path / "observations.jsonl", jsonl(*BARE))
    traces = write(tmp_path / "traces.jsonl", jsonl(trace_row("t1", "x")))
    named = [str(traces), str(observations)]
    assert find_traces(named) == named  # the user says so
    assert find_traces([str(tmp_path), str(traces)]) == [str(observations), str(traces)]
    assert find_traces([str(tmp_path / "t*"), str(tmp_path / "o*")]) == [str(observations)]
    write(traces, jsonl({"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}))
    assert find_traces([str(tmp_path)]) == [str(observations), str(traces)]


def test_traces_that_hold_their_observations_are_read_beside_others(tmp_path: Path) -> None:
    observations = write(tmp_path / "observations.jsonl", jsonl(*BARE))
    traces = write(tmp_path / "traces.jsonl", jsonl({**trace_row("t2", "y"), "observations": BARE}))
    assert find_traces([str(tmp_path)]) == [str(observations), str(traces)]
    write(traces, jsonl({**trace_row("t2", "y"), "observations": ["only", "ids"]}))
    assert find_traces([str(tmp_path)]) == [str(observations)]


def test_traces_alone_say_that_they_are() -> None:
    trace = read(trace_row("t1", "chat 9"))
    assert (trace.format, trace.events) == ("langfuse", ())
    assert trace.notes == ("these are traces without their observations",)


def test_a_list_of_traces_has_the_ids_of_their_observations_alone() -> None:
    listed = [{**trace_row(name, "chat 9"), "observations": ["o1", "o2"]} for name in ("t1", "t2")]
    for trace in (read(*listed), read({"data": listed, "meta": {"page": 1}})):
        assert (trace.format, trace.events) == ("langfuse", ())
        assert trace.notes == ("these are traces without their observations",)


def test_latency_in_seconds_and_totals_alone() -> None:
    row = seen("g", "generation", 1, [USER], "x", usageDetails={"total": 12}, costDetails={"total": 0.5}, latency="1.5")
    (response,) = responses(read({**row, "endTime": None}))
    assert response.latency_ms == 1500
    assert response.usage is not None
    assert (response.usage.total, response.usage.is_whole, response.usage.input_tokens) == (12, True, None)
    assert (response.usage.recorded or {})["cost_details"] == {"total": 0.5}
