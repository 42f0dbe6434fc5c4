"""docs/reference/trace-format.md says what is so: its files are read, its script runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec import Struct

from bylaw.traces import FORMATS, load_trace
from bylaw.traces.formats.bylaw import lines as wire

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/trace-format.md").read_text("utf-8")
BLOCK = re.compile(r'```(\w+)(?: title="([^"]+)")?\n(.*?)```', re.DOTALL)


def test_the_page_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = BLOCK.findall(PAGE)
    assert {language for language, _, _ in found} > {"python"}
    for language, title, text in found:
        if language == "python":
            exec(text, {})  # noqa: S102 - our own page
            continue
        Path(title).write_text(text, "utf-8")
        trace = load_trace(title)
        assert (trace.problems, trace.notes, trace.complete) == ((), (), True)
        assert trace.turns
        assert [call.name for turn in trace.turns for call in turn.tool_calls] == ["look_up"]


def test_every_format_that_others_write_has_a_row_on_the_page_of_formats() -> None:
    _, _, found = (ROOT / "docs/reference/formats.md").read_text("utf-8").partition("| format | detected by |")
    rows = found.partition("\n\n")[0].splitlines()[2:]
    named = [name for row in rows for name in re.findall("`([^`]+)`", row.split("|")[1])]
    assert sorted(named) == sorted(set(FORMATS) - {"bylaw", "agentlog", "events", "tau"}), "these are on the other page"


def test_every_format_and_key_is_on_the_page() -> None:
    assert all(f"| `{name}` |" in PAGE for name in FORMATS)
    lines: list[type[Struct]] = [wire.Header, wire.RequestLine, wire.ResponseLine, wire.ToolCallLine]
    lines += [wire.ToolResultLine, wire.MessageLine, wire.AnnotationLine, wire.SessionStartLine, wire.TraceEndLine]
    for line in lines:
        assert [key for key in line.__struct_encode_fields__ if f"`{key}`" not in PAGE] == []
