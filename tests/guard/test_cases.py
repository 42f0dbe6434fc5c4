"""Runs every case in cases/ in three ways, which must agree: without a store, with one, and restarted at every step.

    - name: third-payment-ends-the-session
      policy: […]                # guard rules; mode, options and tools (schemas) beside it
      steps:
        - { attempt: pay, want: allow }                          # a tool, or {tool, args, agent, session, run, …}
        - { attempt: { tool: pay, args: { amount: 1 } }, want: { action: block, decided_by: cap } }
        - { record: { of: 0, content: ok } }                     # also release, observe, start, approve, reject,
        - { advance: 60 }                                        # resume, kill, revive, terminate, end, policy

`want` of a decision is its action or what it must show; `reason` and `notes` are parts of texts. `want` of another step
is what it returns: ids of rules that a result breaks, whether something was released, the status of a review. `ways`
names those that a case is about, where it is not all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bylaw.errors import InputError
from tests.guard.support import WAYS, Host, policies
from tests.support.yaml_files import load_yaml

CASES = Path(__file__).parent / "cases"
_KEYS = {"name", "about", "policy", "mode", "tools", "options", "steps", "refused", "ways"}


def _cases() -> list[Any]:
    found = []
    for path in sorted(CASES.glob("*.yaml")):
        for case in load_yaml(path.read_text("utf-8")):
            found.append(pytest.param(case, id=f"{path.stem}/{case['name']}"))
    return found


@pytest.mark.parametrize("case", _cases())
def test_case(case: dict[str, Any], tmp_path: Path) -> None:
    assert case.keys() <= _KEYS, f"unknown keys: {case.keys() - _KEYS}"
    if "refused" in case:
        with pytest.raises(InputError) as problem:
            policies(case["policy"], case.get("mode"))
        assert case["refused"] in [diagnostic.code for diagnostic in problem.value.diagnostics]
        return
    seen = {}
    ways = case.get("ways", WAYS)
    for way in ways:
        (tmp_path / way).mkdir()
        seen[way] = Host(case, way, tmp_path / way).run()
    for i, step in enumerate(case["steps"]):
        for way in ways[1:]:
            assert seen[way][i] == seen[ways[0]][i], f"step {i} {step}: {way} disagrees"
        _compare(seen[ways[0]][i], step.get("want"), f"step {i} {step}")


def _compare(seen: dict[str, Any], want: Any, where: str) -> None:
    if want is None:
        return
    if "is" in seen:
        parts = isinstance(want, str) and isinstance(seen["is"], str)
        assert want in seen["is"] if parts else seen["is"] == want, f"{where}: {seen}"
        return
    wanted = {"action": want} if isinstance(want, str) else want
    for key, value in wanted.items():
        if key in ("reason", "advice"):
            assert value in seen[key], f"{where}: {seen}"
        elif key == "notes":
            assert any(value in note for note in seen["notes"]), f"{where}: {seen}"
        else:
            assert seen[key] == value, f"{where}: {key}: {seen}"
