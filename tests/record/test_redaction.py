"""Secrets and personal data are redacted everywhere in a recording, and rules can match the markers."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bylaw
from bylaw.record import recording
from bylaw.text.redaction.redactor import LONGEST, MOST_DEPTH, Redaction, Redactor, recording_redactor
from tests.record.model_clients import MODEL, PROVIDERS, ask, openai_client
from tests.record.server import CARD, KEY, Server
from tests.support.command import run_bylaw
from tests.support.yaml_files import load_yaml

HERE = Path(__file__).parent
FOUND = {
    "card": "card number",
    "email": "e-mail address",
    "iban": "IBAN",
    "phone": "phone number",
    "ssn": "social security number",
}
PII = load_yaml((HERE.parent / "contract" / "pii.yaml").read_text("utf-8"))
HIDDEN = [
    ("card", "4111 1111 1111 1111"),
    ("card", "4111-1111-1111-1111"),
    ("card", "5500000000000004"),
    ("email", "jane.doe@example.com"),
    ("email", "jürgen@müller.de"),
    ("phone", "+44 20 7946 0958"),
    ("phone", "(212) 555-0187"),
    ("iban", "DE89 3704 0044 0532 0130 00"),
    ("iban", "GB82WEST12345698765432"),
    ("ssn", "123-45-6789"),
    ("jwt", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLXhh"),
    ("api key", KEY),
    ("api key", "AKIAIOSFODNN7EXAMPLE"),
    ("token", "Bearer abcdefghijklmnopqrstuvwx=="),
    ("private key", "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nAAA=\n-----END RSA PRIVATE KEY-----"),
    ("order", "ORD-4711"),
]
redact = recording_redactor({"order": r"ORD-\d+"})


@pytest.mark.parametrize(("kind", "text"), HIDDEN)
def test_each_kind_of_secret_is_redacted_in_each_place(kind: str, text: str) -> None:
    marker = f"[redacted: {kind}]"
    assert redact(text) == marker
    assert redact(f"Ä: {text}, ok €") == f"Ä: {marker}, ok €"
    assert redact({"a": [{"b": f"x {text}"}], "n": 1}) == {"a": [{"b": f"x {marker}"}], "n": 1}
    assert redact({text: 1}) == {marker: 1}
    inside = json.dumps({"to": text, "n": 1, "deep": json.dumps([text])})
    assert json.loads(redact(inside)) == {"to": marker, "n": 1, "deep": json.dumps([marker])}
    assert text not in redact(inside[:-1])  # cut off, it is no JSON any more
    both = redact(f"{text} {HIDDEN[0][1]}")
    assert text not in both and HIDDEN[0][1] not in both


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in PII.items() for text in texts])
def test_what_contracts_find_is_what_is_hidden(kind: str, text: str) -> None:
    """The cases are those of `excludes_pii`, which uses the same list."""
    hidden = redact(text)
    if kind == "none":
        assert hidden == text
    else:
        kinds = [own for own, name in FOUND.items() if name == kind] or [kind]
        assert any(f"[redacted: {own}]" in hidden for own in kinds)


def test_values_under_the_name_of_a_secret_are_redacted() -> None:
    value = {"password": "hunter2", "db_password": "x", "max_tokens": 5, "api_key": "", "token_count": "7"}
    assert redact(value) == {**value, "password": "[redacted: secret]", "db_password": "[redacted: secret]"}
    assert redact('{"password": "hun\\"ter2", "a": ') == '{"password": "[redacted: secret]", "a": '
    assert redact('call {"a": 1}') == 'call {"a": 1}'


@pytest.mark.parametrize(
    "text",
    [
        "DB_PASSWORD=%\nPORT=1",
        "password: %",
        "export OPENAI_API_KEY='%'",
        "my password is %.",
        "mysql --password % -h db",
        "curl https://x.example/?access_token=%&page=2",
        "postgres://bot:%@db:5432/shop",
        'the answer was {"user": {"clientSecret": "%"}, "n": 1}',
        '```json\n{"password": "%"}\n```',
        "{'password': '%'}",
        r"logged {\"api_key\": \"%\", \"n\": 1}",
        "<password>%</password>",
        '{"password": "%"',
        '{"a": 1}\n{"refreshToken": "%"}',
        '{"private_key": ["%"]}',
    ],
)
def test_values_under_the_name_of_a_secret_are_redacted_inside_a_text(text: str) -> None:
    value = "hunter2-hunter"
    hidden = redact(text.replace("%", value))
    assert "hunter" not in hidden and "[redacted: secret]" in hidden
    assert redact(hidden) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "reset your password: click the link",
        "the password is case-sensitive",
        "def login(password: str, api_key: Optional[str] = None)",
        "Client(api_key=api_key, password=settings.password, secret=os.environ['X'])",
        "password=getpass.getpass()",
        "max_tokens: 4096, token_count=1500",
        "api_key=$OPENAI_API_KEY password=<your password> secret=***",
        "PWD=/home/jane/project",
        '{"properties": {"password": {"type": "string"}}, "required": ["password"]}',
        '{"token": " the", "logprob": -0.1}',
        "ALTER TABLE orders ADD CONSTRAINT pk_orders_customer_history PRIMARY KEY (id)",
        "git clone git@github.com:org/repo.git",
        "https://example.com:8080/a@b and http://localhost:3000",
        "d437fdeb-c2ad-47e5-8960-475e6a4191a4 toolu_01A09q90qw90lq917835lq9",
        "da39a3ee5e6b4b0d3255bfef95601890afd80709 9783161484100 4006381333931",
        "6fd3322ff1643e1f8d4591058896030b4c99060eb9607e2299552665e72d91b1",  # with a card in it
        "ce71dab22eb30ebfe55a5a4aa4bd7a7b7c2b7f8c7bde075ee83c592bcc999f38",  # and what would prove as an IBAN
        "3601.4932628945826",
        "[0.25, 1e300, 12345678.125]",
        "215\t340\t2024\t17",  # rows of a table
        "  215  340  2024  17",
        "123  45  6789\t3",
        "2019\t2020\t2021\t2022",
        "7\t4111\t1111\t1111\t1111\t8\t9\t10\t11",  # a long row
        "4111      1111      1111      1111",
    ],
)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("card", "4111\u00a01111\u00a01111\u00a01111"),
        ("card", "4111\u20131111\u20131111\u20131111"),
        ("card", "4111.1111.1111.1111"),
        ("iban", "de89370400440532013000"),
        ("iban", "GB82-WEST-1234-5698-7654-32"),
        ("email", "jane.doe%40example.com"),
        *(
            (kind, text.replace(" ", gap))
            for gap in ("\t", "  ", "   ", " \t", "\u00a0 ")
            for kind, text in (
                ("card", "4111 1111 1111 1111"),
                ("card", "3782 822463 10005"),
                ("iban", "DE89 3704 0044 0532 0130 00"),
                ("ssn", "123 45 6789"),
                ("phone", "+49 170 1234567"),
                ("phone", "555 234 5678"),
            )
        ),
        ("card", "4111 - 1111 - 1111 - 1111"),
        ("iban", "GB82 - WEST - 1234 - 5698 - 7654 - 32"),
        ("phone", "+33\u00a06\u00a012\u00a034\u00a056\u00a078"),
        ("token", "Authorization: Basic dXNlcjpwYXNzd29yZA=="),
        ("private key", "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQ\n-----END PGP PRIVATE KEY BLOCK-----"),
        ("api key", "ASIAIOSFODNN7EXAMPLE"),
        ("api key", "github_pat_" + "a1B2" * 12),
        ("api key", "glpat-" + "a1B2" * 5),
        ("api key", "hf_" + "aB" * 17),
        ("api key", "npm_" + "a1B2" * 9),
        ("api key", "sk_live_" + "a1B2" * 6),
    ],
)
def test_other_spellings_of_secrets_are_redacted(kind: str, text: str) -> None:
    assert redact(f"see {text} there") == f"see [redacted: {kind}] there"


def test_the_cells_beside_a_number_stay() -> None:
    assert redact("17\t4111\t1111\t1111\t1111\t12") == "17\t[redacted: card]\t12"
    assert redact("7  4111  1111  1111  1111 | DE89\t3704\t0044\t0532\t0130\t00\tJANE\t5") == (
        "7  [redacted: card] | [redacted: iban]\tJANE\t5"
    )
    assert redact("+49 170 1234567\t17") == "[redacted: phone]\t17"
    assert redact("1\t555-234-5678\t20\t30") == "1\t[redacted: phone]\t20\t30"


def test_numbers_under_the_name_of_a_secret_are_redacted() -> None:
    hidden = redact({"password": 12345678, "cvv": 123, "secret": True, "api_key": None, "refresh_token": [7]})
    gone = "[redacted: secret]"
    assert hidden == {"password": gone, "cvv": gone, "secret": True, "api_key": None, "refresh_token": [gone]}


def test_card_numbers_are_redacted() -> None:
    assert redact({"card": 4111111111111111.0}) == {"card": "[redacted: card]"}
    assert redact({"card": 4111111111111111, "at": 1700000000000}) == {"card": "[redacted: card]", "at": 1700000000000}
    assert json.loads(redact('{"card": 4111111111111111}')) == {"card": "[redacted: card]"}


def test_texts_without_secrets_are_not_changed() -> None:
    for text in ("", "{", '{"a":  1.50,\n "b": null}', "order 17 of 2024-01-02", "{not json}", "[1, 2", "x" * 5000):
        assert redact(text) == text


def test_keys_that_are_redacted_alike_stay_distinct() -> None:
    hidden = redact({"a@x.com": 1, "b@x.com": 2, "c@x.com": 3})
    assert list(hidden.values()) == [1, 2, 3]
    assert list(hidden) == ["[redacted: email]", "[redacted: email] 2", "[redacted: email] 3"]


def test_what_overlaps_goes_as_one() -> None:
    own = recording_redactor({"name": "jane", "all": "jane.doe@ex"})
    assert own("to jane.doe@example.com now") == "to [redacted: email] now"
    assert recording_redactor({"left": "abc", "right": "cde"})("xabcdey") == "x[redacted: left]y"


def test_what_is_too_large_or_too_deep_is_left_out() -> None:
    assert redact("x" * (LONGEST + 1)) == "[redacted: long text]"
    deep: Any = "bottom"
    for _ in range(MOST_DEPTH + 50):
        deep = [deep]
    assert "[redacted: deep value]" in json.dumps(redact(deep))
    assert redact("[" * 100_000)[0] == "["


def test_a_private_key_that_is_cut_off_is_redacted() -> None:
    cut = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw"
    assert redact(f"see {cut}") == "see [redacted: private key]"
    assert redact("-----BEGIN CERTIFICATE-----\nabc") == "-----BEGIN CERTIFICATE-----\nabc"


@given(st.text(max_size=60), st.text(max_size=60), st.sampled_from(HIDDEN[:14]))
def test_whatever_stands_around_it(before: str, after: str, hidden: tuple[str, str]) -> None:
    """A secret between spaces or brackets is always found, and redacting twice changes nothing more."""
    _, text = hidden
    out = redact(f"{before} <{text}> {after}")
    assert text not in out
    assert redact(out) == out


@pytest.mark.parametrize(
    "unit",
    [
        "a@", "1 ", "+1", "GB82", "eyJ", '{"password": "', "-----BEGIN PRIVATE KEY-----", "[{", "de89 ", "a%40",
        "password=", "secret is ", "--api-key ", "<secret>", "a://b:", "a://b:c@", '\\"secret\\": \\"', "4111.1111.",
        "1\t", "4111\t", "4111  1111 - ", "555 234 5678  ",
    ],
)  # fmt: skip
def test_hostile_texts_take_linear_time(unit: str) -> None:
    import time

    def taken(count: int) -> float:
        text = (unit * count)[: len(unit) * count]
        fresh = recording_redactor()
        began = time.process_time()
        fresh(text)
        return time.process_time() - began

    short = min(taken(600) for _ in range(3))
    assert min(taken(4_800) for _ in range(2)) < 30 * max(short, 0.001)


# In recordings


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_no_secret_is_in_the_file(tmp_path: Path, server: Server, provider: str, streamed: bool) -> None:
    """A stream is searched as a whole: the server splits every event, and the digits of a card."""
    path = tmp_path / "run.jsonl"
    with bylaw.record(path):
        reported = ask(server.url, provider, f"secret: my card is {CARD}, mail jane@example.com", streamed=streamed)
        assert CARD in reported and KEY in reported  # the agent has it all
    written = path.read_text()
    assert CARD not in written and KEY not in written and "jane@" not in written
    assert "Your card [redacted: card] and your key [redacted: api key]." in written
    assert "my card is [redacted: card], mail [redacted: email]" in written


def test_every_part_of_a_turn_is_redacted(tmp_path: Path, server: Server) -> None:
    path = tmp_path / "run.jsonl"
    asked: list[Any] = [
        {"role": "system", "content": f"the key is {KEY}"},
        {"role": "user", "content": [{"type": "text", "text": f"card {CARD}"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "pay", "arguments": json.dumps({"password": "hunter2", "card": CARD})},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"iban": "DE89370400440532013000"})},
    ]
    tools: Any = [{"type": "function", "function": {"name": "pay", "description": "ask bob@example.com"}}]
    with bylaw.record(path, patterns={"order": r"ORD-\d+"}), openai_client(server.url) as client:
        client.chat.completions.create(
            model=MODEL, messages=asked, tools=tools, metadata={"order": "ORD-77"}, user="jane@example.com"
        )
    written = path.read_text()
    for secret in (KEY, CARD, "hunter2", "DE89", "bob@", "ORD-77", "jane@", "sk-1"):
        assert secret not in written, secret
    for kind in ("api key", "card", "secret", "iban", "email", "order"):
        assert f"[redacted: {kind}]" in written


@pytest.mark.parametrize("shown", range(30, 80, 5))
def test_an_error_that_would_be_cut_inside_a_key_is_redacted_first(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, shown: int
) -> None:
    monkeypatch.setattr(recording, "MOST_OF_ERROR", shown)
    with bylaw.record(tmp_path / "run.jsonl") as made, pytest.raises(openai.AuthenticationError):
        ask(server.url, "openai", "status 401")
    written = (tmp_path / "run.jsonl").read_text()
    assert made.errors == 1 and '"model_error"' in written
    assert KEY[:4] not in written


def test_redaction_can_be_switched_off(tmp_path: Path, server: Server) -> None:
    with bylaw.record(tmp_path / "run.jsonl", redact=False):
        ask(server.url, "openai", f"card {CARD}")
    written = (tmp_path / "run.jsonl").read_text()
    assert f"card {CARD}" in written and '"redacted":false' in written


def test_a_rule_can_match_a_redaction_marker(tmp_path: Path, server: Server) -> None:
    path, rules = tmp_path / "run.jsonl", tmp_path / "rules.yaml"
    rules.write_text("""
