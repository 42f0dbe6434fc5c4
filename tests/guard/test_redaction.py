"""What a guard writes down: secrets and personal data, wherever they stand in a call, and the options for it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import bylaw
from bylaw.cli import main
from bylaw.guard.decide import records
from bylaw.guard.stores.ports import StoreUnavailable
from bylaw.text.redaction.redactor import CLASSES, BadPattern, Redaction, Redactor
from tests.support.command import run_bylaw
from tests.support.secret_samples import COUNT, KINDS, samples

PERSONAL = {"e-mail address", "phone number", "IBAN"}
"""written unless they are asked for"""
COUNTS = [10, pytest.param(COUNT, marks=pytest.mark.proof)]
"""samples of each kind"""
RULES = [
    {"id": "limit", "kind": "temporal", "params": {"at_most": 5, "of": "send"}, "scope": "session", "then": "block"}
]


def _places(text: str) -> dict[str, Any]:
    return {
        "value": text,
        "sentence": f"please use {text} for it",
        "key": {text: 1},
        "nested": [{"a": [text]}],
        "json": json.dumps({"x": text}),
    }


def _missed(redactor: Redactor, count: int) -> Counter[str]:
    missed: Counter[str] = Counter()
    for sample in samples(count=count):
        for place in _places(sample.text).values():
            written = json.dumps(redactor(place)).replace("\\\\n", "\\n")
            missed[sample.kind] += json.dumps(sample.secret)[1:-1] in written
    return missed


@pytest.mark.parametrize("count", COUNTS)
def test_of_forty_kinds_nearly_every_one_is_found_everywhere(count: int) -> None:
    assert len(KINDS) == 40
    missed = _missed(Redactor(Redaction(classes=CLASSES)), count)
    assert {kind: n for kind, n in missed.items() if n > 0.04 * 5 * count} == {}  # five places
    assert missed.total() <= 0.001 * 40 * 5 * count


@pytest.mark.parametrize("count", COUNTS)
def test_addresses_and_accounts_are_written_unless_asked_for(count: int) -> None:
    missed = _missed(Redactor(), count)
    assert {kind for kind, n in missed.items() if n > 0.04 * 5 * count} == PERSONAL


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"name": "DB_PASSWORD", "value": "hunter"}, {"name": "DB_PASSWORD", "value": "[redacted: secret]"}),
        ({"Key": "api_key", "Value": "abc"}, {"Key": "api_key", "Value": "[redacted: secret]"}),
        ({"name": "colour", "value": "red"}, {"name": "colour", "value": "red"}),
        ([["PGPASSWORD", "abc"]], [["PGPASSWORD", "[redacted: secret]"]]),
        (["psql", "--password", "abc", "-h", "x"], ["psql", "--password", "[redacted: secret]", "-h", "x"]),
        (["curl", "-u", "ann:abc"], ["curl", "-u", "ann:[redacted: secret]"]),
        ({"ssn": "123456789"}, {"ssn": "[redacted: ssn]"}),
        ({"otp": 123456}, {"otp": "[redacted: otp]"}),
        ({"card": 4111111111111111}, {"card": "[redacted: card]"}),
        ({"4111 1111 1111 1111": 1}, {"[redacted: card]": 1}),
        ({"next_page_token": "abc12345", "max_tokens": 5}, {"next_page_token": "abc12345", "max_tokens": 5}),
        ({"token": "a1b2c3d4e5"}, {"token": "[redacted: token]"}),
        ({"token": " the"}, {"token": " the"}),
    ],
)
def test_values_that_their_surroundings_name(value: Any, wanted: Any) -> None:
    assert Redactor()(value) == wanted


def test_classes_patterns_and_paths() -> None:
    own = Redactor(
        Redaction(
            classes=["email"],
            patterns={"order": r"ORD-\d+"},
            mask=["customer.name", "items.*.note"],
            keep=["to", "customer.mail"],
        )
    )
    call = {
        "to": "a@example.org",
        "cc": "b@example.org",
        "customer": {"name": "Ann", "mail": "c@example.org", "key": "password=abc123"},
        "items": [{"note": "x", "id": "ORD-17"}, {"note": ["y"]}],
    }
    assert own(call) == {
        "to": "a@example.org",
        "cc": "[redacted: email]",
        "customer": {"name": "[redacted: masked]", "mail": "c@example.org", "key": "password=abc123"},
        "items": [{"note": "[redacted: masked]", "id": "[redacted: order]"}, {"note": "[redacted: masked]"}],
    }
    assert own(json.dumps({"customer": {"name": "Ann"}})) == '{"customer":{"name":"[redacted: masked]"}}'


def test_what_is_masked_is_not_kept() -> None:
    assert Redactor(Redaction(mask=["a.b"], keep=["a"]))({"a": {"b": 1, "password": "x"}}) == {
        "a": {"b": "[redacted: masked]", "password": "x"}
    }


def test_a_rule_file_of_gitleaks_adds_forms(tmp_path: Path) -> None:
    file = tmp_path / "gitleaks.toml"
    file.write_text("""
