"""Lines: numbered, bounded, and exact about what is wrong with one."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from pathlib import Path

import pytest
import zstandard

from bylaw.errors import InputError
from bylaw.traces import load_trace, open_trace, read_trace
from bylaw.traces.records import lines as records_lines
from bylaw.traces.records.problems import Problems
from tests.unit.readers.shapes import lines, problems_of, request, response, write

MESSAGES = '{"role":"user","content":"hi"}\n{"role":"assistant","content":"hello"}\n'


def place(data: bytes, **options: object) -> tuple[str, int, int]:
    (problem, *_) = problems_of(data, format="openai", **options)
    assert problem.span is not None
    return problem.code, problem.span.line, problem.span.column


@pytest.mark.parametrize(
    ("line", "code", "column"),
    [
        ('{"role": "user", "content": "hi"', "bad-json", 33),
        ('{"role": "user",}', "bad-json", 16),
        ('{"role": tru}', "bad-json", 10),
        ('{"role": "user"} x', "bad-json", 18),
        ('{"role": "us', "bad-json", 10),
        ('{"role": "ü", "n": NaN}', "bad-json", 20),
        ('{"n": -Infinity}', "bad-json", 7),
        ('{"n": 1e400}', "bad-json", 7),
        ('{"n": "1e400", "m": 1e400}', "bad-json", 21),
        ('{"n": ' + "9" * 5000 + "}", "bad-json", 7),
        ('{"a": "\tb"}', "bad-json", 8),
        ("[" * 100_000, "too-deep", 994),
        ("oops", "bad-json", 1),
    ],
)
def test_a_broken_line_is_shown_at_its_character(line: str, code: str, column: int) -> None:
    found = place((MESSAGES + line + "\n" + MESSAGES).encode())
    assert found[:2] == (code, 3)
    assert found[2] == column or code == "too-deep"


def test_the_excerpt_is_cut_around_the_column() -> None:
    (problem,) = problems_of((MESSAGES + '{"a": "' + "x" * 1000 + '", "b": tru}\n').encode(), format="openai")
    assert problem.excerpt is not None
    assert len(problem.excerpt) <= 160
    assert problem.span is not None
    assert problem.excerpt[problem.span.column - problem.excerpt_column :] == "tru}"


def test_invalid_utf8_is_a_bad_line_even_where_nobody_looks() -> None:
    data = MESSAGES.encode() + b'{"role":"user","content":"\xc3\xa9\xff"}\n'
    assert place(data) == ("bad-utf8", 3, 28)
    hidden = b'{"kind":"chat_request","payload":{"messages":[{"x":"\xff"}]}}\n'
    (problem,) = problems_of(lines(request(), response("a")).encode() + hidden)
    assert (problem.code, str(problem.span)) == ("bad-utf8", "trace:3:53")


def test_blank_lines_bom_and_carriage_returns_are_tolerated() -> None:
    data = b"\xef\xbb\xbf" + MESSAGES.replace("\n", "\r\n\r\n  \n").encode()
    trace = load_trace(data)
    assert [e.source.line for e in trace.events if e.source] == [1, 4]


def test_the_last_line_needs_no_newline() -> None:
    assert len(load_trace(MESSAGES.rstrip().encode()).turns) == 1


def test_all_bad_lines_are_reported_at_once_up_to_twenty() -> None:
    assert len(problems_of((MESSAGES + "x\n" * 3 + MESSAGES + "y\n").encode())) == 4
    found = problems_of((MESSAGES + "x\n" * 50).encode())
    assert len(found) == 21
    assert (found[-1].code, found[-1].message, str(found[-1].span)) == (
        "more-problems",
        "30 more records are bad",
        "trace:23:1",
    )
    found = problems_of((MESSAGES + "x\n" * 5000).encode())
    assert (len(found), found[-1].message) == (21, "1,000 more records are bad, and reading stopped here")


def test_skip_bad_passes_over_and_counts() -> None:
    trace = load_trace((MESSAGES + "oops\n[1\n" + MESSAGES).encode(), skip_bad=True)
    assert (trace.skipped, len(trace.turns)) == (2, 2)
    assert [(p.code, p.span.line, p.is_error) for p in trace.problems if p.span] == [
        ("bad-json", 3, False),
        ("bad-json", 4, False),
    ]


def test_skipped_records_are_all_counted_but_not_all_listed() -> None:
    trace = load_trace((MESSAGES + "oops\n" * 1500).encode(), skip_bad=True)
    assert (trace.skipped, len(trace.problems)) == (1500, 1000)
    assert "500 more problems are not listed" in trace.notes


def test_a_line_that_is_too_long_is_never_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_lines, "MAX_RECORD", 1 << 20)
    head, long = MESSAGES.encode(), b'{"role":"user","content":"' + b"x" * (20 << 20) + b'"}\n'
    stream = read_trace(head + long + head, skip_bad=True)
    tracemalloc.start()
    events = list(stream)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
    assert stream.skipped == 1
    assert [(p.code, p.span.line) for p in stream.problems if p.span] == [("too-long", 3)]
    assert [e.source.line for e in events if e.kind == "response" and e.source] == [2, 5]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_lines_do_not_depend_on_how_the_file_is_read(size: int) -> None:
    data = b"\xef\xbb\xbf" + b"a\n\nbb\n" + b"c" * 20 + b"\nd"
    chunks = (data[i : i + size] for i in range(0, len(data), size))
    found = [pair for block in records_lines.line_blocks(chunks, Problems("f")) for pair in block]
    assert [(raw.strip(), place) for raw, place in found] == [
        (b"a", 1),
        (b"", 2),
        (b"bb", 3),
        (b"c" * 20, 4),
        (b"d", 5),
    ]


@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_a_long_line_is_counted_however_the_file_is_read(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_lines, "MAX_RECORD", 8)
    data = b"a\n" + b"b" * 30 + b"\nc\n" + b"d" * 40
    problems = Problems("f", skip_bad=True)
    chunks = (data[i : i + size] for i in range(0, len(data), size))
    found = [(raw.strip(), place) for block in records_lines.line_blocks(chunks, problems) for raw, place in block]
    if size < 8:
        assert found == [(b"a", 1), (b"c", 3)]
        assert [p.span.line for p in problems.listed if p.span] == [2, 4]
    else:  # what came in one piece is held already
        assert [place for _, place in found] == [1, 2, 3]


def test_half_a_surrogate_pair_is_read_with_a_warning() -> None:
    trace = load_trace(b'{"role":"user","content":"hi"}\n{"role":"assistant","content":"a\\ud83d b"}\n')
    assert trace.turns[0].response.text == "a\ufffd b"
    (problem,) = trace.problems
    assert (problem.code, problem.is_error, str(problem.span)) == ("lone-surrogate", False, "trace:2:33")


# Compression, standard input, files that cannot be read


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz", "t.jsonl.zst", "misnamed.json"])
def test_compressed_files_are_recognized_by_their_content(tmp_path: Path, name: str) -> None:
    packed = {"z": gzip.compress, "t": zstandard.ZstdCompressor().compress, "n": gzip.compress}.get(name[-1], bytes)
    stream = open_trace(write(tmp_path, packed(MESSAGES.encode() * 2000), name))
    assert sum(event.kind == "response" for event in stream) == 2000
    assert stream.position == stream.size == (tmp_path / name).stat().st_size


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_compressed_files_of_several_parts(pack: object) -> None:
    data = pack(MESSAGES.encode()) + pack(MESSAGES.encode())  # type: ignore[operator]
    assert len(load_trace(data).turns) == 2


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_compressed_data_that_breaks_off(pack: object) -> None:
    whole = "".join(f'{{"role":"assistant","content":"{n * 7919}"}}\n' for n in range(8_000))
    data = pack(whole.encode())[:-20]  # type: ignore[operator]
    (problem,) = problems_of(data)
    assert (problem.code, problem.message.endswith("ends too early")) == ("bad-compression", True)
    trace = load_trace(data, skip_bad=True)
    assert (trace.complete, trace.skipped) == (False, 1)
    assert len(trace.turns) > 6_000


def test_compressed_data_that_is_damaged() -> None:
    data = bytearray(gzip.compress(MESSAGES.encode() * 3000))
    data[-5] ^= 0xFF  # the checksum
    trace = load_trace(bytes(data), skip_bad=True)
    assert [(problem.code, problem.message) for problem in trace.problems] == [
        ("bad-compression", "the gzip data is damaged")
    ]
    assert not trace.complete


def test_standard_input_is_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(gzip.compress(lines(request(), response("a"), request(MORE_), response("b")).encode()))

    monkeypatch.setattr("sys.stdin", Stdin)
    stream = open_trace("-")
    assert (stream.name, stream.format, stream.size) == ("-", "agentlog", len(Stdin.buffer.getvalue()))
    assert sum(event.kind == "response" for event in stream) == 2


MORE_ = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]


@pytest.mark.parametrize("data", [b"", b"\n \n\r\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_an_empty_file_is_a_trace_without_events(data: bytes, tmp_path: Path) -> None:
    for name in ("t.json", "t.agentlog", "t.jsonl.gz"):
        trace = load_trace(write(tmp_path, data, name))
        assert (trace.events, trace.complete, trace.problems) == ((), True, ())


def test_files_that_are_not_there_or_not_readable(tmp_path: Path) -> None:
    with pytest.raises(InputError) as missing:
        open_trace(tmp_path / "nothing.jsonl")
    assert missing.value.diagnostics[0].code == "no-such-file"
    with pytest.raises(InputError) as folder:
        open_trace(tmp_path)
    assert folder.value.diagnostics[0].code == "unreadable-file"


def test_a_binary_file_object_is_read() -> None:
    assert len(load_trace(io.BytesIO(MESSAGES.encode())).turns) == 1


def test_a_pipe_is_spooled(tmp_path: Path) -> None:
    import os
    import threading

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(MESSAGES.encode()))
    writer.start()
    assert len(load_trace(pipe).turns) == 1
    writer.join()


@pytest.mark.parametrize("zeros", [1, 512, 200_000])
def test_a_gzip_file_padded_with_zeros_ends(zeros: int, tmp_path: Path) -> None:
    path = tmp_path / "padded.jsonl.gz"
    path.write_bytes(gzip.compress(MESSAGES.encode()))
    before = load_trace(path)
    path.write_bytes(gzip.compress(MESSAGES.encode()) + bytes(zeros))
    padded = load_trace(path)
    assert padded.events == before.events and padded.turns == before.turns and before.turns
