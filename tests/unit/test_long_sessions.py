"""Whatever is done with a session takes a time that grows with its length."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.model.events import Request
from bylaw.traces.comparison import recording
from tests.support.timing import cpu_seconds

RULES = """
rules:
  - {id: a, kind: no_call, params: {tool: email}}
  - {id: b, kind: must_call_before, params: {first: verify, then: refund}}
  - {id: c, kind: max_calls, params: {tool: refund, n: 3}}
  - {id: e, kind: forbidden_text, params: {text: sorry}}
  - {id: f, kind: forbidden_args, params: {tool: refund, args: {amount: {">": 100}}}}
  - {id: g, kind: temporal, params: {before: refund, require: verify, same: order}}
  - {id: h, kind: temporal, params: {formula: 'G (tool(refund) -> F[<=3t] tool(email))'}}
  - {id: i, kind: temporal, params: {formula: 'G (tool(refund) -> seen(verify))'}}
  - {id: j, kind: temporal, scope: session, params: {formula: 'G (tool(refund) -> O user("please"))'}}
"""
PROMPT = "Always call verify before refund. Never call email."
TOOLS = ("refund", "verify", "email")


def write_session(path: Path, turns: int) -> None:
    messages: list[dict[str, Any]] = [{"role": "system", "content": PROMPT}]
    for n in range(turns):
        given = json.dumps({"order": n, "amount": n % 500})
        function = {"name": TOOLS[n % 3], "arguments": given}
        call = {"id": f"c{n}", "type": "function", "function": function}
        messages += [
            {"role": "user", "content": f"refund order {n} please"},
            {"role": "assistant", "content": f"refunding {n}, sorry", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": json.dumps({"ok": True, "order": n})},
        ]
    path.write_text(json.dumps({"messages": messages}))


def read_all(trace: str, _: Path) -> None:
    for entry in bylaw.timeline(trace):
        assert entry


JOBS: dict[str, Callable[[str, Path], object]] = {
    "check": lambda trace, folder: bylaw.check(trace, folder / "rules.yaml").finding_count,
    "diff": lambda trace, folder: bylaw.diff(trace, trace, folder / "rules.yaml"),
    "backtest": lambda trace, folder: bylaw.backtest(folder / "rules.yaml", [trace]),
    "comply": lambda trace, _: bylaw.Compliance(PROMPT).check(trace),
    "inspect": read_all,
    "propose": lambda trace, _: bylaw.propose([trace]),
    "trajectory": lambda trace, _: bylaw.trajectory(trace, trace),
    **{
        f"convert to {to}": lambda trace, folder, to=to: bylaw.convert(trace, folder / "out", to=to, overwrite=True)
        for to in ("bylaw", "atif", "otlp")
    },
}


@pytest.mark.parametrize("turns", [400, pytest.param(5000, marks=pytest.mark.proof)])
@pytest.mark.parametrize("form", ["chat", pytest.param("bylaw", marks=pytest.mark.proof)])
@pytest.mark.parametrize("job", JOBS)
def test_the_time_grows_with_the_length_of_the_session(job: str, form: str, turns: int, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    short, long = tmp_path / "short", tmp_path / "long"
    for path, count in ((short, turns // 5), (long, turns)):
        write_session(path, count)
        if form == "bylaw":
            bylaw.convert(path, tmp_path / "trace", to="bylaw", overwrite=True)
            (tmp_path / "trace").replace(path)

    def cost(trace: Path) -> float:
        return cpu_seconds(lambda: JOBS[job](str(trace), tmp_path))

    cost(short)  # loads what it needs
    # 5 times as long; if the time is squared, 25 times as much
    assert min(cost(long) for _ in range(2)) < 12 * max(min(cost(short) for _ in range(2)), 0.03)


def claude_code_line(number: int, above: int | None, text: str, **fields: Any) -> str:
    role = "user" if number % 2 else "assistant"
    message: dict[str, Any] = {"role": role, "content": [{"type": "text", "text": text}]}
    if role == "assistant":
        message |= {
            "id": f"m{number}",
            "type": "message",
            "model": "c",
            "usage": {"input_tokens": 3, "output_tokens": 1},
        }
    line = {"type": role, "uuid": f"u{number}", "parentUuid": None if above is None else f"u{above}", "sessionId": "s"}
    stamp = f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}.000Z"
    return json.dumps(line | {"timestamp": stamp, "message": message} | fields)


def write_rewinds(path: Path, turns: int) -> None:
    """A user who tries everything twice: each second turn is taken back."""
    lines, tip = [], None
    for turn in range(turns):
        number = 2 * turn + 1
        lines += [claude_code_line(number, tip, f"try {turn}"), claude_code_line(number + 1, number, "done " * 20)]
        tip = tip if turn % 2 else number + 1
    path.write_text("\n".join(lines))


def write_branches(path: Path, turns: int) -> None:
    """A user who goes to and fro between two branches."""
    lines, tips = [], [2, 2]
    lines += [claude_code_line(1, None, "hi"), claude_code_line(2, 1, "hello")]
    for turn in range(1, turns):
        number = 2 * turn + 1
        lines += [
            claude_code_line(number, tips[turn % 2], f"go {turn}"),
            claude_code_line(number + 1, number, "done " * 20),
        ]
        tips[turn % 2] = number + 1
    path.write_text("\n".join(lines))


@pytest.mark.parametrize("write", [write_rewinds, write_branches])
def test_a_converted_session_with_branches_holds_each_message_once(
    write: Callable[[Path, int], None], tmp_path: Path
) -> None:
    trace, out = tmp_path / "trace.jsonl", tmp_path / "out.jsonl"
    write(trace, 200)
    bylaw.convert(trace, out, to="bylaw")
    assert out.stat().st_size < 2 * trace.stat().st_size
    shown = [
        [event.messages for event in bylaw.load_trace(file).events if isinstance(event, Request)]
        for file in (trace, out)
    ]
    assert shown[0] == shown[1]


def write_agents(path: Path, turns: int) -> None:
    """Two agents that take turns."""
    lines = []
    for turn in range(turns):
        for agent in (0, 1):
            number = 4 * turn + 2 * agent + 1
            above = number - 3 if turn else None
            side: dict[str, Any] = {"isSidechain": True, "agentId": "a"} if agent else {}
            lines += [claude_code_line(number, above, f"do {turn}", **side)]
            lines += [claude_code_line(number + 1, number, f"done {turn}", **side)]
    path.write_text("\n".join(lines))


def test_diff_reads_each_message_of_two_agents_as_often_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, count = recording._role_and_text, 0

    def counted(message: Any) -> Any:
        nonlocal count
        count += 1
        return read(message)

    monkeypatch.setattr(recording, "_role_and_text", counted)
    counts = []
    for turns in (10, 40):
        trace, count = tmp_path / "trace.jsonl", 0
        write_agents(trace, turns)
        assert bylaw.diff(trace, trace).exit_code == 0
        counts.append(count)
    assert 0 < counts[1] < 6 * counts[0]