title = "x"
[[rules]]
id = "acme"
description = "Acme"
regex = '''(?i)acme[_-]key\\s*=\\s*([a-z0-9]{10})(?:[\\s'"]|\\z)'''
secretGroup = 1
entropy = 2
keywords = ["acme"]
[[rules]]
id = "by-file-name"
path = '''\\.p12$'''
""")
    redact = Redactor(Redaction(rule_files=[str(file)]))
    assert redact("ACME_KEY = 8f3kd92la0 and more") == "ACME_KEY = [redacted: secret] and more"
    assert redact("ACME_KEY = aaaaaaaaaa and more") == "ACME_KEY = aaaaaaaaaa and more"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense [", "is not TOML"),
        ("[[rules]]\nid = 'x'\nregex = '('", "RE2"),
        ("[[rules]]\nid = 'x'\nregex = 'a*'", "empty text"),
        ("[[rules]]\nid = 'x'\nregex = 'a'\nsecretGroup = 3", "no group"),
        ("title = 'x'", "has no"),
    ],
)
def test_a_rule_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text)
    with pytest.raises(BadPattern, match=why):
        Redactor(Redaction(rule_files=[str(file)]))


@pytest.mark.parametrize("wrong", [{"classes": "email"}, {"classes": ["mail"]}, {"patterns": ["x"]}, {"mask": [1]}])
def test_wrong_options_are_refused_at_once(wrong: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Redaction(**wrong)


# -- in a guard's store -----------------------------------------------------------------------------------------------


def _everything(folder: Path) -> bytes:
    return b"".join(part.read_bytes() for part in folder.iterdir())


def test_nothing_of_it_is_in_the_store(tmp_path: Path) -> None:
    guard = bylaw.Guard(RULES, store=tmp_path / "guard.db")
    found = [sample for sample in samples(count=1) if sample.kind not in PERSONAL]
    for i, sample in enumerate(found):
        arguments = {"value": sample.text, "as key": {sample.text: 1}, "name": "x", "n": i}
        decision = guard.decide(bylaw.Attempt(tool="send", arguments=arguments, session=f"s{i}"))
        guard.record(decision, {"echo": sample.text, sample.text: 2})
    guard.store.close()
    written = _everything(tmp_path)
    assert [
        s.kind for s in found if json.dumps(s.secret)[1:-1].encode() in written or s.secret.encode() in written
    ] == []


def test_a_guard_takes_the_options(tmp_path: Path) -> None:
    redaction = Redaction(classes=["email"], mask=["note"], keep=["to"])
    guard = bylaw.Guard(RULES, store=tmp_path / "guard.db", redaction=redaction)
    arguments = {"to": "kept@example.org", "cc": "gone@example.org", "note": "private words"}
    decision = guard.decide(bylaw.Attempt(tool="send", arguments=arguments, session="s"))
    guard.record(decision, "sent to other@example.org")
    guard.store.close()
    written = _everything(tmp_path)
    assert b"kept@example.org" in written
    assert (
        b"gone@example.org" not in written and b"other@example.org" not in written and b"private words" not in written
    )


def test_a_session_id_with_a_secret_is_written_as_a_digest(tmp_path: Path) -> None:
    session = "chat-of-4111111111111111"
    guard = bylaw.Guard(RULES, store=tmp_path / "guard.db")
    decisions = [guard.decide(bylaw.Attempt(tool="send", session=session)) for _ in range(6)]
    assert [decision.allowed for decision in decisions] == [True] * 5 + [False]
    assert decisions[0].session.startswith("redacted_")
    guard.record(decisions[0], "done")
    guard.release(decisions[1].call_id, session=session)
    assert guard.decide(bylaw.Attempt(tool="send", session=session)).allowed
    guard.terminate(session)
    assert not guard.decide(bylaw.Attempt(tool="look", session=session)).allowed
    guard.store.close()
    assert b"4111111111111111" not in _everything(tmp_path)


def test_what_people_write_is_redacted(tmp_path: Path) -> None:
    """Notes of reviews, and why an agent or a session was stopped: in the store, and in the reasons that are shown."""
    secret, rule = "sk-proj-WHYWHYWHYWHYWHYWHYWHY1234567890", {"id": "ask", "when": {"tool_name_in": ["pay"]}}
    guard = bylaw.Guard({"guard": {"mode": "hitl", "rules": [{**rule, "then": "pause"}]}}, store=tmp_path / "guard.db")
    for n, answer in enumerate((guard.reviews.approve, guard.reviews.reject)):
        review = guard.decide(bylaw.Attempt(tool="pay", session=f"s{n}")).review
        assert secret not in str(answer(review, by="ann", note=f"use {secret}"))
    guard.terminate("s0", f"found {secret}")
    guard.kill("bot", f"it knows {secret}")
    stopped = [guard.decide(bylaw.Attempt(tool="x", **where)) for where in ({"session": "s0"}, {"agent": "bot"})]
    assert all(one.reason and secret not in one.reason for one in stopped) and not any(stopped)
    for command in (["kill", "--agent", "b", "--why", secret], ["terminate", "s1", "--why", secret]):
        shown = run_bylaw(["guard", *command, "--store", str(tmp_path / "guard.db")])
        assert (shown.returncode, secret in shown.stdout) == (0, False)
    guard.close()
    assert secret.encode() not in _everything(tmp_path)
    assert bylaw.verify_audit(tmp_path / "guard.db").findings == []


def test_an_operator_ends_such_a_session_by_its_own_id(tmp_path: Path) -> None:
    session, store = "chat-of-4111111111111111", tmp_path / "guard.db"
    guard = bylaw.Guard(RULES, store=store)
    assert guard.decide(bylaw.Attempt(tool="send", session=session))
    assert run_bylaw(["guard", "terminate", session, "--store", str(store)]).returncode == 0
    assert not guard.decide(bylaw.Attempt(tool="send", session=session))
    guard.close()
    assert b"4111111111111111" not in _everything(tmp_path)


MAIL = "ann@corp.example"
OTHER_REDACTIONS = {
    "more classes": (MAIL, Redaction(classes=["email"])),
    "a pattern": ("C-123456", Redaction(patterns={"customer number": r"C-\d{6}"})),
    "nothing": ("chat-of-4111111111111111", Redaction(classes=[])),
}


def _refused(guard: Any, session: str) -> bool:
    return bool(guard.decide(bylaw.Attempt(tool="send", session=session)).action.value == "terminate_session")


@pytest.mark.parametrize("name", OTHER_REDACTIONS)
@pytest.mark.parametrize("ended", ["neither", "first", "second"])
def test_an_operator_ends_a_session_under_each_name_that_guards_have_for_it(
    tmp_path: Path, name: str, ended: str
) -> None:
    session, other = OTHER_REDACTIONS[name]
    store = tmp_path / "guard.db"
    guards = [bylaw.Guard(RULES, store=store), bylaw.Guard(RULES, store=store, redaction=other)]
    for guard in guards:
        assert guard.decide(bylaw.Attempt(tool="send", session=session))
    if ended != "neither":
        guards[ended == "second"].terminate(session, "bob")
    done = run_bylaw(["guard", "terminate", session, "--store", str(store), "--by", "ann"])
    assert done.returncode == 0 and "was ended by ann" in done.stdout
    assert ("ended already by bob" in done.stdout) is (ended != "neither")
    assert [_refused(guard, session) for guard in guards] == [True, True]
    again = run_bylaw(["guard", "terminate", session, "--store", str(store)])
    assert again.returncode == 2 and "was ended already by" in again.stderr
    for guard in guards:
        guard.close()
    assert bylaw.verify_audit(store).findings == []


@pytest.mark.parametrize("name", ["more classes", "a pattern"])
def test_a_session_that_is_ended_before_it_begins_is_ended_under_each_name(tmp_path: Path, name: str) -> None:
    session, other = OTHER_REDACTIONS[name]
    store = tmp_path / "guard.db"
    guards = [bylaw.Guard(RULES, store=store), bylaw.Guard(RULES, store=store, redaction=other)]
    assert run_bylaw(["guard", "terminate", session, "--store", str(store), "--force"]).returncode == 0
    assert [_refused(guard, session) for guard in guards] == [True, True]
    for guard in guards:
        guard.close()


def test_a_session_is_ended_under_all_its_names_or_under_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, written = tmp_path / "guard.db", []
    guards = [bylaw.Guard(RULES, store=store), bylaw.Guard(RULES, store=store, redaction=Redaction(classes=["email"]))]
    for guard in guards:
        assert guard.decide(bylaw.Attempt(tool="send", session=MAIL))
    write = records.write_session_end

    def fail_at_the_second(*row: Any) -> None:
        written.append(row)
        if len(written) == 2:
            raise StoreUnavailable("the disk is full")
        write(*row)

    monkeypatch.setattr(records, "write_session_end", fail_at_the_second)
    with pytest.raises(SystemExit) as stopped:
        main(["guard", "terminate", MAIL, "--store", str(store)])
    assert (stopped.value.code, len(written)) == (4, 2)
    assert [_refused(guard, MAIL) for guard in guards] == [False, False]
    for guard in guards:
        guard.close()


def test_the_audit_can_still_be_recomputed(tmp_path: Path) -> None:
    """With redacted arguments, keys and session ids, and rules that were exchanged in between."""
    outside = {"tool_name_in": ["send"], "not": {"arg_regex": {"path": "to", "pattern": "@corp.example$"}}}
    rules = [{"id": "outside", "when": outside, "then": "block"}, *RULES]
    redaction = Redaction(classes=["email", "card", "secret"], mask=["body"])
    guard = bylaw.Guard(rules, store=tmp_path / "guard.db", redaction=redaction)
    for session in ("chat-4111111111111111", "b@corp.example", "plain"):
        for to in ("a@corp.example", "x@other.example", "b@corp.example"):
            arguments = {"to": to, "body": "hi", "4111111111111111": "k", "password": "x"}
            if decision := guard.decide(bylaw.Attempt(tool="send", arguments=arguments, session=session)):
                guard.record(decision, f"sent to {to}")
    guard.reload(rules[:1])
    assert not guard.decide(bylaw.Attempt(tool="send", arguments={"to": "x@other.example"}, session="plain"))
    guard.close()
    report = bylaw.verify_audit(tmp_path / "guard.db")
    assert (report.findings, report.decisions, report.recomputed) == ([], 10, 10)
    written = _everything(tmp_path)
    assert not any(gone in written for gone in (b"a@corp.example", b"b@corp.example", b"4111111111111111"))
