"""What the service stores is in every store, vouched for by the audit, and pruned when it is over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import bylaw
from bylaw.guard.service.auth import Credentials
from bylaw.guard.service.errors import Unauthorized
from bylaw.guard.stores import MemoryStore, SqliteStore
from bylaw.guard.stores.ports import GuardStore
from bylaw.guard.stores.records import ActiveRules, Claim, Credential, RuleVersion, StoredProposal

STORES: dict[str, Callable[[Path], GuardStore]] = {
    "memory": lambda folder: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder / "guard.db"),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> GuardStore:
    return STORES[request.param](tmp_path)


def test_records_come_back_and_are_vouched_for(store: GuardStore) -> None:
    records = [
        RuleVersion(id="rules-1", number=1, files={"a": "b"}, policy="p", by="ann", modes={"x": "hitl"}, off=("x",)),
        ActiveRules(id="active", rules="rules-1"),
        Credential(id="k", session="k", name="bot", scopes=("agent",), agents=("x",), digest="d", created_at=1.0),
        StoredProposal(id="p", proposal={"rule": {"id": "r"}}, created_at=1.0),
        Claim(id="review-1", by="ann", at=1.0),
    ]
    with store.transaction("") as transaction:
        written = [transaction.put_followed(record) for record in records]
    for record in written:
        assert list(store.followed(type(record))) == [record]
    assert bylaw.verify_audit(store).findings == []
    assert store.prune(before=2.0)["followed"] == 1  # the claim: the others are in use
    assert bylaw.verify_audit(store).findings == []


def test_a_login_that_is_over_is_pruned_and_a_valid_key_is_not(store: GuardStore) -> None:
    now = 1000.0
    credentials = Credentials(store, lambda: now)
    key, _ = credentials.create("bot", ["operator"])
    login, _ = credentials.create("ann", ["operator"], seconds=10.0, kind="login")
    now = 1020.0
    with pytest.raises(Unauthorized):
        credentials.check(login, kind="login")
    credentials.create("ann", ["operator"], seconds=10.0, kind="login")
    assert store.prune(before=1030.0)["followed"] == 1
    assert credentials.check(key).name == "bot"
