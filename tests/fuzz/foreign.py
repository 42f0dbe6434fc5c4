"""A small trace in each format that others write."""

from __future__ import annotations

from typing import Any

from tests.exporters.support import exported_seeds
from tests.importers import (
    test_agents_sdk,
    test_codex,
    test_codex_exec,
    test_langfuse,
    test_langsmith,
    test_openinference,
    test_responses,
    test_vercel,
)
from tests.importers.support import export
from tests.importers.test_agentdojo import RUN as AGENTDOJO
from tests.importers.test_atif import RUN as ATIF
from tests.importers.test_claude_code import line, returned, use
from tests.importers.test_inspect import GIANT, HEADER, USER, asks, chunked, model, packed, sample, tool
from tests.importers.test_mcp import answer, ask, call
from tests.importers.test_openinference import LLM, TOOL, span
from tests.importers.test_otlp import ASKED, chat, text
from tests.importers.test_otlp import asks as otel_asks


def foreign_seeds() -> list[list[Any]]:
    return [
        [export(chat("a", 0, ASKED, otel_asks(order=7)), chat("b", 2, ASKED, text("assistant", "ok"), parent="a"))],
        [span("a", 0, LLM), span("b", 1, TOOL, "a")],
        [{"trace_id": "t", "spans": [{**span("a", 0, LLM), "child_spans": [span("b", 1, TOOL)]}]}],
        [
            line("user", "u1", None, "go"),
            line("assistant", "a1", "u1", [use("c1")], message={"id": "m1", "usage": {"input_tokens": 3}}),
            line("user", "r1", "a1", [returned("c1")]),
            line("assistant", "a2", "u1", "other way", isSidechain=True),
        ],
        [
            line("user", "u1", None, "go"),
            line("assistant", "a1", "u1", [use("c1", "Task", prompt="p")], message={"id": "m1"}),
            line("user", "r1", "a1", [returned("c1")], toolUseResult={"agentId": "x"}),
            line("assistant", "a2", "a1", [use("c2")], message={"id": "m1"}),
            line("user", "u2", "u1", "back", isSidechain=False),
            line("assistant", "a3", "u2", "other way"),
        ],
        [export(*test_vercel.STEPS, test_vercel.whole())],
        [{**HEADER, "samples": _samples()}],
        [ask(0, "initialize"), call(1, "a"), answer(1), call(2, "b", {"n": 1}), answer(2, isError=True)],
        test_responses.ITEMS,
        [test_responses.response("r1", *test_responses.ITEMS[1:3], input=[test_responses.USER])],
        test_agents_sdk.RUN,
        test_langsmith.RUNS,
        test_langfuse.RUN,
        [AGENTDOJO],
        test_codex.RUN,
        test_codex_exec.RUN,
        [ATIF],
        [test_openinference.span("a", 0, {"gen_ai.operation.name": "chat", "gen_ai.prompt.0.content": "x"})],
    ]


def archive_seed() -> bytes:
    return packed(*_samples())


def other_seeds() -> list[tuple[str, bytes]]:
    """Those that are no lines, with the ends of their names."""
    rows = [test_langfuse.blob(row) for row in test_langfuse.RUN]
    table = test_langfuse.table(*rows).encode()
    return [(".eval", archive_seed()), (".eval", chunked(GIANT)), (".csv", table), *exported_seeds()]


def _samples() -> list[dict[str, Any]]:
    events = (model(1, [USER], asks("c1")), tool(2, "c1", "x"), model(4, [USER], {"content": "done"}))
    pooled = {**events[0], "input": [], "input_refs": [[0, 1]]}
    return [sample(*events), sample(pooled, id=2, events_data={"messages": [USER], "calls": []})]
