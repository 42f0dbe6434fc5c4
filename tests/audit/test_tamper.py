"""Each way to tamper with the audit of an SQLite file is found, and found where it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bylaw.guard.audit.report import AuditReport
from bylaw.guard.stores import SqliteStore
from bylaw.guard.stores.chain import link
from bylaw.guard.stores.records import AuditHead
from tests.audit.support import RULES, Tampered, in_chain, kinds, recorded, verified


@pytest.fixture
def path(tmp_path: Path) -> Path:
    recorded(tmp_path / "guard.db")
    return tmp_path / "guard.db"


def _report(path: Path, *heads: AuditHead) -> AuditReport:
    store = SqliteStore(path)
    try:
        return verified(store, RULES, heads=heads)
    finally:
        store.close()


def _head(path: Path) -> AuditHead:
    store = SqliteStore(path)
    try:
        return store.audit_head()
    finally:
        store.close()


def _relinked(rows: list[tuple[Any, ...]], previous: str) -> list[tuple[Any, ...]]:
    """With hashes that fit, as somebody would make them who knows how."""
    made = []
    for number, (_, at, data, _, _, stored) in enumerate(rows, 1):
        hash = link(number, at, data.encode(), previous, stored.encode())
        made.append((number, at, data, previous, hash, stored))
        previous = hash
    return made


def test_what_nobody_touched_is_intact_and_recomputed(path: Path) -> None:
    report = _report(path, _head(path))
    assert (report.exit_code, report.findings, report.unrecomputed) == (0, [], {})
    assert report.recomputed == report.decisions > 10


def test_an_edited_row_is_found(path: Path) -> None:
    seq = next(row[0] for row in Tampered(path).rows() if '"block"' in row[2])
    Tampered(path)("UPDATE audit SET data = replace(data, '\"block\"', '\"allow\"') WHERE seq = ?", seq)
    assert kinds(_report(path))[:2] == [(seq, "edited"), (seq, "verdict")]


def test_an_edit_with_a_hash_made_to_fit_breaks_the_link_after_it(path: Path) -> None:
    seq, at, data, previous, _, stored = Tampered(path).rows()[4]
    data = data.replace('"kind"', '"kind "')
    hash = link(seq, at, data.encode(), previous, stored.encode())
    Tampered(path)("UPDATE audit SET data = ?, hash = ? WHERE seq = ?", data, hash, seq)
    assert (seq + 1, "spliced") in kinds(_report(path))


def test_a_dropped_row_is_found(path: Path) -> None:
    Tampered(path)("DELETE FROM audit WHERE seq = 6")
    assert kinds(_report(path))[0] == (7, "dropped")


def test_a_dropped_row_whose_gap_was_closed(path: Path) -> None:
    rows = Tampered(path).rows()
    closed = rows[:5] + [(row[0] - 1, *row[1:]) for row in rows[6:]]
    Tampered(path).write(closed)
    assert {(6, "unlinked"), (6, "edited")} <= set(kinds(_report(path)))


def test_an_inserted_row_is_found(path: Path) -> None:
    rows = Tampered(path).rows()
    forged = (7, rows[5][1], rows[5][2], rows[5][4], "f" * 64, "")
    Tampered(path).write(rows[:6] + [forged] + [(row[0] + 1, *row[1:]) for row in rows[6:]])
    assert (7, "edited") in kinds(_report(path))


def test_a_row_added_at_the_end(path: Path) -> None:
    seq, at, data, _, hash, _ = Tampered(path).rows()[-1]
    added = (seq + 1, at, data, hash, link(seq + 1, at, data.encode(), hash), "")
    Tampered(path)("INSERT INTO audit VALUES (?, ?, ?, ?, ?, ?)", *added)
    assert (seq + 1, "inserted") in kinds(_report(path))


def test_reordered_rows_are_found(path: Path) -> None:
    rows = Tampered(path).rows()
    rows[3], rows[4] = (4, *rows[4][1:]), (5, *rows[3][1:])
    Tampered(path).write(rows)
    assert {(4, "edited"), (5, "edited")} <= set(kinds(_report(path)))


def test_a_cut_end_is_found(path: Path) -> None:
    rows = Tampered(path).rows()
    Tampered(path)("DELETE FROM audit WHERE seq > ?", rows[-3][0])
    [problem] = [finding for finding in _report(path).findings if finding.kind == "truncated"]
    assert (problem.seq, problem.expected) == (rows[-3][0], str(_head(path)))


def test_a_cut_end_is_not_hidden_by_what_is_written_afterwards(path: Path) -> None:
    Tampered(path)("DELETE FROM audit WHERE seq > 8")
    recorded(path, calls=2)
    assert any(kind == "dropped" for _, kind in kinds(_report(path)))


def test_an_emptied_log_is_found(path: Path) -> None:
    Tampered(path)("DELETE FROM audit")
    report = _report(path)
    assert (report.exit_code, kinds(report)[0]) == (1, (0, "truncated"))


def test_rows_spliced_from_another_chain(path: Path, tmp_path: Path) -> None:
    recorded(tmp_path / "other.db", seed=1)
    ours, theirs = Tampered(path).rows(), Tampered(tmp_path / "other.db").rows()
    Tampered(path).write(ours[:6] + theirs[6 : len(ours)])
    assert (7, "spliced") in kinds(_report(path))


def test_a_whole_chain_put_in_place_of_another(path: Path, tmp_path: Path) -> None:
    recorded(tmp_path / "other.db", seed=1)
    theirs, head = Tampered(tmp_path / "other.db").rows(), _head(tmp_path / "other.db")
    Tampered(path).write(theirs)
    assert (1, "spliced") in kinds(_report(path))
    Tampered(path).put_head(head.seq, head.hash)
    assert in_chain(_report(path)) == [(1, "spliced")]


def test_a_chain_that_was_computed_anew_shows_to_anyone_with_an_earlier_head(path: Path) -> None:
    noted, rows = _head(path), Tampered(path).rows()
    made = _relinked(rows[:2] + rows[3:], noted.chain)
    Tampered(path).write(made)
    Tampered(path).put_head(made[-1][0], made[-1][4])
    assert all(kind == "verdict" for _, kind in in_chain(_report(path)))
    assert (made[-1][0], "truncated") in kinds(_report(path, noted))


def test_a_file_that_was_put_back_shows_only_to_anyone_with_an_earlier_head(path: Path) -> None:
    before, old = path.read_bytes(), _head(path)
    recorded(path, calls=3)
    noted = _head(path)
    assert _report(path, old, noted).exit_code == 0
    path.write_bytes(before)
    assert _report(path).exit_code == 0, "said in the docs: without a word from elsewhere this does not show"
    assert kinds(_report(path, noted)) == [(old.seq, "truncated")]


def test_a_known_head_that_was_rewritten(path: Path) -> None:
    wrong = AuditHead("", 5, "f" * 64)
    assert kinds(_report(path, wrong)) == [(5, "rewritten")]


@pytest.mark.parametrize(
    "data",
    ["", "[]", "null", '{"kind": "decision"}', "{", '{"kind": "decision", "session": 5}', '{"kind": ["end"]}', b"\xff"],
)
def test_rows_of_no_known_form_are_found(path: Path, data: Any) -> None:
    Tampered(path)("UPDATE audit SET data = ? WHERE seq = 5", data)
    assert (5, "edited") in kinds(_report(path))


@pytest.mark.parametrize("column", ["at", "data", "previous", "hash", "stored"])
@given(data=st.data())
def test_no_field_of_any_row_can_be_changed(
    tmp_path_factory: pytest.TempPathFactory, column: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("audit") / "guard.db"
    recorded(path, calls=4)
    tampered = Tampered(path)
    row = data.draw(st.sampled_from(tampered.rows()))
    value = row[["seq", "at", "data", "previous", "hash", "stored"].index(column)]
    other = data.draw(_others(column, value))
    tampered(f"UPDATE audit SET {column} = ? WHERE seq = ?", other, row[0])
    found = _report(path)
    assert found.exit_code == 1
    assert any(finding.seq in (row[0], row[0] + 1) for finding in found.findings)


def _others(column: str, value: Any) -> st.SearchStrategy[Any]:
    if column == "at":
        return st.floats(0, 2e9).filter(lambda at: at != value)
    if column == "data":
        return st.sampled_from(_mutations(json.loads(value))).map(json.dumps)
    return st.sampled_from(["", "0" * 64, "f" * 64]).filter(lambda text: text != value)


def _mutations(data: Any) -> list[Any]:
    """The value with one leaf changed, each in its turn."""
    if isinstance(data, dict):
        changed = [{**data, key: one} for key in data for one in _mutations(data[key])]
        return [*changed, *({k: v for k, v in data.items() if k != key} for key in data), {**data, "more": 1}]
    if isinstance(data, list):
        return [
            *([*data[:i], one, *data[i + 1 :]] for i in range(len(data)) for one in _mutations(data[i])),
            [*data, 1],
        ]
    return [None if data is not None else 0, [data]]
