"""Whatever is done with a session takes a time that grows with its length."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bylaw
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
