"""`bylaw guard audit`, and what it exits with."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.guard.service.operations.record import Audit
from bylaw.guard.stores import SqliteStore
from bylaw.guard.stores.ports import StoreUnavailable
from tests.audit.support import RULES, Tampered, recorded
from tests.support.command import run_bylaw


@pytest.fixture
def path(tmp_path: Path) -> Path:
    recorded(tmp_path / "guard.db", calls=24)
    (tmp_path / "guard.json").write_text(json.dumps(RULES))
    return tmp_path / "guard.db"


def _run(path: Path, *arguments: str) -> tuple[int, str]:
    """Through a real process: what it exits with is the whole point."""
    environment = {**os.environ, "NO_COLOR": "1"}
    done = run_bylaw(["guard", "audit", arguments[0], "--store", str(path), *arguments[1:]], env=environment)
    return done.returncode, done.stdout


def _policy(path: Path) -> tuple[str, str]:
    return "--policy", str(path.with_name("guard.json"))


def test_verify_of_an_intact_log_exits_0(path: Path) -> None:
    code, head = _run(path, "head")
    assert code == 0
    code, out = _run(path, "verify", *_policy(path), "--head", head.strip(), "--json")
    report = json.loads(out)
    assert (code, report["exit_code"], report["intact"], report["anchored"]) == (0, 0, True, True)
    assert report["recomputed"] == report["decisions"] > 0
    assert bylaw.verify_audit(path, RULES, heads=[head.strip()]).exit_code == 0


def test_verify_of_a_tampered_log_exits_1(path: Path) -> None:
    Tampered(path)("DELETE FROM audit WHERE seq = 3")
    code, out = _run(path, "verify", *_policy(path))
    assert code == 1
    assert "dropped  row 4" in out
    assert "expected: 3" in out


def test_without_the_files_the_stored_rules_are_used(path: Path) -> None:
    code, out = _run(path, "verify")
    assert code == 0 and "every verdict follows" in out


def test_without_the_rules_it_is_no_pass(path: Path) -> None:
    Tampered(path)("DELETE FROM rules")
    code, out = _run(path, "verify")
    shown = " ".join(out.split())  # without the line breaks
    assert code == 1 and "were not given" in shown and "rules `sha256:" in shown


def test_bad_input_exits_2(path: Path, tmp_path: Path) -> None:
    assert _run(path, "verify", "--head", "5")[0] == 2
    assert _run(path, "verify", "--policy", str(tmp_path / "missing.yaml"))[0] == 2
    assert _run(tmp_path / "missing.db", "verify")[0] == 2
    assert _run(path, "show", "--since", "yesterday")[0] == 2
    with pytest.raises(ValueError, match="SEQ:HASH"):
        bylaw.verify_audit(path, heads=["x"])
    with pytest.raises(StoreUnavailable):
        bylaw.verify_audit(tmp_path / "missing.db")


def test_a_file_that_is_no_database_exits_4(tmp_path: Path) -> None:
    (tmp_path / "guard.db").write_bytes(b"no database" * 1000)
    assert _run(tmp_path / "guard.db", "verify")[0] == 4


def test_a_store_without_its_head_takes_no_more_decisions(path: Path) -> None:
    Tampered(path)("DELETE FROM sqlite_sequence WHERE name = 'audit head'")
    assert (
        bylaw.Guard(RULES, store=path).decide(bylaw.Attempt(tool="verify", session="s")).decided_by
        == "on_store_unavailable"
    )
    assert _run(path, "verify", *_policy(path))[0] == 1


def test_show_and_export_choose_rows(path: Path) -> None:
    everything = _exported(path)
    assert [row["seq"] for row in everything] == list(range(1, len(everything) + 1))
    assert {row["data"]["session"] for row in _exported(path, "--session", "s1")} == {"s1"}
    capped = _exported(path, "--rule", "cap")
    assert capped and all("cap" in row["data"]["decision"]["matched"] for row in capped)
    late = everything[-1]["at"]
    assert [row["at"] for row in _exported(path, "--since", str(late))] == [
        r["at"] for r in everything if r["at"] >= late
    ]
    code, out = _run(path, "show", "--rule", "cap")
    assert code == 0 and len(out.splitlines()) == len(capped) and "pay → " in out
    assert _run(path, "show", "--session", "nobody") == (3, "")


def test_show_and_export_name_the_calls_that_ran_unjudged(path: Path) -> None:
    store = SqliteStore(path)
    running = bylaw.Guard(RULES, store=store)
    big = bylaw.Attempt(tool="pay", arguments={"amount": 900}, session="late", agent="till", call_id="c1")
    running.judge_past_call(big)
    running.judge_past_call(bylaw.Attempt(tool="verify", session="late", call_id="c2"))
    running.record_past_call(bylaw.Attempt(tool="pay", session="late", call_id="c3"))
    broken = [row.data["call_id"] for row in Audit(store).query(rule="cap", kind="taken").rows]
    store.close()
    assert broken == ["c1"]
    assert [row["data"]["call_id"] for row in _exported(path, "--rule", "cap", "--session", "late")] == ["c1"]
    lines = [line.split("  ", 2)[2] for line in _run(path, "show", "--session", "late")[1].splitlines()]
    assert lines == [
        "taken  late  pay (till) ran unjudged; cap, verified would have stopped it",
        "taken  late  verify ran unjudged",
        "taken  late  pay ran before",
    ]


def _exported(path: Path, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _run(path, "export", *arguments)[1].splitlines()]
