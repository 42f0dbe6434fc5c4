"""The hash chain: what an auditor can rely on."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bylaw.guard.stores import MemoryStore, verify_chain
from bylaw.guard.stores.chain import START, link, vouch
from bylaw.guard.stores.encoding import decode, encode, encode_both
from bylaw.guard.stores.records import AuditHead, AuditRow
from bylaw.model.canonical import canonical_json

_SAFE = 2**53 - 1
"""whole numbers beyond it are read back as integers that RFC 8785 has no form for"""
_leaves = (
    st.none()
    | st.booleans()
    | st.integers(-_SAFE, _SAFE)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: x % 1 != 0 or not _SAFE < abs(x) < 1e21)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
_odd_leaves = _leaves | st.integers() | st.floats() | st.text(st.characters())


def _json(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


def _chain(length: int) -> list[AuditRow]:
    store = MemoryStore()
    with store.transaction("s") as transaction:
        return [transaction.append_audit(n + 0.5, {"n": n}) for n in range(length)]


def _faults(rows: list[AuditRow], head: str | None = None) -> list[tuple[int, str]]:
    return [(problem.seq, problem.fault) for problem in verify_chain(rows, head=head)]


def _rehashed(row: AuditRow, **changes: Any) -> AuditRow:
    row = replace(row, **changes)
    return replace(row, hash=link(row.seq, row.at, encode(row.data), row.previous))


@given(_json(_leaves))
def test_plain_values_are_encoded_as_rfc_8785_says(value: Any) -> None:
    assert encode(value) == canonical_json(value) == rfc8785.dumps(value)


@given(st.dictionaries(st.text(), _json(_odd_leaves), max_size=4), st.text(), st.text())
def test_two_records_with_the_same_in_them_are_encoded_as_if_apart(data: Any, kind: str, session: str) -> None:
    more = {"kind": kind, "session": session}
    assert encode_both(data, **more) == (encode(data), encode({**more, **data}))


@given(_json(_odd_leaves))
def test_a_value_read_back_is_encoded_the_same(value: Any) -> None:
    assert encode(decode(encode(value))) == encode(value)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), _leaves), st.floats(-1e10, 1e10))
def test_anyone_can_compute_the_hash(data: dict[str, Any], at: float) -> None:
    store = MemoryStore()
    with store.transaction("s") as transaction:
        row = transaction.append_audit(at, data)
    whole = rfc8785.dumps({"seq": 1, "at": at, "data": data, "previous": START})
    assert row.hash == hashlib.sha256(whole).hexdigest()


def test_the_hash_never_changes() -> None:
    """A released hash is for ever: this one is computed by hand."""
    row = _chain(1)[0]
    by_hand = f'{{"at":0.5,"data":{{"n":0}},"previous":"{"0" * 64}","seq":1}}'
    assert row.hash == hashlib.sha256(by_hand.encode()).hexdigest()


def test_whole_chains_have_no_problem() -> None:
    assert _faults([]) == []
    assert _faults([], head=START) == []
    assert _faults(_chain(1)) == []
    assert _faults(_chain(5), head=_chain(5)[-1].hash) == []


@pytest.mark.parametrize("changes", [{"data": {"n": 9}}, {"data": {}}, {"at": 7.0}, {"data": {"n": "2"}}])
def test_an_edited_row_shows(changes: dict[str, Any]) -> None:
    rows = _chain(5)
    rows[2] = replace(rows[2], **changes)
    assert _faults(rows) == [(3, "edited")]


def test_an_edited_row_shows_although_its_hash_was_made_to_fit() -> None:
    rows = _chain(5)
    rows[2] = _rehashed(rows[2], data={"n": 9})
    assert _faults(rows) == [(4, "spliced")]


def test_an_edited_hash_shows() -> None:
    rows = _chain(5)
    rows[2] = replace(rows[2], hash="f" * 64)
    assert _faults(rows) == [(3, "edited"), (4, "unlinked")]


def test_data_of_no_known_form_shows() -> None:
    rows = _chain(2)
    rows[1] = replace(rows[1], data={("a",): 1})
    assert _faults(rows) == [(2, "edited")]


def test_dropped_rows_show() -> None:
    rows = _chain(6)
    assert _faults(rows[:2] + rows[4:]) == [(5, "dropped")]
    assert _faults(rows[1:]) == [(2, "first")]


def test_a_renumbered_chain_shows() -> None:
    rows = _chain(4)
    renumbered = [rows[0], *(replace(row, seq=row.seq - 1) for row in rows[2:])]
    assert _faults(renumbered) == [(2, "unlinked"), (2, "edited"), (3, "edited")]


def test_reordered_rows_show() -> None:
    rows = _chain(4)
    assert (2, "reordered") in _faults([rows[0], rows[2], rows[1], rows[3]])
    assert _faults([*rows, rows[-1]]) == [(4, "reordered")]


def test_a_cut_end_shows_to_whoever_knows_the_last_hash() -> None:
    rows = _chain(4)
    assert _faults(rows[:3]) == []
    assert _faults(rows[:3], head=rows[3].hash) == [(3, "last")]
    assert _faults([], head=rows[3].hash) == [(0, "last")]


def test_a_wrong_start_shows() -> None:
    row = _chain(1)[0]
    other = _rehashed(row, previous="f" * 64)
    problems = verify_chain([other], head=AuditHead(START, 1, other.hash))
    assert [(problem.seq, problem.fault) for problem in problems] == [(1, "spliced")]


def test_an_anchor_needs_a_row_that_vouches_for_it() -> None:
    rows = _chain(5)
    forged = AuditRow(at=rows[2].at, data={"kind": "anchor"}, seq=3, previous="", hash=rows[2].hash)
    assert _faults([forged, *rows[3:]]) == [(3, "unvouched")]
    for data, vouched in [
        (vouch(through=3, hash=rows[2].hash), True),
        (vouch(through=4, hash=rows[3].hash), True),  # stopped between two steps
        (vouch(through=3, hash="f" * 64), False),
        (vouch(through=2, hash=rows[1].hash), False),
        ({"kind": "prune"}, False),
    ]:
        voucher = _rehashed(AuditRow(9.0, data, 6, rows[-1].hash))
        assert _faults([forged, *rows[3:], voucher]) == ([] if vouched else [(3, "unvouched")])


def test_an_anchor_stands_only_at_the_start() -> None:
    rows = _chain(3)
    anchor = AuditRow(at=1.0, data={"kind": "anchor"}, seq=2, previous="", hash=rows[1].hash)
    assert _faults([rows[0], anchor, rows[2]]) == [(2, "unlinked"), (2, "edited")]


def test_wide_and_deep_values_have_one_form() -> None:
    wide: Any = {"b": [{"k": n, "a": n / 4} for n in range(2_000)], "a": "é"}
    assert canonical_json(wide) == rfc8785.dumps(wide)
    deep: Any = 1.0
    for _ in range(400):
        deep = [deep]
    assert canonical_json(deep) == rfc8785.dumps(deep)