rules:
  - {id: no-card-is-repeated, kind: forbidden_text, params: {text: "[redacted: card]"}}
  - {id: looks-first, kind: must_call_before, params: {first: find_order, second: refund}}
  - {id: short, kind: max_turns, params: {limit: 5}}
""")
    with bylaw.record(path):
        ask(server.url, "openai", "use the tool")
    clean = json.loads(run_bylaw(["check", str(path), "--policy", str(rules), "--format", "json"]).stdout)
    with bylaw.record(path):
        ask(server.url, "anthropic", "secret", streamed=True)
    reported = json.loads(run_bylaw(["check", str(path), "--policy", str(rules), "--format", "json"]).stdout)
    assert clean["exit_code"] == 0 and reported["exit_code"] == 1
    (finding,) = [one for one in reported["findings"] if one["outcome"] == "violated"]
    assert (finding["rule"], finding["turn"]) == ("no-card-is-repeated", 1)


def test_random_values_without_secrets_are_not_changed() -> None:
    """A value without secrets is written as it is."""
    chance = random.Random(5)
    words = ["order", "Bern", "4711", "2024-05-01", "é€", "null", "[x]", "{}", "a.b", "10.0.0.1", "v1.2.3"]

    def value(depth: int) -> Any:
        kind = chance.choice("sndlb" if depth < 4 else "snb")
        if kind == "s":
            return " ".join(chance.choices(words, k=chance.randrange(6)))
        if kind == "l":
            return [value(depth + 1) for _ in range(chance.randrange(4))]
        if kind == "d":
            return {"".join(chance.choices(string.ascii_letters, k=5)): value(depth + 1) for _ in range(3)}
        return chance.choice([None, True, 0, 17, 2.5, -3])

    for _ in range(300):
        made = value(0)
        assert redact(made) == made
        assert redact(json.dumps(made)) == json.dumps(made)


# In objects and by paths


@pytest.mark.parametrize(
    "value",
    [
        {"password": {"value": "hunter2hunter"}},
        {"password": [{"value": "hunter2hunter"}]},
        {"password": {"old": "hunter2hunter", "new": {"text": "hunter2hunter"}}},
        {"a": '{"password":["hunter2hunter"]}'},
        {"a": "password: |\n  hunter2hunter\n"},
        {"a": "postgres://u:p@hunter2hunter@h/db"},
        {"pass\u200bword": "hunter2hunter"},
        {"\uff50assword": "hunter2hunter"},
    ],
)
def test_a_secret_is_found_in_whatever_form_its_name_gives_it(value: Any) -> None:
    assert "hunter2" not in json.dumps(Redactor()(value))


def test_the_description_of_a_parameter_is_no_secret() -> None:
    parameters = {"properties": {"password": {"type": "string", "description": "at least 8 characters"}}}
    assert Redactor()(parameters) == parameters


@pytest.mark.parametrize("path", ["customer.name", "/customer/name", "customer['name']", 'customer["name"]'])
def test_a_masked_path_may_be_spelled_as_in_rules(path: str) -> None:
    mask = Redactor(Redaction(mask=[path]))
    assert mask({"customer": {"name": "Mary"}}) == {"customer": {"name": "[redacted: masked]"}}
    assert mask({"customer": [{"name": "Mary"}]}) == {"customer": [{"name": "[redacted: masked]"}]}


@pytest.mark.parametrize("path", ["$.customer.name", "customer..name", "customer.name ", "customer[", "."])
def test_a_path_that_would_mask_nothing_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is no path"):
        Redaction(mask=[path])


def test_a_masked_index_may_count_from_the_end() -> None:
    assert Redactor(Redaction(mask=["a[-1]"]))({"a": [1, 2]}) == {"a": [1, "[redacted: masked]"]}
